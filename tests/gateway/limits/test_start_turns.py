"""Starts that wait for their turn and for a place, on virtual time: who is told what, and who goes first."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from gateway.limits import start_turns
from gateway.limits.start_queue import StartLimits
from gateway.protocol.errors import ApiError
from gateway.session.model.state import SessionStatus
from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.progress import OnProgress, unheard
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


def world_of(**limits: int) -> World:
    world = World()
    world.starts = StartLimits(**limits)
    return world


@pytest.fixture
async def small() -> AsyncIterator[World]:
    """Two sandboxes of a user, three in all."""
    async with world_of(running=3, running_per_user=2) as world:
        yield world


async def until_running(world: World, *session_ids: str) -> None:
    for session_id in session_ids:
        actor = await world.actor(session_id)
        await world.until(lambda actor=actor: actor.conversation.state.status is SessionStatus.RUNNING, session_id)  # type: ignore[misc]


async def refused(world: World, session_id: str, user: str, setting: str) -> None:
    with pytest.raises(ApiError, match=setting) as told:
        await world.create(session_id, user=user)
    assert (told.value.status, told.value.code) == (429, "too_many_running")
    assert told.value.headers["Retry-After"] == "5"
    assert await world.catalogue.look(session_id) is None, "nothing was made of it"


async def test_a_user_at_the_limit_is_refused_and_another_is_served(small: World) -> None:
    for session_id in ("a1", "a2"):
        await small.create(session_id)
    await refused(small, "a3", "ann", "HOLDFAST_MAX_RUNNING_PER_USER")  # also while they are being started
    await small.create("b1", user="bob")
    await until_running(small, "a1", "a2", "b1")
    await refused(small, "b2", "bob", "HOLDFAST_MAX_RUNNING allows")
    await (await small.actor("a1")).sleep()
    await small.create("b2", user="bob")
    await until_running(small, "b2")


async def test_a_user_who_waits_for_their_own_limit_locks_nobody_out(small: World) -> None:
    """Messages to many sleeping sessions: those that could not run by their user's limit took everybody's places."""
    for number in range(4):
        actor = await small.create(f"m{number}", user="mal")
        await until_running(small, f"m{number}")
        await actor.sleep()
    for number in range(4):
        (await small.welcomed(f"m{number}")).say("hello")
    await small.until(lambda: small.sessions.turns.running_of("mal") == 2)
    await small.until(lambda: small.sessions.turns.stats()["starts_waiting"] == 2)
    await refused(small, "m4", "mal", "HOLDFAST_MAX_RUNNING_PER_USER")
    await small.create("a1", user="ann")
    await until_running(small, "a1")


async def test_verbs_are_refused_and_change_nothing(small: World) -> None:
    for session_id in ("a1", "a2"):
        await small.create(session_id)
        await until_running(small, session_id)
        await (await small.actor(session_id)).pause()
    for session_id in ("a3", "a4"):
        await small.create(session_id)
    paused = await small.actor("a1")
    with pytest.raises(ApiError, match="HOLDFAST_MAX_RUNNING_PER_USER"):
        await paused.resume(None)
    assert paused.conversation.state.status is SessionStatus.PAUSED
    await until_running(small, "a3", "a4")
    assert (await (await small.actor("a3")).wake())["status"] == "running", "what runs is no further one"
    await (await small.actor("a4")).sleep()
    assert (await paused.resume(None))["status"] == "running"
    asleep = await small.actor("a4")
    with pytest.raises(ApiError, match="HOLDFAST_MAX_RUNNING_PER_USER"):
        await asleep.wake()


async def test_a_message_waits_for_a_place_and_is_answered_when_one_is_free(small: World) -> None:
    for session_id in ("a1", "a2", "a3"):
        actor = await small.create(session_id)
        await until_running(small, session_id)
        if session_id == "a1":
            await actor.sleep()
    tab = await small.welcomed("a1")
    tab.say("hello", "m")
    assert (await tab.until("ack", cid="m"))["stage"] == "stored"
    told = await tab.until("session_status", status="queued")
    assert told["position"] == 1
    assert "HOLDFAST_MAX_RUNNING_PER_USER" in told["reason"]
    described = (await small.actor("a1")).describe()
    assert (described["status"], described["sandboxStatus"]) == ("starting", "connecting")
    assert described["queue"] == {"position": 1, "reason": told["reason"]}
    late = await small.welcomed("a1")
    await late.until("session_status", status="queued", position=1)
    await (await small.actor("a2")).sleep()
    await tab.until("done")
    assert (await small.actor("a1")).describe()["queue"] is None


async def test_a_session_that_waits_can_be_stopped_and_deleted(small: World) -> None:
    for session_id in ("a1", "a2", "a3", "a4"):
        actor = await small.create(session_id)
        await until_running(small, session_id)
        if session_id in ("a1", "a2"):
            await actor.sleep()
    for session_id in ("a1", "a2"):
        (await small.welcomed(session_id)).say("hello")
        await small.until(lambda: small.sessions.turns.stats()["starts_waiting"] > 0)
    first, second = await small.actor("a1"), await small.actor("a2")
    await small.until(lambda: second.describe()["queue"] is not None)
    assert (await first.destroy(purge=True))["status"] == "archived"
    await small.until(lambda: (second.describe()["queue"] or {}).get("position") == 1)
    assert (await second.pause())["status"] == "paused"
    assert small.sessions.turns.stats()["starts_waiting"] == 0
    await (await small.actor("a3")).sleep()
    assert second.conversation.state.status is SessionStatus.PAUSED


async def test_starts_are_few_at_once_and_users_take_turns() -> None:
    async with world_of(at_once=2, at_once_per_user=1) as world:
        begun: list[str] = []
        gate = asyncio.Event()
        start = world.fleet.start

        async def slowly(spec: SandboxSpec, progress: OnProgress = unheard) -> None:
            begun.append(spec.session_id)
            await gate.wait()
            await start(spec, progress)

        world.fleet.start = slowly  # type: ignore[method-assign]
        for session_id in ("m1", "m2", "m3"):
            await world.create(session_id, user="mal")
        for session_id in ("v1", "v2"):
            await world.create(session_id, user="vic")
        await world.until(lambda: world.sessions.stats()["starts_waiting"] == 3)
        assert sorted(begun) == ["m1", "v1"]
        assert world.sessions.turns.stats() == {
            "sandboxes_running": 2.0, "starts_under_way": 2.0, "starts_waiting": 3.0
        }  # fmt: skip
        places = {key: (await world.actor(key)).describe()["queue"]["position"] for key in ("m2", "m3", "v2")}
        assert places == {"m2": 1, "v2": 2, "m3": 3}
        gate.set()
        await until_running(world, "m1", "m2", "m3", "v1", "v2")
        assert begun[-1] == "m3"


async def test_a_start_that_takes_long_keeps_nobody_waiting() -> None:
    async with world_of(at_once=1) as world:
        gate = asyncio.Event()
        start = world.fleet.start

        async def slowly(spec: SandboxSpec, progress: OnProgress = unheard) -> None:
            if spec.session_id == "slow":
                await gate.wait()
            await start(spec, progress)

        world.fleet.start = slowly  # type: ignore[method-assign]
        await world.create("slow", user="mal")
        began = asyncio.get_running_loop().time()
        await world.create("quick", user="vic")
        await until_running(world, "quick")
        assert asyncio.get_running_loop().time() - began < start_turns.TURN_SECONDS + 1
        gate.set()
        await until_running(world, "slow")


async def test_what_runs_is_found_again_whatever_the_limits_say() -> None:
    async with world_of() as world:
        for session_id in ("a1", "a2", "a3", "b1"):
            await world.create(session_id, user="bob" if session_id == "b1" else "ann")
        await until_running(world, "a1", "a2", "a3", "b1")
        world.starts = StartLimits(at_once=1, at_once_per_user=1, running=2, running_per_user=1)
        await world.restart()
        await world.until(lambda: world.sessions.stats()["sandboxes_running"] == 4)
        for session_id in ("a1", "a2", "a3", "b1"):
            tab = await world.welcomed(session_id)
            tab.say("hello")
            await tab.until("done")
        await refused(world, "b2", "bob", "HOLDFAST_MAX_RUNNING_PER_USER")
        for session_id in ("a1", "a2", "a3", "b1"):
            await (await world.actor(session_id)).sleep()
        assert world.sessions.stats()["sandboxes_running"] == 0
        await world.create("b2", user="bob")
        await until_running(world, "b2")


async def test_a_session_that_waits_for_a_place_is_not_let_go_of() -> None:
    """Nobody watches it and nothing was said to it, so it was unloaded after five minutes, and its wish with it."""
    async with world_of(running=1) as world:
        for session_id in ("a1", "a2"):
            await world.create(session_id)
            await until_running(world, session_id)
            await (await world.actor(session_id)).sleep()
        first, second = await world.actor("a1"), await world.actor("a2")
        first.life.want_agent()
        await until_running(world, "a1")
        second.life.want_agent()
        for _ in range(100):
            first.conversation.touch()
            await asyncio.sleep(10)
        assert second.describe()["queue"]["position"] == 1
        await first.sleep()
        await until_running(world, "a2")


async def test_a_session_that_has_ended_is_not_expected_to_start() -> None:
    async with world_of(running=1) as world:
        actor = await world.create("a1")
        await until_running(world, "a1")
        await actor.sleep()
        await world.steal("a1")
        with pytest.raises(ApiError):
            await actor.sleep()
        await world.until(lambda: actor.ended)
        actor.life.want_agent()
        await asyncio.sleep(1)
        await world.create("a2")
        await until_running(world, "a2")


async def test_who_asks_anew_while_the_last_one_is_on_its_way_out_has_a_turn() -> None:
    """It found its own key under way, and waited for ever."""
    queue, ended = start_turns.StartTurns(StartLimits(at_once=1)), list[str]()

    async def start(name: str, *, seconds: float, leaves: float = 0.0) -> None:
        async with queue.turn("s", "ann", runs=False, placed=lambda: False, told=lambda _: None) as over:
            ended.append(f"{name} {'begins' if over else 'is given up'}")
            try:
                await asyncio.sleep(seconds)
            finally:
                await asyncio.sleep(leaves)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        first = group.create_task(start("first", seconds=1000, leaves=5))
        await asyncio.sleep(1)
        first.cancel()
        await asyncio.sleep(1)
        group.create_task(start("second", seconds=10))
        await asyncio.sleep(1)
        assert queue.stats()["starts_under_way"] == 1
        await asyncio.sleep(5)
        assert queue.stats()["starts_under_way"] == 1, "the first one's end is not the second's"
    assert ended == ["first begins", "second begins"]
    assert set(queue.stats().values()) == {0.0}


async def test_a_long_queue_is_told_by_and_by_and_not_for_each_who_joins_it() -> None:
    """Each who joined had the place of everybody counted: of a thousand sessions of one user others felt each one."""
    queue, told = start_turns.StartTurns(StartLimits(at_once=1)), list[tuple[int, int]]()

    async def start(number: int, seconds: float) -> None:
        def note(waiting: start_turns.Waiting) -> None:
            told.append((number, waiting.position))

        async with queue.turn(f"{number}", "ann", runs=False, placed=lambda: False, told=note):
            await asyncio.sleep(seconds)

    many = 3 * start_turns.TOLD_A_TURN
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(start(0, 2.0))]
        tasks += [group.create_task(start(number, 100.0)) for number in range(1, many + 1)]
        await asyncio.sleep(1)
        assert told == [(number, number) for number in range(1, many + 1)], "once each"
        told.clear()
        await asyncio.sleep(2)
        assert told == [(number, number - 1) for number in range(2, many + 1)]
        for task in tasks:
            task.cancel()
    assert set(queue.stats().values()) == {0.0}


async def test_who_moves_while_the_others_are_told_hears_of_it() -> None:
    queue, places = start_turns.StartTurns(StartLimits(at_once=1)), dict[int, int]()

    async def start(number: int) -> None:
        def note(waiting: start_turns.Waiting) -> None:
            places[number] = waiting.position
            if (number, waiting.position) == (2, 1):
                queue.give_up("3")

        async with queue.turn(f"{number}", "ann", runs=False, placed=lambda: False, told=note) as over:
            places.pop(number, None)
            await asyncio.sleep(5 if over else 0)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(start(number))
        await asyncio.sleep(8)
        assert places == {2: 1, 4: 2}


async def test_starts_that_waited_do_not_all_begin_in_the_same_moment() -> None:
    queue, began = start_turns.StartTurns(StartLimits(at_once=4), Random(1)), dict[int, float]()
    loop = asyncio.get_running_loop()

    async def start(number: int) -> None:
        async with queue.turn(f"{number}", f"{number}", runs=False, placed=lambda: False, told=lambda _: None):
            began[number] = loop.time()
            await asyncio.sleep(10)

    first = loop.time()
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(start(number))
    assert {began[number] for number in range(4)} == {first}, "who need not wait begins at once"
    waited = [began[number] - first - 10 for number in range(4, 8)]
    assert len(set(waited)) == 4, "freed in the same moment, used one after the other"
    assert all(0 <= seconds <= start_turns.JITTER_SECONDS for seconds in waited)
