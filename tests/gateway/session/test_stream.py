"""The agent's output on its way to viewers: durable before `done`, checkpointed, resumable, and fair to the others."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from sandbox.protocol.values import Position
from sandbox.providers.memory.scripted import ScriptedProcess, silent
from tests.support.sessions import Tab, World

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(silent) as world:
        yield world


async def asked(world: World) -> tuple[Tab, ScriptedProcess]:
    """A tab whose message the agent has, and the agent, which says only what the test makes it say."""
    await world.create()
    tab = await world.welcomed()
    tab.say("go", "c1")
    await tab.until("receipt")
    agent = world.sandbox().agent
    assert agent is not None
    return tab, agent


def chunk(agent: ScriptedProcess, text: str) -> None:
    agent.emit({"type": "chunk", "text": text})


def words(tab: Tab) -> list[str]:
    return [frame["text"] for frame in tab.output() if frame["type"] == "chunk"]


async def test_done_waits_until_its_record_is_durable_and_what_is_behind_it_keeps_its_order(world: World) -> None:
    tab, agent = await asked(world)
    chunk(agent, "a")
    await tab.until("chunk")
    world.store.gate.clear()
    agent.emit({"type": "done"})
    chunk(agent, "b")
    await asyncio.sleep(30)
    assert tab.output()[-1]["type"] == "chunk"
    assert len(tab.output()) == 1
    late = await world.welcomed()
    assert late.seen("welcome")[-1]["offset"] == 0
    world.store.gate.set()
    await tab.until("chunk", text="b")
    await late.until("chunk", text="b")
    assert [frame["type"] for frame in tab.output()] == ["chunk", "done", "chunk"]
    assert late.output() == tab.output()
    assert tab.output()[1]["messageId"] == (await world.history())[-1]["id"]


async def test_an_answer_cut_off_with_its_bridge_and_gateway_loses_at_most_one_second(world: World) -> None:
    tab, agent = await asked(world)
    for number in range(30):
        chunk(agent, f"{number} ")
        await asyncio.sleep(0.1)
    await tab.until("chunk", count=30)
    await world.kill()
    world.sandbox().crash()
    await world.open()
    await asyncio.sleep(10)
    record = (await world.history())[-1]
    assert record["status"] == "incomplete"
    whole = [f"{number}" for number in range(30)]
    kept = record["content"].split()
    assert kept == whole[: len(kept)]
    assert len(kept) >= 30 - 10 - 1
    assert (await world.history())[0]["status"] == "interrupted"


async def test_of_a_fast_answer_at_most_64_kib_are_lost(world: World) -> None:
    tab, agent = await asked(world)
    for _ in range(100):
        chunk(agent, "x" * 10_000)
    await tab.until("chunk", count=100)
    await asyncio.sleep(0.01)
    await world.kill()
    world.sandbox().crash()
    await world.open()
    await asyncio.sleep(10)
    record = (await world.history())[-1]
    assert record["status"] == "incomplete"
    assert 1_000_000 - 2 * 65_536 <= len(record["content"]) <= 1_000_000


async def test_after_a_gateway_kill_mid_answer_a_resuming_viewer_gets_exactly_what_it_missed(world: World) -> None:
    tab, agent = await asked(world)
    for text in ("a", "b", "c"):
        chunk(agent, text)
    await tab.until("chunk", count=3)
    place = tab.position
    await asyncio.sleep(5)
    await world.kill()
    chunk(agent, "d")
    await world.open()
    chunk(agent, "e")
    tab = await world.welcomed(after=place)
    welcome = tab.seen("welcome")[0]
    assert (welcome["recovered"], welcome["epoch"], welcome["offset"]) == (True, place.epoch, 3)
    agent.emit({"type": "done"})
    await tab.until("done")
    assert words(tab) == ["d", "e"]
    assert len(tab.seen("welcome")) == 1
    await asyncio.sleep(1)
    assert [record["content"] for record in await world.history()] == ["go", "abcde"]


async def test_killed_again_and_again_mid_answer_nothing_is_stored_twice(world: World) -> None:
    _, agent = await asked(world)
    for number in range(8):
        chunk(agent, f"{number}")
        if number % 2:
            agent.emit({"type": "tool_permission_request", "requestId": f"r{number}", "toolName": "x"})
        await asyncio.sleep(0.7)
        await world.restart()
        await asyncio.sleep(0.3 * number)
    agent.emit({"type": "done"})
    await asyncio.sleep(5)
    await world.restart()
    await asyncio.sleep(5)
    history = await world.history()
    assert [record["type"] for record in history] == ["message", *["permission_request"] * 4, "message"]
    assert history[-1]["content"] == "01234567"


async def test_a_resume_that_can_be_met_continues_and_one_that_cannot_is_told_so(world: World) -> None:
    tab, agent = await asked(world)
    for text in ("a", "b", "c"):
        chunk(agent, text)
    await tab.until("chunk", count=3)
    epoch = tab.position.epoch
    met = await world.welcomed(after=Position(epoch, 2))
    await met.until("chunk")
    assert (met.seen("welcome")[0]["recovered"], words(met)) == (True, ["c"])
    for place in (Position("another", 2), Position(epoch, 99), Position("", 2**53)):
        unmet = await world.tab(after=place)
        welcome = await unmet.until("welcome")
        assert (welcome["recovered"], welcome["offset"]) == (False, 0)
        await unmet.until("chunk", count=3)
        assert words(unmet) == ["a", "b", "c"]
    fresh = await world.welcomed()
    await fresh.until("chunk", count=3)
    assert "recovered" not in fresh.seen("welcome")[0]


async def test_a_newcomer_begins_at_the_unfinished_answer(world: World) -> None:
    tab, agent = await asked(world)
    chunk(agent, "old")
    agent.emit({"type": "done"})
    chunk(agent, "new")
    await tab.until("chunk", count=2)
    fresh = await world.welcomed()
    await fresh.until("chunk")
    assert (fresh.seen("welcome")[0]["offset"], words(fresh)) == (2, ["new"])


async def test_a_resume_after_a_lost_link_misses_nothing(world: World) -> None:
    tab, agent = await asked(world)
    for number in range(20):
        chunk(agent, f"{number}")
        if number % 5 == 0:
            world.sandbox().lose_link()
        await asyncio.sleep(0.05)
    await tab.until("chunk", count=20)
    assert words(tab) == [f"{number}" for number in range(20)]
    assert [frame["_offset"] for frame in tab.output()] == list(range(1, 21))


async def test_a_new_process_is_announced_by_another_welcome(world: World) -> None:
    tab, agent = await asked(world)
    chunk(agent, "a")
    await tab.until("chunk")
    agent.exit(1)
    welcome = await tab.until("welcome", count=3)
    second = world.sandbox().agent
    assert second is not None
    assert (welcome["epoch"], welcome["offset"], "recovered" in welcome) == (second.epoch, 0, False)
    chunk(second, "b")
    await tab.until("chunk", count=2)
    assert tab.output()[-1]["_offset"] == 1


async def test_a_viewer_is_told_when_a_process_was_not_heard_to_its_end(world: World) -> None:
    """A killed bridge takes output along that nobody has seen: a plain welcome would claim that there was none."""
    tab, agent = await asked(world)
    chunk(agent, "a")
    await tab.until("chunk")
    chunk(agent, "never seen")
    world.sandbox().crash()
    welcome = await tab.until("welcome", count=3)
    assert welcome["recovered"] is False
    assert words(tab) == ["a"]


async def test_a_slow_viewer_is_closed_and_the_others_are_not(world: World) -> None:
    tab, agent = await asked(world)
    slow = await world.welcomed()
    slow.outlet.full = True
    for number in range(100):
        chunk(agent, f"{number}")
        await asyncio.sleep(0.5)
    assert slow.closed_with == 4408
    await tab.until("chunk", count=100)
    assert tab.closed_with is None
    back = await world.welcomed(after=slow.position)
    assert back.seen("welcome")[0]["recovered"] is True
    await back.until("chunk", count=100)
    assert words(slow) + words(back) == words(tab)


async def test_a_viewer_that_reads_again_in_time_gets_everything_in_order(world: World) -> None:
    tab, agent = await asked(world)
    tab.outlet.full = True
    for number in range(50):
        chunk(agent, f"{number}")
    await asyncio.sleep(10)
    assert words(tab) == []
    tab.outlet.full = False
    for number in range(50, 60):
        chunk(agent, f"{number}")
    await tab.until("chunk", count=60)
    assert words(tab) == [f"{number}" for number in range(60)]


async def test_what_is_no_frame_is_shown_as_output_and_a_forged_frame_is_not_shown(world: World) -> None:
    tab, agent = await asked(world)
    agent.emit(b"Traceback (most recent call last):")
    agent.emit({"type": "ack", "cid": "c9", "seq": 1})
    agent.emit(b"{}")
    agent.emit(json.dumps({"type": "whatever", "deep": [1, {"x": None}]}).encode())
    await tab.until("whatever")
    assert tab.output() == [
        {"_offset": 1, "type": "output", "text": "Traceback (most recent call last):"},
        {"_offset": 3},
        {"_offset": 4, "type": "whatever", "deep": [1, {"x": None}]},
    ]
    assert tab.seen("ack", cid="c9") == []
