"""How many cells a character takes."""

import re

import pytest

from sandbox.terminal.screen.widths import NARROW, WIDE, ZERO, is_wide, is_zero


@pytest.mark.parametrize("character", "世가「㍿\U00020000")
def test_wide_characters_take_two_cells(character: str) -> None:
    assert is_wide(character)
    assert not is_zero(character)


@pytest.mark.parametrize("character", ["\u0301", "\u200b", "\u200d", "\ufe0f", "\U000e0100"])
def test_what_joins_takes_none(character: str) -> None:
    assert is_zero(character)
    assert not is_wide(character)


@pytest.mark.parametrize("character", "aä€─😀")
def test_the_rest_takes_one_and_so_does_an_emoji(character: str) -> None:
    assert not is_wide(character)
    assert not is_zero(character)
    assert re.fullmatch(f"[{NARROW}]", character)


def test_every_character_has_exactly_one_width() -> None:
    kinds = [re.compile(f"[{members}]") for members in (NARROW, WIDE, ZERO)]
    for code in [
        *range(0x20, 0x7F),
        *range(0xA0, 0x3100, 7),
        *range(0xFE00, 0xFFFF, 3),
        *range(0x10000, 0x110000, 997),
    ]:
        assert sum(kind.match(chr(code)) is not None for kind in kinds) == 1
