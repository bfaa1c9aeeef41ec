"""What the gateway before left: found, or stopped."""

import asyncio

import pytest

from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.sandbox import SandboxUnavailable
from sandbox.providers.memory.fleet import MemoryHandle
from tests.support.faults import Fault
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


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


async def test_a_session_that_was_woken_while_its_old_sandbox_could_not_be_stopped_keeps_the_new_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop was asked for again until the provider answered, and then ended the sandbox that somebody talked to."""
    actor = await world.create()
    await (await world.welcomed()).until("connection_status", sandboxStatus="connected")
    await actor.sleep()
    await world.kill()
    await world.fleet.start(world.sandbox().spec)
    stop, asked, silent = MemoryHandle.stop, 0, True

    async def stop_later(handle: MemoryHandle) -> None:
        nonlocal asked
        asked += 1
        if silent:
            raise SandboxUnavailable("the provider does not answer")
        await stop(handle)

    monkeypatch.setattr(MemoryHandle, "stop", stop_later)
    await world.open()
    await world.until(lambda: asked > 0, "the question")
    tab = await world.welcomed()
    tab.say("a")
    await asyncio.sleep(60)
    silent = False
    await tab.until("done")
    await asyncio.sleep(60)
    tab.say("b")
    await tab.until("done", count=2)
    assert (tab.actor.describe()["status"], world.fleet.starts) == ("running", 3)
    assert not tab.seen("session_status", status="agent_exited")
