"""A tree gets another owner, and nothing outside it does."""

import inspect
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.system import give_away
from sandbox.system.give_away import give_tree

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
UID, GID = 12345, 12346


def owner(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid


def test_all_of_a_tree_changes_hands_and_nothing_that_its_links_lead_to(tmp_path: Path) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    (tree / "a/b").mkdir(parents=True)
    (tree / "empty").mkdir()
    outside.mkdir()
    (outside / "file").touch()
    (tree / "a/b/file").touch()
    (tree / "a/to-file").symlink_to(outside / "file")
    (tree / "a/to-directory").symlink_to(outside)
    (tree / "a/to-nothing").symlink_to("nothing")
    os.mkfifo(tree / "fifo")
    give_tree(tree, UID, GID)
    found = {path.relative_to(tree): owner(path) for path in tree.rglob("*")}
    assert len(found) == 8
    assert {*found.values(), owner(tree)} == {(UID, GID)}
    assert {owner(tmp_path), owner(outside), owner(outside / "file")} == {(0, 0)}


def test_a_link_in_place_of_the_tree_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "tree").symlink_to("outside")
    with pytest.raises(NotADirectoryError):
        give_tree(tmp_path / "tree", UID, GID)
    assert owner(tmp_path / "outside") == (0, 0)


def test_depth_costs_neither_stack_nor_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_now, most, opening, closing = 0, 0, os.open, os.close

    def opened(*args: Any, **kwargs: Any) -> int:
        nonlocal open_now, most
        number = opening(*args, **kwargs)
        open_now += 1
        most = max(most, open_now)
        return number

    def closed(number: int) -> None:
        nonlocal open_now
        closing(number)
        open_now -= 1

    tree = tmp_path / "tree"
    deep = tree.joinpath(*["d"] * 300)
    deep.mkdir(parents=True)
    (deep / "file").touch()
    limit = sys.getrecursionlimit()
    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "close", closed)
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        give_tree(tree, UID, GID)
    finally:
        sys.setrecursionlimit(limit)
    assert owner(deep / "file") == (UID, GID)
    assert (open_now, most) == (0, 2)


def swapped_for_a_link(inner: Path, outside: Path) -> None:
    inner.rename(inner.with_name(secrets.token_hex(4)))
    inner.symlink_to(outside)


def moved_elsewhere(inner: Path, outside: Path) -> None:
    inner.rename(outside / "inner")


@pytest.mark.parametrize(("when", "what"), [(1, swapped_for_a_link), (2, moved_elsewhere)])
def test_what_is_moved_meanwhile_ends_it(
    when: int, what: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a program that should not run any more: before a directory is entered, and before it is left."""
    inner, outside, looks = tmp_path / "tree/inner", tmp_path / "outside", 0
    inner.mkdir(parents=True)
    outside.mkdir()
    (outside / "file").touch()
    give = give_away._give

    def giving(at: int, uid: int, gid: int) -> list[str]:
        nonlocal looks
        looks += 1
        names = give(at, uid, gid)
        if looks == when:
            what(inner, outside)
        return names

    monkeypatch.setattr(give_away, "_give", giving)
    with pytest.raises(OSError, match=r"Not a directory|was moved"):
        give_tree(tmp_path / "tree", UID, GID)
    assert {owner(outside), owner(outside / "file")} == {(0, 0)}
