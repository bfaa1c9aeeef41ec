"""One conversation with each agent, behind a real gateway and a real bridge, over the fake model: whatever its own
words are, the same records come of it. It is killed, put to sleep, has its gateway killed and its disk deleted, and
remembers."""

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.agents.agents import AGENTS, AgentUnderTest, Model
from tests.agents.talk import AgentTalk, answered_by, begin, kill, last_answer, order, settled, talking
from tests.support.gateway import Gateway

SAID, ANSWERED = "user message delivered", "assistant message complete"
PERMITTED = ["assistant permission_request answered", "user permission_response delivered"]
ABORTED = "assistant message aborted"
ASKED = [SAID, "assistant question answered", "user question_answer delivered", ANSWERED]
CUT_OFF, UNFINISHED = "user message interrupted", "assistant message incomplete"
SURVIVED = [CUT_OFF, SAID, SAID, UNFINISHED, ANSWERED, ANSWERED]
AT_ONCE = [CUT_OFF, CUT_OFF, CUT_OFF, UNFINISHED]  # what has no core has every message as soon as it comes


def expected(under_test: AgentUnderTest) -> list[str]:
    return [
        *(SAID, ANSWERED),
        *(SAID, *PERMITTED, ANSWERED),
        *(SAID, *PERMITTED, ANSWERED),
        *(ASKED if under_test.asks else ()),
        *(SAID, ABORTED),
        *(SAID, "assistant permission_request expired", ABORTED),
        *(SAID, PERMITTED[0], SAID, SAID, PERMITTED[1], ANSWERED, ANSWERED, ANSWERED),
        *(SURVIVED if under_test.has_core else AT_ONCE),
        *[SAID, ANSWERED] * 4,
    ]


async def converse(gateway: Gateway, session_id: str, under_test: AgentUnderTest) -> None:
    """What every agent can do in a session that has begun."""
    async with talking(gateway, session_id) as talk:
        await talk.turn(under_test.prompt("say", "my name is Ada"))
        assert await last_answer(gateway, session_id) == "my name is Ada"
        await _permissions(gateway, session_id, under_test, talk)
        if under_test.asks:
            await talk.say(under_test.prompt("ask"))
            await talk.answer("ask_user_question", "ask_user_answer", answers={"Which colour?": "blue"})
            await talk.hear("done")
            assert "blue" in await last_answer(gateway, session_id)
        await _aborts(under_test, talk)
        await _queue(gateway, session_id, under_test, talk)
        assert talk.errors == []

        await talk.say(under_test.prompt("hang", "at work"))
        await talk.hear("chunk")
        await talk.say(under_test.prompt("say", "still queued"))
        await talk.say(under_test.prompt("say", "and this"))
        await talk.hear("ack", stage="stored")
        await talk.hear("ack", stage="stored")
        await kill(gateway, session_id, talk)
        if under_test.has_core:
            await talk.hear("done")
            await talk.hear("done")
            assert await last_answer(gateway, session_id) == "and this"
        await remembers(gateway, session_id, under_test, talk)
        await order(gateway, session_id, "sleep")
        await remembers(gateway, session_id, under_test, talk)


async def _permissions(gateway: Gateway, session_id: str, under_test: AgentUnderTest, talk: AgentTalk) -> None:
    async with gateway.http() as ada:
        for file, allow in (("made.txt", True), ("never.txt", False)):
            await talk.say(under_test.prompt("run", f"touch {file}"))
            await talk.permit(allow)
            await talk.hear("done")
            there = (await ada.get(f"/files/{session_id}/{file}")).status_code == 200
            assert there == (allow and under_test.works)


async def _aborts(under_test: AgentUnderTest, talk: AgentTalk) -> None:
    await talk.say(under_test.prompt("hang", "I go on"))
    await talk.hear("chunk")
    await talk.send("abort")
    assert (await talk.hear("done"))["metadata"]["aborted"] is True
    await talk.say(under_test.prompt("run", "touch never.txt"))
    await talk.hear("tool_permission_request")
    await talk.send("abort")
    await talk.hear("expired")
    assert (await talk.hear("done"))["metadata"]["aborted"] is True


async def _queue(gateway: Gateway, session_id: str, under_test: AgentUnderTest, talk: AgentTalk) -> None:
    await talk.say(under_test.prompt("run", "touch first.txt"))
    asked = await talk.hear("tool_permission_request")
    await talk.say(under_test.prompt("say", "second"))
    await talk.say(under_test.prompt("say", "third"))
    await talk.send("permission_response", requestId=asked["requestId"], allow=True)
    answered = [answered_by(await talk.hear("done")) for _ in range(3)]
    assert [len(seqs) for seqs in answered] == [1, 1, 1]
    assert answered == sorted(answered)
    assert await last_answer(gateway, session_id) == "third"


async def remembers(gateway: Gateway, session_id: str, under_test: AgentUnderTest, talk: AgentTalk) -> None:
    """What was said at the beginning. The demo agent knows how often it was spoken to."""
    counts = [int(each["metadata"].get("messages", 0)) for each in await gateway.messages(session_id)]
    done = await talk.turn(under_test.prompt("recall", "again"))
    if under_test.works:
        assert "my name is Ada" in await last_answer(gateway, session_id)
    else:
        assert done["metadata"]["messages"] > max(counts)


def told(history: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{each['role']} {each['type']} {each['status']}" for each in history]


@pytest.mark.parametrize("under_test", AGENTS, ids=lambda each: each.name)
async def test_the_same_records_come_of_a_conversation_with_any_agent(
    gateway: Gateway, model: str, under_test: AgentUnderTest
) -> None:
    session_id, where = under_test.session, Model(model)
    await begin(gateway, session_id, under_test, where)
    await converse(gateway, session_id, under_test)

    await gateway.restart(kill=True)
    async with talking(gateway, session_id) as talk:
        await remembers(gateway, session_id, under_test, talk)
        await order(gateway, session_id, "sleep")
        shutil.rmtree(gateway.data_dir / "sandboxes" / session_id)
        await order(gateway, session_id, "resume", envVars=where.variables)  # no gateway keeps them
        await remembers(gateway, session_id, under_test, talk)
        assert talk.errors == []
    assert told(await settled(gateway, session_id)) == expected(under_test)
    await order(gateway, session_id, "sleep")
