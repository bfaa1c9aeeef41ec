"""Sessions that nobody uses."""

import asyncio

import pytest

from tests.support.faults import Fault
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


async def test_while_the_store_is_away_no_session_is_let_go_that_could_not_be_loaded_again() -> None:
    """One that was put to sleep in an outage once was: its user was refused until the store was back."""
    async with World(spooled=True) as world:
        actor = await world.create()
        world.store.outage = Fault.AWAY
        await actor.sleep()
        await asyncio.sleep(2000)
        assert await world.actor() is actor
        world.store.outage = None
        await asyncio.sleep(2000)
        assert await world.actor() is not actor
