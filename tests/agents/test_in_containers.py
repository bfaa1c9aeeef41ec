"""Real agents in a container, in an image with nothing but a shell and the libraries that they are linked to."""

import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.agents.catalogue import AGENTS, KNOWN
from gateway.agents.shelf import AgentShelf
from sandbox.ports.fleet import AGENTS as INSIDE
from sandbox.ports.sandbox import Command
from sandbox.providers.container.kits import Kits
from tests.agents.agents import AGENTS as UNDER_TEST
from tests.agents.agents import AgentUnderTest, Model
from tests.agents.conftest import FORGIVING
from tests.agents.talk import order, settled, talking
from tests.agents.test_scenario import converse, expected, remembers, told
from tests.contract.sandbox import spec
from tests.sandbox.containers import opened
from tests.support.engine import DockerEngine, root_of
from tests.support.fake_model.serving import INNER
from tests.support.gateway import Gateway
from tests.support.launcher import Launcher

IMAGE = "holdfast-test/libraries:1"
WORKSHOP = "holdfast-test/workshop:1"  # with what agents' tools run
APPLETS = ["sh", "dirname", "readlink", "touch", "cat", "ls", "env", "echo", "mkdir", "rm", "which", "uname"]


def linked_to(*programs: Path) -> dict[str, bytes]:
    """The libraries and the loader of these, by their paths."""
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    return {word[1:]: Path(word).read_bytes() for word in told.split() if word.startswith("/") and word[-1] != ":"}


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
async def test_it_runs_in_an_image_with_its_libraries(
    agents_dir: Path, docker_engine: DockerEngine, tmp_path: Path, kits: Kits, agent: object
) -> None:
    known = KNOWN[getattr(agent, "name", "")]
    shelf = AgentShelf(agents_dir)
    programs = [shelf.node, *((agents_dir / "bin" / known.program).resolve() for known in AGENTS if not known.by_node)]
    busybox = Path(shutil.which("busybox") or "").read_bytes()
    docker_engine.load(IMAGE, root_of({"bin/busybox": busybox, **linked_to(*programs)}, ["sh", "dirname", "readlink"]))
    async with opened(docker_engine, tmp_path, kits, agents=agents_dir, image=IMAGE) as fleet:
        found = shelf.find(known.name)
        assert found is not None
        await fleet.start(spec(agent_libc=found.libc))
        version = Command((f"{INSIDE}/bin/{known.program}", "--version"), timeout_seconds=120)
        done = await fleet.sandbox("s1").exec(version)
        assert done.exit_code == 0, done.stderr
        assert known.version in done.stdout


@pytest.fixture
async def gateway(
    agents_dir: Path, docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory, kits_directory: Path
) -> AsyncIterator[Gateway]:
    shelf = AgentShelf(agents_dir)
    programs = [(agents_dir / "bin" / known.program).resolve() for known in AGENTS if not known.by_node]
    bash, busybox = Path(shutil.which("bash") or "").resolve(), Path(shutil.which("busybox") or "").read_bytes()
    files = {"bin/busybox": busybox, "bin/bash": bash.read_bytes(), **linked_to(shelf.node, bash, *programs)}
    docker_engine.load(WORKSHOP, root_of(files, APPLETS))
    place = {"SANDBOX": "docker", "DOCKER": f"unix://{docker_engine.socket}", "DOCKER_IMAGE": WORKSHOP}
    data = tmp_path_factory.mktemp("contained") / "data"
    data.mkdir(mode=0o700)
    (data / "kit").symlink_to(kits_directory)
    async with Launcher() as launcher:
        running = Gateway(data, **place, DOCKER_PULL="never", NETWORK_INNER=INNER, AGENTS_DIR=agents_dir, DEMO="true")
        running.launcher, running.tampering = launcher, FORGIVING
        async with running:
            yield running


@pytest.mark.parametrize(
    "under_test",
    [each for each in UNDER_TEST if each.name in ("claude-code", "codex", "opencode")],
    ids=lambda each: each.name,
)
async def test_the_same_records_come_of_a_conversation_in_a_container(
    gateway: Gateway, model: str, under_test: AgentUnderTest
) -> None:
    session_id, where = under_test.session, Model(model)
    await gateway.create(session_id, agent=under_test.agent, network="outbound", envVars=where.variables)
    async with talking(gateway, session_id) as talk:
        await talk.send("start", model=where.name)
    await converse(gateway, session_id, under_test)
    await gateway.restart(kill=True)
    async with talking(gateway, session_id) as talk:
        await remembers(gateway, session_id, under_test, talk)
        await order(gateway, session_id, "sleep")
        shutil.rmtree(gateway.data_dir / "sandboxes" / session_id)
        await order(gateway, session_id, "resume", envVars=where.variables)
        await remembers(gateway, session_id, under_test, talk)
        assert talk.errors == []
    assert told(await settled(gateway, session_id)) == expected(under_test)
    await order(gateway, session_id, "sleep")
