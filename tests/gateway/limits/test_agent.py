"""An agent that makes records faster than it may is slowed, and loses none of them. On virtual time."""

import asyncio

import pytest

from gateway.limits.quota import UserLimits
from gateway.session.model.ports import SessionLimits
from sandbox.providers.memory.scripted import ScriptedProcess, silent
from tests.support.sessions import Tab, World

pytestmark = pytest.mark.virtual_time


async def begun(world: World, session_id: str = "s", user: str = "ann") -> tuple[Tab, ScriptedProcess]:
    await world.create(session_id, user=user)
    tab = await world.welcomed(session_id)
    tab.say("go", "c1")
    await tab.until("receipt")
    agent = world.sandbox(session_id).agent
    assert agent is not None
    return tab, agent


def ask(agent: ScriptedProcess, number: int, size: int = 0) -> None:
    agent.emit({"type": "tool_permission_request", "requestId": str(number), "toolInput": "x" * size})


def requests(tab: Tab) -> list[str]:
    return [frame["requestId"] for frame in tab.output() if frame["type"] == "tool_permission_request"]


async def test_a_flood_of_requests_is_slowed_and_each_is_stored_and_shown() -> None:
    """390 MB of requests were stored in 9 s, and everybody heard that the disk was full."""
    async with World(silent, limits=SessionLimits(agent_records=10)) as world:
        tab, agent = await begun(world)
        other, neighbour = await begun(world, "other", "bob")
        for number in range(300):
            ask(agent, number)
        ask(neighbour, 1)
        await world.until(lambda: len(requests(other)) == 1)
        await asyncio.sleep(5)
        assert 100 <= len(requests(tab)) <= 160, "ten seconds' worth, and what was earned since"
        await world.until(lambda: len(requests(tab)) == 300)
        assert requests(tab) == [str(number) for number in range(300)]
        records = [record for record in await world.history() if record["type"] == "permission_request"]
        assert len(records) == 300


async def test_long_records_count_as_several_and_asked_for_answers_as_none() -> None:
    async with World(silent, limits=SessionLimits(agent_records=10)) as world:
        tab, agent = await begun(world)
        agent.emit({"type": "done"})
        await tab.until("done")
        began = asyncio.get_running_loop().time()
        for number in range(10):
            ask(agent, number, 100_000)
        await world.until(lambda: len(requests(tab)) == 10)
        assert asyncio.get_running_loop().time() - began > 10
        for number in range(150):
            tab.say("hello", f"m{number}")
            await tab.until("receipt", cid=f"m{number}")
        began = asyncio.get_running_loop().time()
        for _ in range(150):
            agent.emit({"type": "done"})
        await tab.until("done", count=151)
        assert asyncio.get_running_loop().time() - began < 5


async def test_an_agent_whose_user_has_stored_enough_makes_one_record_a_second() -> None:
    async with World(silent, limits=SessionLimits(agent_records=10)) as world:
        world.sessions.quota.limits = UserLimits(stored=1)
        tab, agent = await begun(world)
        await world.sessions.quota.usage("ann")
        for number in range(40):
            ask(agent, number)
        await asyncio.sleep(5)
        assert 10 <= len(requests(tab)) <= 17
        await world.until(lambda: len(requests(tab)) == 40)


async def test_a_gateway_that_leaves_does_not_wait_for_what_comes_too_fast() -> None:
    async with World(silent, limits=SessionLimits(agent_records=1)) as world:
        tab, agent = await begun(world)
        for number in range(200):
            ask(agent, number)
        await world.until(lambda: len(requests(tab)) >= 10)
        began = asyncio.get_running_loop().time()
        await world.leave()
        assert asyncio.get_running_loop().time() - began < 10
        world.limits = SessionLimits()
        await world.open()
        again = await world.welcomed("s", tab.position)
        await world.until(lambda: len(requests(tab)) + len(requests(again)) >= 200)
        assert requests(tab) + requests(again) == [str(number) for number in range(200)]
