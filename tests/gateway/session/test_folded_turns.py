"""An agent that folds a message into the turn that runs answers both with one `done`."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from gateway.session.upkeep import idleness
from sandbox.providers.memory.scripted import OnLine, ScriptedProcess, said
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


def folding(process: ScriptedProcess) -> OnLine:
    """`end` ends the turn, and answers every message since the last turn; `end: 3 4` answers these."""
    had: list[int] = []

    def on_line(line: bytes) -> None:
        frame = json.loads(line)
        had.append(frame["seq"])
        process.emit({"type": "chunk", "text": f"<{said(frame)}>"})
        word, _, named = said(frame).partition(":")
        if word == "end":
            process.emit({"type": "done", "answers": [int(seq) for seq in named.split()] or had, "metadata": {}})
            had.clear()
        elif word == "crash":
            process.exit(1)

    return on_line


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(folding) as world:
        yield world


async def statuses(world: World) -> list[tuple[str, str]]:
    return [(str(record["content"]), record["status"]) for record in await world.history()]


async def test_one_done_answers_the_messages_that_it_names_and_one_answer_is_stored(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    for text in ("one", "two", "end"):
        tab.say(text)
    done = await tab.until("done")
    assert done["answers"] == [1, 2, 3]
    assert await statuses(world) == [
        ("one", "delivered"),
        ("two", "delivered"),
        ("end", "delivered"),
        ("<one><two><end>", "complete"),
    ]
    assert (await world.history())[-1]["metadata"] == {"answers": [1, 2, 3]}
    assert not actor.output.answering
    await asyncio.sleep(1)
    assert idleness(actor).seconds >= 1


async def test_what_was_folded_in_is_owed_nothing_after_a_restart(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    for text in ("one", "two", "end"):
        tab.say(text)
    await tab.until("done")
    await world.restart()
    tab = await world.welcomed()
    tab.say("crash")
    await tab.until("interrupted")
    await asyncio.sleep(1)
    assert [status for _, status in await statuses(world)] == ["delivered"] * 3 + [
        "complete",
        "interrupted",
        "incomplete",
    ]


@pytest.mark.parametrize("restart", [False, True])
async def test_a_message_that_the_agent_passed_over_is_still_owed_its_answer(world: World, restart: bool) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    for text in ("one", "two", "end: 2 3"):
        tab.say(text)
    await tab.until("done")
    if restart:
        await world.restart()
        actor, tab = await world.actor(), await world.welcomed()
    assert actor.output.answering
    assert actor.delivery.turns.unanswered == 1
    tab.say("crash")
    await tab.until("interrupted", count=2)
    assert [frame["seq"] for frame in tab.seen("interrupted")] == [1, 5]
    await asyncio.sleep(1)
    told = await statuses(world)
    assert told[:4] == [
        ("one", "interrupted"),
        ("two", "delivered"),
        ("end: 2 3", "delivered"),
        ("<one><two><end: 2 3>", "complete"),
    ]


async def test_a_done_that_answers_nobody_leaves_every_message_owed(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    tab.say("one")
    tab.say("end: 99")
    await tab.until("done")
    assert actor.delivery.turns.unanswered == 2
