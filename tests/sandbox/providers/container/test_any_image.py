"""Images of every kind: the bridge brings its own interpreter and libraries, and programs have those of their image."""

import shutil
import uuid
from pathlib import Path

import pytest

from sandbox.ports.sandbox import Command
from sandbox.providers.container.kits import Kits
from tests.contract.sandbox import attach, run_agent, spec
from tests.sandbox.containers import _Fleet, opened
from tests.support.bridge import Owner
from tests.support.engine import DockerEngine, busybox, root_of
from tests.support.image_roots import MUSL, glibc, musl, with_python
from tests.support.waiting import until

needs_musl = pytest.mark.skipif(
    not MUSL.exists() or shutil.which("cc") is None, reason="musl or cc is missing: deploy/test-packages.sh names them"
)


async def says(fleet: _Fleet, *argv: str) -> str:
    done = await fleet.sandbox("s1").exec(Command(argv, timeout_seconds=60))
    return (done.stdout + done.stderr).strip()


def loaded(engine: DockerEngine, root: bytes) -> str:
    image = f"holdfast-test/kind:{uuid.uuid4().hex}"
    engine.load(image, root)
    return image


async def answers(fleet: _Fleet) -> None:
    """A sandbox starts, with its agent and a terminal's shell."""
    await fleet.start(spec())
    owner = Owner()
    link = await attach(fleet, owner)
    await run_agent(link, owner)
    link.deliver(1, b"hello")
    await until(lambda: len(owner.lines()) == 2)
    assert await says(fleet, "sh", "-c", "id -u; pwd; readlink /proc/self/exe >/dev/null && echo $HOME") == (
        "1000\n/workspace\n/agent"
    )


async def test_an_image_with_glibc_and_no_python(docker_engine: DockerEngine, tmp_path: Path, kits: Kits) -> None:
    async with opened(docker_engine, tmp_path, kits, image=loaded(docker_engine, root_of(glibc()))) as fleet:
        await answers(fleet)
        assert "libc.so.6" in await says(fleet, "sh", "-c", "cat /proc/$$/maps")
        assert "not found" in await says(fleet, "sh", "-c", "python3 --version")


async def test_an_image_with_a_python_of_its_own(docker_engine: DockerEngine, tmp_path: Path, kits: Kits) -> None:
    files, version = with_python()
    async with opened(docker_engine, tmp_path, kits, image=loaded(docker_engine, root_of(files))) as fleet:
        await answers(fleet)
        asked = "import sys; print(sys.prefix, sys.executable, '%d.%d' % sys.version_info[:2])"
        assert await says(fleet, "python3", "-c", asked) == f"/usr /usr/bin/python3 {version}"
        assert "No module named 'sandbox'" in await says(fleet, "python3", "-c", "import sandbox")


@needs_musl
async def test_an_image_with_musl_and_no_glibc(docker_engine: DockerEngine, tmp_path: Path, kits: Kits) -> None:
    async with opened(docker_engine, tmp_path, kits, image=loaded(docker_engine, busybox(musl()))) as fleet:
        await answers(fleet)
        assert await says(fleet, "greeting") == "musl was here"
        assert "musl libc" in await says(fleet, str(MUSL))
        assert await says(fleet, "sh", "-c", "ls -d /lib64 /lib/*-linux-gnu 2>/dev/null || echo none") == "none"


async def test_an_image_with_a_static_shell_and_nothing_else(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    async with opened(docker_engine, tmp_path, kits) as fleet:
        await answers(fleet)
        assert await says(fleet, "sh", "-c", "ls -d /lib /lib64 /usr 2>/dev/null || echo none") == "none"
