"""The gateway's end of a link, against bridges that behave in ways no real bridge would."""

import asyncio
import contextlib
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from sandbox.client import agent_link as link_module
from sandbox.client.agent_link import BridgeLink, Timings, connect
from sandbox.client.endpoint import UnixEndpoint
from sandbox.ports.link import LinkRefused
from sandbox.protocol import agent as wire
from sandbox.protocol.values import AgentExit, Hello, Position
from tests.support.bridge import TOKEN, Owner
from tests.support.waiting import until

HELLO = Hello("taker", 0, None, False, False)


class Stage:
    """A scripted bridge: it hears everything, and says only what a test tells it to."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.heard: list[str | bytes] = []
        self.requests: list[Request] = []
        self.reads = 0
        self.writer: asyncio.StreamWriter | None = None
        self.answer_status = 101
        self.mute = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        protocol = ServerProtocol(max_size=None)
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(1 << 20):
                self.reads += 1
                protocol.receive_data(chunk)
                for event in protocol.events_received():
                    if isinstance(event, Request):
                        self.requests.append(event)
                        accept = protocol.accept(event)
                        if self.answer_status != 101:
                            accept = protocol.reject(self.answer_status, "no")
                        if not self.mute:
                            protocol.send_response(accept)
                    elif isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY):
                        data = bytes(event.data)
                        self.heard.append(data.decode() if event.opcode is Opcode.TEXT else data)
                writer.write(b"".join(protocol.data_to_send()))
                await writer.drain()
        writer.close()

    def frame(self, opcode: Opcode, payload: bytes, fin: bool = True) -> None:
        self.raw(Frame(opcode, payload, fin=fin).serialize(mask=False))

    def raw(self, data: bytes) -> None:
        assert self.writer is not None
        self.writer.write(data)

    def say(self, *messages: wire.Up | bytes) -> None:
        for message in messages:
            if isinstance(message, bytes):
                self.frame(Opcode.BINARY, message)
            else:
                self.frame(Opcode.TEXT, wire.encode(message))

    async def link(self, owner: Owner, after: Position | None = None, **timings: float) -> BridgeLink:
        return await connect(UnixEndpoint(self.path, TOKEN), owner, after, timings=Timings(**timings))


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(str(tmp_path / "stage.sock"))
    server = await asyncio.start_unix_server(stage.serve, stage.path)
    yield stage
    server.close()
    if stage.writer is not None:
        stage.writer.transport.abort()
        with contextlib.suppress(OSError):
            await stage.writer.wait_closed()


async def test_the_handshake_carries_the_token_and_the_position(stage: Stage) -> None:
    link = await stage.link(Owner(), Position("e1", 41))
    await until(lambda: stage.heard)
    assert stage.requests[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert stage.requests[0].path == "/agent"
    assert "Sec-WebSocket-Extensions" not in stage.requests[0].headers
    assert stage.heard == ['{"type":"attach","epoch":"e1","offset":41}']
    link.close()


async def test_no_event_comes_before_the_caller_has_the_link(stage: Stage) -> None:
    owner = Owner()
    link = await stage.link(owner)
    assert owner.order == []
    stage.say(HELLO)
    await until(lambda: owner.hellos)
    link.close()


@pytest.mark.parametrize(("status", "reason"), [(401, "token"), (404, "404"), (500, "500")])
async def test_a_refusal_is_told(stage: Stage, status: int, reason: str) -> None:
    stage.answer_status = status
    with pytest.raises(LinkRefused, match=reason):
        await stage.link(Owner())


async def test_nobody_there_is_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(LinkRefused, match="No such file"):
        await Stage(str(tmp_path / "nothing")).link(Owner())


async def test_a_mute_bridge_is_a_refusal_and_leaves_no_connection(stage: Stage) -> None:
    stage.mute = True
    with pytest.raises(LinkRefused, match="does not answer"):
        await stage.link(Owner(), handshake_seconds=0.05)
    await until(lambda: stage.writer is not None and stage.writer.is_closing())


async def test_garbage_instead_of_a_handshake_is_a_refusal(tmp_path: Path) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00garbage" * 2000 + b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    path = str(tmp_path / "s")
    server = await asyncio.start_unix_server(babble, path)
    with pytest.raises(LinkRefused):
        await Stage(path).link(Owner())
    server.close()


async def test_a_bridge_without_hello_is_lost(stage: Stage) -> None:
    owner = Owner()
    await stage.link(owner, handshake_seconds=0.1)
    await until(lambda: owner.lost)
    assert owner.lost == ["the bridge says no hello"]


async def test_a_whole_conversation_is_passed_on_in_order(stage: Stage) -> None:
    owner = Owner()
    link = await stage.link(owner)
    link.deliver(1, b"x")
    await until(lambda: b"1 x" in stage.heard)
    exit = AgentExit("e", 5, 1, None, "SIGKILL", "killed")
    stage.say(HELLO, wire.Epoch("e", 2), b"a\nb", b"", wire.Changed(), wire.Taken(1), wire.Problem("hm"), exit)
    await until(lambda: owner.exits)
    assert owner.changes == 1
    assert owner.order == ["hello", "epoch", "frames", "frames", "taken", "problem", "exit"]
    assert owner.output == {"e": {3: b"a", 4: b"b", 5: b""}}
    assert (owner.exits, owner.problems, owner.lost) == ([exit], ["hm"], [])
    await until(lambda: '{"type":"ready","epoch":"e"}' in stage.heard)
    link.close()


async def test_fragments_are_put_together(stage: Stage) -> None:
    owner = Owner()
    link = await stage.link(owner)
    stage.say(HELLO, wire.Epoch("e", 0))
    stage.frame(Opcode.BINARY, b"a", fin=False)
    stage.frame(Opcode.PING, b"")
    stage.frame(Opcode.CONT, b"b", fin=False)
    stage.frame(Opcode.CONT, b"c\nd")
    stage.frame(Opcode.TEXT, b'{"type":"problem",', fin=False)
    stage.frame(Opcode.CONT, b'"reason":"r"}')
    await until(lambda: owner.problems)
    assert owner.lines() == [b"abc", b"d"]
    link.close()


def flood(opcode: Opcode, payload: bytes, fin: bool = True) -> Callable[[Stage], None]:
    return lambda stage: stage.raw(Frame(opcode, payload, fin=fin).serialize(mask=False) * 3000)


def fragments(stage: Stage) -> None:
    stage.frame(Opcode.BINARY, b"x", fin=False)
    flood(Opcode.CONT, b"y", fin=False)(stage)


def said(*messages: wire.Up | bytes) -> Callable[[Stage], None]:
    return lambda stage: stage.say(*messages)


def text(payload: bytes) -> Callable[[Stage], None]:
    return lambda stage: stage.frame(Opcode.TEXT, payload)


HOSTILE: dict[str, Callable[[Stage], None]] = {
    "a second hello": said(HELLO),
    "not JSON": text(b"{"),
    "not UTF-8": text(b"\xff\xfe"),
    "not an object": text(b"[]"),
    "nested for ever": text(b"[" * 4000),
    "an unknown type": text(b'{"type":"attach","epoch":null,"offset":0}'),
    "a long control message": text(b'{"type":"problem","reason":"' + b"x" * 9000 + b'"}'),
    "output of nobody": said(b"x"),
    "output after the exit": said(wire.Epoch("e", 0), AgentExit("e", 0, 0, 0, None, ""), b"x"),
    "an exit with a wrong count": said(wire.Epoch("e", 0), b"x", AgentExit("e", 2, 0, 0, None, "")),
    "an exit of somebody else": said(wire.Epoch("e", 0), AgentExit("f", 0, 0, 0, None, "")),
    "an epoch that goes back": said(wire.Epoch("e", 7), wire.Epoch("e", 6)),
    "a confirmation of nothing": said(wire.Taken(1)),
    "an unasked pong": said(wire.Pong(0)),
    "an endless line": said(wire.Epoch("e", 0), b"x" * (wire.MAX_LINE + 1)),
    "a huge frame": lambda stage: stage.raw(b"\x82\x7f" + (2**62).to_bytes(8, "big") + b"x" * 100_000),
    "a frame beyond the bound": said(wire.Epoch("e", 0), b"x\n" * (wire.MAX_UP // 2 + 1)),
    "one-byte fragments": fragments,
    "a masked frame": lambda stage: stage.raw(Frame(Opcode.BINARY, b"x").serialize(mask=True)),
    "reserved bits": lambda stage: stage.raw(b"\xf2\x01x"),
    "a lone continuation": lambda stage: stage.frame(Opcode.CONT, b"x"),
    "a flood of pings": flood(Opcode.PING, b"x" * 100),
    "a flood of pongs": flood(Opcode.PONG, b"x"),
    "a flood of problems": flood(Opcode.TEXT, wire.encode(wire.Problem("x"))),
    "a flood of hints": flood(Opcode.TEXT, wire.encode(wire.Changed())),
    "a flood of epochs": lambda stage: stage.say(*(wire.Epoch("e", n) for n in range(3000))),
    "a close": lambda stage: stage.frame(Opcode.CLOSE, b"\x03\xe8bye"),
    "a cut": lambda stage: stage.writer.transport.abort(),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_bridge_loses_its_link_once_and_harms_nothing(stage: Stage, name: str) -> None:
    owner = Owner()
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    link = await stage.link(owner)
    stage.say(HELLO)
    await until(lambda: owner.hellos)
    HOSTILE[name](stage)
    await until(lambda: owner.lost)
    await until(lambda: stage.writer is not None and stage.writer.is_closing())
    assert len(owner.lost) == 1
    assert owner.order[-1] == "lost"
    assert len(owner.problems) + owner.changes <= link_module.MAX_ASIDES
    before = list(owner.order)
    link.deliver(1, b"x")
    link.start(b"x")
    link.inject(b"x")
    link.interrupt()
    link.stop_agent()
    link.kill_agent()
    link.confirm(Position("e", 1))
    link.pause_reading()
    link.resume_reading()
    link.close()
    await asyncio.sleep(0)
    assert (owner.order, complaints) == (before, [])


async def test_what_is_sent_in_one_turn_leaves_in_one_message_and_order_is_kept(stage: Stage) -> None:
    link = await stage.link(Owner())
    await until(lambda: stage.heard)
    stage.heard.clear()
    reads = stage.reads
    link.deliver(1, b"a")
    link.deliver(2, b"b")
    link.confirm(Position("e", 1))
    link.interrupt()
    link.deliver(3, b"c")
    link.confirm(Position("e", 2))
    link.deliver(4, b"d")
    await until(lambda: len(stage.heard) >= 4)
    assert stage.heard == [b"1 a\n2 b", '{"type":"interrupt"}', b"3 c\n4 d", '{"type":"seen","epoch":"e","offset":2}']
    assert stage.reads == reads + 1
    link.close()


async def test_large_deliveries_are_spread_over_messages_that_fit(stage: Stage) -> None:
    link = await stage.link(Owner())
    line = b"z" * (900 * 1024)
    for seq in range(1, 6):
        link.deliver(seq, line)
    await until(lambda: sum(part.count(b"z") for part in stage.heard if isinstance(part, bytes)) == 5 * len(line))
    assert max(map(len, stage.heard)) <= wire.MAX_UP
    with pytest.raises(ValueError, match="one line"):
        link.deliver(6, b"a\nb")
    with pytest.raises(ValueError, match="one line"):
        link.deliver(6, b"x" * (wire.MAX_DELIVERY + 1))
    link.close()


async def test_a_start_that_cannot_be_sent_is_a_problem(stage: Stage) -> None:
    owner = Owner()
    link = await stage.link(owner)
    for line in (b"\xff", b'"' * wire.MAX_DOWN):
        link.start(line)
        link.inject(line)
    await until(lambda: len(owner.problems) == 4)
    assert owner.lost == []
    link.close()


async def test_a_bridge_that_does_not_read_is_lost(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_UNSENT", 1024 * 1024)
    owner = Owner()
    link = await stage.link(owner)
    await until(lambda: stage.heard)
    assert stage.writer is not None
    stage.writer.transport.pause_reading()  # type: ignore[attr-defined]
    seq = 0
    while not owner.lost:
        seq += 1
        assert seq < 1000
        link.deliver(seq, b"x" * 100_000)
        await asyncio.sleep(0)
    assert owner.lost == ["the bridge does not read"]


async def answer_pings(stage: Stage, times: int) -> None:
    for n in range(1, times + 1):
        ping = f'{{"type":"ping","n":{n}}}'
        await until(partial(stage.heard.__contains__, ping))
        stage.say(wire.Pong(n))


async def test_a_heartbeat_that_stops_is_noticed(stage: Stage) -> None:
    owner = Owner()
    await stage.link(owner, ping_seconds=0.01, pong_seconds=5.0)
    stage.say(HELLO)
    await answer_pings(stage, 3)
    assert owner.lost == []
    await until(lambda: owner.lost)
    assert owner.lost == ["the bridge fell silent"]


async def test_a_bridge_that_dies_with_its_last_words_is_noticed_as_soon_as_one_that_dies_in_silence(
    stage: Stage,
) -> None:
    owner = Owner()
    await stage.link(owner, ping_seconds=0.01, pong_seconds=5.0)
    stage.say(HELLO, wire.Epoch("e", 0))
    await until(lambda: '{"type":"ping","n":1}' in stage.heard)
    await asyncio.sleep(0.1)
    stage.say(wire.Problem("last words"))
    await until(lambda: owner.problems)
    began = asyncio.get_running_loop().time()
    await until(lambda: owner.lost)
    assert owner.lost == ["the bridge fell silent"]
    assert asyncio.get_running_loop().time() - began < 8, "counted from its last words, not from our next look"


async def test_while_nobody_reads_silence_says_nothing(stage: Stage) -> None:
    owner = Owner()
    link = await stage.link(owner, ping_seconds=0.05, pong_seconds=2.0)
    stage.say(HELLO, wire.Epoch("e", 0))
    await until(lambda: owner.epochs)
    link.pause_reading()
    link.pause_reading()
    await until(lambda: '{"type":"ping","n":1}' in stage.heard)
    stage.say(b"waiting", wire.Pong(1))
    began = asyncio.get_running_loop().time()
    await until(lambda: asyncio.get_running_loop().time() > began + 3)
    assert (owner.received, owner.lost) == (0, [])
    link.resume_reading()
    await until(lambda: owner.received)
    await until(lambda: '{"type":"ping","n":2}' in stage.heard)
    await until(lambda: owner.lost)


async def test_a_closed_link_says_goodbye_and_tells_nobody(stage: Stage) -> None:
    owner = Owner()
    link = await stage.link(owner)
    link.deliver(9, b"last")
    link.close()
    link.close()
    assert link.closed
    await until(lambda: b"9 last" in stage.heard)
    await until(lambda: stage.writer is not None and stage.writer.is_closing())
    assert owner.order == []


async def test_an_owner_may_close_in_the_middle_of_an_event(stage: Stage) -> None:
    class Impatient(Owner):
        def on_epoch(self, epoch: str, base: int) -> None:
            super().on_epoch(epoch, base)
            link.close()

    owner = Impatient()
    link = await stage.link(owner)
    stage.say(HELLO, wire.Epoch("e", 0), b"x")
    await until(lambda: owner.epochs)
    await until(lambda: stage.writer is not None and stage.writer.is_closing())
    assert owner.order == ["hello", "epoch"]


async def test_a_cancelled_connect_leaves_no_connection(stage: Stage) -> None:
    stage.mute = True
    task = asyncio.create_task(stage.link(Owner()))
    await until(lambda: stage.requests)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: stage.writer is not None and stage.writer.is_closing())


async def test_an_idle_link_is_small(tmp_path: Path) -> None:
    stages = Stage(str(tmp_path / "s"))
    server = await asyncio.start_unix_server(stages.serve, stages.path, limit=1024, backlog=200)
    owner = Owner()
    links = [await stages.link(owner)]
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(100):
            links.append(await stages.link(owner))
        await until(lambda: len(stages.heard) == 101)
        gc.collect()
        ours = (link_module.__file__, wire.__file__, "*/websockets/*")
        filters = [tracemalloc.Filter(True, pattern) for pattern in ours]
        snapshot = tracemalloc.take_snapshot().filter_traces(filters)
        size = sum(item.size for item in snapshot.statistics("filename"))
    finally:
        tracemalloc.stop()
    # The scripted server's own protocol objects are of the same library and count too: two ends in this figure.
    assert 1024 < size / 100 < 16 * 1024
    for link in links:
        link.close()
    await until(lambda: stages.writer is not None and stages.writer.is_closing())
    server.close()


async def test_a_bridge_from_before_is_asked_nothing_back(stage: Stage) -> None:
    owner = Owner()
    link = await stage.link(owner)
    assert link.recall(1), "its hello will tell what it took"
    stage.say(HELLO)
    await until(lambda: bool(owner.hellos))
    link.deliver(1, b"one")
    assert not link.recall(1)
    link.drop(1)
    link.inject(b"last")
    await until(lambda: any(isinstance(each, str) and "last" in each for each in stage.heard))
    assert not [each for each in stage.heard if isinstance(each, str) and ("recall" in each or "drop" in each)]
    link.close()


async def test_a_record_is_asked_back_and_what_nobody_asked_for_loses_the_link(stage: Stage) -> None:
    owner = Owner()
    link = await stage.link(owner)
    stage.say(Hello("taker", 0, None, False, False, recalls=True))
    await until(lambda: bool(owner.hellos))
    link.deliver(1, b"one")
    link.deliver(2, b"two")
    assert link.recall(2)
    await until(lambda: '{"type":"recall","seq":2}' in stage.heard)
    stage.say(wire.Recalled(2))
    await until(lambda: owner.recalled == [2])
    link.drop(2)
    await until(lambda: '{"type":"drop","seq":2}' in stage.heard)
    stage.say(wire.Recalled(1))
    await until(lambda: bool(owner.lost))
    assert "a recall that does not fit" in owner.lost[0]
    assert link.recall(1), "a link that is lost says nothing: the next one's hello will tell"
