"""Every loaded session: found, made, kept apart from its neighbours, and let go in order."""

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
from sandbox.ports.fleet import SandboxSpec
from sandbox.providers.memory.scripted import silent
from tests.support.faults import Fault
from tests.support.sessions import RecordingOutlet, World

pytestmark = pytest.mark.virtual_time

IDLE_BYTES = 20 << 10  # a running session that waits takes 16 KiB, what its store and sandbox keep in memory included


def boom() -> None:
    raise ZeroDivisionError("a bug in a handler")


async def test_the_owner_gets_the_same_session_and_a_stranger_a_409(world: World) -> None:
    actor = await world.create()
    assert await world.create() is actor
    with pytest.raises(ApiError) as refused:
        await world.create(user="eve")
    assert (refused.value.status, refused.value.code) == (409, "taken")
    assert await world.registry.find("nobody's", user_id=None) is None


async def test_a_session_is_loaded_once_however_many_ask(world: World) -> None:
    await world.create()
    await world.restart()
    actors = await asyncio.gather(*(world.actor() for _ in range(20)))
    assert len(set(actors)) == 1


async def test_attach_or_create_makes_a_session_that_sleeps(world: World) -> None:
    actor = await world.registry.attach_or_create("new", "ann")
    assert actor is not None
    await asyncio.sleep(10)
    assert actor.describe()["status"] == "sleeping"
    assert world.fleet.starts == 0
    tab = await world.welcomed("new")
    tab.say("a")
    await tab.until("done")


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
    actor.post(actor.attach, early, None)
    await world.until(lambda: actor.ended, "the crash")
    actor.post(actor.attach, late, None)
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

    actor.spawn(work(), "work")
    await asyncio.sleep(0)
    actor.post(boom)
    async with asyncio.timeout(60):
        await ended.wait()


async def test_a_posted_record_of_a_session_that_crashes_is_refused_and_not_left_waiting(world: World) -> None:
    actor = await world.create()
    posting = asyncio.create_task(
        actor.post_record(role="system", type="note", content="x", metadata=None, cid="n1", deliver=False)
    )
    actor.post(boom)
    for _ in range(2):
        with pytest.raises(ApiError) as refused:
            async with asyncio.timeout(60):
                await posting
        assert (refused.value.status, refused.value.code) == (503, "session_failed")
        posting = asyncio.create_task(
            actor.post_record(role="system", type="note", content="x", metadata=None, cid="n1", deliver=False)
        )
    with pytest.raises(ApiError):
        await posting


async def test_a_posted_record_is_stored_once_and_delivered_if_asked(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    for _ in range(2):
        noted = await actor.post_record(
            role="system", type="note", content="x", metadata={"k": 1}, cid="n1", deliver=False
        )
        assert noted == ("s.1", 1, "stored")
    await actor.post_record(role="user", type="message", content="say", metadata=None, cid=None, deliver=True)
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


async def test_a_gateway_that_opens_while_the_store_is_away_waits_and_then_finds_everything(world: World) -> None:
    """Its search for old sandboxes once ended the gateway."""
    await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    await world.kill()
    await world.open()
    world.store.outage = Fault.AWAY
    await asyncio.sleep(30)
    assert world.deaths == []
    world.store.outage = None
    await world.until(lambda: world.sandbox().linked, "the link")
    assert world.fleet.starts == 1


async def test_drain_says_goodbye_gets_the_acks_out_and_leaves_sandboxes_running() -> None:
    async with World(silent) as world:
        await world.create()
        tab = await world.welcomed()
        await tab.until("connection_status", sandboxStatus="connected")
        for number in range(50):
            tab.say("x", f"c{number}")
        await world.leave()
        assert tab.closed_with == 1012
        assert not tab.outlet.reading
        assert [ack["cid"] for ack in tab.seen("ack")] == [f"c{number}" for number in range(50)]
        assert 0 < tab.seen("going_away")[0]["retryAfter"] <= 5
        assert world.sandbox().alive
        agent = world.sandbox().agent
        await world.open()
        tab = await world.welcomed(after=tab.position)
        await tab.until("connection_status", sandboxStatus="connected")
        assert world.sandbox().agent is agent
        assert len(await world.history()) == 50


async def test_while_draining_nothing_is_created(world: World) -> None:
    world.registry.draining = True
    with pytest.raises(ApiError) as refused:
        await world.create()
    assert (refused.value.status, refused.value.code) == (503, "draining")


async def test_a_restarted_gateway_finds_what_runs_and_stops_what_nobody_owns(world: World) -> None:
    for name in "abc":
        await world.create(name)
        await (await world.welcomed(name)).until("connection_status", sandboxStatus="connected")
    await world.fleet.start(SandboxSpec("orphan", 1, ("agent",)))
    await world.restart()
    await world.until(lambda: all(world.sandbox(name).linked for name in "abc"), "the links")
    await world.until(lambda: not world.sandbox("orphan").alive, "the orphan's end")
    assert world.fleet.starts == 4


async def test_a_sandbox_that_was_being_put_to_sleep_when_its_gateway_died_is_stopped(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    await actor.sleep()
    await asyncio.sleep(1)
    await world.kill()
    await world.fleet.start(world.sandbox().spec)
    await world.open()
    await world.until(lambda: not world.sandbox().alive, "the stop")
    assert (await world.actor()).describe()["status"] == "sleeping"


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


async def test_all_sessions_are_described_loaded_or_not(world: World) -> None:
    await world.create("a", title="first")
    await world.create("b", user="bob")
    await world.restart()
    described = await world.registry.describe_all("ann")
    assert [(each["id"], each["title"]) for each in described] == [("a", "first")]
    assert {each["id"] for each in await world.registry.describe_all(None)} == {"a", "b"}
    assert set(world.registry.stats()) >= {"sessions_loaded", "viewers", "pending_records", "pending_bytes"}


async def test_while_the_store_is_away_no_session_is_let_go_that_could_not_be_loaded_again() -> None:
    """One that was put to sleep in an outage once was: its user was refused until the store was back."""
    async with World(spooled=True) as world:
        actor = await world.create()
        world.store.outage = Fault.AWAY
        await actor.sleep()
        await asyncio.sleep(2000)
        assert await world.actor() is actor
        world.store.outage = None
        await asyncio.sleep(2000)
        assert await world.actor() is not actor


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


async def test_a_start_that_is_longer_than_it_may_be_today_is_not_copied_to_branches(world: World) -> None:
    """The version before kept one as long as a frame: its session goes on, and its branches would take as much each."""
    spec = SessionSpec(start={"x": "s" * (64 << 10)})
    with pytest.raises(ApiError, match="send a shorter one first") as refused:
        await world.registry.branch(Session("s", "ann", 1.0, spec.to_json()), None, "branch")
    assert (refused.value.status, refused.value.code) == (409, "start_too_large")


async def test_a_session_stores_its_provider_and_one_of_another_provider_is_left_alone(world: World) -> None:
    await world.create("here")
    kept = await world.kept.find("here")
    assert kept is not None
    assert SessionSpec.from_json(kept.spec).provider == "memory"
    spec, state = SessionSpec(provider="elsewhere", title="t"), SessionState()
    await world.kept.create(Session("there", "ann", 1.0, spec.to_json(), state.to_json()))
    shown = {each["id"]: (each["provider"], each["level"]) for each in await world.registry.describe_all(None)}
    assert shown == {"here": ("memory", "trusted"), "there": ("elsewhere", "unknown")}


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
