"""Real agents in a container, in an image with nothing but the libraries that they are linked to."""

import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.agents.catalogue import AGENTS, KNOWN
from gateway.agents.shelf import AgentShelf
from sandbox.ports.fleet import AGENTS as INSIDE
from sandbox.ports.sandbox import Command
from sandbox.providers.container.kits import Kits
from tests.contract.sandbox import spec
from tests.sandbox.containers import opened
from tests.support.engine import DockerEngine, root_of

IMAGE = "holdfast-test/libraries:1"


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
