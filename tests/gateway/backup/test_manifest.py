"""What a backup says about itself: it comes back as it was written, and anything else is refused in words."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.backup.manifest import FORMAT, BackupManifest, BadBackup, decode, encode

NOTE = BackupManifest("0.1", "2026-01-01T00:00:00+00:00", "sqlite", "file", 3, 100, 7, 4096, 0)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


def test_it_comes_back_as_it_was_written() -> None:
    assert decode(encode(NOTE)) == NOTE


def test_a_newer_format_says_what_to_restore_it_with() -> None:
    text = encode(NOTE).replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}')
    with pytest.raises(BadBackup, match=r"newer version: restore it with that one \(0.1\)"):
        decode(text)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_copy_that_lacks_files_is_not_whole(files: int, links: int, lost: int) -> None:
    taken = replace(NOTE, files=files + lost, bytes=10 * (files + lost))
    assert taken.is_whole(files, 10 * files, links) == (lost == 0)
    earlier = replace(taken, format=1)  # its number may have links in it
    assert earlier.is_whole(files, 10 * files, links) == (lost <= links)


@given(JSON, st.sampled_from(["format", "version", "at", "store", "objects", "sessions", "files", "more"]))
def test_a_note_with_anything_else_in_it_is_refused_or_read(value: Any, name: str) -> None:
    members = json.loads(encode(NOTE)) | {name: value}
    with suppress(BadBackup):
        assert getattr(decode(json.dumps(members)), name) == value


@given(st.text(max_size=30) | JSON.map(json.dumps))
def test_what_is_no_note_is_refused(text: str) -> None:
    with pytest.raises(BadBackup):
        decode(text)
