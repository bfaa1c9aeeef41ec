"""How many sessions a user may have and how much they may store, on virtual time."""

import asyncio

import pytest

from gateway.limits import quota
from gateway.limits.quota import Quota, UserLimits
from gateway.protocol.errors import ApiError
from gateway.session.model.state import SessionStatus
from persistence.errors import StoreUnavailable
from persistence.record import NO_USER, Usage
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


def world_of(**limits: int) -> World:
    world = World()
    world.user_limits = UserLimits(**limits)
    return world


async def until_running(world: World, session_id: str) -> None:
    actor = await world.actor(session_id)
    await world.until(lambda: actor.conversation.state.status is SessionStatus.RUNNING, session_id)


async def until_stored(world: World, snapshot_bytes: int) -> None:
    async with asyncio.timeout(60):
        while (await world.sessions.quota.usage("ann")).snapshot_bytes != snapshot_bytes:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_user_has_so_many_sessions_and_another_is_served() -> None:
    async with world_of(sessions=3) as world:
        await asyncio.gather(world.create("a1"), world.create("a2"))
        for session_id in ("a1", "a2"):
            await until_running(world, session_id)
        asked = await asyncio.gather(*(world.create(f"x{n}") for n in range(5)), return_exceptions=True)
        refused = [each for each in asked if isinstance(each, ApiError)]
        assert len(refused) == 4, "many at once do not pass where one may"
        assert (refused[0].status, refused[0].code) == (429, "too_many_sessions")
        assert "HOLDFAST_MAX_SESSIONS_PER_USER" in refused[0].message
        assert refused[0].headers["Retry-After"] == "60"
        with pytest.raises(ApiError, match="HOLDFAST_MAX_SESSIONS_PER_USER"):
            await world.sessions.creation.attach_or_create("y", "ann")
        await world.create("b1", user="bob")
        assert (await world.create("a1")).id == "a1", "what there is can be had"
        await (await world.actor("a1")).destroy(purge=False)
        with pytest.raises(ApiError, match="archived ones included"):
            await world.create("z")
        await (await world.actor("a1")).destroy(purge=True)
        await world.create("z")


async def test_the_services_sessions_are_not_counted() -> None:
    async with world_of(sessions=1, stored=1000) as world:
        for session_id in ("s1", "s2"):
            await world.create(session_id, user=NO_USER)
            await until_running(world, session_id)
        tab = await world.welcomed("s1")
        for number in range(3):
            tab.say("x" * 2000, f"m{number}")
            await tab.until("ack", cid=f"m{number}", stage="stored")
        await (await world.actor("s1")).sync(wait=True)


async def test_a_branch_is_a_session_too() -> None:
    async with world_of(sessions=2) as world:
        actor = await world.create("a1")
        await until_running(world, "a1")
        await actor.sync(wait=True)
        await world.branch("a1")
        with pytest.raises(ApiError, match="HOLDFAST_MAX_SESSIONS_PER_USER"):
            await world.branch("a1")


async def test_messages_are_refused_in_words_when_a_user_has_stored_enough() -> None:
    async with world_of(stored=20_000) as world:
        await world.create("a1")
        tab = await world.welcomed("a1")
        for number in range(20):
            tab.say("x" * 2000, f"m{number}")
            await world.until(lambda: len(tab.seen("ack", stage="stored")) + len(tab.seen("nack")) > number)  # noqa: B023
            await asyncio.sleep(1)  # so that it is counted
        kept = len(tab.seen("ack", stage="stored"))
        assert 20_000 // 4_200 <= kept <= 20_000 // 2_000, "an echo doubles each"
        tab.say("one more", "last")
        told = await tab.until("nack", cid="last")
        assert told["reason"] == "stored_too_much"
        assert "HOLDFAST_MAX_STORED_PER_USER" in told["error"]
        with pytest.raises(ApiError) as refused:
            await tab.actor.intake.post_record(
                role="user", type="message", content="x", metadata=None, cid=None, deliver=False
            )
        assert (refused.value.status, refused.value.code) == (429, "stored_too_much")
        await world.create("b1", user="bob")
        other = await world.welcomed("b1")
        other.say("hello")
        await other.until("done")
        await (await world.actor("a1")).destroy(purge=True)
        await world.create("a2")
        again = await world.welcomed("a2")
        again.say("hello")
        await again.until("done")


async def test_a_workspace_is_kept_only_as_far_as_there_is_room_and_a_smaller_one_is() -> None:
    async with world_of(stored=10_000) as world:
        actor = await world.create("a1")
        await until_running(world, "a1")
        files = world.sandbox("a1").files
        files[b"workspace/large"] = b"x" * 6_000
        await actor.sync(wait=True)
        await until_stored(world, 6_000)
        files[b"workspace/larger"] = b"y" * 6_000
        with pytest.raises(ApiError, match="HOLDFAST_MAX_STORED_PER_USER"):
            await actor.sync(wait=True)
        del files[b"workspace/larger"]
        files[b"workspace/large"] = b"z" * 100
        await actor.sync(wait=True)
        await until_stored(world, 100)


async def test_what_is_not_known_is_not_refused_and_asked_again_later() -> None:
    asked: list[str] = []
    tasks: list[asyncio.Task[None]] = []
    away = True

    async def ask(user: str) -> Usage:
        asked.append(user)
        if away:
            raise StoreUnavailable("away")
        return Usage(1, 60, 40)

    counted = Quota(ask, UserLimits(stored=110))

    def full() -> str | None:
        return counted.full("ann", lambda work, name: tasks.append(asyncio.create_task(work, name=name)))

    assert full() is None
    assert full() is None
    await asyncio.sleep(0.1)
    assert asked == ["ann"], "once is enough"
    away = False
    await asyncio.sleep(quota.FRESH_SECONDS)
    assert full() is None
    await asyncio.sleep(0.1)
    assert asked == ["ann"] * 2
    counted.grew("ann", 9)
    assert full() is None
    counted.grew("ann", 1)
    assert full() is not None
    counted.grew("bob", 1000)


async def test_only_so_many_users_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "USERS", 2)

    async def ask(user: str) -> Usage:
        return Usage(1, 100, 0)

    counted = Quota(ask, UserLimits(stored=100))
    for user in "abc":
        await counted.usage(user)
    assert counted.full("c", lambda work, name: work.close()) is not None
    assert counted.full("a", lambda work, name: work.close()) is None, "it was forgotten, and is asked about again"


async def test_one_that_was_made_while_the_store_counted_is_not_missed() -> None:
    """Counted before another was there and judged after, it would pass beyond the limit."""
    slow, creating = asyncio.Event(), asyncio.Event()
    slow.set()

    async def ask(user: str) -> Usage:
        await slow.wait()
        return Usage(9, 0, 0)

    counted = Quota(ask, UserLimits(sessions=10))

    async def make() -> None:
        async with counted.session("ann"):
            await creating.wait()

    first = asyncio.create_task(make())
    await asyncio.sleep(0.1)  # it may, and is being created
    slow.clear()
    second = asyncio.create_task(make())
    await asyncio.sleep(0.1)
    creating.set()
    await first
    slow.set()
    with pytest.raises(ApiError, match="HOLDFAST_MAX_SESSIONS_PER_USER"):
        await second
