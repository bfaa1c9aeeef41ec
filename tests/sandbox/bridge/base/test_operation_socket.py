"""The tree's WebSocket on our own frames, against the client that the gateway uses for it, and against rude ones."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from sandbox.bridge.base.operation_socket import MESSAGES_AHEAD, Gone, OperationSocket
from sandbox.protocol.websocket_frames import BINARY, CLOSE, PING, PONG, TEXT, FrameReader, client_frame
from tests.support.waiting import until

MAX = 1 << 20


@dataclass
class Ends:
    """Both ends of one connection: ours, and the other's as bytes."""

    ours: OperationSocket
    transport: asyncio.Transport
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def say(self, opcode: int, payload: bytes) -> None:
        self.writer.write(client_frame(opcode, payload))

    async def hear(self) -> list[tuple[int, bytes]]:
        """All frames until the connection ends."""
        frames, found = FrameReader(MAX, 1, masked=False), []
        async with asyncio.timeout(60):
            frames.feed(await self.reader.read())
        while (message := frames.read()) is not None:
            found.append(message)
        return found


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=near)
    ours = OperationSocket(transport, MAX)
    transport.set_protocol(ours)
    reader, writer = await asyncio.open_connection(sock=far, limit=1 << 24)
    yield Ends(ours, transport, reader, writer)
    transport.abort()
    writer.close()


async def heard(ours: OperationSocket) -> Any:
    async with asyncio.timeout(60):
        return await ours.receive()


async def test_messages_pass_both_ways_in_order(ends: Ends) -> None:
    for number in range(20):
        ends.say(BINARY, b"%d" % number * 1000)
    assert [(await heard(ends.ours))["bytes"] for _ in range(20)] == [b"%d" % number * 1000 for number in range(20)]
    for number in range(20):
        await ends.ours.send_bytes(b"%d" % number)
    await ends.ours.close()
    ends.say(CLOSE, b"")
    found = await ends.hear()
    assert found == [*((BINARY, b"%d" % number) for number in range(20)), (CLOSE, (1000).to_bytes(2, "big"))]


async def test_a_ping_is_answered_while_nobody_listens(ends: Ends) -> None:
    ends.say(PING, b"there?")
    ends.say(CLOSE, b"")
    assert (await ends.hear())[0] == (PONG, b"there?")


async def test_what_nobody_takes_stays_with_the_sender(ends: Ends) -> None:
    count = 64
    for _ in range(count):
        ends.say(BINARY, bytes(MAX // 4))
    await until(lambda: not ends.transport.is_reading())
    assert len(ends.ours._messages) == MESSAGES_AHEAD
    assert [len((await heard(ends.ours))["bytes"]) for _ in range(count)] == [MAX // 4] * count


async def test_a_sender_waits_for_one_who_does_not_read(ends: Ends) -> None:
    async def send() -> None:
        while True:
            await ends.ours.send_bytes(bytes(MAX))

    sending = asyncio.create_task(send())
    await until(lambda: not ends.ours._room.is_set())
    assert not sending.done()
    ends.writer.close()
    with pytest.raises(Gone):
        await sending


async def test_a_sender_learns_at_once_that_a_write_failed(ends: Ends) -> None:
    ends.transport.pause_reading()  # so that the write is the first to meet the end
    ends.writer.transport.abort()
    await until(lambda: ends.writer.get_extra_info("socket").fileno() == -1)
    with pytest.raises(Gone):  # the loop does not turn meanwhile
        await ends.ours.send_bytes(b"nobody is there")


@pytest.mark.parametrize(
    "rude",
    [
        lambda: client_frame(TEXT, b"words"),
        lambda: client_frame(BINARY, bytes(MAX + 1)),
        lambda: b"\x82\x01x",  # not masked
        lambda: b"\x83\x80\0\0\0\0",  # no such frame
    ],
    ids=["text", "too long", "unmasked", "unknown"],
)
async def test_who_breaks_the_rules_is_told_and_heard_no_more(ends: Ends, rude: Callable[[], bytes]) -> None:
    ends.writer.write(rude())
    assert (await heard(ends.ours))["type"] == "websocket.disconnect"
    with pytest.raises(Gone):
        await ends.ours.send_bytes(b"more")
    ends.say(BINARY, b"and more")
    ((opcode, payload),) = await ends.hear()  # cut off in the end, although the other says no goodbye
    assert (opcode, int.from_bytes(payload[:2], "big") in (1002, 1003, 1009)) == (CLOSE, True)


async def test_one_who_leaves_without_a_word_is_gone(ends: Ends) -> None:
    ends.say(BINARY, b"the last")
    await ends.writer.drain()
    ends.writer.close()
    assert (await heard(ends.ours))["bytes"] == b"the last"
    assert (await heard(ends.ours))["type"] == "websocket.disconnect"


async def test_what_was_on_its_way_at_a_close_is_dropped_and_the_answer_is_found(ends: Ends) -> None:
    for _ in range(4 * MESSAGES_AHEAD):
        ends.say(BINARY, b"on its way")
    await until(lambda: not ends.transport.is_reading())
    await ends.ours.close()
    ends.say(CLOSE, b"")
    assert await ends.hear() == [(CLOSE, (1000).to_bytes(2, "big"))]
    assert (await heard(ends.ours))["type"] == "websocket.disconnect"
