"""The bridge's end of a link, spoken to frame by frame."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from sandbox.bridge.agent.link import BAD_FRAME, GOING
from sandbox.protocol.agent import MAX_DOWN
from sandbox.protocol.websocket_frames import BINARY, CLOSE, PING, PONG, TEXT, FrameReader, client_frame, frame
from tests.support.bridge import TOKEN, BridgeProcess, Owner, running_bridge
from tests.support.waiting import until

ATTACH = client_frame(TEXT, b'{"type":"attach"}')
START = client_frame(TEXT, b'{"type":"start"}')


class RawGateway:
    """A gateway that sends what it is told to, and reads one frame at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._frames = FrameReader(MAX_DOWN, 1, masked=False)

    async def next(self) -> tuple[int, bytes]:
        """The next frame; (CLOSE, b"") when the connection ends without one."""
        while (found := self._frames.read()) is None:
            data = await self._reader.read(65536)
            if not data:
                return CLOSE, b""
            self._frames.feed(data)
        return found

    async def until(self, wanted: Callable[[int, bytes], bool]) -> tuple[int, bytes]:
        while not wanted(*(found := await self.next())):
            assert found[0] != CLOSE, found
        return found

    async def says(self, kind: str) -> dict[str, object]:
        """The next control message of this kind."""
        _, payload = await self.until(lambda opcode, text: opcode == TEXT and msgspec.json.decode(text)["type"] == kind)
        message: dict[str, object] = msgspec.json.decode(payload)
        return message

    async def close_code(self) -> int:
        opcode, payload = await self.next()
        while opcode != CLOSE:
            opcode, payload = await self.next()
        return int.from_bytes(payload[:2], "big")


@asynccontextmanager
async def raw_gateway(bridge: BridgeProcess, first: bytes = b"") -> AsyncIterator[RawGateway]:
    reader, writer = await asyncio.open_unix_connection(bridge.path)
    writer.write(
        b"GET /agent HTTP/1.1\r\nHost: bridge\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Authorization: Bearer %b\r\n\r\n" % TOKEN.encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), head
    writer.write(first)
    try:
        yield RawGateway(reader, writer)
    finally:
        writer.close()


@pytest.fixture(scope="module")
def cat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    with running_bridge(tmp_path_factory.mktemp("bridge"), ["cat"]) as bridge:
        yield bridge


BROKEN = {
    "a ping before the attach": client_frame(TEXT, b'{"type":"ping","n":1}'),
    "a delivery before the attach": client_frame(BINARY, b"1 line"),
    "no JSON": ATTACH + client_frame(TEXT, b"{"),
    "no UTF-8": ATTACH + client_frame(TEXT, b'{"type":"\xff"}'),
    "a second attach": ATTACH + ATTACH,
    "a delivery without a number": ATTACH + client_frame(BINARY, b"line"),
    "too long": ATTACH + b"\x82\xff" + (MAX_DOWN + 1).to_bytes(8, "big") + bytes(4),
    "not masked": ATTACH + frame(TEXT, b'{"type":"ping","n":1}'),
    "an unknown type of frame": ATTACH + b"\x83" + client_frame(BINARY, b"")[1:],
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN.keys())
async def test_a_gateway_that_breaks_the_rules_is_let_go(cat: BridgeProcess, sent: bytes) -> None:
    async with raw_gateway(cat, sent) as gateway:
        assert await gateway.close_code() == BAD_FRAME


async def test_a_gateway_that_does_not_attach_is_let_go(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], limits={"attach_seconds": 0.1}) as bridge:
        async with raw_gateway(bridge) as gateway:
            assert await gateway.close_code() == BAD_FRAME


async def test_a_ping_of_the_websocket_is_answered_at_any_time(cat: BridgeProcess) -> None:
    async with raw_gateway(cat, client_frame(PING, b"before")) as gateway:
        assert await gateway.next() == (PONG, b"before")
        gateway.writer.write(client_frame(PONG, b"unasked") + ATTACH)
        await gateway.says("hello")
        gateway.writer.write(client_frame(PING, b"after"))
        assert await gateway.until(lambda opcode, _: opcode == PONG) == (PONG, b"after")


async def test_a_ping_of_the_websocket_takes_the_place_of_nothing(cat: BridgeProcess) -> None:
    """The pong took the place of a hello that waited for the same write."""
    async with raw_gateway(cat, ATTACH + client_frame(PING, b"first") + client_frame(PING, b"newest")) as gateway:
        await gateway.says("hello")
        await gateway.until(lambda opcode, payload: (opcode, payload) == (PONG, b"newest"))


async def test_a_close_is_answered(cat: BridgeProcess) -> None:
    async with raw_gateway(cat, ATTACH) as gateway:
        await gateway.says("hello")
        gateway.writer.write(client_frame(CLOSE, b"\x03\xe8bye"))
        assert await gateway.close_code() == 1000
        assert await gateway.next() == (CLOSE, b"")


READS_WHEN_TOLD = """
import os, sys, time
while not os.path.exists("go"):
    time.sleep(0.01)
for line in sys.stdin:
    print(line.split()[0], flush=True)
"""


async def test_what_the_queue_has_no_room_for_is_not_read_and_comes_in_order(tmp_path: Path) -> None:
    agent = [sys.executable, "-u", "-c", READS_WHEN_TOLD]
    with running_bridge(tmp_path, agent, limits={"queue_lines": 2}) as bridge:
        async with raw_gateway(bridge, ATTACH + START) as gateway:
            await gateway.says("epoch")
            records = [b"%d %d %b" % (seq, seq, b"x" * 10_000) for seq in range(1, 41)]
            for first in range(0, 40, 8):  # more than the pipe and the queue take
                gateway.writer.write(client_frame(BINARY, b"\n".join(records[first : first + 8])))
            gateway.writer.write(client_frame(TEXT, b'{"type":"ping","n":7}'))
            async with bridge.client() as http:
                assert (await http.get("/health")).status_code == 200
            (bridge.workspace / "go").touch()
            lines: list[bytes] = []
            ponged = False
            while len(lines) < 40 or not ponged:
                opcode, payload = await gateway.next()
                assert opcode in (TEXT, BINARY)
                if opcode == BINARY:
                    lines += payload.split(b"\n")
                ponged = ponged or payload == b'{"type":"pong","n":7}'
            assert lines == [b"%d" % seq for seq in range(1, 41)]


async def test_a_bridge_that_ends_tells_its_agents_exit_and_says_goodbye(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        async with raw_gateway(bridge, ATTACH + START) as gateway:
            await gateway.says("epoch")
            bridge.signal(signal.SIGTERM)
            assert (await gateway.says("exit"))["code"] == 0
            assert await gateway.close_code() == GOING


async def test_a_gateway_that_does_not_read_holds_up_no_end(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["yes"]) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        await until(lambda: owner.received)
        link.pause_reading()
        assert await asyncio.to_thread(bridge.terminate) == 0


async def test_records_of_one_message_are_confirmed_together(cat: BridgeProcess) -> None:
    async with raw_gateway(cat, ATTACH + START) as gateway:
        first = int(str((await gateway.says("hello"))["taken"])) + 1
        await gateway.says("epoch")
        lines = [b"%d" % seq for seq in range(first, first + 50)]
        gateway.writer.write(client_frame(BINARY, b"\n".join(b"%b %b" % (line, line) for line in lines)))
        said: list[bytes] = []
        confirmed: list[object] = []
        while len(said) < 50 or not confirmed or confirmed[-1] != first + 49:
            opcode, payload = await gateway.next()
            if opcode == BINARY:
                said += payload.split(b"\n")
            elif (message := msgspec.json.decode(payload))["type"] == "taken":
                confirmed.append(message["seq"])
        assert said == lines
        assert confirmed == [first + 49]


COUNTS_WHEN_TOLD = """
import os, signal
def count(number, frame):
    os.set_blocking(0, False)
    found = b""
    try:
        while chunk := os.read(0, 1 << 20):
            found += chunk
    except BlockingIOError:
        pass
    with open("counting", "w") as file:
        file.write(str(found.count(b"\\n")))
    os.rename("counting", "count")
signal.signal(signal.SIGUSR1, count)
with open("starting", "w") as file:
    file.write(str(os.getpid()))
os.rename("starting", "pid")
while True:
    signal.pause()
"""


async def test_what_does_not_fit_into_an_agents_input_is_not_taken(tmp_path: Path) -> None:
    with running_bridge(tmp_path, [sys.executable, "-c", COUNTS_WHEN_TOLD]) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        pid_file, counted = bridge.workspace / "pid", bridge.workspace / "count"
        await until(pid_file.exists)
        for seq in range(1, 2001):
            link.deliver(seq, b"%0100d" % seq)
        await until(lambda: owner.taken > 500)
        async with bridge.client() as http:  # it has done all it could with what it was sent before
            await http.get("/health")
        bridge.signal(signal.SIGSTOP)  # it takes nothing more while the agent reads
        os.kill(int(pid_file.read_text()), signal.SIGUSR1)
        await until(counted.exists)
        noted = int((tmp_path / "state" / "taken").read_bytes().split()[2])
        assert noted < 2000
        assert 0 <= noted - int(counted.read_text()) <= 1  # one may be written in part
