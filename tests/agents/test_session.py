"""Real agents as the agents of sessions: chosen by name, over a real gateway, with the model that is built in."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.agents.catalogue import CORES, KNOWN
from gateway.agents.trial.answers import SAID
from gateway.agents.trial.model import TrialModel
from gateway.agents.trial.surroundings import surroundings
from tests.support.chat import hear, say
from tests.support.fake_model.serving import INNER
from tests.support.gateway import REPOSITORY, Gateway

# Those that are led to a model by variables alone: of a session's home nothing can be written before it starts.
BY_VARIABLES = [name for name in ("claude-code", "opencode") if KNOWN[name].core in CORES]


@pytest.fixture
async def gateway(agents_dir: Path, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with Gateway(
        tmp_path / "data", AGENTS_DIR=agents_dir, LOCAL_LEVEL="contained", NETWORK_INNER=INNER
    ) as running:
        yield running


@pytest.mark.parametrize("name", BY_VARIABLES)
async def test_a_session_is_talked_to_and_remembers_over_a_sleep(gateway: Gateway, name: str) -> None:
    model = TrialModel()
    async with model.serve(INNER):
        env = dict(surroundings(name, model.address).env)
        made = await gateway.create("real", agent=name, network="outbound", envVars=env)
        assert made["agent"] == name
        for turn in (1, 2):
            async with gateway.chat("real") as socket:
                await hear(socket, "welcome")
                await say(socket, type="message", content="Hello")
                await hear(socket, "done")
            said = [each for each in await gateway.messages("real") if each["role"] == "assistant"]
            assert [SAID in str(each["content"]) for each in said] == [True] * turn
            async with gateway.http(gateway.bearer()) as ada:
                assert (await ada.post("/api/sandboxes/real/sleep")).json()["status"] == "sleeping"
                who = (await ada.get("/api/sandboxes/real/status")).json()["agentStatus"]
            assert (who["name"], who["version"], who["state"]) == (name, KNOWN[name].version, "dead")
            assert who["session"]
            assert who["model"]
    assert model.asked >= 2


async def test_a_chat_without_a_key_ends_with_what_there_is_to_do(gateway: Gateway) -> None:
    argv = [sys.executable, "-m", "gateway", "chat", "--agent", "claude-code", "--plain"]
    pipe = asyncio.subprocess.PIPE
    talking = await asyncio.create_subprocess_exec(
        *argv, env=gateway.environment(), cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await talking.communicate(b"Hello\n")
    assert b"ANTHROPIC_API_KEY" in said


async def test_an_agent_that_is_a_server_needs_no_network_to_be_reached(gateway: Gateway) -> None:
    env = dict(surroundings("opencode", "http://127.0.0.1:9").env)  # where no model is
    await gateway.create("real", agent="opencode", network="none", envVars=env)
    async with gateway.chat("real") as socket:
        await hear(socket, "welcome")
        await say(socket, type="message", content="Hello")
        assert (await hear(socket, "error"))["code"] == "agent"
        assert (await hear(socket, "done"))["metadata"]["error"] is True
    async with gateway.http(gateway.bearer()) as ada:
        told = (await ada.get("/api/sandboxes/real")).json()["agentStatus"]
    assert (told["name"], told["version"]) == ("opencode", KNOWN["opencode"].version)
    assert told["session"].startswith("ses_")
