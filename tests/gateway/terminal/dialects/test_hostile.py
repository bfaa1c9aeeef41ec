"""Whatever a client says, a dialect hears something, passes over it, or refuses it with 4400 and a reason."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.terminal.dialects.cloudflare import CloudflareDialect
from gateway.terminal.dialects.jupyter import JupyterDialect
from gateway.terminal.dialects.native import NativeDialect
from gateway.terminal.dialects.plain import PlainDialect
from gateway.terminal.dialects.ports import Dialect, Flow, Renewal, Typed, Wanted
from gateway.terminal.dialects.ttyd import TtydDialect
from sandbox.protocol.websocket_frames import FrameError

MIB = 1 << 20
ALL: list[Callable[[], Dialect]] = [NativeDialect, PlainDialect, CloudflareDialect, JupyterDialect, TtydDialect]
READ_JSON: list[Callable[[bytes], object]] = [
    NativeDialect().hear_text,
    CloudflareDialect().hear_text,
    JupyterDialect().hear_text,
    lambda payload: TtydDialect().hear_text(b"1" + payload),
]

NO_JSON = {
    "nothing": b"",
    "space": b" \n",
    "half": b'{"type":"resize"',
    "NaN": b'{"type":"resize","cols":NaN,"rows":24}',
    "infinity": b'["set_size",Infinity,24]',
    "beyond a double": b'{"type":"resize","cols":1e999,"rows":24}',
    "nested without end": b"[" * 200_000,
    "nested deep": b"[" * 100_000 + b"]" * 100_000,
    "objects nested deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "lone surrogate": rb'["stdin","\ud800"]',
    "a byte that is no text": b'["stdin","\xff"]',
    "two values": b"{}{}",
    "a number": b"12",
    "a string": b'"' + b"x" * MIB + b'"',
    "null": b"null",
    "wide": b"[" + b"0," * 30_000 + b"0]",
}
NOT_FOR_OBJECTS = {
    "an array": b'["resize",80,24]',
    "a member twice": b'{"type":"ping","type":"resize"}',
    "a member twice, escaped": rb'{"cols":80,"co\u006cs":90,"type":"resize"}',
    "deeper than is kept": b'{"type":"resize","a":' + b"[" * 70 + b"]" * 70 + b"}",
    "too many members": b"{" + b",".join(b'"%d":1' % n for n in range(10_001)) + b"}",
}
NATIVE_ONLY = {
    "no type": b'{"cols":80,"rows":24}',
    "a type that is no word": b'{"type":["resize"],"cols":80,"rows":24}',
    "no size": b'{"type":"resize"}',
    "one side": b'{"type":"resize","cols":80}',
    "zero": b'{"type":"resize","cols":0,"rows":24}',
    "too large": b'{"type":"resize","cols":80,"rows":1001}',
    "huge": b'{"type":"resize","cols":80,"rows":18446744073709551615}',
    "a fraction": b'{"type":"resize","cols":80.5,"rows":24}',
    "a whole fraction": b'{"type":"resize","cols":80.0,"rows":24}',
    "true": b'{"type":"resize","cols":true,"rows":24}',
    "text": b'{"type":"resize","cols":"80","rows":24}',
    "null sides": b'{"type":"resize","cols":null,"rows":null}',
    "no token": b'{"type":"auth"}',
    "a token that is no text": b'{"type":"auth","token":{"a":1}}',
}
JUPYTER_ONLY = {
    "an object": b'{"type":"resize"}',
    "no word": b"[]",
    "a word that is none": b'[1,"x"]',
    "an array for a word": b'[["stdin"],"x"]',
    "stdin of nothing": b'["stdin"]',
    "stdin of a number": b'["stdin",1]',
    "stdin of too much": b'["stdin","a","b"]',
    "a size of one side": b'["set_size",24]',
    "a size without sides": b'["set_size"]',
}


def refused(hear: Callable[[bytes], object], payload: bytes) -> str:
    with pytest.raises(FrameError) as error:
        hear(payload)
    assert error.value.code == 4400
    return error.value.reason


@pytest.mark.parametrize("payload", NO_JSON.values(), ids=NO_JSON)
@pytest.mark.parametrize("hear", READ_JSON, ids=["native", "cloudflare", "jupyter", "tty"])
def test_what_is_no_json_is_refused(hear: Callable[[bytes], object], payload: bytes) -> None:
    assert 0 < len(refused(hear, payload)) < 123


@pytest.mark.parametrize("payload", NOT_FOR_OBJECTS.values(), ids=NOT_FOR_OBJECTS)
@pytest.mark.parametrize("at", [0, 1, 3], ids=["native", "cloudflare", "tty"])
def test_what_two_readers_could_read_differently_is_refused(at: int, payload: bytes) -> None:
    assert 0 < len(refused(READ_JSON[at], payload)) < 123


@pytest.mark.parametrize("payload", NATIVE_ONLY.values(), ids=NATIVE_ONLY)
def test_our_own_clients_are_held_to_what_is_written(payload: bytes) -> None:
    reason = refused(NativeDialect().hear_text, payload)
    assert reason in (
        "type must be a string",
        "cols and rows must be whole numbers from 1 to 1000",
        "token must be a string",
    )


@pytest.mark.parametrize("payload", JUPYTER_ONLY.values(), ids=JUPYTER_ONLY)
def test_arrays_that_say_nothing_are_refused(payload: bytes) -> None:
    assert 0 < len(refused(JupyterDialect().hear_text, payload)) < 123


def test_jupyter_takes_no_binary_message() -> None:
    refused(JupyterDialect().hear_binary, b'["stdin","x"]')


def test_a_mebibyte_is_typed_whole_in_every_dialect() -> None:
    typed = b"y" * MIB
    assert PlainDialect().hear_text(typed) == (Typed(typed),)
    assert NativeDialect().hear_binary(typed) == (Typed(typed),)
    assert CloudflareDialect().hear_binary(typed) == (Typed(typed),)
    assert JupyterDialect().hear_text(b'["stdin","' + typed + b'"]') == (Typed(typed),)
    assert TtydDialect().hear_binary(b"0" + typed) == (Typed(typed),)


WORDS = ("resize", "pause", "resume", "ping", "stdin", "set_size")
JSON_LIKE = st.recursive(
    st.sampled_from(["null", "true", "1", "0", "-1", "1e3", "80.5", "1e308", '""', *map('"{}"'.format, WORDS)]),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: "[" + ",".join(items) + "]")
        | st.lists(
            st.tuples(st.sampled_from(["type", "cols", "rows", "columns", "token", "AuthToken"]), inner), max_size=4
        ).map(lambda members: "{" + ",".join(f'"{name}":{value}' for name, value in members) + "}")
    ),
    max_leaves=8,
).map(str.encode)


@given(st.sampled_from(ALL), JSON_LIKE | st.text().map(str.encode), st.sampled_from([b"", b"0", b"1", b"2", b"3"]))
@example(TtydDialect, b"{", b"")
def test_anything_is_heard_or_refused(make: Callable[[], Dialect], payload: bytes, kind: bytes) -> None:
    dialect = make()
    for hear in (dialect.hear_text, dialect.hear_binary):
        try:
            heard = hear(kind + payload)
        except FrameError:
            continue
        for thing in heard:
            assert isinstance(thing, Typed | Wanted | Renewal | Flow)
            if isinstance(thing, Wanted):
                assert 1 <= thing.size.cols <= 1000
                assert 1 <= thing.size.rows <= 1000
                assert type(thing.size.cols) is type(thing.size.rows) is int
