"""Reading: a struct, or an error that names the member and repeats nothing."""

from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.protocol.messages import (
    EPOCH,
    MAX_NUMBER,
    MAX_REASON,
    Arguments,
    EpochName,
    ExitCode,
    Message,
    NotJson,
    Number,
    SignalName,
    Text,
    WireError,
    clip,
    read,
)


class Sample(Message, frozen=True, tag="sample"):
    number: Number = 0
    epoch: EpochName = "e"
    code: ExitCode | None = None
    signal: SignalName | None = None
    text: Text = ""
    argv: Arguments = msgspec.field(default_factory=list)


class Other(Message, frozen=True, tag="other"):
    needed: Number


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    known: dict[str, int] = {}


SAMPLE: msgspec.json.Decoder[Sample | Other] = msgspec.json.Decoder(Sample | Other)
STRICT = msgspec.json.Decoder(Strict)


@given(st.integers(0, MAX_NUMBER), st.from_regex(EPOCH, fullmatch=True), st.lists(st.just("x"), min_size=1, max_size=3))
def test_what_is_within_bounds_is_read(number: int, epoch: str, argv: list[str]) -> None:
    message = Sample(number, epoch, 255, "SIGRTMIN+3", "a\nb", argv)
    assert read(SAMPLE, msgspec.json.encode(message)) == message


@pytest.mark.parametrize(
    ("member", "values"),
    [
        ("number", (-1, MAX_NUMBER + 1, 1.5, 1.0, "1", None, True, [], 2**64 - 1)),
        ("epoch", ("", "a b", "x" * 65, "e\n", 7, [], "\u00e9", None)),
        ("code", (-1, 256, "0", False)),
        ("signal", ("", "sigkill", "S" * 17, 9, "A\n")),
        ("text", ("a\0b", "\0", None, 7)),
        ("argv", ([], None, "x", [7], ["x", "\0"], ["x"] * 4097)),
    ],
)
def test_a_member_out_of_bounds_is_named(member: str, values: tuple[Any, ...]) -> None:
    for value in values:
        with pytest.raises(WireError, match=f"bad {member}") as refused:
            read(SAMPLE, orjson.dumps({"type": "sample", member: value}))
        assert refused.value.member == member


@pytest.mark.parametrize("said", [b"[]", b"7", b'"x"', b"null"])
def test_a_message_is_an_object(said: bytes) -> None:
    with pytest.raises(WireError, match="not an object"):
        read(SAMPLE, said)


@pytest.mark.parametrize("said", [b"{}", b'{"type":7}', b'{"type":"secret"}', b'{"type":"x` - at `$.secret`"}'])
def test_a_message_has_a_type_that_is_known(said: bytes) -> None:
    with pytest.raises(WireError) as refused:
        read(SAMPLE, said)
    assert str(refused.value) == "unknown control message"


def test_a_missing_member_is_named() -> None:
    with pytest.raises(WireError, match="bad needed"):
        read(SAMPLE, b'{"type":"other"}')


@pytest.mark.parametrize(
    "said",
    [
        b"", b"{", b"\xff", b'{"type":"sample","x":' + b"[" * 5000, b'{"type":"sample","x":NaN}',
        b'{"type":"sample","text":"\xff"}', b'{"type":"sample","x":"\xff"}', b'{"type":"sample","\xff":1}',
        b'{"type":"sample","x":"\\ud800"}', b'\xef\xbb\xbf{"type":"sample"}', '{"type":"sample","text":"\ud800"}',
    ],
)  # fmt: skip
def test_what_is_no_json_is_no_message(said: bytes | str) -> None:
    with pytest.raises(NotJson, match="not JSON"):
        read(SAMPLE, said)


def test_the_name_of_an_unknown_member_is_not_repeated() -> None:
    for name in ("secret", "x` - at `$.secret", "\n"):
        with pytest.raises(WireError) as refused:
            read(STRICT, orjson.dumps({name: 1}))
        assert (str(refused.value), refused.value.member) == ("unknown member", "")
        with pytest.raises(WireError) as refused:
            read(STRICT, orjson.dumps({"known": {name: "x"}}))
        assert str(refused.value) == "bad known"


@given(st.text())
def test_a_clipped_line_is_one_line_that_can_be_sent_and_stays_as_it_is(text: str) -> None:
    line = clip(text)
    assert len(line) <= MAX_REASON
    assert not any(character < " " for character in line)
    assert line.encode(errors="strict")[:0] == b""
    assert clip(line) == line
