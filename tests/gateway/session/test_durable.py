"""An answer means durable; a sandbox that has died holds nobody up; who is not the owner any more ends nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from gateway.session.model.state import SessionState
from tests.gateway.session.workspace.test_workspace import Town
from tests.support.faults import Fault
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time

FILE = b"workspace/a"
ENV = {"KEY": "secret-of-ann"}
SHOWN = ("status", "reason", "incarnation", "hasWorkspace", "title", "metadata", "sleepAfter", "pending")

Ask = Callable[[World, SessionActor], Awaitable[dict[str, Any]]]


async def paused(_: World, actor: SessionActor) -> dict[str, Any]:
    return await actor.pause()


async def slept(_: World, actor: SessionActor) -> dict[str, Any]:
    return await actor.sleep()


async def deleted(_: World, actor: SessionActor) -> dict[str, Any]:
    return await actor.destroy(purge=False)


async def woken(_: World, actor: SessionActor) -> dict[str, Any]:
    return await actor.wake()


async def resumed(_: World, actor: SessionActor) -> dict[str, Any]:
    return await actor.resume(None)


async def synced(world: World, actor: SessionActor) -> dict[str, Any]:
    world.sandbox().files[FILE] = b"newer"
    return await actor.sync(wait=True)


async def put_back(_: World, actor: SessionActor) -> dict[str, Any]:
    return await actor.put_back(1)


async def changed(_: World, actor: SessionActor) -> dict[str, Any]:
    return await actor.change({"title": "changed", "metadata": {"a": 1}, "sleep_after": 90.0})


async def created_again(world: World, _: SessionActor) -> dict[str, Any]:
    return (await world.create(title="again")).describe()


async def given_secrets(world: World, _: SessionActor) -> dict[str, Any]:
    return (await world.create(env=ENV)).describe()


async def resumed_with_secrets(_: World, actor: SessionActor) -> dict[str, Any]:
    return await actor.resume(ENV)


# What is asked, and after what.
VERBS: dict[str, tuple[Ask, tuple[Ask, ...]]] = {
    "pause": (paused, ()),
    "sleep": (slept, ()),
    "DELETE": (deleted, ()),
    "wake": (woken, (slept,)),
    "resume": (resumed, (paused,)),
    "sync": (synced, ()),
    "restore in place": (put_back, (paused, resumed, synced, paused)),
    "PATCH": (changed, ()),
    "create of an archived session": (created_again, (deleted,)),
    "create with envVars": (given_secrets, ()),
    "resume with envVars": (resumed_with_secrets, ()),
}


async def started(town: Town) -> SessionActor:
    """A session that runs and has one generation."""
    actor, _ = await town.begun()
    town.sandbox().files[FILE] = b"old"
    await actor.sync(wait=True)
    return actor


def shown(described: dict[str, Any]) -> dict[str, Any]:
    sync = {name: described["sync"][name] for name in ("generation", "lastError", "degraded")}
    return {name: described[name] for name in SHOWN} | sync


@pytest.mark.parametrize("verb", VERBS)
async def test_what_was_answered_is_there_after_a_kill(verb: str) -> None:
    ask, before = VERBS[verb]
    async with Town() as town:
        actor = await started(town)
        for step in before:
            await step(town, actor)
        answer = await ask(town, actor)
        await town.kill()
        kept = await town.kept.find("s")
        await town.open()
        assert kept is not None
        described = town.catalogue.describe(kept)
        if verb == "create of an archived session":  # it is on its way up
            assert (described["status"], described["title"]) in (("sleeping", "again"), ("starting", "again"))
        else:
            assert shown(described) == shown(answer)
        assert (b'"has_env":true' in kept.spec) == ("envVars" in verb)


@pytest.mark.parametrize("verb", VERBS)
async def test_an_answer_that_cannot_be_written_down_is_503_and_is_written_when_the_store_is_back(verb: str) -> None:
    ask, before = VERBS[verb]
    async with Town() as town:
        actor = await started(town)
        for step in before:
            await step(town, actor)
        town.store.outage = Fault.AWAY
        began = asyncio.get_running_loop().time()
        if verb.startswith("create"):  # whose it is cannot be known
            town.store.outage, town.store.held = None, True
        with pytest.raises(ApiError, match="the store does not answer") as refused:
            await ask(town, actor)
        assert (refused.value.status, refused.value.code) == (503, "storage_unavailable")
        assert asyncio.get_running_loop().time() - began < town.limits.durable_seconds + 15
        town.store.outage, town.store.held = None, False
        answer = await ask(town, actor)
        await town.kill()
        kept = await town.kept.find("s")
        await town.open()
        assert kept is not None
        if "create" not in verb:
            assert shown(town.catalogue.describe(kept)) == shown(answer)


async def test_what_was_done_while_the_store_was_away_is_written_without_asking_again() -> None:
    async with Town() as town:
        actor = await started(town)
        town.store.outage = Fault.AWAY
        with pytest.raises(ApiError):
            await actor.pause()
        assert actor.describe()["status"] == "paused"
        town.store.outage = None
        await town.until(lambda: town.queue.depth == 0, "an empty queue")
        await town.restart()
        assert (await town.actor()).describe()["status"] == "paused"


async def test_nothing_is_removed_before_it_is_written_down_that_the_session_is_archived() -> None:
    """Else it would come back as one whose snapshots are gone."""
    async with Town() as town:
        actor = await started(town)
        town.store.outage = Fault.AWAY
        with pytest.raises(ApiError):
            await actor.destroy(purge=False)
        await town.kill()
        assert (await town.vault().pointer("ann", "s")).newest.number == 1
        await town.open()
        tab = await town.welcomed()
        tab.say("you are still there")
        await tab.until("done")


async def test_a_session_deleted_before_it_was_let_go_is_removed_by_a_second_delete() -> None:
    """Its workspace is on the disk, though it never was one."""
    async with Town() as town:
        actor = await town.create()
        await town.until(lambda: "s" in town.fleet.sandboxes, "a sandbox")
        town.store.outage = Fault.AWAY
        with pytest.raises(ApiError):
            await actor.destroy(purge=False)
        town.store.outage = None
        await actor.destroy(purge=False)
        assert "s" not in town.fleet.sandboxes


async def test_with_a_spool_an_answer_is_durable_here_while_the_store_is_away() -> None:
    async with World(spooled=True) as world:
        actor = await world.create()
        tab = await world.welcomed()
        tab.say("hello")
        await tab.until("done")
        world.store.outage = Fault.AWAY
        assert (await actor.pause())["status"] == "paused"
        await world.restart()
        await world.until(lambda: not world.disk.rows, "an empty spool")
        assert (await world.actor()).describe()["status"] == "paused"


# -- a sandbox that has died -------------------------------------------------------------------------------------------


def die_unheard(town: Town) -> None:
    """kill -9 of the bridge; that its link is lost is heard a moment later."""
    sandbox = town.sandbox()
    link = sandbox._link
    assert link is not None
    sandbox.let_go(link)
    sandbox.crash()
    asyncio.get_running_loop().call_later(0.5, link.lose, "the bridge died")


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("step", ["pause", "sleep"])
@pytest.mark.parametrize("after", [0.0, 0.25, 0.75, 1.25, 1.75, 2.25])
async def test_a_sandbox_that_dies_while_it_is_stopped_holds_nobody_up(step: str, after: float, heard: bool) -> None:
    """Once, its owner was told 503, or waited for an agent that was dead for as long as one may take to end."""
    async with Town() as town:
        actor = await started(town)
        sandbox = town.sandbox()
        sandbox.files[FILE] = b"not kept yet"
        sandbox.roots.step_seconds = 0.5
        loop, agent = asyncio.get_running_loop(), sandbox.agent
        assert agent is not None

        def end_slowly() -> None:
            loop.call_later(0.5, agent.exit, 0)

        agent.on_stop = end_slowly
        began = loop.time()
        loop.call_later(after, sandbox.crash if heard else lambda: die_unheard(town))
        described = await (actor.pause() if step == "pause" else actor.sleep())
        assert described["status"] == ("paused" if step == "pause" else "sleeping")
        assert asyncio.get_running_loop().time() - began < after + 2.0
        sandbox.roots.step_seconds = 0.0
        await town.until(lambda: actor.conversation.state.clean, "what it left is kept")
        _, tree = await town.vault().tree("ann", "s", None)
        assert tree.entries[FILE].size == len(b"not kept yet")
        assert actor.describe()["status"] == described["status"]


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("after", [0.25, 0.75, 1.25])
async def test_what_a_sandbox_left_that_died_while_it_was_synced_is_kept(after: float, heard: bool) -> None:
    async with Town() as town:
        actor = await started(town)
        sandbox = town.sandbox()
        sandbox.files[FILE] = b"newer"
        sandbox.roots.step_seconds = 0.5
        asyncio.get_running_loop().call_later(after, sandbox.crash if heard else lambda: die_unheard(town))
        described = await actor.sync(wait=True)
        _, tree = await town.vault().tree("ann", "s", described["sync"]["generation"])
        assert tree.entries[FILE].size == len(b"newer")


# -- two owners -------------------------------------------------------------------------------------------------------


async def taken_over(town: Town) -> tuple[SessionActor, Town]:
    """A session that runs, as its first owner knows it; and its second owner, who has attached to its sandbox."""
    actor = await started(town)
    other = Town()
    other.kept, other.fleet, other.objects = town.kept, town.fleet, town.objects
    await other.open()
    theirs = await other.actor()
    await other.until(lambda: theirs.output.agent_alive, "the agent is theirs")
    return actor, other


async def still_theirs(other: Town) -> None:
    assert (await other.vault().pointer("ann", "s")).newest.number >= 1
    tab = await other.welcomed()
    tab.say("are you there?")
    await tab.until("done")
    theirs = await other.actor()
    assert (theirs.describe()["status"], theirs.describe()["incarnation"]) == ("running", 1)
    kept = await other.kept.find("s")
    assert kept is not None
    assert SessionState.from_json(kept.state).status == "running"


@pytest.mark.parametrize("known", [True, False])
async def test_who_is_not_the_owner_any_more_deletes_nothing(known: bool) -> None:
    async with Town() as town:
        actor, other = await taken_over(town)
        try:
            if known:
                actor.conversation.save()
                await town.until(lambda: actor.ended, "the first owner knows")
            with pytest.raises(ApiError) as refused:
                await actor.destroy(purge=False)
            assert (refused.value.status, refused.value.code) == (503, "session_failed")
            assert "s" in other.fleet.sandboxes
            assert (await other.vault().pointer("ann", "s")).newest.number == 1
            if known:
                await still_theirs(other)
        finally:
            await other.kill()


@pytest.mark.parametrize("step", ["pause", "sleep", "DELETE", "wake", "sync"])
@pytest.mark.parametrize("learns_after", [0.1, 0.6, 1.1, 1.6])
async def test_who_learns_it_meanwhile_goes_no_further(
    step: str, learns_after: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for an agent to end, for a scan, for its provider: then it is told that it owns nothing."""
    async with Town() as town:
        actor, other = await taken_over(town)
        try:
            agent = town.sandbox().agent
            assert agent is not None
            town.sandbox().roots.step_seconds = 0.5
            agent.on_stop = lambda: None  # it takes its time to end
            loop, stop = asyncio.get_running_loop(), town.fleet.stop

            async def stop_slowly(session_id: str) -> None:
                await asyncio.sleep(2)
                await stop(session_id)

            monkeypatch.setattr(town.fleet, "stop", stop_slowly)
            ask: dict[str, Callable[[], Awaitable[Any]]] = {
                "pause": actor.pause,
                "sleep": actor.sleep,
                "DELETE": lambda: actor.destroy(purge=False),
                "wake": actor.wake,
                "sync": lambda: actor.sync(wait=True),
            }
            asked = asyncio.ensure_future(ask[step]())
            loop.call_later(learns_after, actor._end)
            await asyncio.wait({asked})
            assert isinstance(asked.exception(), ApiError)
            await asyncio.sleep(5)
            town.sandbox().roots.step_seconds = 0.0
            await still_theirs(other)
        finally:
            await other.kill()


async def test_a_wish_of_the_old_owner_is_not_answered_as_if_it_were_granted() -> None:
    async with Town() as town:
        actor, other = await taken_over(town)
        try:
            with pytest.raises(ApiError) as refused:
                await actor.wake()
            assert refused.value.code == "session_failed"
        finally:
            await other.kill()


async def test_a_sandbox_that_died_is_not_started_again_behind_a_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sleep was asked for while it was being started anew, and answered; then it ran."""
    async with Town() as town:
        actor = await started(town)
        await asyncio.sleep(60)  # a link that lasted is looked for at once
        starts, runs, slow = town.fleet.starts, town.fleet.runs, asyncio.Event()

        async def runs_slowly(session_id: str) -> bool:
            await slow.wait()
            return await runs(session_id)

        monkeypatch.setattr(town.fleet, "runs", runs_slowly)
        town.sandbox().crash()
        await asyncio.sleep(1)
        asked = asyncio.ensure_future(actor.sleep())
        await asyncio.sleep(1)
        slow.set()
        assert (await asked)["status"] == "sleeping"
        await asyncio.sleep(30)
        assert (actor.describe()["status"], town.fleet.starts) == ("sleeping", starts)
        tab = await town.welcomed()
        tab.say("wake up")
        await tab.until("done")
