"""Every loaded session: found, loaded once, and kept apart from its neighbours."""

import asyncio
import gc
import json
import tracemalloc

import orjson
import pytest

from gateway.protocol.errors import ApiError
from gateway.server.viewer import Viewer
from gateway.session.model.state import SessionSpec, SessionState
from persistence.errors import StoreUnavailable
from persistence.record import Session
from tests.support.faults import Fault
from tests.support.sessions import RecordingOutlet, World

pytestmark = pytest.mark.virtual_time

IDLE_BYTES = 19 << 10  # a running session that waits takes 18 KiB, what its store and sandbox keep in memory included


def boom() -> None:
    raise ZeroDivisionError("a bug in a handler")


async def test_a_session_is_loaded_once_however_many_ask(world: World) -> None:
    await world.create()
    await world.restart()
    actors = await asyncio.gather(*(world.actor() for _ in range(20)))
    assert len(set(actors)) == 1


async def test_a_crash_closes_its_own_viewers_harms_no_neighbour_and_is_mended_by_coming_back(world: World) -> None:
    await world.create("a")
    await world.create("b")
    tab, neighbour = await world.welcomed("a"), await world.welcomed("b")
    tab.say("one", "c1")
    await tab.until("done")
    tab.actor.post(boom)
    assert await tab.until_closed() == 1011
    neighbour.say("unharmed")
    await neighbour.until("done")
    assert neighbour.closed_with is None
    back = await world.welcomed("a", tab.position)
    assert back.actor is not tab.actor
    back.say("one", "c1")
    assert (await back.until("ack", cid="c1"))["seq"] == 1
    back.say("two", "c2")
    await back.until("done", seq=4)
    assert [json.loads(line)["content"] for _, line in world.sandbox("a").handed] == ["one", "two"]
    assert world.fleet.starts == 2


async def test_a_viewer_that_comes_while_its_session_crashes_is_closed_too(world: World) -> None:
    """One whose `attach` was still in the inbox, or came just after, once waited for a welcome for ever."""
    actor = await world.create()
    early, late = Viewer(RecordingOutlet()), Viewer(RecordingOutlet())
    actor.post(boom)
    actor.post(actor.viewers.attach, early, None)
    await world.until(lambda: actor.ended, "the crash")
    actor.post(actor.viewers.attach, late, None)
    for viewer in (early, late):
        assert viewer.outlet.closed


async def test_what_runs_beside_a_session_ends_with_it(world: World) -> None:
    """It went on, and could start or stop a sandbox that the session's next actor, or another gateway, had by then."""
    actor = await world.create()
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(10_000)
        finally:
            ended.set()

    actor.host.spawn(work(), "work")
    await asyncio.sleep(0)
    actor.post(boom)
    async with asyncio.timeout(60):
        await ended.wait()


async def test_a_posted_record_of_a_session_that_crashes_is_refused_and_not_left_waiting(world: World) -> None:
    actor = await world.create()
    posting = asyncio.create_task(
        actor.intake.post_record(role="system", type="note", content="x", metadata=None, cid="n1", deliver=False)
    )
    actor.post(boom)
    for _ in range(2):
        with pytest.raises(ApiError) as refused:
            async with asyncio.timeout(60):
                await posting
        assert (refused.value.status, refused.value.code) == (503, "session_failed")
        posting = asyncio.create_task(
            actor.intake.post_record(role="system", type="note", content="x", metadata=None, cid="n1", deliver=False)
        )
    with pytest.raises(ApiError):
        await posting


async def test_a_posted_record_is_stored_once_and_delivered_if_asked(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    for _ in range(2):
        noted = await actor.intake.post_record(
            role="system", type="note", content="x", metadata={"k": 1}, cid="n1", deliver=False
        )
        assert noted == ("s.1", 1, "stored")
    await actor.intake.post_record(role="user", type="message", content="say", metadata=None, cid=None, deliver=True)
    await tab.until("done")
    assert [record["status"] for record in await world.history()] == ["complete", "delivered", "complete"]


async def test_a_session_that_is_not_loaded_cannot_be_had_while_the_store_is_away(world: World) -> None:
    await world.create("a")
    await world.create("b")
    await (await world.welcomed("a")).until("connection_status", sandboxStatus="connected")
    await world.restart()
    tab = await world.welcomed("a")
    await tab.until("connection_status", sandboxStatus="connected")
    await world.create("c")
    await asyncio.sleep(1)
    tab.leave()
    world.store.outage = Fault.AWAY
    other = await world.welcomed("a")
    other.say("x", "c1")
    await asyncio.sleep(5)
    with pytest.raises(StoreUnavailable):
        async with asyncio.timeout(60):
            await world.registry.find("never loaded", user_id=None)
    world.store.outage = None
    await other.until("ack", cid="c1")


async def test_leaving_while_sessions_are_being_loaded_ends(world: World) -> None:
    """It once waited for a session that was loaded after all others had been told to end."""
    for turns in range(12):
        await world.create("a")
        await world.restart()
        finding = asyncio.create_task(world.registry.find("a", user_id=None))
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await world.kill()
        await asyncio.wait([finding])
        assert finding.cancelled() or finding.exception() or finding.result()
        await world.open()


async def test_a_gateway_that_has_ended_loads_nothing(world: World) -> None:
    await world.create()
    registry = world.registry
    await world.kill()
    with pytest.raises(StoreUnavailable):
        await registry.find("s", user_id=None)
    await world.open()


async def test_an_idle_session_takes_little_memory(world: World) -> None:
    """With an empty deque here and an event that nobody waited for there it was 26 KiB."""

    async def load(first: int, count: int) -> int:
        for number in range(first, first + count):
            await world.create(f"s{number}")
        await asyncio.sleep(60)  # all that there is to do is done
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        few = await load(0, 20)
        many = await load(20, 100)
    finally:
        tracemalloc.stop()
    assert (many - few) / 100 < IDLE_BYTES


async def test_what_a_newer_gateway_stored_with_a_session_outlives_a_change_of_it(world: World) -> None:
    spec = {**orjson.loads(SessionSpec(provider="memory").to_json()), "later": [1]}
    state = {**orjson.loads(SessionState().to_json()), "later": {"a": 2}}
    await world.kept.create(Session("s", "ann", 1.0, orjson.dumps(spec), orjson.dumps(state)))
    actor = await world.registry.find("s", user_id="ann")
    assert actor is not None
    await actor.change({"title": "new"})
    kept = await world.kept.find("s")
    assert kept is not None
    assert (orjson.loads(kept.spec)["title"], orjson.loads(kept.spec)["later"]) == ("new", [1])
    assert orjson.loads(kept.state)["later"] == {"a": 2}
