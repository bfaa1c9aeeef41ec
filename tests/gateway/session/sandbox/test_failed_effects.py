"""What is asked of a sandbox fails in a way nobody foresaw, or is given up: who asked hears it, the session goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.limits.start_queue import StartLimits
from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from gateway.session.sandbox.lifecycle.life import LINE, LifeStage
from persistence.errors import StoreUnavailable
from sandbox.ports.sandbox import SandboxFailed
from tests.gateway.session.workspace.test_workspace import Town
from tests.support.sessions import Tab

pytestmark = pytest.mark.virtual_time


async def outcome(asked: "Awaitable[dict[str, Any]]") -> object:
    """The status, or what it is refused with; hangs for nobody."""
    try:
        async with asyncio.timeout(600):
            return (await asked)["status"]
    except ApiError as error:
        return error.code
    except OSError as error:
        return str(error)


async def cancelled(*_: Any, **__: Any) -> None:
    nobody: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    nobody.cancel()
    await nobody


def raises(error: Exception) -> Callable[..., Awaitable[None]]:
    async def fails(*_: Any, **__: Any) -> None:
        raise error

    return fails


BROKEN = {
    "bug": raises(RuntimeError("a bug")),
    "failed": raises(SandboxFailed("no link today")),
    "store": raises(StoreUnavailable("away")),
    "cancelled": cancelled,
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("what", ["start", "connect", "runs", "stop"])
async def test_a_provider_that_breaks_leaves_a_session_that_can_be_deleted(
    what: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        if what in ("start", "connect"):
            await actor.sleep()
        with monkeypatch.context() as patch:
            patch.setattr(town.fleet, what, BROKEN[how])
            try:
                first = await outcome(actor.wake() if what in ("start", "connect") else actor.pause())
            except (RuntimeError, SandboxFailed, StoreUnavailable) as error:
                first = error  # who asked gets the error itself
        assert first != "paused"
        assert tab.closed_with is None
        assert await outcome(actor.destroy(purge=False)) == "archived"
        assert town.fleet.sandboxes == {}


@pytest.mark.parametrize("how", BROKEN)
async def test_a_sync_that_breaks_is_refused_and_the_session_goes_on(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        with monkeypatch.context() as patch:
            patch.setattr(type(actor.workspace), "flush", BROKEN[how])
            assert await outcome(actor.sync(wait=True)) == "sync_failed"
        assert tab.closed_with is None
        assert await outcome(actor.sync(wait=True)) == "running"


async def test_who_waits_behind_a_delete_that_fails_hears_their_own_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().roots.step_seconds = 0.5
        monkeypatch.setattr(town.fleet, "destroy", raises(OSError("the disk")))
        pausing = asyncio.ensure_future(outcome(actor.pause()))
        await town.until(lambda: actor.life.core.stage is LifeStage.KEEPING, "the last sync")
        syncing = asyncio.ensure_future(outcome(actor.sync(wait=True)))
        await town.until(lambda: len(actor.life.core.line) == 1, "a sync that waits")
        assert await outcome(actor.destroy(purge=False)) == "the disk"
        assert (await pausing, await syncing) == ("sync_failed", "not_synced")


async def left_unkept(town: Town, session_id: str = "s") -> tuple[SessionActor, Tab]:
    """Its sandbox died while it was put to sleep, before its files were kept."""
    actor = await town.create(session_id)
    tab = await town.talk(session_id=session_id)
    sandbox = town.sandbox(session_id)
    sandbox.files[b"workspace/f"] = b"f"
    sandbox.roots.step_seconds = 0.5
    sleeping = asyncio.ensure_future(actor.sleep())
    await town.until(lambda: actor.life.core.stage is LifeStage.KEEPING, "the last sync")
    sandbox.crash()
    assert (await sleeping)["status"] == "sleeping"
    sandbox.roots.step_seconds = 0.0
    return actor, tab


async def test_the_end_of_a_hold_that_is_asked_for_still_does_not_end_the_hold_of_the_next_sandbox() -> None:
    async with Town() as town:
        actor, _ = await left_unkept(town)
        town.fleet.unavailable = "away"
        assert await outcome(actor.pause()) == "sandbox_unavailable"
        await asyncio.sleep(20)
        town.fleet.unavailable = None
        roots = town.sandbox().roots
        roots.step_seconds = 4.0
        del roots.steps[:]
        assert await outcome(actor.sync(wait=True)) == "sleeping"
        assert "release" not in roots.steps


async def waits_for_a_place(town: Town) -> tuple[SessionActor, Tab]:
    """`b`, to which somebody said something, and the one place is taken."""
    actor = await town.create("a")
    await town.talk(session_id="a")
    tab = await town.welcomed("b")
    tab.say("is anybody there?")
    await tab.until("session_status", status="queued")
    return actor, tab


@pytest.mark.parametrize("how", ["unavailable", "broken", "given up"])
@pytest.mark.parametrize("verb", ["sleep", "pause"])
async def test_a_message_that_waits_for_a_place_is_delivered_although_a_stop_failed_meanwhile(
    verb: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Town() as town:
        await town.kill()
        town.starts = StartLimits(running=1)
        await town.open()
        b, _ = await left_unkept(town, "b")
        a, tab = await waits_for_a_place(town)
        with monkeypatch.context() as patch:
            if how == "unavailable":
                patch.setattr(town.fleet, "unavailable", "away")
            elif how == "broken":
                patch.setattr(town.fleet, "stop", raises(OSError("not now")))
            else:
                patch.setattr(town.fleet, "runs", lambda _: asyncio.sleep(60))
            stopping = asyncio.ensure_future(outcome(getattr(b, verb)()))
            if how == "given up":
                await town.until(lambda: b.life.core.stage is LifeStage.KEEPING, "the look at what was left")
                stopping.cancel()
            await asyncio.wait({stopping})
            await town.until(lambda: b.life.core.stage is not LifeStage.KEEPING, "the end of it")
        await asyncio.sleep(5)
        await a.sleep()
        await tab.until("done", within=300)


async def test_an_agent_that_cannot_be_started_while_a_pause_waits_for_a_sync_is_started_when_it_is_given_up() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        await asyncio.sleep(60)
        sandbox = town.sandbox()
        sandbox.roots.step_seconds = 20.0
        sandbox.files[b"workspace/q"] = b"1"
        actor.workspace.request()
        await asyncio.sleep(30)  # a sync is under way
        assert sandbox.agent is not None
        sandbox.agent.exit(0)
        await town.until(lambda: not actor.output.agent_alive, "its end")
        sandbox.agent_problem = "no such program"
        tab.say("go")
        pausing = asyncio.ensure_future(actor.pause())
        await tab.until("error")
        assert actor.life.core.stage is LifeStage.LULLING
        sandbox.agent_problem = None
        pausing.cancel()
        await tab.until("done", count=2, within=300)


async def test_a_sync_that_nobody_waits_for_is_refused_when_the_line_is_full() -> None:
    async with Town() as town:
        town.fleet.start_seconds = 60.0
        actor = await town.create()
        await town.until(lambda: town.fleet.starts == 1, "a start")
        asked = [asyncio.ensure_future(actor.wake()) for _ in range(LINE)]
        await town.until(lambda: len(actor.life.core.line) == LINE, "a full line")
        assert await outcome(actor.sync(wait=False)) == "busy"
        assert {(await each)["status"] for each in asked} == {"running"}


async def test_a_provider_that_breaks_when_it_is_asked_after_a_lost_link_ends_no_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        town.sandbox().roots.step_seconds = 0.5
        pausing = asyncio.ensure_future(outcome(actor.pause()))
        await town.until(lambda: actor.life.core.stage is LifeStage.KEEPING, "the last sync")
        with monkeypatch.context() as patch:
            patch.setattr(town.fleet, "runs", BROKEN["bug"])
            town.sandbox().lose_link()
            await asyncio.sleep(1)
        assert tab.closed_with is None
        await pausing
        assert not actor.ended


async def test_restarts_of_an_agent_leave_nothing_behind() -> None:
    """Each left its timer, for as long as the session was loaded."""
    async with Town() as town:
        actor, tab = await town.begun()
        for count in range(3):
            sandbox = town.sandbox()
            assert sandbox.agent is not None
            sandbox.agent.exit(0)
            tab.say(f"again {count}")
            await tab.until("done", count=count + 2)
        assert actor.life._performer._under_way is None
