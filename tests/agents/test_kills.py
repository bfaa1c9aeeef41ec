"""The agent's process is killed at each point of a turn. No message is lost or run twice, none is answered twice, what
was queued runs, nothing stays open, and the next process remembers what was said."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.agents.agents import AGENTS, AgentUnderTest, Model
from tests.agents.talk import AgentTalk, answered_by, begin, kill, last_answer, order, settled, talking
from tests.support.chat import Frame
from tests.support.gateway import Gateway

DEAF = "the agent closed its input"  # it was being told something when it died
Step = Callable[[AgentTalk, AgentUnderTest], Awaitable[object]]


async def _idle(talk: AgentTalk, under_test: AgentUnderTest) -> None:
    """It has nothing to do."""


async def _sent(talk: AgentTalk, under_test: AgentUnderTest) -> None:
    await talk.say(under_test.prompt("say", "sent"))


async def _stored(talk: AgentTalk, under_test: AgentUnderTest) -> Frame:
    await talk.say(under_test.prompt("say", "stored"))
    return await talk.hear("ack", stage="stored")


async def _taken(talk: AgentTalk, under_test: AgentUnderTest) -> Frame:
    await talk.say(under_test.prompt("say", "taken"))
    return await talk.hear("receipt")


async def _speaks(talk: AgentTalk, under_test: AgentUnderTest) -> Frame:
    await talk.say(under_test.prompt("hang", "it begins"))
    return await talk.hear("stream_start")


async def _has_spoken(talk: AgentTalk, under_test: AgentUnderTest) -> Frame:
    await talk.say(under_test.prompt("hang", "one two three"))
    return await talk.hear("chunk")


async def _asks(talk: AgentTalk, under_test: AgentUnderTest) -> Frame:
    await talk.say(under_test.prompt("run", "echo asks >> ran.txt"))
    return await talk.hear("tool_permission_request")


async def _is_answered(talk: AgentTalk, under_test: AgentUnderTest) -> None:
    await talk.say(under_test.prompt("run", "echo answered >> ran.txt"))
    await talk.permit(True, "echo answered")


async def _used_a_tool(talk: AgentTalk, under_test: AgentUnderTest) -> Frame:
    await talk.say(under_test.prompt("run", "echo used >> ran.txt"))
    await talk.permit(True, "echo used")
    return await talk.hear("sdk_message")


async def _is_denied(talk: AgentTalk, under_test: AgentUnderTest) -> None:
    await talk.say(under_test.prompt("run", "echo denied >> ran.txt"))
    await talk.permit(False, "echo denied")


async def _is_done(talk: AgentTalk, under_test: AgentUnderTest) -> Frame:
    return await talk.turn(under_test.prompt("say", "done"))


async def _is_told_to_stop(talk: AgentTalk, under_test: AgentUnderTest) -> None:
    await talk.say(under_test.prompt("hang", "stop me"))
    await talk.hear("chunk")
    await talk.send("abort")


async def _has_a_queue(talk: AgentTalk, under_test: AgentUnderTest) -> None:
    await talk.say(under_test.prompt("hang", "others wait"))
    await talk.hear("chunk")
    for queued in ("queued one", "queued two"):
        await talk.say(under_test.prompt("say", queued))
        await talk.hear("ack", stage="stored")


POINTS: tuple[Step, ...] = (
    _idle, _sent, _stored, _taken, _speaks, _has_spoken, _asks, _is_answered, _used_a_tool, _is_denied, _is_done,
    _is_told_to_stop, _has_a_queue,
)  # fmt: skip


@pytest.mark.parametrize("under_test", [each for each in AGENTS if each.starts_fast], ids=lambda each: each.name)
async def test_nothing_is_lost_or_done_twice_wherever_it_dies(
    gateway: Gateway, model: str, under_test: AgentUnderTest
) -> None:
    await die_at_each_point(gateway, model, under_test)


async def test_nor_with_agents_that_take_long_to_start(gateway: Gateway, model: str) -> None:
    """All at once: they wait more than they work."""
    async with asyncio.TaskGroup() as together:
        for each in AGENTS:
            if not each.starts_fast:
                together.create_task(die_at_each_point(gateway, model, each), name=each.name)


async def die_at_each_point(gateway: Gateway, model: str, under_test: AgentUnderTest) -> None:
    session_id = f"{under_test.session}-killed"
    await begin(gateway, session_id, under_test, Model(model))
    async with talking(gateway, session_id) as talk:
        await talk.turn(under_test.prompt("say", "my name is Ada"))
        for point in POINTS:
            await point(talk, under_test)
            await kill(gateway, session_id, talk)
            await settled(gateway, session_id)
        if under_test.has_core:
            assert await last_answer(gateway, session_id) == "queued two"
        await talk.turn(under_test.prompt("recall", "still here"))
        if under_test.works:
            assert "my name is Ada" in await last_answer(gateway, session_id)
        assert [error for error in talk.errors if error["error"] != DEAF] == []
    _judge(await settled(gateway, session_id), under_test)
    workspace = gateway.data_dir / "sandboxes" / session_id / "kept" / "workspace" / "ran.txt"
    ran = workspace.read_text().split() if workspace.exists() else []
    assert len(set(ran)) == len(ran), ran
    assert {"asks", "denied"}.isdisjoint(ran)
    await order(gateway, session_id, "sleep")


def _judge(history: list[Frame], under_test: AgentUnderTest) -> None:
    assert [each["seq"] for each in history] == list(range(1, len(history) + 1))
    asked = {each["status"] for each in history if each["type"] == "permission_request"}
    # The demo agent asks again what nobody answered, also for a message that is not its any more.
    assert asked <= {"answered", "expired"} | ({"open"} if not under_test.works else set())
    said = [each for each in history if (each["role"], each["type"]) == ("user", "message")]
    assert {each["status"] for each in said} == {"delivered", "interrupted"}
    delivered = {each["seq"] for each in said if each["status"] == "delivered"}
    answers = [each for each in history if each["role"] == "assistant" and each["status"] in ("complete", "aborted")]
    answered = [seq for each in answers if each["type"] == "message" for seq in answered_by(each) if seq]
    assert len(set(answered)) == len(answered), "a message was answered twice"
    assert set(answered) <= delivered
