"""Requests about terminals: both ends mean the same by a body, and a terminal that cannot be is refused."""

from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from sandbox.protocol.messages import MAX_NUMBER, WireError, read
from sandbox.protocol.terminal import MAX_SIDE, Size
from sandbox.protocol.terminal_requests import TerminalBody, decode_terminal

BODY = msgspec.json.Decoder(TerminalBody)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
SIDES = st.integers(1, MAX_SIDE)
UNSAID = st.just(UNSET)
BODIES = st.builds(
    lambda command, env, cwd, size: TerminalBody(command, env, cwd, *size),
    UNSAID | st.lists(TEXTS, min_size=1, max_size=3),
    UNSAID | st.dictionaries(TEXTS, TEXTS, max_size=3),
    UNSAID | TEXTS,
    st.just((UNSET, UNSET)) | st.tuples(SIDES, SIDES),
)
NO_NUMBERS: tuple[Any, ...] = (-1, MAX_NUMBER + 1, 1.5, "1", None, True, [], 10**30)
NO_SIDES: tuple[Any, ...] = (0, -1, MAX_SIDE + 1, 80.0, "80", True, [])
NO_EPOCHS: tuple[Any, ...] = ("", "a b", "x" * 65, "e\n", 7, [], "\u00e9")


@given(BODIES)
def test_what_a_gateway_asks_for_a_bridge_reads(body: TerminalBody) -> None:
    assert read(BODY, msgspec.json.encode(body)) == body


def test_what_is_left_out_is_not_sent() -> None:
    assert msgspec.json.encode(TerminalBody()) == b"{}"
    assert TerminalBody().size is None
    whole = TerminalBody(["sh", "-c", "x"], {"A": "b"}, "sub", 80, 24)
    said = b'{"command":["sh","-c","x"],"env":{"A":"b"},"cwd":"sub","cols":80,"rows":24}'
    assert msgspec.json.encode(whole) == said
    assert whole.size == Size(80, 24)


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(TerminalBody(env={"KEY": "secret"}))


@pytest.mark.parametrize(
    ("member", "values"),
    [
        ("command", (None, "sh", [], [7], ["a\0b"], ["x"] * 5000)),
        ("env", (None, [], {"a": 1}, {"a": None})),
        ("cwd", (None, 7, "a\0")),
        ("cols", NO_SIDES),
        ("rows", NO_SIDES),
    ],
)
def test_a_member_that_cannot_be_is_named(member: str, values: tuple[Any, ...]) -> None:
    for value in values:
        with pytest.raises(WireError) as refused:
            read(BODY, orjson.dumps({"cols": 80, "rows": 24} | {member: value}))
        assert refused.value.member == member


@pytest.mark.parametrize("said", [b"[]", b"3", b'{"what":1}', b'{"cols":5}', b'{"rows":5}', b"{"])
def test_a_body_that_makes_no_sense_is_refused(said: bytes) -> None:
    with pytest.raises(WireError):
        read(BODY, said)


LISTED: dict[str, Any] = {
    "name": "main", "epoch": "e", "base": 0, "offset": 7, "cols": 80, "rows": 24, "viewers": 1, "idleSeconds": 0.5,
    "alive": True, "exit": None, "title": "t", "command": ["bash", "-l"],
}  # fmt: skip


def listed(member: str, *values: Any) -> list[dict[str, Any]]:
    return [LISTED | {member: value} for value in values]


def test_a_listed_terminal_is_read_member_by_member_and_no_other_passes() -> None:
    assert decode_terminal(LISTED | {"secret": 1}) == LISTED
    ended = LISTED | {"alive": False, "exit": {"code": 3, "signal": None, "core": True}}
    assert decode_terminal(ended)["exit"] == {"code": 3, "signal": None}
    killed = LISTED | {"exit": {"code": None, "signal": "SIGKILL"}}
    assert decode_terminal(killed)["exit"] == {"code": None, "signal": "SIGKILL"}
    odd = decode_terminal(LISTED | {"title": "\ud800\n", "command": ["\ud800", "a\nb"]})
    assert (odd["title"], odd["command"]) == ("? ", ["?", "a\nb"])
    assert orjson.dumps(odd)


@pytest.mark.parametrize(
    "found",
    [
        None, [], 7, {},
        *listed("name", None, 7, "", "-x", "x" * 65, "a/b", []), *listed("epoch", *NO_EPOCHS, None),
        *listed("base", *NO_NUMBERS), *listed("offset", *NO_NUMBERS), *listed("viewers", *NO_NUMBERS),
        *listed("cols", *NO_SIDES), *listed("rows", *NO_SIDES), *listed("alive", None, 1), *listed("title", None, 7),
        *listed("idleSeconds", None, -1, True, "1", float("inf"), float("nan"), 10**30),
        *listed("exit", 7, [], {"code": 256}, {"code": 0, "signal": "x"}), *listed("command", None, "bash", [7]),
    ],
)  # fmt: skip
def test_a_listed_terminal_that_cannot_be_is_refused(found: Any) -> None:
    with pytest.raises(WireError):
        decode_terminal(found)
