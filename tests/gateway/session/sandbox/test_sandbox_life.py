"""A session's sandbox: asleep, awake, paused, lost, broken, deleted."""

import asyncio
import json

import pytest

from gateway.limits.start_queue import StartLimits
from gateway.protocol.errors import ApiError
from gateway.session.model.ports import SessionLimits
from sandbox.providers.memory.scripted import silent
from tests.support.sessions import World
from tests.support.waiting import until

pytestmark = pytest.mark.virtual_time


async def test_an_idle_session_sleeps_and_a_message_wakes_it(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    tab.say("a")
    await tab.until("done")
    await asyncio.sleep(590)
    assert actor.describe()["status"] == "running"
    await tab.until("session_status", status="sleeping", within=30)
    await tab.until("connection_status", sandboxStatus="sleeping")
    assert not world.sandbox().alive
    other = await world.welcomed()
    await asyncio.sleep(60)
    assert not world.sandbox().alive, "attaching does not wake"
    assert other.seen("connection_status")[-1]["sandboxStatus"] == "sleeping"
    tab.say("b")
    await tab.until("done", count=2)
    assert [json.loads(line)["content"] for _, line in world.sandbox().handed] == ["a", "b"]
    assert actor.describe()["incarnation"] == 2


async def test_an_unfinished_answer_is_not_idle() -> None:
    async with World(silent) as world:
        actor = await world.create()
        tab = await world.welcomed()
        tab.say("think long")
        await tab.until("receipt")
        await asyncio.sleep(3600)
        assert actor.describe()["status"] == "running"
        agent = world.sandbox().agent
        assert agent is not None
        agent.emit({"type": "done"})
        await tab.until("session_status", status="sleeping")


async def test_a_sleeping_session_that_nobody_watches_is_let_go_and_found_again(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    tab.say("a")
    await tab.until("done")
    tab.leave()
    await world.until(lambda: actor.ended, "the unloading", within=2000)
    tab = await world.welcomed()
    assert tab.actor is not actor
    assert tab.seen("welcome")[0]["lastSeq"] == 2
    tab.say("b")
    await tab.until("done")
    assert [record["seq"] for record in await world.history()] == [1, 2, 3, 4]


async def test_paused_holds_messages_until_resume_and_refuses_wake(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    assert (await actor.pause())["status"] == "paused"
    tab.say("held")
    await tab.until("ack")
    with pytest.raises(ApiError) as refused:
        await actor.wake()
    assert (refused.value.status, refused.value.code) == (409, "paused")
    with pytest.raises(ApiError):
        await actor.sleep()
    await world.restart()
    tab = await world.welcomed()
    await asyncio.sleep(60)
    assert tab.actor.describe()["status"] == "paused"
    assert not world.sandbox().alive
    await tab.actor.resume(None)
    await tab.until("done")
    told = [frame["sandboxStatus"] for frame in tab.seen("connection_status")]
    assert "disconnected" not in told
    assert told[-2:] == ["connecting", "connected"]


async def test_delete_archives_and_create_revives_the_conversation(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    tab.say("a")
    await tab.until("done")
    assert (await actor.destroy(False))["status"] == "archived"
    assert tab.closed_with == 1000
    assert world.fleet.sandboxes == {}
    with pytest.raises(ApiError) as refused:
        await actor.wake()
    assert refused.value.code == "archived"
    late = await world.welcomed()
    late.say("too late", "c9")
    assert (await late.until("nack", cid="c9"))["reason"] == "archived"
    await world.restart()
    await world.create()
    tab = await world.welcomed()
    assert tab.seen("welcome")[0]["lastSeq"] == 2
    tab.say("b")
    await tab.until("done")
    assert [record["content"] for record in await world.history()] == ["a", "a", "b", "b"]


async def test_delete_says_what_will_not_be_delivered(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    await actor.pause()
    tab.say("held", "c1")
    await tab.until("ack")
    await actor.destroy(False)
    await asyncio.sleep(1)
    assert [record["status"] for record in await world.history()] == ["interrupted"]


async def test_purge_removes_everything_and_the_id_is_free(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    tab.say("a")
    await tab.until("done")
    await actor.destroy(True)
    assert await world.history() == []
    assert await world.registry.find("s", user_id=None) is None
    await world.create(user="bob")
    tab = await world.welcomed()
    tab.say("mine", "c1")
    assert (await tab.until("ack"))["seq"] == 1


async def test_env_is_kept_over_sleep_and_needed_again_after_a_restart(world: World) -> None:
    actor = await world.create(env={"KEY": "secret-value"})
    tab = await world.welcomed()
    tab.say("a")
    await tab.until("done")
    await actor.sleep()
    tab.say("b")
    await tab.until("done", count=2)
    assert world.sandbox().spec.env == {"KEY": "secret-value"}
    await actor.sleep()
    await world.restart()
    tab = await world.welcomed()
    tab.say("c", "c3")
    await tab.until("session_status", status="needs_env")
    assert not world.sandbox().alive
    await tab.until("ack", cid="c3")
    await tab.actor.resume({"KEY": "again"})
    await tab.until("done")
    assert world.sandbox().spec.env == {"KEY": "again"}
    kept = await world.kept.find("s")
    assert kept is not None
    assert b"secret-value" not in kept.spec + kept.state


async def test_a_sandbox_that_cannot_start_is_error_with_its_reason_and_is_tried_again(world: World) -> None:
    world.fleet.start_failures = ["no room on this machine", "still none"]
    actor = await world.create()
    tab = await world.welcomed()
    tab.say("a", "c1")
    error = await tab.until("error", code="sandbox_failed")
    assert error["error"] == "no room on this machine"
    await tab.until("session_status", status="error", reason="no room on this machine")
    await tab.until("done")
    assert world.fleet.starts == 3
    assert actor.describe()["status"] == "running"


async def test_what_was_answering_when_the_sandbox_cannot_come_back_is_interrupted() -> None:
    """It once stayed owed for ever: only a bridge's hello ended the process that was gone."""
    async with World(silent) as world:
        await world.create()
        tab = await world.welcomed()
        tab.say("a", "c1")
        await tab.until("receipt")
        world.fleet.start_problem = "gone for good"
        world.sandbox().crash()
        await tab.until("interrupted", cid="c1")
        await tab.until("session_status", status="error")


async def test_a_lost_link_is_found_again_and_nothing_is_lost(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    for number in range(40):
        tab.say(f"m{number}")
        if number % 8 == 0:
            world.sandbox().lose_link()
        await asyncio.sleep(0.05)
    await tab.until("done", count=40)
    assert [json.loads(line)["content"] for _, line in world.sandbox().handed] == [f"m{n}" for n in range(40)]
    assert world.fleet.starts == 1
    assert tab.seen("interrupted") == []


async def test_a_link_lost_while_it_is_being_found_is_found_again(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    for turns in range(12):
        world.sandbox().lose_link()
        for _ in range(turns):
            await asyncio.sleep(0)
        world.sandbox().lose_link()
        tab.say(f"m{turns}")
        await tab.until("done", count=turns + 1, within=60)


async def test_a_dead_bridge_is_replaced_and_what_it_had_is_told() -> None:
    async with World(silent) as world:
        actor = await world.create()
        tab = await world.welcomed()
        tab.say("taken", "c1")
        await tab.until("receipt")
        agent = world.sandbox().agent
        assert agent is not None
        agent.hang()
        tab.say("untaken", "c2")
        await tab.until("ack", cid="c2")
        world.sandbox().crash()
        await tab.until("interrupted", cid="c1")
        await tab.until("receipt", cid="c2")
        assert actor.describe()["incarnation"] == 2
        assert [json.loads(line)["content"] for _, line in world.sandbox().handed] == ["taken", "untaken"]


async def test_bridges_that_die_again_and_again_are_given_up_after_five(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    for count in range(1, 6):
        await tab.until("connection_status", sandboxStatus="connected", count=count)
        world.sandbox().crash()
    await tab.until("error", code="crash_loop")
    await asyncio.sleep(30)
    assert world.fleet.starts == 5
    await actor.wake()
    tab.say("a")
    await tab.until("done")


async def test_a_process_that_a_killed_gateway_had_asked_for_gets_what_waits(world: World) -> None:
    """The old process is announced once more, dead, before the new one is: messages once went to the dead one."""
    await world.create()
    tab = await world.welcomed()
    tab.say("a")
    await tab.until("done")
    agent = world.sandbox().agent
    assert agent is not None
    agent.exit(1)
    tab.say("b", "c2")
    await tab.until("ack", cid="c2")
    await world.restart()
    tab = await world.welcomed()
    tab.say("c", "c3")
    await tab.until("receipt", cid="c3")
    await asyncio.sleep(1)
    assert [json.loads(line)["content"] for _, line in world.sandbox().handed] == ["a", "b", "c"]
    assert [r["content"] for r in await world.history() if r["role"] == "assistant"] == ["a", "b", "c"]


async def test_a_new_process_is_given_nothing_before_it_is_known_to_the_store() -> None:
    """A gateway killed in between once took what the new process had for what the old one had not finished."""
    async with World() as world:
        await world.create()
        tab = await world.welcomed()
        await tab.until("connection_status", sandboxStatus="connected")
        agent = world.sandbox().agent
        assert agent is not None
        agent.hang()
        tab.say("a", "c1")
        await tab.until("ack")
        await asyncio.sleep(1)
        world.store.gate.clear()
        agent.exit(1)
        await world.until(lambda: len(world.sandbox().processes) == 2, "the second process")
        await asyncio.sleep(5)
        assert world.sandbox().handed == []
        await world.restart()
        tab = await world.welcomed()
        await tab.until("done")
        assert [json.loads(line)["content"] for _, line in world.sandbox().handed] == ["a"]
        assert [record["status"] for record in await world.history()] == ["delivered", "complete"]


async def test_an_answer_that_waits_for_the_store_counts_although_its_sandbox_is_gone_for_good(world: World) -> None:
    """It was given before the end: its message is not interrupted, although the end is known first."""
    actor = await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    tab.say("a", "c1")
    tab.say("b", "c2")
    await tab.until("ack", count=2)
    world.store.gate.clear()
    await asyncio.sleep(1)
    world.fleet.start_problem = "gone for good"
    world.sandbox().crash()
    await tab.until("session_status", status="error")
    world.store.gate.set()
    await tab.until("done", count=2)
    await asyncio.sleep(1)
    assert tab.seen("interrupted") == []
    assert actor.describe()["pending"] == 0
    assert [r["status"] for r in await world.history() if r["role"] == "user"] == ["delivered", "delivered"]


async def test_a_session_put_to_sleep_during_an_outage_stays_asleep(world: World) -> None:
    """The exit of its agent, dealt with when the store was back, once counted as a crash and woke it."""
    world.fleet.script = silent
    actor = await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    tab.say("a", "c1")
    await tab.until("receipt")
    agent = world.sandbox().agent
    assert agent is not None
    agent.on_stop = lambda: None  # it has to be killed
    agent.emit({"type": "done"})
    world.store.gate.clear()
    with pytest.raises(ApiError, match="the change holds"):
        await actor.sleep()
    assert actor.describe()["status"] == "sleeping"
    await asyncio.sleep(60)
    world.store.gate.set()
    await tab.until("done")
    await asyncio.sleep(60)
    assert actor.describe()["status"] == "sleeping"
    assert world.fleet.starts == 1


async def test_a_wake_takes_the_sandbox_once_for_all_who_want_it(world: World) -> None:
    world.fleet.start_seconds = 5.0
    actor = await world.create()
    tab, other = await world.welcomed(), await world.welcomed()
    tab.say("a")
    other.say("b")
    await asyncio.gather(actor.wake(), actor.wake(), actor.resume(None))
    await tab.until("done", count=2)
    assert world.fleet.starts == 1


async def test_a_session_sleeps_after_its_own_idle_time(world: World) -> None:
    actor = await world.create(sleep_after=60.0)
    await world.create("other")
    assert actor.describe()["sleepAfter"] == 60.0
    tab, neighbour = await world.welcomed(), await world.welcomed("other")
    await tab.until("session_status", status="sleeping", within=70)
    assert not neighbour.seen("session_status", status="sleeping")
    long = await world.create("long", sleep_after=7200.0)
    await neighbour.until("session_status", status="sleeping")
    await asyncio.sleep(3600)
    assert long.describe()["status"] == "running"


async def test_a_changed_idle_time_holds_at_once_and_is_kept(world: World) -> None:
    actor = await world.create(title="one")
    await world.until(lambda: actor.describe()["status"] == "running")
    await actor.change({"sleep_after": 3600.0})
    await asyncio.sleep(1800)
    assert actor.describe()["status"] == "running"
    await world.restart()
    actor = await world.actor()
    assert actor.describe()["sleepAfter"] == 3600.0
    await actor.change({"sleep_after": 60.0})  # idle for longer than that already: a change is no activity
    await world.until(lambda: actor.describe()["status"] == "sleeping", within=10)
    assert (await actor.change({"sleep_after": None}))["sleepAfter"] is None
    assert actor.describe()["title"] == "one"
    await actor.wake()
    await asyncio.sleep(500)
    assert actor.describe()["status"] == "running"


async def test_an_idle_time_survives_branch_and_archive(world: World) -> None:
    actor = await world.create(sleep_after=60.0)
    await world.until(lambda: actor.describe()["status"] == "running")
    await actor.sync(wait=True)
    branch = await world.branch()
    assert branch.describe()["sleepAfter"] == 60.0
    assert (await actor.destroy(False))["sleepAfter"] == 60.0
    assert (await actor.change({"title": "kept"}))["title"] == "kept"
    assert (await world.create()).describe()["sleepAfter"] == 60.0
    await actor.destroy(False)
    assert (await world.create(sleep_after=90.0)).describe()["sleepAfter"] == 90.0


async def test_limits_name_what_they_limit() -> None:
    async with World(limits=SessionLimits(sleep_after=20.0)) as world:
        await world.create()
        tab = await world.welcomed()
        await tab.until("session_status", status="sleeping", within=40)


async def test_a_sandbox_that_does_not_answer_is_ended_before_its_messages_are_called_interrupted() -> None:
    """Its agent once lived on, answered, and was attached again: the message had been called interrupted by then."""
    async with World(silent) as world:
        await world.create()
        tab = await world.welcomed()
        tab.say("a")
        await tab.until("receipt")
        await world.kill()
        world.fleet.link_problem = "it does not answer"
        await world.open()
        await world.welcomed()

        async def interrupted() -> bool:
            return [record["status"] for record in await world.history()] == ["interrupted"]

        await until(interrupted, "the message is interrupted", 900)
        assert not world.sandbox().alive


async def test_a_session_that_waits_for_its_turn_may_be_woken_into_the_last_place() -> None:
    """It was in its own way: 429 too_many_running, although the place was its own."""
    async with World() as world:
        await world.kill()
        world.starts = StartLimits(at_once=1, running_per_user=2)
        await world.open()
        world.fleet.start_seconds = 5.0
        first, second = await world.create("first"), await world.create("second")
        await world.until(lambda: second.describe()["queue"] is not None, "the queue")
        assert (await second.wake())["status"] == "running"
        assert first.describe()["status"] == "running"
