"""The gateway's end of a terminal's link, against bridges that behave in ways no real bridge would."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from sandbox.client import terminal_link as link_module
from sandbox.client.endpoint import UnixEndpoint
from sandbox.client.terminal_link import MAX_ASIDES, BridgeTerminalLink, connect
from sandbox.client.terminals import BridgeTerminals
from sandbox.ports.link import LinkRefused
from sandbox.ports.terminals import TerminalRefused, TerminalWish
from sandbox.protocol.terminal import (
    MAX_BYTES,
    MAX_CONTROL,
    MAX_PICTURE,
    Exit,
    Greeting,
    Open,
    Reset,
    Resized,
    Size,
    TerminalTrouble,
    Up,
    encode,
)
from sandbox.protocol.values import Position
from sandbox.protocol.websocket_frames import client_frame, frame, frame_close
from tests.support.bridge import TOKEN, at
from tests.support.terminal_watcher import Watcher
from tests.support.waiting import until

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
HELLO = Greeting.of("e", 40, Size(80, 24), 0, False)
PAINTED = Greeting.of("e", 40, Size(80, 24), 0, True)
RESET = Reset.of("f", 0, Size(80, 24))
SHOWN = Open.of(Size(100, 30), "drive", Position("e", 40))
Piece = Up | bytes


def said(*pieces: Piece) -> bytes:
    """As a bridge sends it: messages as text, bytes as they are."""
    return b"".join(piece if isinstance(piece, bytes) else frame(TEXT, encode(piece)) for piece in pieces)


class Stage:
    """A scripted bridge: it hears everything, and says only what a test tells it to."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.heard: list[str | bytes] = []
        self.requests: list[Request] = []
        self.writer: asyncio.StreamWriter | None = None
        self.ended = False
        self.answer_status = 101
        self.mute = False
        self.first = b""  # said as soon as the viewer has opened
        self.reads = asyncio.Event()
        self.reads.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        protocol = ServerProtocol(max_size=None)
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(1 << 16):
                protocol.receive_data(chunk)
                for event in protocol.events_received():
                    self._take(protocol, event)
                writer.write(b"".join(protocol.data_to_send()))
                await self.reads.wait()
        self.ended = True
        writer.close()

    def _take(self, protocol: ServerProtocol, event: object) -> None:
        if isinstance(event, Request):
            self.requests.append(event)
            if not self.mute:
                good = self.answer_status == 101
                protocol.send_response(protocol.accept(event) if good else protocol.reject(self.answer_status, "no"))
        elif isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY):
            data = bytes(event.data)
            self.heard.append(data.decode() if event.opcode is Opcode.TEXT else data)
            if self.first and len(self.heard) == 1:
                self.say(self.first)
        elif isinstance(event, Frame) and event.opcode is Opcode.PONG:
            self.heard.append(b"pong " + bytes(event.data))

    def say(self, *pieces: Piece) -> None:
        assert self.writer is not None
        self.writer.write(said(*pieces))

    async def open(self, watcher: Watcher, *first: Piece) -> BridgeTerminalLink:
        self.first = said(*first)
        return await connect(UnixEndpoint(self.path, TOKEN), "main", SHOWN, watcher, watcher.pass_on)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(str(tmp_path / "stage.sock"))
    server = await asyncio.start_unix_server(stage.serve, stage.path)
    yield stage
    server.close()
    stage.reads.set()
    if stage.writer is not None:
        stage.writer.transport.abort()
        with contextlib.suppress(OSError):
            await stage.writer.wait_closed()


# A bridge that behaves


async def test_the_handshake_carries_the_token_and_the_wish(stage: Stage) -> None:
    watcher = Watcher()
    link = await stage.open(watcher, HELLO)
    assert stage.requests[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert stage.requests[0].path == "/terminals/main/link"
    assert "Sec-WebSocket-Extensions" not in stage.requests[0].headers
    assert stage.heard == [encode(SHOWN).decode()]
    assert (watcher.link, watcher.hellos, watcher.pictures) == (link, [HELLO], [None])
    link.close()


async def test_a_whole_conversation_is_passed_on_in_order_and_counted(stage: Stage) -> None:
    watcher = Watcher()
    link = await stage.open(watcher, PAINTED, frame(BINARY, b"a picture"), frame(BINARY, b"one"))
    stage.say(frame(BINARY, b"two"), Resized(9, 9), frame(BINARY, b""), frame(BINARY, b"x" * MAX_BYTES))
    await until(lambda: len(watcher.output) == 6 + MAX_BYTES)
    assert (watcher.pictures, watcher.sizes, link.passed_bytes) == ([b"a picture"], [Size(9, 9)], 6 + MAX_BYTES)
    stage.say(TerminalTrouble("input_full", "hm"), Exit(3, None), RESET, frame(BINARY, b""), frame(BINARY, b"three"))
    await until(lambda: watcher.output == b"three")
    assert link.passed_bytes == 5
    assert watcher.order == ["hello", "output", "resized", "output", "trouble", "exit", "reset", "output"]
    assert watcher.pictures[-1] == b""
    link.type(b"typed")
    link.write(client_frame(BINARY, b"passed") + client_frame(BINARY, b"on"))
    link.resize(Size(7, 8))
    stage.say(frame(PING, b"there?"))
    await until(lambda: len(stage.heard) == 6)
    assert stage.heard[1:] == [b"typed", b"passed", b"on", '{"type":"resize","cols":7,"rows":8}', b"pong there?"]
    link.close()
    link.close()
    link.type(b"to nobody")
    assert not watcher.lost


async def test_bytes_may_come_in_any_pieces(stage: Stage) -> None:
    watcher = Watcher()
    stage.first = b""
    opening = asyncio.create_task(stage.open(watcher))
    await until(lambda: stage.heard)
    picture, output = b"p" * 300, bytes(range(256)) * 3
    whole = said(PAINTED, frame(BINARY, picture), frame(BINARY, output), Exit(None, "SIGKILL"))
    for number in range(len(whole)):
        stage.say(whole[number : number + 1])
        if number % 100 == 0:
            await asyncio.sleep(0)
    link = await opening
    await until(lambda: watcher.exits)
    assert (watcher.pictures, bytes(watcher.output)) == ([picture], output)
    link.close()


# Refusals


@pytest.mark.parametrize(("status", "reason"), [(401, "token"), (404, "404"), (500, "500")])
async def test_a_refused_handshake_is_told(stage: Stage, status: int, reason: str) -> None:
    stage.answer_status = status
    with pytest.raises(LinkRefused, match=reason):
        await stage.open(Watcher())


async def test_nobody_there_is_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(LinkRefused, match="No such file"):
        await Stage(str(tmp_path / "nothing")).open(Watcher())


@pytest.mark.parametrize("silent", ["before the handshake", "before hello", "before the picture", "in the picture"])
async def test_silence_before_the_greeting_is_whole_is_a_refusal_and_leaves_no_connection(
    stage: Stage, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "HANDSHAKE_SECONDS", 0.2)
    watcher = Watcher()
    stage.mute = silent == "before the handshake"
    first = {"before the picture": said(PAINTED), "in the picture": said(PAINTED, frame(BINARY, b"x" * 1000)[:500])}
    with pytest.raises(LinkRefused, match="does not answer"):
        await stage.open(watcher, first.get(silent, b""))
    await until(lambda: stage.ended)
    assert watcher.order == []


async def test_whoever_gives_up_waiting_leaves_no_connection(stage: Stage) -> None:
    opening = asyncio.create_task(stage.open(Watcher()))
    await until(lambda: stage.heard)
    opening.cancel()
    await until(lambda: stage.ended)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (4429, "too many"), (4500, "cannot be run"), (4503, "may run"), (4400, "could not read"), (4410, "was ended"),
        (1012, "sandbox ends"), (1000, "closed the link"), (1011, "closed the link"), (0, "closed the link"),
    ],
)  # fmt: skip
async def test_why_a_bridge_lets_nobody_in_is_told(stage: Stage, code: int, reason: str) -> None:
    watcher = Watcher()
    goodbye = frame_close(code, "") if code else frame(CLOSE, b"")
    with pytest.raises(LinkRefused, match=reason):
        await stage.open(watcher, TerminalTrouble("start_failed", "no such program"), goodbye)
    assert watcher.troubles == [TerminalTrouble("start_failed", "no such program")]
    assert watcher.order == ["trouble"]


@pytest.mark.parametrize(
    ("code", "reason"), [(1012, "sandbox ends"), (4408, "took nothing"), (1000, "closed"), (4999, "closed")]
)
async def test_a_close_is_a_loss_with_its_reason_and_nothing_comes_after_it(
    stage: Stage, code: int, reason: str
) -> None:
    watcher = Watcher()
    await stage.open(watcher, HELLO)
    stage.say(frame(BINARY, b"last"), frame_close(code, "x"), frame(BINARY, b"after the end"), Exit(1, None))
    await until(lambda: watcher.lost)
    assert watcher.order == ["hello", "output", "lost"]
    assert (bytes(watcher.output), reason in watcher.lost[0]) == (b"last", True)


async def test_a_terminal_that_was_ended_is_gone_not_lost(stage: Stage) -> None:
    watcher = Watcher()
    link = await stage.open(watcher, HELLO)
    stage.say(Exit(None, "SIGHUP"), frame_close(4410, "ended"), frame(BINARY, b"after the end"))
    await until(lambda: watcher.gone)
    assert watcher.order == ["hello", "exit", "gone"]
    link.type(b"to nobody")
    await until(lambda: stage.ended)
    assert not watcher.lost


async def test_a_connection_that_ends_is_a_loss(stage: Stage) -> None:
    watcher = Watcher()
    await stage.open(watcher, HELLO)
    assert stage.writer is not None
    stage.writer.close()
    await until(lambda: watcher.lost)
    assert watcher.lost == ["the bridge closed the connection"]


# What breaks the rules


BAD: dict[str, bytes] = {
    "a frame of output above the bound": frame(BINARY, b"x" * (17 << 10)),
    "a long length": b"\x82\x7f" + (1 << 40).to_bytes(8, "big"),
    "a masked frame of output": client_frame(BINARY, b"x"),
    "a masked long frame": client_frame(BINARY, b"x" * 300),
    "a masked text": client_frame(TEXT, encode(HELLO)),
    "a fragment": b"\x02\x01a",
    "a continuation": b"\x80\x01a",
    "reserved bits": b"\xc2\x01a",
    "an unknown type": b"\x83\x00",
    "an unknown control type": b"\x8b\x00",
    "a long ping": frame(PING, b"x" * 126),
    "a fragmented ping": b"\x09\x00",
    "a text above the bound": frame(TEXT, b" " * (MAX_CONTROL + 1)),
    "a text that is no message": frame(TEXT, b"hello"),
    "a text that is not UTF-8": frame(TEXT, b"\xff"),
    "an unknown message": frame(TEXT, b'{"type":"open"}'),
    "a size that cannot be": frame(TEXT, b'{"type":"resized","cols":0,"rows":1}'),
    "a deep message": frame(TEXT, b"[" * 4000),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_what_breaks_the_rules_loses_the_link_with_a_reason(stage: Stage, bad: bytes) -> None:
    watcher = Watcher()
    await stage.open(watcher, HELLO, frame(BINARY, b"good"))
    stage.say(bad, frame(BINARY, b"after"))
    await until(lambda: watcher.lost)
    assert watcher.lost[0].startswith("the bridge broke the protocol: ")
    assert bytes(watcher.output) in (b"good", b"")
    await until(lambda: stage.ended)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_what_breaks_the_rules_before_hello_is_a_refusal(stage: Stage, bad: bytes) -> None:
    watcher = Watcher()
    with pytest.raises(LinkRefused, match="broke the protocol"):
        await stage.open(watcher, bad, HELLO)
    assert watcher.order == []


@pytest.mark.parametrize(
    "early",
    [Exit(0, None), Resized(1, 1), said(RESET, frame(BINARY, b"")), frame(BINARY, b"output")],
    ids=["exit", "resized", "reset", "output"],
)
async def test_nothing_but_trouble_comes_before_hello(stage: Stage, early: Piece) -> None:
    watcher = Watcher()
    with pytest.raises(LinkRefused, match="broke the protocol"):
        await stage.open(watcher, early, HELLO)
    assert watcher.order == []


@pytest.mark.parametrize(
    "late",
    [said(HELLO), said(RESET, Exit(0, None)), said(RESET, RESET), said(RESET, Resized(1, 1))],
    ids=["a second hello", "no picture", "two resets", "something before the picture"],
)
async def test_a_message_out_of_place_loses_the_link(stage: Stage, late: bytes) -> None:
    watcher = Watcher()
    await stage.open(watcher, HELLO)
    stage.say(late)
    await until(lambda: watcher.lost)
    assert "out of place" in watcher.lost[0]


async def test_a_picture_has_a_bound_and_up_to_it_passes(stage: Stage) -> None:
    watcher = Watcher()
    await stage.open(watcher, PAINTED, frame(BINARY, b"x" * MAX_PICTURE))
    assert watcher.pictures == [b"x" * MAX_PICTURE]
    stage.say(RESET, b"\x82\x7f" + (MAX_PICTURE + 1).to_bytes(8, "big"))
    await until(lambda: watcher.lost)
    assert "too long" in watcher.lost[0]


FLOODS: dict[str, tuple[bytes, Callable[[Watcher], int]]] = {
    "troubles": (said(TerminalTrouble("hm", "x" * 200)), lambda watcher: len(watcher.troubles)),
    "exits": (said(Exit(0, None)), lambda watcher: len(watcher.exits)),
    "sizes": (said(Resized(1, 1)), lambda watcher: len(watcher.sizes)),
    "resets": (said(RESET, frame(BINARY, b"")), lambda watcher: len(watcher.resets)),
    "pings": (frame(PING, b"x" * 125), lambda watcher: 0),
    "pongs": (frame(PONG, b""), lambda watcher: 0),
}


@pytest.mark.parametrize(("piece", "count"), FLOODS.values(), ids=FLOODS.keys())
async def test_a_flood_of_asides_loses_the_link(
    stage: Stage, piece: bytes, count: Callable[[Watcher], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "MAX_ASIDES", 500)
    watcher = Watcher()
    await stage.open(watcher, HELLO)
    stage.say(piece * 1000)
    await until(lambda: watcher.lost)
    assert watcher.lost == ["the bridge broke the protocol: flood"]
    assert count(watcher) <= 500
    assert MAX_ASIDES >= 1000


async def test_asides_are_counted_anew_when_somebody_types(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_ASIDES", 50)
    watcher = Watcher()
    link = await stage.open(watcher, HELLO)
    for number in range(1, 6):
        stage.say(said(Resized(1, number)) * 40)
        await until(lambda number=number: len(watcher.sizes) == 40 * number)  # type: ignore[misc]
        link.type(b".")
    assert not watcher.lost
    link.close()


# Flow


async def test_a_paused_link_takes_nothing_and_goes_on_where_it_was(stage: Stage) -> None:
    watcher = Watcher()
    link = await stage.open(watcher, HELLO)
    link.pause_reading()
    link.pause_reading()
    pieces = b"".join(frame(BINARY, b"%08d" % number * 1024) for number in range(1024))
    stage.say(pieces)
    assert stage.writer is not None
    await until(lambda: stage.writer is not None and 0 < stage.writer.transport.get_write_buffer_size() < len(pieces))
    assert watcher.output == b""
    link.resume_reading()
    await until(lambda: len(watcher.output) == 8 << 20)
    assert watcher.output.endswith(b"%08d" % 1023)
    link.close()


async def test_input_the_bridge_does_not_take_holds_the_viewer_and_costs_little(stage: Stage) -> None:
    watcher = Watcher()
    link = await stage.open(watcher, HELLO)
    stage.reads.clear()
    link.type(b"the last that is read")
    sent = 0
    while not watcher.full:
        link.type(b"x" * 16384)
        sent += 16384
        await asyncio.sleep(0)
        assert sent < 32 << 20
    assert watcher.full == [True]
    stage.reads.set()
    await until(lambda: watcher.full == [True, False])
    await until(lambda: sum(len(piece) for piece in stage.heard[2:]) == sent)
    link.close()


# The rest by HTTP


class Answering:
    """A bridge that answers every request with the same bytes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.answer = b""
        self.asked = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            self.asked = await reader.readuntil(b"\r\n\r\n")
            writer.write(self.answer)
            await writer.drain()
        writer.close()

    def say(self, status: int, body: Any) -> None:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answer = b"HTTP/1.1 %d x\r\n\r\n" % status + text


@pytest.fixture
async def answering(tmp_path: Path) -> AsyncIterator[Answering]:
    bridge = Answering(str(tmp_path / "answering.sock"))
    server = await asyncio.start_unix_server(bridge.serve, bridge.path)
    yield bridge
    server.close()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, []), (200, {}), (200, {"terminals": {}}), (200, {"terminals": [7]}),
        (200, {"terminals": [{"name": "x"}]}), (200, b"not json"), (200, b"[" * 100_000),
        (500, {"code": "x", "error": "y"}), (302, {}), (400, []),
        (404, {"code": 7, "error": "y"}), (409, {"code": "x"}),
    ],
)  # fmt: skip
async def test_an_answer_that_makes_no_sense_is_no_answer(answering: Answering, status: int, body: Any) -> None:
    answering.say(status, body)
    with pytest.raises(LinkRefused):
        await BridgeTerminals(at(answering.path)).list()


async def test_a_refusal_is_told_in_its_own_words_within_bounds(answering: Answering) -> None:
    terminals = BridgeTerminals(at(answering.path))
    answering.say(429, {"code": "too_many", "error": "x\n" * 100_000})
    with pytest.raises(TerminalRefused) as refused:
        await terminals.create("main", TerminalWish())
    assert (refused.value.status, refused.value.code) == (429, "too_many")
    assert len(str(refused.value)) < 5000
    assert "\n" not in str(refused.value)
    assert f"Bearer {TOKEN}".encode() in answering.asked
    answering.say(404, {"code": "not_found", "error": "no such terminal"})
    with pytest.raises(TerminalRefused) as refused:
        await terminals.end("main")
    assert refused.value.code == "unknown_terminal"
