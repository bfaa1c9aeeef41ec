"""Sessions that are made, or had again, by the id their creator chose."""

import asyncio

import pytest

from gateway.protocol.errors import ApiError
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


async def test_the_owner_gets_the_same_session_and_a_stranger_a_409(world: World) -> None:
    actor = await world.create()
    assert await world.create() is actor
    with pytest.raises(ApiError) as refused:
        await world.create(user="eve")
    assert (refused.value.status, refused.value.code) == (409, "taken")
    assert await world.registry.find("nobody's", user_id=None) is None


async def test_attach_or_create_makes_a_session_that_sleeps(world: World) -> None:
    actor = await world.sessions.creation.attach_or_create("new", "ann")
    assert actor is not None
    await asyncio.sleep(10)
    assert actor.describe()["status"] == "sleeping"
    assert world.fleet.starts == 0
    tab = await world.welcomed("new")
    tab.say("a")
    await tab.until("done")


async def test_while_draining_nothing_is_created(world: World) -> None:
    world.sessions.drain.draining = True
    with pytest.raises(ApiError) as refused:
        await world.create()
    assert (refused.value.status, refused.value.code) == (503, "draining")
