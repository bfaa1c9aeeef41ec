"""What a program told the terminal that has no effect on the screen."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.terminal.screen.modes import Modes

NUMBERS = (1, 5, 9, 12, 25, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 2004, 9999)


def replayed(sequences: str) -> Modes:
    """The modes of a terminal that was sent this."""
    modes = Modes()
    for private, number, how in re.findall(r"\x1b\[(\?)?(\d+)(h|l| q)", sequences):
        if private:
            modes.set(int(number), how == "h")
        else:
            modes.set_cursor(int(number))
    modes.keypad = sequences.endswith("\x1b=")
    return modes


@given(st.lists(st.tuples(st.sampled_from(NUMBERS), st.booleans())), st.none() | st.integers(0, 9))
def test_what_was_set_is_set_again_by_its_sequences(told: list[tuple[int, bool]], cursor: int | None) -> None:
    modes = Modes()
    for number, on in told:
        modes.set(number, on)
    if cursor is not None:
        modes.set_cursor(cursor)
    assert replayed(modes.sequences()).sequences() == modes.sequences()


@pytest.mark.parametrize(("first", "second"), [(1000, 1003), (1006, 1016)])
def test_of_some_only_one_is_on_at_a_time(first: int, second: int) -> None:
    modes = Modes()
    modes.set(first, True)
    modes.set(second, True)
    assert f"?{first}h" not in modes.sequences()
    assert f"?{second}h" in modes.sequences()
    modes.set(first, False)
    assert f"?{second}h" not in modes.sequences()


def test_a_reset_leaves_a_hidden_cursor_hidden_and_a_soft_one_shows_it() -> None:
    modes = Modes()
    for number in NUMBERS:
        modes.set(number, number != 25)
    modes.soft_reset()
    assert not modes.hidden
    assert (modes.mouse, modes.encoding) == (1003, 1016)
    modes.set(25, False)
    modes.reset()
    assert modes == Modes(hidden=True, blink=True)


@pytest.mark.parametrize(("number", "style"), [(1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (6, 5), (0, 0)])
def test_a_cursor_has_a_style_and_blinks_or_not(number: int, style: int) -> None:
    modes = Modes()
    modes.set_cursor(number)
    assert (modes.style, modes.steady) == (style, None if number == 0 else number % 2 == 0)
