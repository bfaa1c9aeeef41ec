"""Agents that crash, hang, are aborted and closed; the `start` frame; permissions and questions."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sandbox.providers.memory.scripted import OnLine, ScriptedProcess, answer, echo, said
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


def obedient(process: ScriptedProcess) -> OnLine:
    """Does what the message says: `crash`, `half` an answer, `ask` a permission, `question`, anything else: echo."""

    def on_line(line: bytes) -> None:
        frame = json.loads(line)
        match frame["type"], said(frame):
            case "message", "crash":
                process.exit(3)
            case "message", "half":
                process.emit({"type": "chunk", "text": "half an "})
            case "message", "ask":
                process.emit({"type": "tool_permission_request", "requestId": "r1", "toolName": "rm", "toolInput": {}})
            case "message", "withdraw":
                process.emit({"type": "request_gone", "requestId": "r1", "reason": "no need"})
            case "message", "question":
                process.emit({"type": "ask_user_question", "requestId": "q1", "questions": ["why?"]})
            case "message", text:
                answer(process, text)
            case (("permission_response" | "ask_user_answer"), _):
                answer(process, f"{frame['requestId']} was answered")

    return on_line


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(obedient) as world:
        yield world


def handed(world: World) -> list[dict[str, Any]]:
    return [json.loads(line) for _, line in world.sandbox().handed]


def started(world: World) -> list[dict[str, Any]]:
    """The first line of each agent process."""
    return [json.loads(process.lines[0]) for process in world.sandbox().processes]


# -- crashes ----------------------------------------------------------------------------------------------------------


async def test_a_crash_mid_answer_interrupts_keeps_the_partial_answer_and_expires_what_was_asked(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.send("start", model="m1")
    tab.say("ask", "c0")
    await tab.until("tool_permission_request")
    tab.say("half", "c1")
    await tab.until("chunk")
    tab.say("crash", "c2")
    await tab.until("interrupted", cid="c2")
    assert [event["cid"] for event in tab.seen("interrupted")] == ["c0", "c1", "c2"]
    assert tab.seen("expired")[0]["requestId"] == "r1"
    assert (await tab.until("session_status", status="agent_exited"))["code"] == 3
    await tab.until("welcome", count=3)
    history = await world.history()
    assert [(r["type"], r["status"]) for r in history if r["role"] == "assistant"] == [
        ("permission_request", "expired"),
        ("message", "incomplete"),
    ]
    assert history[-1]["content"] == "half an "
    first, second = started(world)
    assert first == {"type": "start", "model": "m1"}
    assert (second["resume"], [request["requestId"] for request in second["pending"]]) == (True, ["r1"])
    assert second["model"] == "m1"
    tab.say("on we go")
    await tab.until("done")


async def test_held_messages_are_delivered_in_order_after_each_crash(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    for text in ("a", "crash", "b", "crash", "c"):
        tab.say(text)
    await tab.until("done", count=3)
    assert [frame["content"] for frame in handed(world)] == ["a", "crash", "b", "crash", "c"]
    assert len(tab.seen("interrupted")) == 2


async def test_a_crash_loop_stops_after_five_says_so_and_a_wake_by_name_tries_again(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    for _ in range(7):
        tab.say("crash")
    error = await tab.until("error", code="crash_loop")
    assert "5 times in 5 minutes" in error["error"]
    await asyncio.sleep(60)
    assert len(world.sandbox().processes) == 5
    assert actor.describe()["status"] == "error"
    tab.say("held")
    await tab.until("ack", count=8)
    assert len(world.sandbox().processes) == 5
    await actor.wake()
    await tab.until("done")
    assert len(tab.seen("interrupted")) == 7


async def test_a_crashing_agent_is_started_again_with_growing_pauses() -> None:
    times: list[float] = []

    def fragile(process: ScriptedProcess) -> OnLine:
        times.append(asyncio.get_running_loop().time())
        process.later(0.0, lambda: process.exit(1))
        return lambda line: None

    async with World(fragile) as world:
        await world.create()
        tab = await world.welcomed()
        await tab.until("error", code="crash_loop")
    assert len(times) == 5
    bounds = [0.25 * 2**crashes for crashes in range(1, 5)]
    assert all(0 <= later - earlier <= bound for earlier, later, bound in zip(times, times[1:], bounds, strict=False))


async def test_an_agent_that_cannot_be_run_is_said_and_tried_again(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    world.sandbox().agent_problem = "no such program: agnet"
    tab.send("close")
    await tab.until("session_status", status="agent_exited")
    tab.say("anyone?", "c1")
    assert (await tab.until("error", code="agent"))["error"] == "no such program: agnet"
    await tab.until("error", code="crash_loop")
    world.sandbox().agent_problem = None
    await actor.wake()
    await tab.until("done")


async def test_what_the_agent_withdraws_is_expired_and_answered_no_more(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    tab.say("ask", "c0")
    await tab.until("tool_permission_request")
    tab.say("withdraw", "c1")
    gone = await tab.until("expired", requestId="r1")
    assert (gone["seq"], gone["reason"]) == (2, "no need")
    assert tab.seen("request_gone", requestId="r1"), "relayed, as every frame of the agent"
    assert [record["status"] for record in await world.history() if record["type"] == "permission_request"] == [
        "expired"
    ]
    tab.send("permission_response", cid="late", requestId="r1")
    assert (await tab.until("nack", cid="late"))["reason"] == "already_answered"
    assert actor.delivery.turns.open == []
    assert "open" not in (await world.welcomed()).frames[0]
    tab.say("withdraw", "c2")  # nothing is open: it is only shown
    await tab.until("request_gone", count=2)
    await world.restart()
    assert "open" not in (await world.welcomed()).frames[0]
    assert len(tab.seen("expired")) == 1


# -- abort, close, start ----------------------------------------------------------------------------------------------


async def test_an_abort_is_a_line_past_the_queue_and_the_partial_answer_is_stored_as_aborted() -> None:
    def polite(process: ScriptedProcess) -> OnLine:
        def on_line(line: bytes) -> None:
            if json.loads(line)["type"] == "abort":
                process.emit({"type": "done", "metadata": {}})
            else:
                process.emit({"type": "chunk", "text": "partial"})
                process.hang()

        return on_line

    async with World(polite) as world:
        await world.create()
        tab = await world.welcomed()
        tab.say("long work", "c1")
        tab.say("next", "c2")
        await tab.until("chunk")
        tab.send("abort")
        await tab.until("done")
        answer_record = (await world.history())[-1]
        assert (answer_record["content"], answer_record["status"]) == ("partial", "aborted")
        process = world.sandbox().agent
        assert process is not None
        assert [json.loads(line)["type"] for line in process.lines] == ["message", "abort"]
        await asyncio.sleep(60)
        assert process.alive, "it did what it was told: no signal"


async def test_a_turn_still_running_ten_seconds_after_an_abort_gets_an_interrupt(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("half", "c1")
    await tab.until("chunk")
    process = world.sandbox().agent
    assert process is not None
    tab.send("abort")
    await asyncio.sleep(9.9)
    assert process.alive
    await tab.until("interrupted", cid="c1", within=1)
    assert (await tab.until("session_status", status="agent_exited"))["signal"] == "SIGINT"
    await tab.until("record", count=2)
    assert (await world.history())[-1]["status"] == "aborted"


async def test_closing_a_tab_aborts_nothing(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("half", "c1")
    await tab.until("chunk")
    tab.leave()
    await asyncio.sleep(60)
    agent = world.sandbox().agent
    assert agent is not None
    assert len(agent.lines) == 1
    agent.emit({"type": "done"})
    await asyncio.sleep(1)
    assert [record["status"] for record in await world.history()] == ["delivered", "complete"]


async def test_close_ends_the_agent_and_the_next_message_starts_another(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    tab.say("a")
    await tab.until("done")
    tab.send("close")
    await tab.until("session_status", status="agent_exited", code=0)
    await asyncio.sleep(30)
    assert world.sandbox().agent is None
    assert actor.describe()["status"] == "running"
    tab.say("b")
    await tab.until("done", count=2)
    assert len(world.sandbox().processes) == 2


async def test_start_is_kept_over_restarts_replayed_and_never_a_record(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    tab.send("start", sessionId="another", model="m1", cwd="/x")
    tab.say("a")
    await tab.until("done")
    await actor.sleep()
    await world.restart()
    tab = await world.welcomed()
    tab.say("b")
    await tab.until("done")
    first, second = started(world)
    assert first == {"type": "start", "model": "m1", "cwd": "/x"}
    assert second == first | {"resume": True, "pending": []}
    assert {record["type"] for record in await world.history()} == {"message"}


async def test_a_start_while_the_agent_runs_only_replaces_what_is_kept(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.send("start", model="m1")
    tab.say("a")
    await tab.until("done")
    tab.send("start", model="m2")
    tab.say("crash")
    await tab.until("welcome", count=3)
    tab.say("b")
    await tab.until("done", count=2)
    assert [line["model"] for line in started(world)] == ["m1", "m2"]


async def test_start_wakes_a_sleeping_session_and_not_a_paused_one(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    await actor.sleep()
    tab.send("start", model="m1")
    await tab.until("connection_status", sandboxStatus="connected")
    await actor.pause()
    starts = world.fleet.starts
    tab.send("start", model="m2")
    await asyncio.sleep(60)
    assert (world.fleet.starts, actor.describe()["status"]) == (starts, "paused")


# -- permissions and questions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "asked", "reply", "request_id", "records"),
    [
        ("ask", "tool_permission_request", "permission_response", "r1", ["permission_request", "permission_response"]),
        ("question", "ask_user_question", "ask_user_answer", "q1", ["question", "question_answer"]),
    ],
)
async def test_a_request_and_its_answer_are_records_and_the_first_answer_wins(
    world: World, ask: str, asked: str, reply: str, request_id: str, records: list[str]
) -> None:
    await world.create()
    tab, other = await world.welcomed(), await world.welcomed()
    tab.say(ask)
    await tab.until(asked)
    await tab.until("record", count=2)
    tab.send(reply, cid="first", requestId=request_id, allow=True)
    other.send(reply, cid="second", requestId=request_id, allow=False)
    await tab.until("ack", cid="first")
    assert (await other.until("nack", cid="second"))["reason"] == "already_answered"
    other.send(reply, cid="third", requestId="never asked")
    assert (await other.until("nack", cid="third"))["reason"] == "unknown_request"
    await tab.until("done")
    assert [frame["requestId"] for frame in handed(world) if frame["type"] == reply] == [request_id]
    kept = [(r["type"], r["status"]) for r in await world.history() if r["type"] != "message"]
    assert kept == [(records[0], "answered"), (records[1], "delivered")]


async def test_an_open_request_survives_reconnects_link_loss_and_restart_and_is_answered_once(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("ask")
    await tab.until("tool_permission_request")
    tab.leave()
    world.sandbox().lose_link()
    await world.until(lambda: world.sandbox().linked, "the link")
    await world.restart()
    tab = await world.welcomed()
    (request,) = tab.seen("welcome")[-1]["open"]
    assert request["content"]["requestId"] == "r1"
    await tab.until("tool_permission_request")
    tab.send("permission_response", cid="yes", requestId="r1", allow=True)
    await tab.until("ack", cid="yes")
    await world.restart()
    tab = await world.welcomed()
    tab.send("permission_response", cid="yes", requestId="r1", allow=True)
    await tab.until("ack", cid="yes")
    tab.send("permission_response", cid="no", requestId="r1", allow=False)
    assert (await tab.until("nack", cid="no"))["reason"] in ("already_answered", "unknown_request")
    await world.until(lambda: len(handed(world)) == 2, "the answer")
    await asyncio.sleep(60)
    assert len([frame for frame in handed(world) if frame["type"] == "permission_response"]) == 1
    assert [r["status"] for r in await world.history() if r["type"] == "permission_request"] == ["answered"]


async def test_an_answer_is_not_refused_for_room() -> None:
    def asks_then_sulks(process: ScriptedProcess) -> OnLine:
        def on_line(line: bytes) -> None:
            if not process.lines[1:]:
                process.emit({"type": "tool_permission_request", "requestId": "r1", "toolName": "x", "toolInput": {}})
                process.hang()

        return on_line

    async with World(asks_then_sulks) as world:
        await world.create()
        tab = await world.welcomed()
        tab.say("go")
        await tab.until("tool_permission_request")
        for number in range(1001):
            tab.say("x", f"c{number}")
            if number % 100 == 0:
                await asyncio.sleep(0.01)
        await tab.until("nack", reason="busy")
        tab.send("permission_response", cid="yes", requestId="r1", allow=True)
        await tab.until("ack", cid="yes")


async def test_each_done_answers_the_oldest_and_echo_is_whole(world: World) -> None:
    world.fleet.script = echo
    await world.create()
    tab = await world.welcomed()
    for number in range(10):
        tab.say(f"text {number}")
    await tab.until("done", count=10)
    answers = [record["content"] for record in await world.history() if record["role"] == "assistant"]
    assert answers == [f"text {number}" for number in range(10)]
