"""Installed agents in containers: mounted for reading, on the path, and refused where they could not run."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.ports.fleet import AGENTS
from sandbox.ports.sandbox import Command, SandboxFailed
from sandbox.providers.container.kits import Kits
from tests.contract.sandbox import spec
from tests.sandbox.containers import _Fleet, opened
from tests.support.engine import DockerEngine, root_of


@pytest.fixture
async def fleet(docker_engine: DockerEngine, tmp_path: Path, kits: Kits) -> AsyncIterator[_Fleet]:
    agents = tmp_path / "agents"
    (agents / "bin").mkdir(parents=True)
    (agents / "bin" / "claude").write_text("#!/bin/sh\necho a claude of ours\n")
    (agents / "bin" / "claude").chmod(0o755)
    async with opened(docker_engine, tmp_path / "data", kits, agents=agents) as fleet:
        yield fleet


async def test_installed_programs_are_on_the_path_and_cannot_be_changed(fleet: _Fleet) -> None:
    await fleet.start(spec())
    look = f"claude; command -v claude; echo x 2>/dev/null >> {AGENTS}/bin/claude || echo kept"
    done = await fleet.sandbox("s1").exec(Command(("sh", "-c", look), timeout_seconds=60))
    assert done.stdout.split("\n")[:3] == ["a claude of ours", f"{AGENTS}/bin/claude", "kept"]


async def test_an_image_in_which_an_agent_cannot_run_is_refused_in_words(
    fleet: _Fleet, docker_engine: DockerEngine
) -> None:
    """The image has a static shell and no C library."""
    with pytest.raises(SandboxFailed, match="which has no glibc: use an image of Debian, Ubuntu or Fedora"):
        await fleet.start(spec(agent_libc="glibc"))
    await fleet.start(spec())
    shell = Path(shutil.which("busybox") or "")
    loaders = dict.fromkeys(("lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"), b"a loader")
    docker_engine.load("holdfast-test/with-libc:1", root_of({"bin/sh": shell.read_bytes(), **loaders}))
    for incarnation in (2, 3):
        await fleet.start(spec(incarnation=incarnation, image="holdfast-test/with-libc:1", agent_libc="glibc"))
