"""What a session measures of itself."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from sandbox.providers.memory.scripted import OnLine, ScriptedProcess, answer, said
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


def thoughtful(process: ScriptedProcess) -> OnLine:
    """Thinks for as many seconds as the message says, then answers; of `crash` it dies."""

    def on_line(line: bytes) -> None:
        text = said(json.loads(line))
        if text == "crash":
            process.exit(3)
        else:
            asyncio.get_running_loop().call_later(float(text), answer, process, text)

    return on_line


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(thoughtful) as world:
        yield world


async def test_an_answer_is_timed_from_its_message_to_its_done(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("0")
    await tab.until("done")
    took = world.metrics.answer_seconds
    assert took.count == 1
    began = took.seconds
    tab.say("40", "c1")
    tab.say("100", "c2")
    await tab.until("done", count=2)
    assert took.count == 2
    assert 40 <= took.seconds - began < 41
    await tab.until("done", count=3)
    assert took.count == 3
    assert 140 <= took.seconds - began < 142


async def test_a_message_that_is_never_answered_is_not_timed(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("1000", "c1")
    tab.say("crash", "c2")
    await tab.until("interrupted", cid="c2")
    tab.say("3", "c3")
    await tab.until("done")
    took = world.metrics.answer_seconds
    assert (took.count, took.seconds < 100) == (1, True)


async def test_an_answer_over_a_restart_is_timed_from_its_message(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("40", "c1")
    await tab.until("receipt", cid="c1", stage="delivered")
    await asyncio.sleep(10)
    await world.restart()
    await (await world.welcomed()).until("done")
    took = world.metrics.answer_seconds
    assert took.count == 1
    assert 40 <= took.seconds < 45
