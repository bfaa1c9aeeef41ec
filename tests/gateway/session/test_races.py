"""Two things at once: whoever comes second finds out what happened meanwhile, and nothing is left behind."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import NoReturn

import pytest

from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from gateway.session.host import Supervisor
from gateway.session.loader import SessionLoader
from persistence.record import Outcome, Write
from sandbox.ports.link import Link, LinkEvents
from sandbox.protocol.values import Position
from sandbox.providers.memory.scripted import silent
from tests.support.faults import Fault
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(silent) as world:
        yield world


def fail() -> NoReturn:
    raise RuntimeError("injected")


async def test_what_is_archived_or_paused_while_somebody_waits_to_put_it_to_sleep_stays_so(world: World) -> None:
    for name, status in (("a", "archived"), ("p", "paused")):
        actor = await world.create(name)
        await (await world.welcomed(name)).until("connection_status", sandboxStatus="connected")
        first = asyncio.create_task(actor.destroy(purge=False) if status == "archived" else actor.pause())
        await asyncio.sleep(0)
        await asyncio.gather(first, actor.sleep())
        assert actor.describe()["status"] == status


async def test_a_message_that_comes_before_an_idle_session_can_be_put_to_sleep_keeps_it_awake(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    connect, slow = world.fleet.connect, asyncio.Event()

    async def connect_slowly(session_id: str, events: LinkEvents, after: Position | None) -> Link:
        await slow.wait()
        return await connect(session_id, events, after)

    monkeypatch.setattr(world.fleet, "connect", connect_slowly)
    await asyncio.sleep(595)
    world.sandbox().lose_link()
    await asyncio.sleep(10)  # the reaper waits for whoever finds the link again
    tab.say("wait", "c1")
    await tab.until("ack", cid="c1")
    slow.set()
    await tab.until("receipt", cid="c1")
    await asyncio.sleep(60)
    assert tab.actor.describe()["status"] == "running"
    assert world.fleet.starts == 1, "nobody put it to sleep with a message waiting"


async def test_a_sandbox_that_cannot_be_stopped_is_found_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")

    async def stop(session_id: str) -> None:
        fail()

    monkeypatch.setattr(world.fleet, "stop", stop)
    with pytest.raises(RuntimeError):
        await actor.sleep()
    monkeypatch.undo()
    tab.say("still there?", "c1")
    await tab.until("receipt", cid="c1")


async def test_a_sandbox_whose_start_breaks_can_be_started_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    actor = await world.create()
    await (await world.welcomed()).until("connection_status", sandboxStatus="connected")
    await actor.sleep()

    async def start(spec: object, progress: object) -> None:
        fail()

    monkeypatch.setattr(world.fleet, "start", start)
    with pytest.raises(RuntimeError):
        await actor.wake()
    assert actor.describe()["status"] == "error"
    monkeypatch.undo()
    tab = await world.welcomed()
    tab.say("and now?", "c1")
    await tab.until("receipt", cid="c1")


async def test_a_link_that_comes_for_a_session_that_failed_meanwhile_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = await world.create()
    await (await world.welcomed()).until("connection_status", sandboxStatus="connected")
    connect, slow = world.fleet.connect, asyncio.Event()

    async def connect_slowly(session_id: str, events: LinkEvents, after: Position | None) -> Link:
        await slow.wait()
        return await connect(session_id, events, after)

    monkeypatch.setattr(world.fleet, "connect", connect_slowly)
    world.sandbox().lose_link()
    await asyncio.sleep(1)
    actor.post(fail)
    await asyncio.sleep(1)
    assert actor.ended
    slow.set()
    await asyncio.sleep(1)
    assert not world.sandbox().linked


async def test_a_socket_that_waits_for_room_in_a_session_that_fails_waits_no_longer(world: World) -> None:
    actor = await world.create()
    actor.post(fail)
    for _ in range(actor.host.limits.inbox):
        actor.post(lambda: None)
    async with asyncio.timeout(1):
        await actor.inbox.wait_for_room()
    await asyncio.sleep(0)
    assert actor.ended
    await actor.inbox.wait_for_room()


async def test_a_replay_cut_off_while_an_answer_is_stored_goes_on_where_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes' output is repeated after a restart: what was heard is the second's, what is stored the first's."""
    await world.create()
    tab = await world.welcomed()
    tab.say("go")
    await tab.until("receipt")
    sandbox, first = world.sandbox(), world.sandbox().agent
    assert first is not None
    await world.kill()
    first.emit({"type": "chunk", "text": "one"})
    first.emit({"type": "done"})
    first.exit(0)
    sandbox.start_agent(None)
    second = sandbox.agent
    assert second is not None
    second.emit({"type": "chunk", "text": "two"})
    await world.open()
    commit, slow = world.store.commit, asyncio.Event()

    async def commit_slowly(writes: list[Write]) -> list[Outcome]:
        if any(write.append for write in writes):
            await slow.wait()
        return await commit(writes)

    monkeypatch.setattr(world.store, "commit", commit_slowly)
    await asyncio.sleep(2)
    sandbox.lose_link()
    await asyncio.sleep(2)
    slow.set()
    await asyncio.sleep(2)
    second.emit({"type": "done"})
    await asyncio.sleep(2)
    said = [(row["content"], row["status"]) for row in await world.history() if row["role"] == "assistant"]
    assert said == [("one", "complete"), ("two", "complete")]


async def test_a_process_after_one_that_ended_unheard_is_told_what_was_open(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.send("start", model="m")
    tab.say("one")
    await tab.until("receipt")
    agent = world.sandbox().agent
    assert agent is not None
    agent.emit({"type": "tool_permission_request", "requestId": "r1", "toolInput": {}})
    await tab.until("record", count=2)
    agent.hang()
    tab.say("two", "c2")
    await tab.until("ack", cid="c2")
    await world.kill()
    agent.exit(1)
    await world.open()
    await (await world.welcomed()).until("receipt", cid="c2")
    fresh = world.sandbox().agent
    assert fresh is not None
    start, message = (json.loads(line) for line in fresh.lines)
    assert [request["requestId"] for request in start["pending"]] == ["r1"]
    assert message["cid"] == "c2"


async def test_a_failed_session_is_let_go_and_its_sandbox_stops(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    for _ in range(5):
        await world.until(lambda: world.sandbox().agent is not None, "an agent")
        world.sandbox().processes[-1].exit(1)
        await asyncio.sleep(1)
    await tab.until("error", code="crash_loop")
    reason = actor.describe()["reason"]
    tab.leave()
    await world.until(lambda: not world.sandbox().alive, "the end of the sandbox")
    await world.until(lambda: actor.ended, "the unloading")
    assert ((await world.actor()).describe()["status"], (await world.actor()).describe()["reason"]) == ("error", reason)


async def test_one_session_that_cannot_be_loaded_does_not_keep_the_gateway_from_opening(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bad", "good"):
        await world.create(name)
        tab = await world.welcomed(name)
        await tab.until("connection_status", sandboxStatus="connected")
    await world.kill()
    load = SessionLoader.load

    async def load_but_one(loader: SessionLoader, session_id: str, supervisor: Supervisor) -> SessionActor | None:
        return fail() if session_id == "bad" else await load(loader, session_id, supervisor)

    monkeypatch.setattr(SessionLoader, "load", load_but_one)
    await world.open()
    await world.until(lambda: world.sandbox("good").linked, "the other session")
    assert not world.deaths


async def test_creating_what_is_being_purged_is_refused_however_late_that_is_seen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = await world.create()
    create = world.store.create

    async def create_slowly(session: object) -> object:
        kept = await create(session)  # type: ignore[arg-type]
        world.sessions.loaded.purging.add("s")
        world.sessions.loaded.remove(actor)
        return kept

    monkeypatch.setattr(world.store, "create", create_slowly)
    with pytest.raises(ApiError) as refused:
        await world.create()
    assert refused.value.status == 409


async def test_a_viewer_on_its_way_in_when_the_gateway_leaves_is_told_so(world: World) -> None:
    await world.create()
    tab = await world.tab()
    assert not tab.frames, "its attach is in the inbox"
    await world.sessions.drain.run()
    assert len(tab.seen("going_away")) == 1
    assert not tab.outlet.reading
    assert tab.closed_with == 1012


async def test_a_gateway_whose_store_is_broken_does_not_wait_for_it_when_it_leaves() -> None:
    world = World(silent)
    await world.open()
    await world.create()
    tab = await world.welcomed()
    tab.say("go")
    await tab.until("receipt")
    await asyncio.sleep(1)
    agent = world.sandbox().agent
    assert agent is not None
    world.store.outage = Fault.BROKEN
    agent.emit({"type": "done"})
    await world.until(lambda: bool(world.deaths), "the death of the queue")
    async with asyncio.timeout(1):
        await world.sessions.drain.run()
    assert tab.closed_with == 1012
    world.deaths.clear()
    await world.kill()
