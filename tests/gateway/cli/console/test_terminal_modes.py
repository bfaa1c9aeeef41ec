"""What a program may leave behind in a terminal, and how it is undone."""

import pytest

from gateway.cli.console.terminal_modes import ModeTracker


def left_by(modes: ModeTracker) -> bool:
    """Whether the alternate screen is left."""
    return b"\x1b[?1049l" in modes.undo()


@pytest.mark.parametrize("mode", [b"47", b"1047", b"1049", b"25;1049"])
def test_the_alternate_screen_is_left_if_it_is_on(mode: bytes) -> None:
    for at in range(4 + len(mode)):
        modes = ModeTracker()
        on, off = b"\x1b[?" + mode + b"h", b"\x1b[?" + mode + b"l"
        modes.wrote(b"x" + on[:at])
        modes.wrote(on[at:] + b"y")
        assert left_by(modes)
        modes.wrote(off[:at])
        modes.wrote(off[at:])
        assert not left_by(modes)


def test_other_modes_and_a_reset_are_told_apart() -> None:
    modes = ModeTracker()
    modes.wrote(b"\x1b[?25h\x1b[?2004h\x1b[1049h")
    assert not left_by(modes)
    modes.wrote(b"\x1b[?1049h\x1b[?25l")
    assert left_by(modes)
    modes.wrote(b"\x1bc")
    assert not left_by(modes)


def test_undoing_takes_back_mouse_paste_cursor_and_colours_and_clearing_leaves_the_scrollback() -> None:
    undone = ModeTracker().undo()
    for mode in (b"1000", b"1002", b"1003", b"1006", b"2004", b"1004"):
        assert mode in undone.split(b"l")[0]
    assert b"25h" in undone
    assert b"\x1b[m" in undone
    cleared = ModeTracker().clear()
    assert cleared.endswith(b"\x1b[2J")
    assert b"\x1bc" not in cleared
    assert b"\x1b[3J" not in cleared
