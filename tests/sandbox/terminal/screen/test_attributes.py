"""How cells look, as one character each."""

import re

from hypothesis import given
from hypothesis import strategies as st

from sandbox.terminal.screen.attributes import DEFAULT, Look, Palette, latest

CODES = st.sampled_from(
    [*map(str, range(30)), "31", "45", "92", "107", "38;5;200", "48;2;1;2;3", "38:2::255:0:1", "4:3", "58:5:7", "53"]
)


def palette() -> Palette:
    return Palette(list)


@given(st.lists(CODES, max_size=8))
def test_what_sets_a_look_sets_it_again(codes: list[str]) -> None:
    looks = palette()
    name = DEFAULT
    for code in codes:
        name = looks.step(name, code)
    again = looks.step(DEFAULT, "31;44;1;4")
    for params in re.findall(r"\x1b\[([0-9;:]*)m", looks.sequence(name)):
        again = looks.step(again, params)
    assert looks.look(again) == looks.look(name)


@given(st.lists(CODES, max_size=8))
def test_one_step_at_a_time_or_all_at_once(codes: list[str]) -> None:
    looks = palette()
    name = DEFAULT
    for code in codes:
        name = looks.step(name, code)
    assert looks.step(DEFAULT, ";".join(codes) or "0") == name


def test_erasing_leaves_the_background_and_nothing_else() -> None:
    looks = palette()
    name = looks.step(DEFAULT, "1;3;4;31;44")
    erased = looks.erased(name)
    assert looks.is_erased(erased)
    assert not looks.is_erased(name)
    assert erased == looks.step(DEFAULT, "44")


def test_protection_is_part_of_a_look_and_an_underline_is_not_saved() -> None:
    looks = palette()
    protected = looks.protect(DEFAULT, True)
    assert looks.is_protected(protected)
    assert looks.protect(protected, False) == DEFAULT
    underlined = looks.step(DEFAULT, "4:3")
    assert looks.look(looks.restored(Look(fg=1), underlined)) == Look(1, 0, looks.look(underlined).line)


@given(st.lists(CODES, max_size=12))
def test_the_latest_colours_are_enough(codes: list[str]) -> None:
    looks = palette()
    whole = short = DEFAULT
    for code in codes:
        whole = looks.step(whole, code)
    for code in latest(codes):
        short = looks.step(short, code)
    assert short == whole
