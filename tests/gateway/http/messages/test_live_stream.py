"""A live stream of a conversation: nothing missed, nothing twice, whatever the store does."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from gateway.http.messages.live_stream import KEEP_ALIVE_SECONDS, POLL_SECONDS, LiveRecords
from gateway.http.messages.pages import AT_ONCE, EVERYTHING, RecordFilter
from gateway.session.store_events import StoreEvents
from persistence.listener import NobodyListens
from persistence.memory import MemoryStore
from persistence.record import Record, Session, Write
from tests.support.faults import Fault, FlakyStore

pytestmark = pytest.mark.virtual_time

SESSION = Session("s", "ada", 0.0)


class Asked(FlakyStore):
    """Remembers from where on it was read last."""

    after = 0

    async def messages(self, session_id: str, *, after: int = 0, **asked: Any) -> list[Record]:
        self.after = after
        return await super().messages(session_id, after=after, **asked)


class Scene:
    """A session in memory, behind a store that can go away, and readers of it."""

    def __init__(self) -> None:
        self.hearing = StoreEvents()
        self.store = Asked(MemoryStore())
        self.store.heard = self.hearing
        self._last = 0

    async def open(self) -> "Scene":
        await self.store.create(SESSION)
        return self

    async def say(self, *types: str) -> None:
        writes = []
        for type in types:
            self._last += 1
            writes.append(Write("s", Record("s", self._last, f"c{self._last}", "user", type, b"{}", 0.0)))
        await self.store.inner.commit(writes)

    async def trim(self, *, keep: int) -> None:
        await self.store.inner.trim("s", older_than=None, keep=keep, below=self._last + 1)

    def follow(self, after: int = 0, limit: int = 1000, only: RecordFilter = EVERYTHING) -> AsyncGenerator[bytes, None]:
        look = self.store.find
        return LiveRecords(self.store, self.hearing, look, SESSION, after=after, limit=limit, only=only).events()


@pytest.fixture
async def scene() -> Scene:
    return await Scene().open()


async def read(events: AsyncIterator[bytes], count: int) -> list[int | str]:
    """The next `count` events that are no comments: a seq, or the text of a named event."""
    found: list[int | str] = []
    async with asyncio.timeout(600):
        while len(found) < count:
            event = (await anext(events)).decode()
            if seq := re.match(r"id: (\d+)\ndata: {", event):
                found.append(int(seq[1]))
            elif not event.startswith(":"):
                found.append(event)
    return found


async def test_what_is_there_comes_at_once_and_what_is_said_when_it_is_said(scene: Scene) -> None:
    loop = asyncio.get_running_loop()
    await scene.say(*["message"] * 40)
    async with aclosing(scene.follow(after=3)) as events:
        assert await read(events, 37) == list(range(4, 41))
        speaking = asyncio.create_task(scene.say("message", "note"))
        assert await read(events, 2) == [41, 42]
        await speaking
    assert loop.time() == 0, "nobody waited for a poll"
    assert len(scene.hearing) == 0


async def test_a_notification_that_is_missed_costs_a_poll(scene: Scene) -> None:
    scene.store.heard = NobodyListens()
    loop = asyncio.get_running_loop()
    async with aclosing(scene.follow()) as events:
        await anext(events)
        reading = asyncio.create_task(read(events, 1))
        await asyncio.sleep(0.1)
        await scene.say("message")
        assert await reading == [1]
    assert 0 < loop.time() <= POLL_SECONDS


async def test_a_quiet_stream_gives_a_sign_of_life(scene: Scene) -> None:
    loop = asyncio.get_running_loop()
    async with aclosing(scene.follow()) as events:
        assert await anext(events) == b": holdfast\n\n"
        for number in (1, 2, 3):
            assert await anext(events) == b": still here\n\n"
            assert number * KEEP_ALIVE_SECONDS <= loop.time() <= number * (KEEP_ALIVE_SECONDS + POLL_SECONDS)


async def test_a_reader_of_one_kind_gets_those_and_is_not_led_through_the_rest_again(scene: Scene) -> None:
    async with aclosing(scene.follow(only=RecordFilter(type="note"))) as events:
        await scene.say("message", "note", *["message"] * 50, "note")
        assert await read(events, 2) == [2, 53]
        await scene.say(*["message"] * 50)
        reading = asyncio.create_task(read(events, 1))
        await asyncio.sleep(10 * POLL_SECONDS)
        await scene.say("note")
        assert await reading == [104]
        assert scene.store.after == 103


async def test_the_stream_stays_while_the_store_is_away_and_goes_on_where_it_was(scene: Scene) -> None:
    loop = asyncio.get_running_loop()
    await scene.say("message", "message")
    async with aclosing(scene.follow()) as events:
        assert await read(events, 2) == [1, 2]
        scene.store.outage = Fault.AWAY
        await scene.say("message", "message")
        for number in range(1, 6):
            assert await anext(events) == b": still here\n\n"
            assert loop.time() >= number * KEEP_ALIVE_SECONDS
        scene.store.outage = None
        assert await read(events, 2) == [3, 4]


async def test_a_store_that_fails_between_two_pages_costs_no_record(scene: Scene) -> None:
    await scene.say(*["message"] * 60)
    scene.store.faults = {scene.store.calls + 3: Fault.AWAY, scene.store.calls + 6: Fault.LOST_REPLY}
    async with aclosing(scene.follow()) as events:
        assert await read(events, 60) == list(range(1, 61))


async def test_a_reader_that_was_trimmed_past_is_told_and_goes_on_there(scene: Scene) -> None:
    await scene.say(*["message"] * 60)
    async with aclosing(scene.follow()) as events:
        assert await read(events, 5) == [1, 2, 3, 4, 5]
        await scene.trim(keep=10)
        rest = await read(events, 22)
        at = rest.index('event: trimmed\ndata: {"firstSeq":51}\n\n')
        assert rest[:at] == list(range(6, 6 + at)), "what was read before may still come"
        assert rest[at + 1 :] == list(range(51, 51 + len(rest) - at - 1))
    async with aclosing(scene.follow(after=20)) as events:
        assert await read(events, 2) == ['event: trimmed\ndata: {"firstSeq":51}\n\n', 51]


async def test_a_stream_ends_after_so_many_and_when_the_session_or_the_gateway_goes(scene: Scene) -> None:
    await scene.say("message", "message", "message")
    assert len([event async for event in scene.follow(limit=2) if event.startswith(b"id:")]) == 2

    async def all_of(events: AsyncIterator[bytes]) -> int:
        return len([event async for event in events if event.startswith(b"id:")])

    purged = asyncio.create_task(all_of(scene.follow()))
    await asyncio.sleep(1)
    await scene.store.purge("s")
    assert await purged == 3
    scene = await Scene().open()
    left = asyncio.create_task(all_of(scene.follow()))
    await asyncio.sleep(1)
    now = asyncio.get_running_loop().time()
    scene.hearing.leave()
    assert await left == 0
    assert asyncio.get_running_loop().time() == now
    assert len(scene.hearing) == 0


async def test_a_session_made_again_by_the_same_name_is_another(scene: Scene) -> None:
    await scene.say("message")
    async with aclosing(scene.follow()) as events:
        assert await read(events, 1) == [1]
        await scene.store.purge("s")
        await scene.store.create(Session("s", "eve", 1.0))
        with pytest.raises(StopAsyncIteration):
            await read(events, 1)


async def test_a_stream_does_not_go_on_with_another_session_between_two_pages(scene: Scene) -> None:
    await scene.say(*["message"] * 60)
    async with aclosing(scene.follow()) as events:
        assert await read(events, 5) == [1, 2, 3, 4, 5]
        await scene.store.purge("s")
        await scene.store.create(Session("s", "eve", 1.0))
        others = [Record("s", seq, f"e{seq}", "user", "message", b"{}", 1.0) for seq in range(1, 61)]
        await scene.store.commit([Write("s", record) for record in others])
        rest = [event async for event in events]
    assert len(rest) == AT_ONCE - 5
    assert not any(b'"e' in event for event in rest)


async def test_a_reader_that_goes_leaves_nothing_behind(scene: Scene) -> None:
    await scene.say("message")
    events = scene.follow()
    assert await read(events, 1) == [1]
    assert len(scene.hearing) == 1
    reading = asyncio.create_task(read(events, 1))
    await asyncio.sleep(1)
    reading.cancel()
    await asyncio.wait([reading])
    assert len(scene.hearing) == 0
