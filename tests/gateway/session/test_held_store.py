"""One session's records wait before the store: its acks are late, nothing is lost, nobody else notices."""

import asyncio
import time

import pytest

from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


async def test_acks_are_late_nothing_is_lost_and_other_sessions_go_on(world: World) -> None:
    await world.create("slow")
    await world.create("quick")
    slow, quick = await world.welcomed("slow"), await world.welcomed("quick")
    await asyncio.sleep(5)
    world.queue.hold("slow", 30)
    for number in range(10):
        slow.say(f"s{number}", f"s{number}")
        quick.say(f"q{number}", f"q{number}")
    await quick.until("done", count=10)
    await asyncio.sleep(20)
    assert not slow.seen("ack")
    assert not slow.output()
    await slow.until("done", count=10)
    assert [frame["cid"] for frame in slow.seen("ack")] == [f"s{number}" for number in range(10)]
    mine = [record["cid"] for record in await world.history("slow") if record["role"] == "user"]
    assert mine == [f"s{number}" for number in range(10)]


async def test_a_drain_is_not_held_up(world: World) -> None:
    await world.create("s")
    tab = await world.welcomed("s")
    tab.say("before", "c0")
    await tab.until("done")
    world.queue.hold("s", 60)
    tab.say("held", "c1")
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    await world.leave()
    assert asyncio.get_running_loop().time() - began < 5
    assert tab.seen("ack", cid="c1")
    await world.open()
    assert "c1" in [record["cid"] for record in await world.history("s")]


async def test_a_crash_meanwhile_loses_only_what_was_not_acknowledged(world: World) -> None:
    await world.create("s")
    tab = await world.welcomed("s")
    tab.say("before", "c0")
    await tab.until("done")
    await asyncio.sleep(1)
    world.queue.hold("s", 60)
    tab.say("held", "c1")
    await asyncio.sleep(5)
    await world.restart()
    acked = {frame["cid"] for frame in tab.seen("ack")}
    assert acked == {"c0"}
    assert acked <= {record["cid"] for record in await world.history("s")}
    again = await world.welcomed("s")
    again.say("held", "c1")
    await again.until("ack", cid="c1")
    assert [record["cid"] for record in await world.history("s")].count("c1") == 1


async def test_whoever_loads_or_purges_the_session_does_not_wait_for_the_hold(world: World) -> None:
    def boom() -> None:
        raise ZeroDivisionError

    actor = await world.create("s")
    tab = await world.welcomed("s")
    await asyncio.sleep(5)
    world.queue.hold("s", 60)
    tab.say("held", "c1")
    actor.post(boom)
    assert await tab.until_closed() == 1011
    began = asyncio.get_running_loop().time()
    again = await world.welcomed("s")
    assert again.frames[0]["lastSeq"] >= 1
    world.queue.hold("s", 60)
    await (await world.actor("s")).destroy(purge=True)
    assert asyncio.get_running_loop().time() - began < 30
    assert await world.registry.find("s", user_id=None) is None


async def test_a_session_that_is_held_and_floods_leaves_room_for_the_others(world: World) -> None:
    await world.create("flood")
    await world.create("other")
    await asyncio.sleep(5)
    world.queue.hold("flood", 60)
    actor = await world.actor("flood")
    began = time.monotonic()
    async with asyncio.TaskGroup() as posting:
        for number in range(3_000):
            posting.create_task(
                actor.intake.post_record(
                    role="system", type="note", content=f"n{number}", metadata=None, cid=None, deliver=False
                )
            )
        other = await world.welcomed("other")
        other.say("hello", "c1")
        await other.until("ack", cid="c1")
    assert time.monotonic() - began < 60
    assert len(await world.history("flood")) == 3_000


@pytest.mark.parametrize("how", ["pause", "sleep", "delete", "purge"])
async def test_whoever_ends_or_stops_the_session_does_not_wait_for_the_hold(world: World, how: str) -> None:
    """An agent has ended once what it said is stored: with a hold, that was waited for in vain."""
    actor = await world.create("s")
    tab = await world.welcomed("s")
    tab.say("before", "c0")
    await tab.until("done")
    tab.say("answered", "c1")
    await tab.until("ack", cid="c1")
    world.queue.hold("s", 60)
    tab.say("held", "c2")
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    match how:
        case "pause":
            await actor.pause()
        case "sleep":
            await actor.sleep()
        case _:
            await actor.destroy(purge=how == "purge")
    assert asyncio.get_running_loop().time() - began < 5
    assert tab.seen("ack", cid="c2")
