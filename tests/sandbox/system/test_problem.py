"""Why a tree cannot be read, in words for whoever owns it."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.system.problem import LONGEST_SHOWN, UnreadableFile, is_forbidden, printable, unreadable


@given(st.binary(max_size=6000))
def test_any_path_can_be_shown(path: bytes) -> None:
    shown = printable(path)
    assert shown.isprintable()
    assert len(shown) <= 210


def test_a_path_is_shown_as_it_is_where_that_is_possible() -> None:
    assert printable("workspace/häuser".encode()) == "workspace/häuser"
    assert printable(b"a\n\x1b\xff") == "a\\n\\x1b\\xff"
    assert "a: it cannot be opened" not in unreadable("a", PermissionError(13, "Permission denied")).error
    assert "it cannot be opened" in unreadable("a", OSError()).error


@pytest.mark.parametrize(
    ("number", "forbidden"), [(errno.EACCES, True), (errno.EPERM, True), (errno.EIO, False), (errno.ENOENT, False)]
)
def test_only_a_mode_makes_one_file_unreadable(number: int, forbidden: bool) -> None:
    error = OSError(number, "why")
    problem = unreadable("workspace/a\n", error)
    assert (isinstance(problem, UnreadableFile), is_forbidden(error)) == (forbidden, forbidden)
    assert problem.code == "failed"
    assert problem.error.startswith("workspace/a\\n cannot be read: why: make it readable")


def test_a_long_path_is_shown_by_its_ends() -> None:
    path = b"a" * 150 + b"b" * 300 + b"c" * 150
    assert printable(path) == "a" * 100 + "..." + "c" * 100
    assert printable(b"a" * LONGEST_SHOWN) == "a" * LONGEST_SHOWN
