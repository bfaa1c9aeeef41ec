"""Copying trees that programs change meanwhile: one entry that cannot be copied costs nobody the rest."""

import errno
import os
from pathlib import Path

import pytest

from gateway.backup.copying import Copier


class TwiceNamed(Copier):
    """Finds each entry once more: a file system may name again what is renamed over while a directory is read."""

    def _entry(self, entry: os.DirEntry[str], here: int, there: int, path: Path, depth: int) -> None:
        super()._entry(entry, here, there, path, depth)
        super()._entry(entry, here, there, path, depth)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "directory").mkdir(parents=True)
    (source / "directory" / "inner").write_text("inner")
    (source / "file").write_text("content")
    (source / "link").symlink_to("file")
    return source


def test_what_is_named_twice_is_copied_once(source: Path, tmp_path: Path) -> None:
    copier = TwiceNamed(changes=True)
    copier.tree(source, tmp_path / "copy")
    assert copier.left_out == 0
    assert (tmp_path / "copy" / "directory" / "inner").read_text() == "inner"
    assert (tmp_path / "copy" / "file").read_text() == "content"
    assert os.readlink(tmp_path / "copy" / "link") == "file"


def test_nothing_is_overwritten_where_the_source_stands_still(source: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "file").write_text("theirs")
    with pytest.raises(FileExistsError):
        Copier().tree(source, tmp_path / "copy")
    assert (tmp_path / "copy" / "file").read_text() == "theirs"


def test_a_file_that_is_too_large_for_the_target_is_left_out(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truncate = os.ftruncate

    def bounded(descriptor: int, size: int) -> None:
        if size > 100:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        truncate(descriptor, size)

    monkeypatch.setattr(os, "ftruncate", bounded)
    (source / "large").write_bytes(b"x" * 200)
    copier = Copier()
    copier.tree(source, tmp_path / "copy")
    assert sorted(each.name for each in (tmp_path / "copy").iterdir()) == ["directory", "file", "link"]
    assert (copier.left_out, copier.left_out_names) == (1, [f"{source}/large: File too large"])


def test_names_of_what_is_left_out_say_nothing_to_a_terminal(source: Path, tmp_path: Path) -> None:
    os.mkfifo(os.fsencode(source) + b"/\x1b]0;mine\x07\xff")
    copier = Copier()
    copier.tree(source, tmp_path / "copy")
    assert copier.left_out_names[0].isprintable()
