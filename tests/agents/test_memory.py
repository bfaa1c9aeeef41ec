"""A session whose agent's conversation is not kept: when the disk is lost, the agent has forgotten, and says so."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agents.agents import AGENTS, AgentUnderTest, Model
from tests.agents.talk import begin, last_answer, order, talking
from tests.support.fake_model.serving import INNER
from tests.support.gateway import Gateway

CONVERSATIONS = ".claude/,.codex/sessions/,.holdfast/pi.jsonl,.gemini/tmp/,.local/"


@pytest.fixture(scope="module")
async def forgetful(agents_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    settings = {"AGENTS_DIR": agents_dir, "LOCAL_LEVEL": "contained", "NETWORK_INNER": INNER}
    data = tmp_path_factory.mktemp("forgetful") / "data"
    async with Gateway(data, **settings, SYNC_AGENT_SKIP=CONVERSATIONS) as gateway:
        yield gateway


@pytest.mark.parametrize("under_test", [each for each in AGENTS if each.has_core], ids=lambda each: each.name)
async def test_an_agent_that_has_forgotten_says_so_and_goes_on(
    forgetful: Gateway, model: str, under_test: AgentUnderTest
) -> None:
    session_id = under_test.session
    await begin(forgetful, session_id, under_test, Model(model))
    async with talking(forgetful, session_id) as talk:
        await talk.turn(under_test.prompt("say", "my name is Ada"))
        await order(forgetful, session_id, "sleep")
        shutil.rmtree(forgetful.data_dir / "sandboxes" / session_id)
        await talk.turn(under_test.prompt("recall"))
        assert "Ada" not in await last_answer(forgetful, session_id)
        assert talk.errors == []
    history = await forgetful.messages(session_id)
    assert [each["type"] for each in history] == ["message", "message", "message", "agent_status", "message"]
    assert "memory_lost" in str(history[3]["content"])
    await order(forgetful, session_id, "sleep")
