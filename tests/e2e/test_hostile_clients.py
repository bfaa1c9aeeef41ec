"""What a hostile WebSocket client may cost: each row attacks a real server process, with a bound on its memory."""

import asyncio
import re
import zlib
from contextlib import suppress

import pytest

from tests.support.front_door import Door
from tests.support.hostile import (
    AUTH,
    CLOSE,
    MIB,
    PING,
    PONG,
    RELAY,
    TEXT,
    assert_healthy,
    memory,
    opened,
    raw,
    send_until_refused,
    warm_up,
)
from tests.support.raw_client import masked, upgrade
from tests.support.waiting import until

# Reading and not reading


async def test_a_browser_that_stops_reading_is_closed_as_too_slow(impatient: Door) -> None:
    mark = len(impatient.log)
    async with memory(impatient, 8 * MIB), raw(impatient) as client:
        await client.open("/ws/sandboxes/s", RELAY)
        client.stop_reading()
        await until(lambda: "too_slow" in impatient.log[mark:])
        client.read_on()
        assert await client.close_code() == 4408


async def test_an_outlet_takes_no_more_than_its_bound_and_then_closes(door: Door) -> None:
    async with memory(door, 8 * MIB), opened(door, "/terminal/slow") as client:
        client.stop_reading()
        await client.send(masked(TEXT, b"flood"))

        found = await until(lambda: re.search(r"(?m)^accepted .*\n", door.log), "what it took")
        line = found[0]
        taken, asked, buffered = (int(word.strip(",")) for word in (line.split()[1], line.split()[3], line.split()[5]))
        assert taken < asked
        assert buffered <= MIB + 65536 + 100
        client.read_on()
        assert await client.close_code() == 4408


async def test_a_peer_that_neither_reads_nor_answers_the_close_is_cut(impatient: Door) -> None:
    seen = impatient.log.count("the app saw the disconnect")
    async with opened(impatient, "/terminal/deaf") as client:
        client.stop_reading()
        await client.send(masked(TEXT, b"flood"))
        await until(lambda: impatient.log.count("the app saw the disconnect") > seen)
        await until(lambda: impatient.connections == 0)


async def test_a_download_that_is_not_read_is_given_up(impatient: Door) -> None:
    mark = len(impatient.log)
    async with memory(impatient, 4 * MIB), raw(impatient) as client:
        client.stop_reading()
        await client.send(f"GET /files/s/big HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n\r\n".encode())
        await until(lambda: '"path":"/files/s/big"' in impatient.log[mark:])  # the app's part has ended
        await until(lambda: impatient.connections == 0)


async def test_a_ping_flood_is_bounded_and_closed(door: Door) -> None:
    async with memory(door, 4 * MIB), opened(door) as client:
        client.stop_reading()
        flood = masked(PING, b"x" * 125) * 500
        await send_until_refused(client, flood, 100)
        client.read_on()
        assert await client.close_code() in (4429, None)
    assert "frame_4429" in door.log
    await assert_healthy(door)


async def test_only_the_newest_of_several_pings_is_answered(door: Door) -> None:
    async with opened(door) as client:
        await client.send(b"".join(masked(PING, str(number).encode()) for number in range(50)))
        await client.send(masked(TEXT, b"after"))
        pongs = []
        while (got := await client.frame())[0] != TEXT:
            pongs.append(got)
        assert pongs[-1] == (PONG, b"49")
        assert len(pongs) < 10


async def test_one_byte_fragments_are_bounded(door: Door) -> None:
    async with memory(door, 4 * MIB), opened(door) as client:
        await client.send(masked(TEXT, b"a", fin=False))
        await send_until_refused(client, masked(0, b"b", fin=False) * 100, 200)
        assert await client.close_code() in (1009, None)
    assert "frame_1009" in door.log
    async with opened(door) as client:
        await client.send(masked(TEXT, b"a", fin=False) + masked(0, b"b", fin=False) * 1022 + masked(0, b"c"))
        assert await client.frame() == (TEXT, b"a" + b"b" * 1022 + b"c")


async def test_a_message_above_the_bound_is_refused_at_its_first_bytes(door: Door) -> None:
    async with memory(door, 4 * MIB), opened(door) as client:
        await client.send(b"\x81\xff" + (MIB + 1).to_bytes(8, "big") + b"\0\0\0\0")
        assert await client.close_code() == 1009
    async with opened(door) as client:
        await client.send(masked(TEXT, b"x" * MIB))
        assert await client.frame() == (TEXT, b"x" * MIB)


@pytest.mark.parametrize(
    ("path", "data", "code"),
    [
        ("/ws/v2?sessionId=s", b"\x81\x02hi", 1002),
        ("/ws/v2?sessionId=s", masked(TEXT, b"\xff\xfe"), 1007),
        ("/terminal/s", masked(TEXT, b"\xff\xfe"), 1007),
        ("/terminal/s", masked(2, b"binary"), 4400),
        ("/terminal/s", masked(TEXT, b"crash"), 1011),
        ("/terminal/s", masked(TEXT, b"close"), 4404),
        ("/ws/v2?sessionId=s", masked(CLOSE, b"\x03\xe8"), 1000),
        ("/ws/v2?sessionId=s", masked(CLOSE, b""), 0),  # a close without a code is answered likewise
        ("/ws/v2?sessionId=s", masked(CLOSE, b"\x03"), 1002),
        ("/ws/v2?sessionId=s", masked(CLOSE, b"\x03\xe8\xff"), 1002),
    ],
)
async def test_a_bad_frame_ends_its_connection_with_the_code_that_says_why(
    door: Door, path: str, data: bytes, code: int
) -> None:
    async with opened(door, path) as client:
        await client.send(data)
        assert await client.close_code() == code


async def test_many_small_messages_wait_in_the_transport_not_in_memory(door: Door) -> None:
    async with memory(door, 4 * MIB), opened(door) as client:
        client.stop_reading()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.7):
                await send_until_refused(client, masked(TEXT, b"{}") * 1000, 10_000)


async def test_nothing_is_compressed_unless_asked_and_a_bomb_does_not_go_off(door: Door) -> None:
    offer = "Sec-WebSocket-Extensions: permessage-deflate"
    async with raw(door) as client:
        await client.send(upgrade("/ws/v2?sessionId=s", AUTH, offer))
        assert "permessage-deflate" not in (await client.head())[1].lower()
    with Door.open(compression="true") as packed:
        warm_up(packed)
        async with memory(packed, 4 * MIB), raw(packed) as client:
            await client.send(upgrade("/ws/v2?sessionId=s", AUTH, offer))
            assert "permessage-deflate" in (await client.head())[1].lower()
            squeeze = zlib.compressobj(9, zlib.DEFLATED, -12)
            bomb = (squeeze.compress(bytes(MIB)) + squeeze.flush(zlib.Z_FULL_FLUSH)) * 100
            wire = bytearray(masked(TEXT, bomb[:-4]))
            wire[0] |= 0x40
            await client.send(bytes(wire))
            assert await client.close_code() == 1009
        async with raw(packed) as client:
            await client.send(upgrade("/ws/v2?sessionId=s", AUTH, offer))
            await client.head()
            squeeze = zlib.compressobj(9, zlib.DEFLATED, -12)
            wire = bytearray(masked(TEXT, squeeze.compress(b"hello") + squeeze.flush(zlib.Z_SYNC_FLUSH)[:-4]))
            wire[0] |= 0x40
            await client.send(bytes(wire))
            opcode, payload = await client.frame()
            assert zlib.decompressobj(-12).decompress(payload + b"\0\0\xff\xff") == b"hello"
            assert opcode == TEXT


# Silence


async def test_a_silent_peer_is_pinged_and_cut_and_one_that_answers_is_kept(impatient: Door) -> None:
    mark = len(impatient.log)
    async with opened(impatient) as silent, opened(impatient) as lively:
        pinged = asyncio.create_task(silent.frame())
        for _ in range(5):
            assert await lively.frame() == (PING, b"")
            await lively.send(masked(PONG, b""))
        assert await pinged == (PING, b"")
        assert await silent.rest() == b""  # ended, without a close frame: nobody was there to read it
        await lively.send(masked(TEXT, b"still here"))
        while (got := await lively.frame())[0] == PING:
            pass
        assert got == (TEXT, b"still here")
    await until(lambda: "dead_peer" in impatient.log[mark:])


async def test_long_messages_in_fragments_leave_their_room_to_the_next(door: Door) -> None:
    """Browsers send long messages so. Each once kept the room of its first fragment: after some thirty nothing of their
    user was read any more."""
    piece = b"x" * (300 << 10)  # more than one read brings
    message = masked(TEXT, piece, fin=False) + masked(0, piece)
    async with opened(door, "/terminal/fragments") as client:
        for _ in range(40):
            await client.send(message)
            assert await client.frame() == (TEXT, piece + piece)
