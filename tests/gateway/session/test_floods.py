"""What an agent, a bridge or a tab without measure cannot do: fill memory, stop the loop, crowd out the neighbours."""

import asyncio
import json
from collections.abc import AsyncIterator
from time import thread_time

import pytest
from structlog.testing import capture_logs

from sandbox.ports.link import LinkEvents
from sandbox.protocol.agent import MAX_DOWN
from sandbox.protocol.agent_stream import BACKLOG_BYTES
from sandbox.protocol.values import Position
from sandbox.providers.memory.link import MemoryLink
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
    tab.send("start", model="m")
    tab.say("go", "c1")
    await tab.until("receipt")
    agent = world.sandbox().agent
    assert agent is not None
    return tab, agent


def ask(agent: ScriptedProcess, request_id: str, size: int = 0) -> None:
    agent.emit({"type": "tool_permission_request", "requestId": request_id, "toolInput": "x" * size})


@pytest.mark.parametrize("line", ['{"type":"welcome"', '{"type":"done"', '{"_offset":1'])
async def test_a_bridge_never_fills_up_with_what_is_little_to_us(world: World, line: str) -> None:
    _, agent = await asked(world)
    kept = 0
    for _ in range(20):
        agent.emit((line + " " * 900_000 + "}").encode())
        await asyncio.sleep(2)
        kept = max(kept, world.sandbox()._backlog.size)
    assert kept < BACKLOG_BYTES, "the agent would wait for ever"


async def test_answers_without_end_leave_the_queue_to_others(world: World) -> None:
    tab, agent = await asked(world)
    await world.create("other")
    neighbour = await world.welcomed("other")
    world.store.gate.clear()
    for _ in range(6000):
        agent.emit({"type": "done"})
    await asyncio.sleep(1)
    assert world.queue.depth < 2000
    neighbour.say("me too", "n1")
    await asyncio.sleep(1)
    assert not neighbour.seen("nack")
    world.store.gate.set()
    await neighbour.until("ack", cid="n1")
    await tab.until("done", count=6000)
    assert [frame["_offset"] for frame in tab.output()] == list(range(1, 6001))


async def test_requests_without_end_have_the_oldest_expire(world: World) -> None:
    tab, agent = await asked(world)
    for number in range(150):
        ask(agent, f"r{number}")
    await tab.until("expired", count=50)
    assert len((await world.welcomed()).seen("welcome")[0]["open"]) == 100
    tab.send("permission_response", requestId="r0", cid="late")
    assert (await tab.until("nack", cid="late"))["reason"] == "unknown_request"
    tab.send("permission_response", requestId="r149", cid="good")
    await tab.until("ack", cid="good")
    statuses = [row["status"] for row in await world.history() if row["type"] == "permission_request"]
    assert statuses == ["expired"] * 50 + ["open"] * 99 + ["answered"]


async def test_a_request_asked_twice_is_open_once_also_after_a_restart(world: World) -> None:
    tab, agent = await asked(world)
    ask(agent, "r")
    ask(agent, "r")
    await tab.until("record", count=3)
    tab.send("permission_response", requestId="r", cid="yes")
    await tab.until("ack", cid="yes")
    await world.restart()
    assert "open" not in (await world.welcomed()).seen("welcome")[0]
    statuses = [row["status"] for row in await world.history() if row["type"] == "permission_request"]
    assert statuses == ["expired", "answered"]


async def test_what_a_process_left_open_never_keeps_the_next_from_starting(world: World) -> None:
    tab, agent = await asked(world)
    for number in range(6):
        ask(agent, f"r{number}", 400_000)
    await tab.until("record", count=7)
    agent.exit(1)
    await world.until(lambda: world.sandbox().agent is not None, "another process")
    await asyncio.sleep(1)
    fresh = world.sandbox().agent
    assert fresh is not None
    assert 2 * len(fresh.lines[0]) < MAX_DOWN
    assert [request["requestId"] for request in json.loads(fresh.lines[0])["pending"]] == ["r5"]


async def test_a_bridge_that_lets_us_in_only_to_throw_us_out_is_asked_less_and_less_often(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asked(world)
    sandbox, links = world.sandbox(), 0
    attach = sandbox.attach

    def throw_out(events: LinkEvents, after: Position | None) -> MemoryLink:
        nonlocal links
        links += 1
        asyncio.get_running_loop().call_later(0.001, sandbox.lose_link)
        return attach(events, after)

    monkeypatch.setattr(sandbox, "attach", throw_out)
    sandbox.lose_link()
    await asyncio.sleep(60)
    assert 5 < links < 100
    monkeypatch.undo()
    await world.until(lambda: sandbox.linked, "the link", within=10)


async def test_a_hundred_thousand_empty_lines_in_one_message_do_not_stop_the_loop(world: World) -> None:
    tab, agent = await asked(world)
    link, output = world.sandbox()._link, tab.actor.output
    assert link is not None
    tab.leave()
    await asyncio.sleep(1)
    link.events.on_frames(agent.epoch, 1, [b""] * 100_000)
    assert link.down._paused, "no more is read before these are dealt with"
    turns, longest, began, whole = 0, 0.0, thread_time(), thread_time()
    while output.received != Position(agent.epoch, 100_000):
        await asyncio.sleep(0)
        turns, longest, began = turns + 1, max(longest, thread_time() - began), thread_time()
    assert turns > 20
    assert longest < (thread_time() - whole) / 4
    assert not link.down._paused


async def test_a_tab_that_aborts_without_end_costs_one_line_and_one_timer_a_second(world: World) -> None:
    tab, agent = await asked(world)
    for _ in range(3):
        for _ in range(1000):
            tab.send("abort")
        await asyncio.sleep(1.1)
    assert [line for line in agent.lines if b"abort" in line] == [b'{"type":"abort"}'] * 3


async def test_a_tab_that_sends_one_message_again_and_again_waits_for_its_answers(world: World) -> None:
    tab, _ = await asked(world)
    world.store.gate.clear()
    for _ in range(tab.actor.host.limits.inbox):
        tab.say("go", "c1")
    await asyncio.sleep(1)
    assert tab.actor.inbox.crowded
    waiting = asyncio.create_task(tab.actor.inbox.wait_for_room())
    await asyncio.sleep(1)
    assert not waiting.done()
    world.store.gate.set()
    await waiting
    await tab.until("ack", cid="c1", count=tab.actor.host.limits.inbox + 1)


async def test_an_agent_that_speaks_as_the_gateway_writes_one_line_a_minute_into_the_log(world: World) -> None:
    tab, agent = await asked(world)
    with capture_logs() as logs:
        for _ in range(10):
            for _ in range(1000):
                agent.emit({"type": "welcome"})
            await asyncio.sleep(9)
        await asyncio.sleep(60)
        assert len(logs) < 10
        assert [line.get("repeated") for line in logs] == [None, 6999, 3000]
        assert {(line["event"], line["session_id"], line["type"]) for line in logs} == {
            ("agent.frame_refused", tab.actor.id, "welcome")
        }
        assert [line["offset"] for line in logs] == [1, 7000, 10_000]
        await asyncio.sleep(60)
        agent.emit({"type": "welcome"})
        await asyncio.sleep(1)
    assert "repeated" not in logs[3], "after a quiet minute it is new"


async def test_another_process_does_not_buy_another_line(world: World) -> None:
    tab, agent = await asked(world)
    with capture_logs() as logs:
        for number in range(4):
            agent.emit({"type": "welcome"})
            agent.exit(0)
            tab.say("again", f"again{number}")
            await tab.until("receipt", cid=f"again{number}")
            fresh = world.sandbox().agent
            assert fresh is not None
            agent = fresh
    assert [line["event"] for line in logs].count("agent.frame_refused") == 1


async def test_problems_without_end_are_logged_once_a_minute_and_viewers_hear_of_all(world: World) -> None:
    tab, _ = await asked(world)
    link = world.sandbox()._link
    assert link is not None
    with capture_logs() as logs:
        for _ in range(10):
            for _ in range(1000):
                link.events.on_problem("a line of agent output was too long")
            await asyncio.sleep(9)
        await asyncio.sleep(60)
    assert len(logs) < 10
    assert [(line["event"], line.get("repeated")) for line in logs] == [
        ("agent.problem", None),
        ("agent.problem", 6999),
        ("agent.problem", 3000),
    ]
    assert len(tab.seen("error")) == 10_000
