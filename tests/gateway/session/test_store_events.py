"""Readers are woken when their session grows, and leave nothing behind."""

import asyncio

import pytest

from gateway.session.store_events import StoreEvents
from persistence.memory import MemoryStore
from persistence.record import Outcome, Record, Session, Stored, Write

pytestmark = pytest.mark.virtual_time


async def test_a_wake_between_look_and_wait_is_not_missed() -> None:
    hearing = StoreEvents()
    with hearing.follow("s") as follower:
        hearing.grown("s")
        hearing.grown("s")
        assert await follower.wait(5)
        assert not await follower.wait(5), "told twice, it looks once"


async def test_only_followers_of_the_session_are_woken() -> None:
    hearing = StoreEvents()
    with hearing.follow("s") as mine, hearing.follow("s") as second, hearing.follow("other") as other:
        hearing.grown("s")
        assert await mine.wait(1)
        assert await second.wait(1)
        assert not await other.wait(1)


async def test_whoever_waits_is_woken_before_the_time_is_up() -> None:
    hearing, loop = StoreEvents(), asyncio.get_running_loop()
    with hearing.follow("s") as follower:
        loop.call_later(3, hearing.grown, "s")
        assert await follower.wait(10)
        assert loop.time() == 3


async def test_nothing_is_left_of_readers_who_went() -> None:
    hearing = StoreEvents()

    async def read() -> None:
        with hearing.follow("s") as follower:
            await follower.wait(60)

    readers = [asyncio.create_task(read()) for _ in range(100)]
    await asyncio.sleep(0)
    assert len(hearing) == 100
    for reader in readers:
        reader.cancel()
    await asyncio.wait(readers)
    assert len(hearing) == 0
    assert hearing._followers == {}
    hearing.grown("s")


async def test_everybody_wakes_when_the_gateway_leaves() -> None:
    hearing = StoreEvents()
    with hearing.follow("a") as first, hearing.follow("b") as second:
        hearing.leave()
        assert await first.wait(1)
        assert await second.wait(1)
    assert hearing.is_leaving()


async def test_what_became_of_a_record_is_passed_on_once_somebody_listens() -> None:
    hearing = StoreEvents()
    told: list[tuple[str, int, Outcome]] = []
    hearing.settled("s", 1, Stored(1))
    hearing.on_settled = lambda *settled: told.append(settled)
    hearing.settled("s", 2, Stored(2))
    assert told == [("s", 2, Stored(2))]


async def test_a_store_wakes_the_followers_of_what_it_kept() -> None:
    hearing = StoreEvents()
    async with MemoryStore() as store:
        store.heard = hearing
        await store.create(Session("s", "ada", 0.0))
        with hearing.follow("s") as follower:
            await store.commit([Write("s", Record("s", 1, "c", "user", "message", b"{}", 0.0))])
            assert await follower.wait(1)
