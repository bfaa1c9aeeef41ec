"""The bridge writes in the agent's home and nowhere else, whatever the agent has put there."""

import os
from pathlib import Path

import pytest

from sandbox.agents.core import HomeFile, HomeMove
from sandbox.bridge.agent import home
from sandbox.bridge.agent.home import MOST_ASIDE


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (own := tmp_path / "home").mkdir()
    return own


def test_a_file_is_written_for_its_owner_alone_and_takes_the_place_of_what_was_there(own: Path) -> None:
    home.write(own, HomeFile("a/b/file", b"one"))
    home.write(own, HomeFile("a/b/file", b"two"))
    assert [path.name for path in (own / "a/b").iterdir()] == ["file"]
    assert (own / "a/b/file").read_bytes() == b"two"
    assert ((own / "a/b/file").stat().st_mode & 0o777, (own / "a").stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_linked_file_is_replaced_and_not_followed(own: Path) -> None:
    (own.parent / "outside" / "file").write_text("kept")
    (own / "file").symlink_to(own.parent / "outside" / "file")
    home.write(own, HomeFile("file", b"new"))
    assert (own / "file").read_bytes() == b"new"
    assert (own.parent / "outside" / "file").read_text() == "kept"


@pytest.mark.parametrize("link", ["../outside", "../../{}/outside", "/"])
def test_a_directory_that_leads_out_of_the_home_is_not_written_to(own: Path, link: str) -> None:
    (own / "away").symlink_to(link.format(own.parent.name))
    with pytest.raises(OSError, match="out of the home"):
        home.write(own, HomeFile("away/deep/file", b"new"))
    assert list((own.parent / "outside").iterdir()) == []


def test_a_directory_may_be_a_link_to_another_one_of_the_home(own: Path) -> None:
    (own / "dotfiles").mkdir()
    (own / ".codex").symlink_to("dotfiles")
    home.write(own, HomeFile(".codex/rules/file", b"new"))
    assert (own / "dotfiles/rules/file").read_bytes() == b"new"
    assert home.found(own, [".codex/rules/file"]) == (".codex/rules/file",)


def test_a_home_may_itself_lie_behind_a_link(own: Path) -> None:
    (own.parent / "linked").symlink_to(own)
    home.write(own.parent / "linked", HomeFile("a/file", b"new"))
    assert home.found(own.parent / "linked", ["a/f*"]) == ("a/f*",)


def test_what_is_no_directory_is_none(own: Path) -> None:
    (own / "a").write_text("a file")
    with pytest.raises(NotADirectoryError):
        home.write(own, HomeFile("a/file", b"new"))
    (own / "round").symlink_to("round")
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        home.write(own, HomeFile("round/file", b"new"))
    assert home.found(own, ["round/file", "a/file"]) == ()


@pytest.mark.parametrize("pattern", ["away/old*", "away/old-1", "*/old*"])
def test_what_lies_behind_a_link_out_of_the_home_is_neither_found_nor_moved(own: Path, pattern: str) -> None:
    (own.parent / "outside" / "old-1").write_text("kept")
    (own / "away").symlink_to(own.parent / "outside")
    assert home.found(own, [pattern]) == ()
    home.move(own, HomeMove(pattern, "new"))
    assert os.listdir(own.parent / "outside") == ["old-1"]


def test_what_is_put_aside_overwrites_nothing(own: Path) -> None:
    names = {"new": "named", "old-1.aside": "aside before", "old-1": "one"}
    for name, text in names.items():
        (own / name).write_text(text)
    home.move(own, HomeMove("old-1", "new"))
    (own / "old-1").write_text("another")
    home.move(own, HomeMove("old-1", "new"))
    found = {path.name: path.read_text() for path in own.iterdir()}
    aside = {"old-1.aside": "aside before", "old-1.aside2": "one", "old-1.aside3": "another"}
    assert found == {"new": "named", **aside}


def test_what_cannot_be_put_aside_any_more_stays(own: Path) -> None:
    for name in ("new", "old", "old.aside", *(f"old.aside{n}" for n in range(2, MOST_ASIDE + 1))):
        (own / name).write_text(name)
    home.move(own, HomeMove("old", "new"))
    assert (own / "old").read_text() == "old"


def test_a_name_that_is_a_broken_link_is_taken(own: Path) -> None:
    (own / "new").symlink_to("nowhere")
    (own / "old").write_text("old")
    home.move(own, HomeMove("old", "new"))
    assert (own / "old.aside").read_text() == "old"
    assert (own / "new").is_symlink()


def test_configuration_is_written_where_there_is_none(own: Path) -> None:
    (own / ".mine").write_text("mine")
    (own / ".dangling").symlink_to("nowhere")
    outside = own.parent / "outside"
    (own / ".out").symlink_to(outside)
    home.write_missing(own, dict.fromkeys((".mine", ".dangling", ".out/x", ".new/file"), "ours"))
    assert ((own / ".mine").read_text(), (own / ".new/file").read_text()) == ("mine", "ours")
    assert (own / ".dangling").is_symlink()
    assert list(outside.iterdir()) == []
