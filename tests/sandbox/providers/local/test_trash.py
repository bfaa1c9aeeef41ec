"""What is thrown away: moved at once, removed later, by one thread that stops for nothing."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sandbox.providers.local.trash import Trash
from sandbox.system.safe_remove import remove_tree
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[4]
STUCK = """
import os, sys, time
from pathlib import Path
from sandbox.providers.local.trash import Trash
os.setgid(65534); os.setuid(65534)
told = []
trash = Trash(Path(sys.argv[1]), told.append)
trash.open()
while set(os.listdir(sys.argv[1])) != {"locked"} or not told: time.sleep(0.01)
os.mkdir(sys.argv[2])
trash.take(Path(sys.argv[2]))
while set(os.listdir(sys.argv[1])) != {"locked"}: time.sleep(0.01)
print(len(told), told[0])
"""


def plant(tree: Path, directories: int = 3) -> Path:
    for number in range(directories):
        (tree / str(number) / "inner").mkdir(parents=True)
        (tree / str(number) / "file").touch()
    return tree


async def test_what_was_left_and_what_is_taken_is_removed_and_what_is_not_there_is_fine(tmp_path: Path) -> None:
    path, told = tmp_path / "trash", list[str]()
    plant(path / "left")
    (path / "file").touch()
    trash = Trash(path, told.append)
    trash.open()
    try:
        trash.take(plant(tmp_path / "tree"))
        trash.take(tmp_path / "missing")
        assert not (tmp_path / "tree").exists()
        await until(lambda: not list(path.iterdir()))
        trash.take(plant(tmp_path / "tree"))
        await until(lambda: not list(path.iterdir()))
    finally:
        trash.close()
    assert told == []


async def test_a_closed_trash_takes_and_leaves_the_rest_to_the_next(tmp_path: Path) -> None:
    path, told = tmp_path / "trash", list[str]()
    path.mkdir()
    first = Trash(path, told.append)
    first.open()
    first.close()
    await until(lambda: not [thread for thread in threading.enumerate() if thread.name == "trash"])
    first.take(plant(tmp_path / "tree"))
    assert len(list(path.iterdir())) == 1
    second = Trash(path, told.append)
    second.open()
    await until(lambda: not list(path.iterdir()))
    second.close()
    assert told == []


async def test_a_symlink_in_the_trashs_place_is_told_of_and_not_followed(tmp_path: Path) -> None:
    theirs, told = plant(tmp_path / "theirs"), list[str]()
    (tmp_path / "trash").symlink_to(theirs)
    trash = Trash(tmp_path / "trash", told.append)
    trash.open()
    await until(lambda: told)
    trash.close()
    assert "could not be emptied" in told[0]
    assert len(list(theirs.rglob("file"))) == 3


async def test_a_symlink_in_the_trash_goes_and_what_it_names_stays(tmp_path: Path) -> None:
    path, theirs = tmp_path / "trash", plant(tmp_path / "theirs")
    (path / "left").mkdir(parents=True)
    (path / "link").symlink_to(theirs)
    (path / "left" / "link").symlink_to(theirs)
    trash = Trash(path, lambda told: None)
    trash.open()
    await until(lambda: not list(path.iterdir()))
    trash.close()
    assert len(list(theirs.rglob("file"))) == 3


def test_two_that_empty_the_same_trash_do_not_fail(tmp_path: Path) -> None:
    trash, failed = tmp_path / "trash", list[OSError]()
    trees = [plant(tmp_path / f"tree{number}", 100) for number in range(8)]

    def remove(tree: Path) -> None:
        try:
            remove_tree(tree, trash)
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=remove, args=(tree,)) for tree in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert list(trash.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what others cannot remove")
def test_what_cannot_be_removed_is_told_once_and_stops_nothing(tmp_path: Path) -> None:
    path = tmp_path / "open" / "trash"
    path.mkdir(parents=True)
    plant(path / "left")
    (path / "locked").mkdir(mode=0o700)
    (path / "locked" / "file").touch()
    for directory in (path.parent, path, *(path / "left").rglob("*"), path / "left"):
        os.chown(directory, 65534, 65534)
    for parent in path.parents:  # pytest's directories are closed to others
        if parent.is_relative_to(tmp_path.parents[1]):
            parent.chmod(parent.stat().st_mode | 0o011)
    argv = [sys.executable, "-c", STUCK, str(path), str(path.parent / "tree")]
    ended = subprocess.run(argv, capture_output=True, cwd=ROOT, timeout=60, check=True)
    assert ended.stdout.startswith(b"1 1 entries of ")
