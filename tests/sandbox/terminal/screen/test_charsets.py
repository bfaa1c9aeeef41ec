"""Sets of characters that a program may have its ASCII shown in."""

import pytest

from sandbox.terminal.screen.charsets import PLAIN, TABLES, sent_for


@pytest.mark.parametrize("charset", TABLES)
def test_what_is_sent_for_a_character_shows_it(charset: str) -> None:
    for sent, shown in TABLES[charset].items():
        assert chr(sent).isascii()
        assert len(shown) == 1
        assert sent_for(shown, charset).translate(TABLES[charset]) == shown


def test_lines_are_drawn_with_letters() -> None:
    assert "lqk".translate(TABLES["0"]) == "┌─┐"
    assert "".join(sent_for(shown, "0") for shown in "┌─┐x") == "lqkx"


@pytest.mark.parametrize("charset", [PLAIN, "no such set"])
def test_ascii_and_sets_that_are_not_known_show_what_is_sent(charset: str) -> None:
    assert sent_for("q", charset) == "q"
