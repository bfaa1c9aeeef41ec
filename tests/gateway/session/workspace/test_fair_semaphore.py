"""Sandboxes that do not answer, and who waits for them: nobody else."""

import asyncio

import pytest

from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from gateway.session.workspace.fair_semaphore import FairSemaphore
from gateway.session.workspace.keeping import WorkspaceLimits
from gateway.session.workspace.parked_tree import SILENT_SECONDS
from tests.gateway.session.workspace.test_workspace import FILE, Town

pytestmark = pytest.mark.virtual_time

STUCK = 1_000_000.0


async def begun(town: Town, session_id: str, user: str) -> SessionActor:
    actor = await town.create(session_id, user=user)
    await town.talk(session_id=session_id)
    await actor.sync(wait=True)
    town.sandbox(session_id).files[FILE] = b"new"
    return actor


async def test_frozen_sandboxes_of_two_users_hold_up_no_sync_of_a_third() -> None:
    async with Town() as town:
        victim = await begun(town, "v", "vic")
        frozen = [await begun(town, f"{user}-{number}", user) for user in ("mal", "moe") for number in range(6)]
        for actor in frozen:
            town.sandbox(actor.conversation.id).roots.step_seconds = STUCK
        waiting = [asyncio.ensure_future(actor.sync(wait=True)) for actor in frozen]
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        assert (await victim.sync(wait=True))["sync"]["generation"] == 2
        assert asyncio.get_running_loop().time() - began < 1
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_sync_ends_with_the_link_and_leaves_its_slot() -> None:
    async with Town() as town:
        victim = await begun(town, "v", "vic")
        frozen = [await begun(town, f"{user}-{number}", user) for user in ("mal", "moe") for number in range(4)]
        for actor in frozen:
            town.sandbox(actor.conversation.id).roots.step_seconds = 1.0
        waiting = [asyncio.ensure_future(actor.sync(wait=True)) for actor in frozen]
        await asyncio.sleep(1.5)
        for actor in frozen:  # they freeze in the middle
            town.sandbox(actor.conversation.id).roots.step_seconds = STUCK
            town.sandbox(actor.conversation.id).roots.beats = True
        own = asyncio.ensure_future(victim.sync(wait=True))
        await asyncio.sleep(100)
        assert not own.done(), "all slots are taken: their bridges show that they live"
        for actor in frozen:
            town.sandbox(actor.conversation.id).lose_link()
        async with asyncio.timeout(30):
            assert (await own)["sync"]["generation"] == 2
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_sandboxes_that_freeze_in_the_middle_give_their_slots_back() -> None:
    """Before, they held them until the silence of a whole minute, or the loss of the link."""
    async with Town() as town:
        victim = await begun(town, "v", "vic")
        frozen = [await begun(town, f"{user}-{number}", user) for user in ("mal", "moe") for number in range(4)]
        for actor in frozen:
            town.sandbox(actor.conversation.id).roots.step_seconds = 1.0
        waiting = [asyncio.ensure_future(actor.sync(wait=True)) for actor in frozen]
        await asyncio.sleep(1.5)
        for actor in frozen:
            town.sandbox(actor.conversation.id).roots.step_seconds = STUCK
        for generation in range(2, 6):
            town.sandbox("v").files[FILE] = b"%d" % generation
            async with asyncio.timeout(3 * SILENT_SECONDS):
                assert (await victim.sync(wait=True))["sync"]["generation"] == generation
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_slow_sandbox_is_kept_whether_or_not_it_shows_that_it_lives() -> None:
    async with Town() as town:
        for session_id, beats in (("a", False), ("b", True)):
            actor = await begun(town, session_id, session_id)
            roots = town.sandbox(session_id).roots
            roots.beats, roots.step_seconds = beats, 3 * SILENT_SECONDS
            assert (await actor.sync(wait=True))["sync"]["generation"] == 2
            assert town.sandbox(session_id).roots.steps.count("scan") == 2, "one attempt for each generation"


async def test_one_more_than_may_be_parked_fails_and_is_tried_again() -> None:
    async with Town() as town:
        town.workspaces = WorkspaceLimits(syncs_at_once=1)
        await town.restart()
        actors = [await begun(town, user, user) for user in ("ann", "bob")]
        syncs = []
        for actor in actors:
            roots = town.sandbox(actor.conversation.id).roots
            roots.step_seconds = 1.0
            syncs.append(asyncio.ensure_future(actor.sync(wait=True)))
            await asyncio.sleep(2.5)
            roots.step_seconds = STUCK
            await asyncio.sleep(1 + SILENT_SECONDS)
        assert "said nothing" in actors[1].describe()["sync"]["lastError"]
        assert actors[0].describe()["sync"]["lastError"] is None
        for actor in actors:
            town.sandbox(actor.conversation.id).roots.step_seconds = 0.0
        for task in syncs:
            task.cancel()
        await asyncio.gather(*syncs, return_exceptions=True)


async def test_one_that_speaks_again_waits_for_a_slot_like_any_other() -> None:
    slots = FairSemaphore(2)
    async with slots.of("ann") as first, slots.of("bob"):
        assert first.park()
        async with slots.of("cyd"):
            again = asyncio.ensure_future(first.take())
            await asyncio.sleep(1)
            assert not again.done()
        async with asyncio.timeout(1):
            await again


async def test_only_so_many_are_parked() -> None:
    slots = FairSemaphore(1)
    async with slots.of("ann") as first:
        assert first.park()
        async with slots.of("bob") as second:
            assert not second.park()
            first.leave()
            assert second.park()


async def test_a_lost_link_is_why_a_sync_failed() -> None:
    async with Town() as town:
        actor = await begun(town, "s", "ann")
        roots = town.sandbox().roots
        syncing = asyncio.ensure_future(actor.sync(wait=True))
        roots.step_seconds = 5.0
        for _ in range(10):  # more often than it is tried
            await asyncio.sleep(7.0)
            town.sandbox().lose_link()
        with pytest.raises(ApiError, match="the connection to the sandbox was lost"):
            await syncing
