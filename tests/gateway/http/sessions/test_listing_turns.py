"""Lists of sessions: a few at once for each user, and a few sessions in each turn of the loop."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request

from gateway.auth.tokens import Principal
from gateway.http.sessions.lifecycle import LISTS, SandboxRoutes
from gateway.protocol.errors import ApiError
from gateway.session import catalogue
from gateway.session.model.state import SessionSpec, SessionState
from persistence.record import Session
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World() as world:
        for number in range(catalogue.READ_AT_ONCE + 2 * catalogue.DESCRIBED_A_TURN + 1):
            kept = (SessionSpec().to_json(), SessionState(last_active=0.0).to_json())
            await world.store.create(Session(f"s{number}", "ann", float(number), *kept))
        yield world


def asked_by(user: str) -> Request:
    state = {"principal": Principal("user", user)}
    return Request({"type": "http", "method": "GET", "headers": [], "query_string": b"", "state": state})


async def test_lists_that_are_not_read_are_few_for_each_user(world: World) -> None:
    """Any number of connections could each have a long list made at once."""
    routes = SandboxRoutes(world.registry, world.catalogue, world.sessions.creation)
    lists = [await routes.list(asked_by("ann")) for _ in range(LISTS)]
    with pytest.raises(ApiError, match="lists of sessions") as refused:
        await routes.list(asked_by("ann"))
    assert (refused.value.status, refused.value.code) == (429, "too_many_readers")
    await routes.list(asked_by("bob"))

    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(_: object) -> None:
        pass

    await lists[0]({"type": "http", "method": "GET"}, gone, send)
    await routes.list(asked_by("ann"))


async def test_others_have_a_turn_between_a_few_sessions_of_a_long_list(world: World) -> None:
    """A hundred were described in one turn of the loop."""
    turns, before = 0, -1

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting, found = asyncio.create_task(count()), list[str]()
    async for some in world.catalogue.described("ann"):
        assert len(some) <= 10
        assert turns > before, "somebody else had a turn"
        before = turns
        found += [session["id"] for session in some]
    counting.cancel()
    assert sorted(found) == sorted(f"s{number}" for number in range(len(found)))
    assert len(found) == 121
