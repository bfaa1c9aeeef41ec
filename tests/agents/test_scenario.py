"""One conversation with each real agent, behind a real gateway and a real bridge, over the fake model: whatever its own
words are, the same records come of it. It is killed, put to sleep, and has its gateway killed, and remembers."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection

from tests.support.chat import Frame, hear, say
from tests.support.fake_model.serving import fake_model
from tests.support.fake_model.settings import opencode_config
from tests.support.gateway import Gateway
from tests.support.waiting import until

AGENTS = ("claude-code", "codex", "pi", "pi@0.74.2", "opencode", "gemini")
CURT = ("gemini",)  # has no question tool, and tries for minutes what a model fails at
SAID, ANSWERED = "user message delivered", "assistant message complete"
PERMITTED = ["assistant permission_request answered", "user permission_response delivered"]
ABORTED = "assistant message aborted"
ASKED = [SAID, "assistant question answered", "user question_answer delivered", ANSWERED]
FAILED = [SAID, ANSWERED]


def expected(agent: str) -> list[str]:
    return [
        *(SAID, ANSWERED),
        *(SAID, *PERMITTED, ANSWERED),
        *(SAID, *PERMITTED, ANSWERED),
        *(() if agent in CURT else ASKED),
        *(SAID, ABORTED),
        *(SAID, "assistant permission_request expired", ABORTED),
        *(SAID, PERMITTED[0], SAID, SAID, PERMITTED[1], ANSWERED, ANSWERED, ANSWERED),
        *(() if agent in CURT else FAILED),
        *("user message interrupted", "assistant message incomplete"),
        *[SAID, ANSWERED] * 3,
    ]


@pytest.fixture(params=AGENTS)
def agent(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def model() -> AsyncIterator[str]:
    async with fake_model() as address:
        yield address


@pytest.fixture
async def gateway(agents_dir: Path, tmp_path: Path) -> AsyncIterator[Gateway]:
    settings = {"AGENTS_DIR": agents_dir, "LOCAL_LEVEL": "contained", "NETWORK_MAX": "outbound", "DEMO": "true"}
    async with Gateway(tmp_path / "data", **settings) as running:
        yield running


class Talk:
    """One viewer of the session."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.errors: list[Frame] = []

    async def begin(self) -> None:
        await hear(self._socket, "welcome")

    async def say(self, content: str, **metadata: bool) -> None:
        await say(self._socket, "message", content=content, metadata=metadata)

    async def abort(self) -> None:
        await say(self._socket, "abort")

    async def hear(self, kind: str) -> Frame:
        passed: list[Frame] = []
        heard = await hear(self._socket, kind, passed=passed)
        self.errors += [frame for frame in passed if frame["type"] == "error"]
        return heard

    async def turn(self, content: str) -> Frame:
        await self.say(content)
        return await self.hear("done")

    async def answer(self, kind: str, answer: str, **members: Any) -> Frame:
        """Answer what is asked next."""
        asked = await self.hear(kind)
        await say(self._socket, answer, requestId=asked["requestId"], **members)
        return asked

    async def permit(self, allow: bool) -> Frame:
        return await self.answer("tool_permission_request", "permission_response", allow=allow)


def configure(home: Path, model: str) -> None:
    """What pi and Gemini are told by files alone."""
    models = [{"id": "m1", "contextWindow": 200_000, "maxTokens": 8000}]
    fake = {"baseUrl": f"{model}/v1", "api": "openai-responses", "apiKey": "good", "models": models}
    auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": False}}
    for path, content in (
        (".pi/models.json", {"providers": {"fake": fake}}),
        (".pi/settings.json", {"defaultProvider": "fake", "defaultModel": "m1"}),
        (".gemini/settings.json", auth),
    ):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(json.dumps(content))


async def records(gateway: Gateway) -> list[dict[str, Any]]:
    return await gateway.messages("talk")


async def last_answer(gateway: Gateway) -> str:
    return str((await records(gateway))[-1]["content"])


async def test_the_same_records_come_of_a_conversation_with_any_agent(gateway: Gateway, model: str, agent: str) -> None:
    variables = {"ANTHROPIC_BASE_URL": model, "ANTHROPIC_API_KEY": "good", "OPENAI_BASE_URL": f"{model}/v1",
                 "OPENAI_API_KEY": "good", "GOOGLE_GEMINI_BASE_URL": model, "GEMINI_API_KEY": "good",
                 "OPENCODE_CONFIG_CONTENT": json.dumps(opencode_config(model, "good"))}  # fmt: skip
    configure(gateway.data_dir / "sandboxes" / "talk" / "kept" / "agent", model)
    await gateway.create("talk", agent=agent, network="outbound", envVars=variables)
    async with gateway.chat("talk") as socket, gateway.http() as ada:
        await say(socket, "start", model="m1")
        talk = Talk(socket)
        await talk.begin()
        await talk.turn("@@say my name is Ada")
        assert await last_answer(gateway) == "my name is Ada"

        await talk.say("@@run touch made.txt")
        await talk.permit(True)
        await talk.hear("done")
        assert (await ada.get("/files/talk/made.txt")).status_code == 200
        await talk.say("@@run touch never.txt")
        await talk.permit(False)
        await talk.hear("done")
        assert (await ada.get("/files/talk/never.txt")).status_code == 404

        if agent not in CURT:
            await talk.say("@@ask")
            await talk.answer("ask_user_question", "ask_user_answer", answers={"Which colour?": "blue"})
            await talk.hear("done")
            assert "blue" in await last_answer(gateway)

        await talk.say("@@hang I go on ")
        await talk.hear("chunk")
        await talk.abort()
        assert (await talk.hear("done"))["metadata"]["aborted"] is True
        await talk.say("@@run touch never.txt")
        await talk.hear("tool_permission_request")
        await talk.abort()
        await talk.hear("expired")
        assert (await talk.hear("done"))["metadata"]["aborted"] is True

        await talk.say("@@run touch first.txt")
        asked = await talk.hear("tool_permission_request")
        await talk.say("@@say second")
        await talk.say("@@say third")
        await say(socket, "permission_response", requestId=asked["requestId"], allow=True)
        answered = [(await talk.hear("done"))["answers"] for _ in range(3)]
        assert [len(seqs) for seqs in answered] == [1, 1, 1]
        assert answered == sorted(answered)
        assert await last_answer(gateway) == "third"
        assert talk.errors == []

        if agent not in CURT:
            await talk.turn("@@error 500")
            assert [error["code"] for error in talk.errors] == ["agent"]

        await talk.say("@@hang at work ")
        await talk.hear("chunk")
        assert (await ada.post("/api/sandboxes/talk/demo/kill-agent", json={})).status_code == 200

        async def cut_off() -> bool:
            return bool((await records(gateway))[-1]["status"] == "incomplete")

        await until(cut_off, "what the killed agent had said")
        await talk.turn("@@recall")
        assert "my name is Ada" in await last_answer(gateway)
        assert (await ada.post("/api/sandboxes/talk/sleep")).status_code == 200
        await talk.turn("@@recall")
        assert "my name is Ada" in await last_answer(gateway)

    await gateway.restart(kill=True)
    async with gateway.chat("talk") as socket:
        talk = Talk(socket)
        await talk.begin()
        await talk.turn("@@recall")
        assert "my name is Ada" in await last_answer(gateway)
        assert talk.errors == []
    assert [f"{each['role']} {each['type']} {each['status']}" for each in await records(gateway)] == expected(agent)
