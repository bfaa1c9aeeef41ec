"""A provider that does not answer is not a dead sandbox: nothing is stopped, started or given up until it answers."""

import asyncio

import pytest

from gateway.protocol.errors import ApiError
from sandbox.ports.sandbox import SandboxUnavailable
from sandbox.ports.tree import TreeFailed
from sandbox.providers.memory.scripted import silent
from tests.support.sessions import Tab, World

pytestmark = pytest.mark.virtual_time

AWAY = "the provider does not answer"


async def lost(world: World) -> Tab:
    """A session that was running when its provider fell silent and its link was cut."""
    await world.create()
    tab = await world.welcomed()
    tab.say("a")
    await tab.until("done")
    world.fleet.unavailable = AWAY
    world.sandbox().lose_link()
    await tab.until("session_status", reason=AWAY)
    return tab


async def test_a_running_sandbox_is_left_alone_and_found_again(world: World) -> None:
    tab = await lost(world)
    agent = world.sandbox().agent
    assert tab.seen("connection_status")[-1]["sandboxStatus"] == "connecting"
    await asyncio.sleep(3600)
    tab.say("b")
    await asyncio.sleep(120)
    shown = tab.actor.describe()
    assert (shown["status"], shown["sandboxStatus"], shown["reason"]) == ("running", "connecting", AWAY)
    assert (shown["pending"], shown["incarnation"], world.fleet.starts) == (1, 1, 1)
    assert world.sandbox().agent is agent, "its program never noticed"
    assert tab.closed_with is None
    world.fleet.unavailable = None
    await tab.until("done", count=2)
    shown = tab.actor.describe()
    assert (shown["status"], shown["sandboxStatus"], shown["reason"]) == ("running", "connected", None)
    assert (shown["incarnation"], world.fleet.starts, world.sandbox().agent) == (1, 1, agent)
    assert not tab.seen("session_status", status="agent_exited")
    assert not [frame for frame in tab.seen("session_status") if frame["status"] in ("sleeping", "starting", "error")]


async def test_an_idle_one_is_not_put_to_sleep_while_nothing_is_known(world: World) -> None:
    tab = await lost(world)
    await asyncio.sleep(7200)
    assert world.sandbox().alive
    assert not tab.seen("session_status", status="sleeping")
    world.fleet.unavailable = None
    await tab.until("session_status", status="sleeping", reason="idle")
    assert not world.sandbox().alive


async def test_a_sandbox_that_died_meanwhile_is_known_to_be_dead_when_the_provider_says_so(world: World) -> None:
    tab = await lost(world)
    world.sandbox().crash()
    await asyncio.sleep(600)
    tab.say("b")
    await asyncio.sleep(60)
    assert (world.fleet.starts, tab.actor.describe()["status"]) == (1, "running")
    world.fleet.unavailable = None
    await tab.until("done", count=2)
    assert (world.fleet.starts, tab.actor.describe()["incarnation"]) == (2, 2)


async def test_a_gateway_that_starts_meanwhile_finds_it_when_the_provider_answers() -> None:
    async with World(silent) as world:
        await world.create()
        tab = await world.welcomed()
        tab.say("think")
        await tab.until("receipt", stage="delivered")
        agent = world.sandbox().agent
        assert agent is not None
        world.fleet.unavailable = AWAY
        await world.restart()
        tab = await world.welcomed()
        await world.until(lambda: tab.actor.describe()["reason"] == AWAY, "the reason")
        await asyncio.sleep(3600)
        assert tab.actor.describe()["sandboxStatus"] == "connecting"
        assert world.sandbox().alive
        world.fleet.unavailable = None
        await world.until(lambda: tab.actor.describe()["sandboxStatus"] == "connected", "the link")
        agent.emit({"type": "done"})
        await tab.until("done")
        assert (world.fleet.starts, world.sandbox().agent) == (1, agent)


async def test_what_nobody_has_asked_for_is_found_too_once_the_provider_answers(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("a")
    await tab.until("done")
    world.fleet.unavailable = AWAY
    await world.restart()
    await asyncio.sleep(60)
    assert world.catalogue.loaded("s") is None
    world.fleet.unavailable = None
    await world.until(lambda: world.sandbox().linked, "the link")
    assert world.fleet.starts == 1


async def test_a_start_waits_for_the_provider(world: World) -> None:
    world.fleet.unavailable = AWAY
    await world.create()
    tab = await world.welcomed()
    tab.say("a")
    await world.until(lambda: tab.actor.describe()["reason"] == AWAY, "the reason")
    await asyncio.sleep(120)
    shown = tab.actor.describe()
    assert (shown["status"], shown["sandboxStatus"], shown["reason"]) == ("starting", "connecting", AWAY)
    assert (shown["pending"], world.fleet.starts) == (1, 0)
    assert not tab.seen("error")
    world.fleet.unavailable = None
    await tab.until("done")
    assert world.fleet.starts == 1
    assert tab.actor.describe()["reason"] is None


async def test_a_start_that_is_tried_again_is_counted_once(world: World) -> None:
    """`incarnation` said how often a provider had been asked, and a first start was taken for a later one."""
    world.fleet.unavailable = AWAY
    await world.create()
    tab = await world.welcomed()
    tab.say("a")
    await world.until(lambda: tab.actor.describe()["reason"] == AWAY, "the reason")
    counted = tab.actor.describe()["incarnation"]
    await asyncio.sleep(3600)
    tab.say("b")
    for ask in range(3):
        with pytest.raises(ApiError, match=AWAY):
            await tab.actor.wake()
        await asyncio.sleep(60 * ask)
    assert (tab.actor.describe()["incarnation"], world.fleet.starts) == (counted, 0)
    world.fleet.unavailable = None
    await tab.until("done")
    assert tab.actor.describe()["incarnation"] == counted + 1
    assert world.fleet.starts == 1


async def test_who_asks_by_name_is_told_and_nothing_is_stopped(world: World) -> None:
    tab = await lost(world)
    for ask in (tab.actor.wake, tab.actor.pause, tab.actor.sleep):
        with pytest.raises(ApiError, match=AWAY) as refused:
            await ask()
        assert (refused.value.status, refused.value.code) == (503, "sandbox_unavailable")
    assert world.sandbox().alive
    assert tab.actor.describe()["status"] == "running"
    world.fleet.unavailable = None
    await tab.actor.pause()
    assert (tab.actor.describe()["status"], world.sandbox().alive) == ("paused", False)


async def test_a_session_that_is_deleted_meanwhile_is_not_half_deleted(world: World) -> None:
    tab = await lost(world)
    with pytest.raises(ApiError, match=AWAY):
        await tab.actor.destroy(False)
    assert tab.actor.describe()["status"] == "running"
    world.fleet.unavailable = None
    await tab.actor.destroy(False)
    assert world.fleet.sandboxes == {}


@pytest.mark.parametrize("how", ["wake", "resume"])
async def test_what_was_refused_by_name_is_not_started_when_the_provider_is_back(world: World, how: str) -> None:
    """A `wake` or `resume` that is answered 503 `sandbox_unavailable` has started nothing, now or later."""
    await world.create()
    tab = await world.welcomed()
    tab.say("a")
    await tab.until("done")
    actor = tab.actor
    await (actor.sleep() if how == "wake" else actor.pause())
    starts, world.fleet.unavailable = world.fleet.starts, AWAY
    with pytest.raises(ApiError, match=AWAY):
        await (actor.wake() if how == "wake" else actor.resume(None))
    world.fleet.unavailable = None
    await world.until(lambda: actor.describe()["status"] == "sleeping", "rest")
    await asyncio.sleep(120)
    assert (world.fleet.starts, world.sandbox().alive) == (starts, False)
    tab.say("b")
    await tab.until("done", count=2)


@pytest.mark.parametrize("waits", [True, False])
async def test_a_provider_that_falls_silent_during_a_restore_loses_no_workspace(world: World, waits: bool) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("a")
    await tab.until("done")
    world.sandbox().files[b"workspace/x"] = b"x"
    await tab.actor.sleep()
    world.sandbox().files.clear()
    world.sandbox().roots.step_seconds = 1.0
    wake = None
    if waits:
        tab.say("b")
    else:
        wake = asyncio.create_task(tab.actor.wake())
    await world.until(lambda: world.sandbox().alive, "a start")
    await asyncio.sleep(0.2)
    world.fleet.unavailable = AWAY
    await world.until(lambda: tab.actor.describe()["reason"] == AWAY, "the reason")
    assert tab.actor.describe()["status"] == "starting"
    world.fleet.unavailable = None
    world.sandbox().roots.step_seconds = 0.0
    if wake is None:
        await tab.until("done", count=2)
        assert world.sandbox().files == {b"workspace/x": b"x"}
    else:
        with pytest.raises(ApiError, match=AWAY):
            await wake
        await world.until(lambda: tab.actor.describe()["status"] == "sleeping", "rest")
    assert not tab.seen("error")


async def test_a_provider_that_falls_silent_when_the_agent_is_let_go_leaves_a_proven_workspace_alone() -> None:
    """A session whose workspace had just been proven became `unrestored`, and stayed so."""
    async with World(silent) as world:
        await world.create()
        tab = await world.welcomed()
        tab.say("think")
        await tab.until("receipt", stage="delivered")
        world.sandbox().files[b"workspace/f"] = b"mine"
        await tab.actor.sleep()
        silence = TreeFailed("silent", AWAY)
        silence.__cause__ = SandboxUnavailable(AWAY)
        roots = world.sandbox().roots
        roots.failures["release"] = [silence]
        tab.say("b")
        await world.until(lambda: not roots.failures["release"], "the silence")
        await world.until(lambda: world.sandbox().agent is not None, "the agent")
        assert world.sandbox().files[b"workspace/f"] == b"mine"
        assert not tab.seen("error")
        assert not tab.seen("session_status", status="unrestored")
        assert tab.actor.describe()["status"] == "running"
