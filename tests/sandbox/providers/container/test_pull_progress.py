"""How far a pull has come."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.ports.progress import ImagePull
from sandbox.providers.container.pull_progress import _STEPS, MOST_LAYERS, PullProgress


def said(layer: str, status: str, current: Any = None, total: Any = None) -> dict[str, Any]:
    detail = {} if current is None else {"current": current, "total": total}
    return {"id": layer, "status": status, "progressDetail": detail}


def test_dockers_words_count_layers_and_bytes() -> None:
    pull = PullProgress("debian:12")
    assert not pull.heard({"id": "12", "status": "Pulling from library/debian"})
    assert pull.view == ImagePull("debian:12")
    for layer in ("a", "b", "c"):
        assert pull.heard(said(layer, "Pulling fs layer"))
    assert pull.heard(said("a", "Already exists"))
    assert pull.heard(said("b", "Downloading", 10, 100))
    assert pull.view == ImagePull("debian:12", layers=1, of_layers=3, bytes=10, of_bytes=100)
    assert pull.heard(said("c", "Downloading", 5, 50))
    assert pull.heard(said("b", "Verifying Checksum"))
    assert pull.heard(said("b", "Download complete"))
    assert pull.view == ImagePull("debian:12", layers=2, of_layers=3, bytes=105, of_bytes=150)
    assert pull.heard(said("b", "Extracting", 1, 100))
    assert pull.heard(said("b", "Extracting", 2, 100))
    assert not pull.heard(said("b", "Extracting", 2, 100))
    assert pull.heard(said("b", "Pull complete"))
    assert not pull.heard({"status": "Digest: sha256:0"})
    assert pull.view == ImagePull("debian:12", layers=2, of_layers=3, bytes=105, of_bytes=150)


def test_podmans_words_count_layers() -> None:
    pull = PullProgress("x")
    for word in ("Pulling fs layer", "Download complete"):
        assert pull.heard(said("a", word))
    assert not pull.heard(said("a", "Download complete"))
    assert pull.view == ImagePull("x", layers=1, of_layers=1)


def test_words_alone_are_no_progress() -> None:
    pull = PullProgress("x")
    assert pull.heard(said("a", "Downloading", 10, 100))
    for seconds in range(5):
        assert not pull.heard(said("a", f"Retrying in {seconds} seconds"))
    for again in (said("a", "Downloading", 3, 100), said("a", "Waiting"), said("a", "Downloading", 10, 100)):
        assert not pull.heard(again)
    assert pull.heard(said("a", "Downloading", 11, 100)), "it is beyond where it was"


@pytest.mark.parametrize("odd", [None, "much", -1, 1.5, 1 << 60, True, []])
def test_an_engine_that_is_odd_counts_nothing_wrong(odd: Any) -> None:
    pull = PullProgress("x")
    pull.heard({"id": "a", "status": "Downloading", "progressDetail": odd})
    pull.heard(said("a", "Downloading", odd, odd))
    assert pull.view.bytes <= 1
    assert not pull.heard({"id": "b", "status": odd})
    assert isinstance(odd, str) or not pull.heard({"id": odd, "status": "Downloading"})


def test_there_is_an_end_to_layers() -> None:
    pull = PullProgress("x")
    for number in range(MOST_LAYERS + 10):
        pull.heard(said(str(number), "Waiting"))
    assert pull.view.of_layers == MOST_LAYERS


STEPS = st.sampled_from([*_STEPS, "Retrying in 1 second"])
MESSAGES = st.builds(said, st.sampled_from("abc"), STEPS, st.integers(0, 9), st.integers(0, 9))


@given(st.lists(MESSAGES))
def test_what_is_shown_never_goes_back_and_changes_only_with_progress(messages: list[dict[str, Any]]) -> None:
    pull, before = PullProgress("x"), ImagePull("x")
    for message in messages:
        further = pull.heard(message)
        now = pull.view
        assert further or now == before
        assert (now.layers, now.of_layers, now.bytes) >= (before.layers, 0, 0)
        assert now.of_layers >= before.of_layers
        assert now.bytes >= before.bytes
        assert now.layers <= now.of_layers
        assert now.bytes <= now.of_bytes
        before = now
