"""What a model can do to a turn: whatever it is, the user hears of it once, and the turn is over."""

import asyncio
from dataclasses import replace

import pytest

from tests.agents.agents import AGENTS, MISSING, AgentUnderTest, Model
from tests.agents.talk import AgentTalk, begin, order, talking
from tests.support.gateway import Gateway

FAILURES = ("429", "500", "bad key", "no key", "missing model")


def led_astray(model: Model, failure: str) -> tuple[Model, str]:
    """The model as an agent has it then, and what is said to it."""
    match failure:
        case "bad key":
            return replace(model, key="bad"), "@@say hello"
        case "no key":
            return replace(model, key=""), "@@say hello"
        case "missing model":
            return replace(model, name=MISSING), "@@say hello"
    return model, f"@@error {failure}"


async def failed_turn(gateway: Gateway, under_test: AgentUnderTest, model: str, failure: str) -> AgentTalk:
    session_id = f"{under_test.session}-{failure.replace(' ', '-')}"
    where, said = led_astray(Model(model), failure)
    await begin(gateway, session_id, under_test, where)
    async with talking(gateway, session_id) as talk:
        await talk.turn(said)
        await order(gateway, session_id, "sleep")  # what more it had to say would come now
        await talk.hear("session_status", status="sleeping")
    return talk


@pytest.mark.parametrize("under_test", [each for each in AGENTS if each.works], ids=lambda each: each.name)
async def test_a_turn_that_fails_has_one_error_and_one_end(
    gateway: Gateway, model: str, under_test: AgentUnderTest
) -> None:
    talks = await asyncio.gather(*(failed_turn(gateway, under_test, model, each) for each in FAILURES))
    heard = {
        failure: [frame for frame in talk.heard if frame["type"] in ("error", "done")]
        for failure, talk in zip(FAILURES, talks, strict=True)
    }
    kinds = {failure: [frame["type"] for frame in frames] for failure, frames in heard.items()}
    assert kinds == {failure: ["error", "done"] for failure in FAILURES}, heard
    refused = {failure for failure, frames in heard.items() if frames[0]["code"] == "agent_auth"}
    assert refused == ({each for each in FAILURES if "key" in each} if under_test.has_core else set()), heard
