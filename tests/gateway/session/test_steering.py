"""A message for the turn that runs may pass those that wait. No agent process is given it twice."""

import json
from collections.abc import AsyncIterator

import pytest

from sandbox.providers.memory.scripted import OnLine, ScriptedProcess, answer, said
from tests.support.sessions import Tab, World

pytestmark = pytest.mark.virtual_time


def busy(process: ScriptedProcess) -> OnLine:
    """Reads nothing once it has a message to `work` on. What it is given ahead of its queue the test says for it."""

    def on_line(line: bytes) -> None:
        frame = json.loads(line)
        if said(frame) == "work":
            process.hang()
        else:
            answer(process, said(frame))

    return on_line


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(busy) as world:
        yield world


async def working(world: World) -> Tab:
    """1 is worked on, 2 waits, 3 steers, 4 waits."""
    await world.create()
    tab = await world.welcomed()
    tab.say("work", "work")
    tab.say("waits", "waits")
    tab.send("message", content="steers", cid="steers", metadata={"steer": True})
    tab.say("last", "last")
    await tab.until("ack", cid="last")
    await tab.until("receipt", cid="work")
    return tab


def agent(world: World) -> ScriptedProcess:
    process = world.sandbox().agent
    assert process is not None
    return process


def handed(world: World) -> list[str]:
    return [json.loads(line)["content"] for _, line in world.sandbox().handed]


async def statuses(world: World) -> dict[str, str]:
    return {record["cid"]: record["status"] for record in await world.history() if record["role"] == "user"}


@pytest.mark.parametrize("restart", [False, True])
async def test_what_was_answered_ahead_of_what_waits_is_not_given_to_the_next_process(
    world: World, restart: bool
) -> None:
    tab = await working(world)
    agent(world).emit({"type": "done", "answers": [1, 3]})
    await tab.until("done")
    await tab.until("receipt", cid="steers")
    assert tab.actor.delivery.turns.unanswered == 0
    assert [each["cid"] for each in tab.actor.pending.listed()] == ["waits", "last"]
    if restart:
        await world.restart()
        tab = await world.welcomed()
        assert tab.actor.delivery.turns.unanswered == 0
    agent(world).exit(1)
    await tab.until("done", count=2 if restart else 3)
    assert handed(world) == ["work", "waits", "last"]
    assert await statuses(world) == {
        "work": "delivered",
        "waits": "delivered",
        "steers": "delivered",
        "last": "delivered",
    }


@pytest.mark.parametrize("restart", [False, True])
async def test_what_may_have_passed_another_message_is_interrupted_when_the_process_ends(
    world: World, restart: bool
) -> None:
    tab = await working(world)
    if restart:
        await world.restart()
        tab = await world.welcomed()
    agent(world).exit(1)
    await tab.until("interrupted", cid="steers")
    await tab.until("done", count=2)
    assert handed(world) == ["work", "waits", "last"]
    assert (await statuses(world))["steers"] == "interrupted"


async def test_what_had_nothing_to_pass_is_delivered_to_the_next_process(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("work", "work")
    await tab.until("receipt", cid="work")
    tab.send("message", content="steers", cid="steers", metadata={"steer": True})
    await tab.until("ack", cid="steers")
    agent(world).exit(1)
    await tab.until("done")
    assert handed(world) == ["work", "steers"]


async def test_an_agent_that_reads_in_order_is_given_it_in_order(world: World) -> None:
    tab = await working(world)
    agent(world).read_on()
    await tab.until("done", count=3)
    assert handed(world) == ["work", "waits", "steers", "last"]
