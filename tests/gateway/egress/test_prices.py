"""What tokens cost."""

import fnmatch
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import gateway.egress.prices
from gateway.egress.meter import Tokens
from gateway.egress.prices import MOST_LINES, NANO, Price, Prices, read_prices

OURS = Path(gateway.egress.prices.__file__).with_name("prices.toml").read_bytes()
counts = st.builds(Tokens, *[st.integers(0, 10**7)] * 4)
prices = st.builds(Price, *[st.integers(0, 10**12)] * 4)


def test_the_file_that_comes_with_us_is_whole() -> None:
    ours = read_prices(OURS)
    sonnet = ours.of("claude-sonnet-4-5-20250929")
    assert sonnet is not None
    million = 10**6
    assert sonnet.cost(Tokens(million, million, million, million)) == int((3 + 15 + 0.3 + 3.75) * NANO)
    assert ours.of("anthropic/claude-sonnet-4.5") == sonnet
    for name in ("claude-opus-9", "gpt-9", "gemini-9-ultra", "gpt-5.1-codex", "o3", "holdfast-trial"):
        assert ours.of(name) is not None, name
    for name in ("", "llama", "my-claude-sonnet-4", "xgpt-5"):
        assert ours.of(name) is None, name


def test_the_operators_lines_come_first() -> None:
    mine = read_prices(b'"GPT-5*" = { input = 0.0000000001, output = 1 }\n"*" = { input = 7, output = 8 }', OURS)
    assert mine.of("gpt-5-mini") == Price(1, NANO, 1, 1), "rounded up"
    assert mine.of("llama") == mine.of("claude-sonnet-4") == Price(7 * NANO, 8 * NANO, 7 * NANO, 7 * NANO)


@given(counts, counts, prices)
def test_costs_are_never_less_than_their_parts_and_never_above_the_most(one: Tokens, two: Tokens, price: Price) -> None:
    assert 0 <= price.cost(one) + price.cost(two) - price.cost(one + two) <= 1
    given_tokens = one.input + one.cache_read + one.cache_write
    assert price.cost(one) <= price.most(given_tokens, one.output)


@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=8))
@example("a", "a")
@example("a*", "b")
@example("a*a", "a")
@example("*b*", "aa")
@example("*a*b*", "ba")
def test_stars_are_those_of_a_shell(pattern: str, name: str) -> None:
    fits = Prices(((pattern, Price(1, 1, 1, 1)),)).of(name) is not None
    assert fits == (bool(name) and fnmatch.fnmatchcase(name, pattern))


def test_names_without_end_take_no_room() -> None:
    ours = read_prices(OURS)
    for number in range(MOST_LINES + 5):
        assert ours.of(f"x{number}") is ours.of(f"x{number}") is None
    assert len(ours._found) <= MOST_LINES


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"\xff", "is no TOML"),
        (b"x", "is no TOML"),
        (b"\n".join(b"a%d = 1" % number for number in range(MOST_LINES + 1)), "has more than 2000 lines"),
        (b"x = 3", "'x' wants { input = 3, output = 15 }"),
        (b"x = { input = 3 }", "wants { input"),
        (b"x = { input = 3, output = 1, more = 1 }", "wants { input"),
        (b"x = { input = true, output = 1 }", "wants prices from 0"),
        (b"x = { input = -1, output = 1 }", "wants prices from 0"),
        (b"x = { input = nan, output = 1 }", "wants prices from 0"),
        (b"x = { input = inf, output = 1 }", "wants prices from 0"),
        (b'x = { input = "3", output = 1 }', "wants prices from 0"),
        (b'"a b" = { input = 3, output = 1 }', "is no pattern of names"),
    ],
)
def test_what_is_wrong_is_said(text: bytes, told: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is looked at below
        read_prices(text)
    assert told in str(raised.value)
