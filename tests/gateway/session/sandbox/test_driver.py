"""What is asked of a session's life: one thing at a time is done, the rest waits, overtakes, or is given up."""

import asyncio

import pytest

from gateway.protocol.close_codes import CloseCode
from gateway.protocol.errors import ApiError
from gateway.session.sandbox.lifecycle.life import LINE, LifeStage
from gateway.session.sandbox.performer import Beside
from gateway.session.workspace.workspace import Workspace
from gateway.telemetry.telemetry import REDACTOR
from sandbox.ports.link import LinkEvents
from sandbox.ports.tree import TreeFailed
from sandbox.protocol.values import Position
from sandbox.providers.memory.link import MemoryLink
from sync.machine.reconcile import Newest
from tests.support.sessions import Tab, World

pytestmark = pytest.mark.virtual_time


async def connected(world: World) -> Tab:
    await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    return tab


async def pausing(world: World) -> "tuple[Tab, asyncio.Task[dict[str, object]]]":
    """A session whose workspace is being kept before it is paused."""
    tab = await connected(world)
    world.sandbox().roots.step_seconds = 0.5
    asked = asyncio.create_task(tab.actor.pause())
    await world.until(lambda: tab.actor.life.core.stage is LifeStage.KEEPING, "the last sync")
    return tab, asked


async def test_a_resume_that_comes_while_a_pause_is_under_way_resumes_after_it(world: World) -> None:
    tab, paused = await pausing(world)
    assert (await tab.actor.resume(None))["status"] == "running"
    await paused
    assert world.fleet.starts == 2
    tab.say("a")
    await tab.until("done")


async def test_a_delete_goes_before_all_that_waits(world: World) -> None:
    tab, paused = await pausing(world)
    waiting = [asyncio.create_task(ask()) for ask in (tab.actor.sleep, tab.actor.wake, tab.actor.pause)]
    assert (await tab.actor.destroy(purge=False))["status"] == "archived"
    with pytest.raises(ApiError, match="the sandbox stays"):
        await paused
    assert {(await task)["status"] for task in waiting} == {"archived"}
    assert world.fleet.sandboxes == {}


async def test_so_many_requests_may_wait_and_one_more_is_refused(world: World) -> None:
    world.fleet.start_seconds = 60.0
    actor = await world.create()
    await world.until(lambda: world.fleet.starts == 1, "a start")
    asked = [asyncio.create_task(actor.wake()) for _ in range(LINE)]
    await world.until(lambda: len(actor.life.core.line) == LINE, "a full line")
    with pytest.raises(ApiError, match="try again") as refused:
        await actor.wake()
    assert (refused.value.status, refused.value.code) == (429, "busy")
    assert {(await task)["status"] for task in asked} == {"running"}
    assert world.fleet.starts == 1


async def test_a_wake_goes_on_although_nobody_waits_for_it_any_more(world: World) -> None:
    world.fleet.start_seconds = 5.0
    tab = await world.welcomed((await world.create()).id)
    waking = asyncio.create_task(tab.actor.wake())
    await world.until(lambda: tab.actor.life.core.stage is LifeStage.STARTING, "a start")
    waking.cancel()
    await asyncio.wait({waking})
    await tab.until("connection_status", sandboxStatus="connected")
    assert world.fleet.starts == 1


async def test_a_provider_that_falls_silent_while_a_sandbox_is_stopped_keeps_it(world: World) -> None:
    tab, paused = await pausing(world)
    agents = len(world.sandbox().processes)
    world.fleet.unavailable = "the provider does not answer"
    with pytest.raises(ApiError, match="the provider does not answer") as refused:
        await paused
    assert (refused.value.status, refused.value.code) == (503, "sandbox_unavailable")
    assert world.sandbox().alive
    world.fleet.unavailable = None
    world.sandbox().roots.step_seconds = 0.0
    tab.say("still there?")
    await tab.until("done")
    assert (world.fleet.starts, len(world.sandbox().processes)) == (1, agents + 1)


async def test_what_waits_for_a_turn_when_its_session_fails_asks_for_none(world: World) -> None:
    actor = await world.create()
    await world.until(lambda: world.fleet.starts == 1)
    await actor.sleep()
    waking = asyncio.create_task(actor.wake())
    actor.post(actor.life.end)
    with pytest.raises(ApiError) as refused:
        await waking
    assert refused.value.code == "session_failed"
    await asyncio.sleep(60)
    assert (world.fleet.starts, world.sessions.turns.stats()["starts_under_way"]) == (1, 0)


async def test_work_that_is_given_up_before_it_began_is_not_begun() -> None:
    begun = list[str]()

    async def work() -> None:
        begun.append("begun")
        await asyncio.sleep(60)
        begun.append("done")

    early, late = Beside(work), Beside(work)
    tasks = [asyncio.create_task(beside.run()) for beside in (early, late)]
    early.cancel()
    await asyncio.sleep(1)
    late.cancel()
    await asyncio.wait(tasks)
    assert begun == ["begun"]


async def test_an_agent_whose_start_is_stored_after_the_gateway_began_to_leave_harms_nobody(world: World) -> None:
    tab = await connected(world)
    world.queue.hold("s", 60)
    tab.actor.life.kill_agent()
    await world.until(lambda: len(world.sandbox().processes) == 2, "the next agent")
    await asyncio.sleep(1)
    assert not tab.actor.output.agent_alive  # its epoch waits for the store
    await world.leave()
    assert tab.closed_with == CloseCode.COMING_BACK
    await world.open()
    again = await world.welcomed()
    again.say("still there?")
    await again.until("done")


@pytest.mark.parametrize("verb", ["pause", "sleep", "destroy", "wake", "sync"])
async def test_a_bridge_that_closes_each_link_before_its_hello_keeps_nobody_waiting(world: World, verb: str) -> None:
    """Every verb waited for a link that stays, and there was none."""
    tab = await connected(world)
    sandbox, actor = world.sandbox(), tab.actor
    attach = sandbox.attach

    def throw_out(events: LinkEvents, after: Position | None) -> MemoryLink:
        link = attach(events, after)
        sandbox.let_go(link)
        link.lose("thrown out")
        return link

    sandbox.attach = throw_out  # type: ignore[method-assign]
    sandbox.lose_link()
    await asyncio.sleep(30)
    async with asyncio.timeout(60):
        if verb == "wake":
            with pytest.raises(ApiError, match="before it had said hello") as refused:
                await actor.wake()
            assert refused.value.code == "sandbox_unavailable"
        elif verb == "sync":
            assert (await actor.sync(wait=True))["status"] == "running"
        elif verb == "destroy":
            assert (await actor.destroy(purge=False))["status"] == "archived"
        else:
            assert (await getattr(actor, verb)())["status"] == {"pause": "paused", "sleep": "sleeping"}[verb]
    assert (world.fleet.sandboxes.get("s") is sandbox and sandbox.alive) is (verb in ("wake", "sync"))


@pytest.mark.parametrize("verb", ["pause", "destroy"])
async def test_a_held_bridge_that_says_nothing_of_its_workspace_is_stopped_at_last(world: World, verb: str) -> None:
    """A gateway died while it stopped the sandbox, and its tree hangs: it could neither be used nor removed."""
    await connected(world)
    roots = world.sandbox().roots
    roots.held = True
    roots.failures["survey"] = [TreeFailed("silent", "it hangs")] * 1000
    await world.restart()
    await world.until(lambda: not world.sandbox().alive, "its end")
    actor = await world.actor()
    if verb == "pause":
        assert (await actor.pause())["status"] == "paused"
    else:
        assert (await actor.destroy(purge=False))["status"] == "archived"


async def test_a_second_create_of_an_archived_session_does_not_wait_for_the_start_of_the_first(world: World) -> None:
    tab = await connected(world)
    await tab.actor.destroy(purge=False)
    world.fleet.start_seconds = 3600.0
    async with asyncio.timeout(60):
        actors = await asyncio.gather(world.create(), world.create())
    assert {actor.describe()["status"] for actor in actors} == {"starting"}


async def test_a_start_has_its_secrets_although_a_delete_was_asked_for_and_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delete took the secrets away when it came. The agent began without them."""
    actor = await world.create(env={"KEY": "secret-of-ann"})
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    await actor.sleep()
    look, seen = Workspace.look, asyncio.Event()

    async def slow(self: Workspace, *, keep: bool = False) -> Newest | None:
        await seen.wait()
        return await look(self, keep=keep)

    monkeypatch.setattr(Workspace, "look", slow)
    waking = asyncio.create_task(actor.wake())
    await world.until(lambda: actor.life.core.stage is LifeStage.LOOKING, "a look")
    deleting = asyncio.create_task(actor.destroy(purge=False))
    await world.until(lambda: len(actor.life.core.line) == 1, "the delete")
    deleting.cancel()
    await asyncio.wait({deleting})
    seen.set()
    assert (await waking)["status"] == "running"
    assert world.sandbox().spec.env == {"KEY": "secret-of-ann"}
    await actor.destroy(purge=False)
    assert actor.life.status == "archived"
    assert REDACTOR.clean("secret-of-ann") == "secret-of-ann", "they are forgotten"


async def test_an_agent_that_crashes_while_a_pause_waits_for_a_sync_is_started_again_if_it_is_given_up(
    world: World,
) -> None:
    tab = await connected(world)
    sandbox = world.sandbox()
    sandbox.roots.step_seconds = 20.0
    sandbox.files[b"workspace/x"] = b"x"
    await tab.actor.sync(wait=False)
    await world.until(lambda: tab.actor.describe()["sync"]["state"] == "syncing", "a sync")
    pausing = asyncio.create_task(tab.actor.pause())
    await world.until(lambda: tab.actor.life.core.stage is LifeStage.LULLING, "a pause")
    agent = sandbox.agent
    assert agent is not None
    agent.exit(1)
    await tab.until("session_status", status="agent_exited")
    pausing.cancel()
    await world.until(lambda: sandbox.agent not in (None, agent), "another agent")
