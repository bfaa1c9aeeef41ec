"""A session's agent in its status, and its mode."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.session.actor import SessionActor
from gateway.session.upkeep import agent_status
from sandbox.providers.memory.scripted import OnLine, ScriptedProcess, said
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


def telling(process: ScriptedProcess) -> OnLine:
    def on_line(line: bytes) -> None:
        frame = json.loads(line)
        match said(frame):
            case "who":
                process.emit({"type": "agent_status", "name": "lab", "version": "1", "session": "x-1", "model": "m"})
                process.emit({"type": "done"})
            case "ask":
                process.emit({"type": "tool_permission_request", "requestId": "r1"})
            case "retry":
                process.emit({"type": "agent_status", "status": "retrying", "attempt": 2})
            case "forgot":
                process.emit({"type": "agent_status", "status": "memory_lost", "reason": "its notes are gone"})
            case "go on":
                process.emit({"type": "chunk", "text": "on"})
        if frame["type"] == "permission_response":
            process.emit({"type": "done"})

    return on_line


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(telling) as world:
        yield world


def state(actor: SessionActor) -> str | None:
    return agent_status(actor)["state"]


async def test_what_the_agent_does_is_told_from_its_frames(world: World) -> None:
    actor = await world.create()
    assert state(actor) in ("starting", "dead")
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    assert state(actor) == "idle"
    tab.say("retry")
    await tab.until("agent_status", status="retrying")
    assert state(actor) == "retrying"
    tab.say("go on")
    await tab.until("chunk")
    assert state(actor) == "busy"
    tab.say("ask")
    await tab.until("tool_permission_request")
    await tab.until("record", count=4)
    assert state(actor) == "asking"
    await actor.sleep()
    assert state(actor) == "dead"


async def test_who_the_agent_says_it_is_is_known_while_it_does_not_run_and_after_a_restart(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    tab.say("who")
    await tab.until("done")
    expected: dict[str, Any] = {"name": "lab", "version": "1", "session": "x-1", "model": "m", "mode": None}
    assert agent_status(actor) == {**expected, "state": "idle"}
    await actor.sleep()
    await world.restart()
    assert agent_status(await world.actor()) == {**expected, "state": "dead"}


async def test_that_the_agent_has_forgotten_the_conversation_is_a_record(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("forgot")
    await tab.until("agent_status", status="memory_lost")
    await tab.until("record", count=2)
    record = (await world.history())[-1]
    assert (record["type"], record["role"], record["status"]) == ("agent_status", "assistant", "complete")
    assert record["content"] == {"status": "memory_lost", "reason": "its notes are gone"}


async def test_a_mode_is_told_to_the_agent_that_runs_and_to_each_that_starts(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    await actor.change({"mode": "plan"})
    actor.post(actor.intake.tell_mode)
    [process] = world.sandbox().processes
    await world.until(lambda: bool(process.lines))
    assert [json.loads(line) for line in process.lines] == [{"type": "set_mode", "mode": "plan"}]
    assert agent_status(actor)["mode"] == "plan"
    await actor.sleep()
    await actor.change({"mode": "edits"})
    actor.post(actor.intake.tell_mode)  # nobody runs
    await actor.wake()
    await world.until(lambda: len(world.sandbox().processes) == 2 and bool(world.sandbox().processes[1].lines))
    first = json.loads(world.sandbox().processes[1].lines[0])
    assert (first["type"], first["mode"]) == ("start", "edits")


async def test_an_agent_that_speaks_chat_frames_reads_its_mode_when_it_starts(world: World) -> None:
    actor = await world.create(mode="all")
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    assert not world.sessions.creation.has_core(actor.conversation.spec)
    await actor.change({"mode": "ask"})
    tab.say("go on")
    await tab.until("chunk")
    [process] = world.sandbox().processes
    assert [json.loads(line)["type"] for line in process.lines] == ["start", "message"]
    assert json.loads(process.lines[0]) == {"type": "start", "mode": "all"}
