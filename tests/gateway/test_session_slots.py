"""Sandboxes that do not answer, and who waits for them: nobody else."""

import asyncio

import pytest

from gateway.errors import ApiError
from gateway.session.actor import SessionActor
from tests.gateway.test_session_workspace import FILE, Town

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
        own = asyncio.ensure_future(victim.sync(wait=True))
        await asyncio.sleep(100)
        assert not own.done(), "all slots are taken"
        for actor in frozen:
            town.sandbox(actor.conversation.id).lose_link()
        async with asyncio.timeout(30):
            assert (await own)["sync"]["generation"] == 2
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


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
