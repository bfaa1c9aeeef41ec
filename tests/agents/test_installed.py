"""Each real agent as it is installed: run by hand in a terminal, and by a core, with the model that is built in."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.agents.catalogue import AGENTS, CORES, KNOWN
from gateway.agents.shelf import AgentShelf
from tests.support.gateway import PASSED_ON, REPOSITORY, Gateway
from tests.support.real_agents import versions
from tests.support.waiting import until

WITH_CORE = [each for each in versions() if KNOWN[each.partition("@")[0]].core in CORES]


@pytest.fixture(scope="module", params=["contained", "trusted"])
async def gateway(
    request: pytest.FixtureRequest, agents_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gateway]:
    data = tmp_path_factory.mktemp("terminals") / "data"
    async with Gateway(data, AGENT="none", AGENTS_DIR=agents_dir, LOCAL_LEVEL=request.param) as running:
        await running.create("hand")
        yield running


def test_every_version_that_was_tried_is_installed(agents_dir: Path) -> None:
    shelf = AgentShelf(agents_dir)
    assert [f"{agent.name}@{version}" for agent in AGENTS for version in reversed(agent.versions)
            if shelf.find(agent.name, version) is None] == []  # fmt: skip
    assert [shelf.current(agent.name) for agent in AGENTS] == [agent.version for agent in AGENTS]
    assert shelf.has_node


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
async def test_people_run_it_in_a_terminal(gateway: Gateway, agent: object) -> None:
    known = KNOWN[getattr(agent, "name", "")]
    look = f"{known.program} --version > making 2>&1; mv making {known.program}"
    async with gateway.http(gateway.bearer()) as ada:
        made = await ada.post(f"/api/sandboxes/hand/terminals/{known.program}", json={"command": ["sh", "-c", look]})
        assert made.status_code == 201

        async def said() -> str:
            return (await ada.get(f"/files/hand/{known.program}")).raise_for_status().text

        async def written() -> bool:
            return (await ada.get(f"/files/hand/{known.program}")).status_code == 200

        await until(written, f"the version of {known.title}")
        assert known.version in await said()


@pytest.mark.parametrize("level", ["contained", "trusted"])
@pytest.mark.parametrize("agent", WITH_CORE)
def test_it_answers_in_a_sandbox(agents_dir: Path, agent: str, level: str) -> None:
    inherited = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    env = {**inherited, "HOLDFAST_AGENTS_DIR": str(agents_dir), "HOLDFAST_LOCAL_LEVEL": level}
    argv = [sys.executable, "-m", "gateway", "agents", "doctor", agent, "--json"]
    tried = subprocess.run(argv, env=env, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stdout + tried.stderr
    checks = {check["name"]: check for check in json.loads(tried.stdout)["checks"]}
    assert checks["sandbox"]["told"] == f"local, {level}"
    assert {check["state"] for check in checks.values()} == {"ok"}
