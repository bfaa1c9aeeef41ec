"""What is recorded is read again as it was: every value that goes through an inbox, and no more than that."""

import json
import math
from dataclasses import make_dataclass
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.close_codes import CloseCode
from gateway.session.model.ports import SessionLimits
from gateway.session.model.state import SessionStatus
from gateway.session.recording import codec
from gateway.session.recording.codec import Encoder, NotARecording, RecordedError, decode
from gateway.session.sandbox.lifecycle import events as on_
from persistence.record import Loaded, Record, Session
from sandbox.protocol.values import Hello, Position
from sync.format.pointer import Generation


def named(value: Any) -> dict[str, Any]:
    return {"!": "live", "=": type(value).__name__}


def alive(value: dict[str, Any]) -> Any:
    if value["!"] != "live":
        raise NotARecording(value["!"])
    return ("alive", value["="])


def shown(text: str) -> str:
    return text


PLAINLY = Encoder(named, shown)


def through_a_file(value: Any, encode: Encoder = PLAINLY) -> Any:
    return decode(json.loads(json.dumps(encode(value))), alive)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.text(), inner),
        st.dictionaries(st.integers(), inner),
        st.frozensets(st.integers() | st.text()),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_plain_values_come_back(value: Any) -> None:
    back = through_a_file(value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        on_.Wake(3),
        on_.LinkLost(2, "it was cut"),
        SessionStatus.PAUSED,
        CloseCode.FINISHED,
        Position("epoch", 7),
        SessionLimits(agent_records=math.inf),
        Generation(number=1, manifest="m", at=1.5, files=2, bytes=3),
        Loaded(
            Session("s", "ann", 1.0), 1, b"", {"a": 1}, [Record("s", 1, "a", "user", "message", b"\xff{}", 1.0)], []
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_goes_through_an_inbox_comes_back(value: Any) -> None:
    back = through_a_file(value)
    assert back == value
    assert type(back) is type(value)
    assert hash(through_a_file(SessionLimits())) == hash(SessionLimits())


def test_a_message_of_the_bridge_comes_back() -> None:
    hello = Hello(taker="t", taken=3, epoch="e", alive=True, held=False)
    assert through_a_file(hello) == hello
    assert through_a_file([memoryview(b"a"), bytearray(b"b")]) == [b"a", b"b"]


def test_an_exception_comes_back_as_its_text() -> None:
    back = through_a_file(OSError("no room"))
    assert isinstance(back, RecordedError)
    assert str(back) == "OSError: no room"
    assert PLAINLY(back) == PLAINLY(OSError("no room")), "the same when it is compared"


def test_a_live_thing_is_named_by_the_caller() -> None:
    assert through_a_file(SimpleNamespace()) == ("alive", "SimpleNamespace")


def test_an_enum_that_nobody_knows_is_its_value() -> None:
    class Odd(Enum):
        ONE = 1

    assert PLAINLY(Odd.ONE) == 1


def test_every_text_is_cleaned_and_bytes_keep_their_length() -> None:
    encode = Encoder(named, lambda text: text.replace("secret", "******"))
    value = {"secret": ["secret"], "bytes": b"a secret", "frame": b"\x81\xffa secret", "error": OSError("secret")}
    assert "secret" not in json.dumps(encode(value))
    back = through_a_file(value, encode)
    assert (back["bytes"], back["frame"]) == (b"a ******", b"\x81\xffa ******")


@pytest.mark.parametrize(
    "value",
    [
        {"!": "Popen", "=": "id"},
        {"!": "Wake"},
        {"!": "Wake", "number": 1, "odd": 2},
        {"!": "SessionStatus", "=": "odd"},
        {"!": "bytes"},
        {"!": "float", "=": "odd"},
        {"!": ["unhashable"]},
        [{"deep": {"!": "dict", "=": [1]}}],
    ],
    ids=str,
)
def test_what_is_no_value_is_refused(value: Any) -> None:
    with pytest.raises(NotARecording):
        decode(value, alive)


def test_two_classes_of_one_name_would_be_taken_for_each_other() -> None:
    def module(name: str) -> ModuleType:
        made = ModuleType(name)
        vars(made)["Odd"] = make_dataclass("Odd", ["x"], namespace={"__module__": name})
        return made

    assert list(codec._classes([module("a")])) == ["Odd"]
    with pytest.raises(AssertionError, match="Odd"):
        codec._classes([module("a"), module("b")])
