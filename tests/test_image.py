"""The image's layout, as deploy/Dockerfile makes it, started with the settings of deploy/: a contained sandbox runs."""

import asyncio
import re
import shlex
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import jwt
import pytest

from tests.gateway.http.sessions.test_lifecycle import comes_to
from tests.support.image import in_image, make_environment
from tests.test_deploy import CONTAINED, DOCKERFILE, image_settings, instructions, service_of

LAYOUT = instructions(DOCKERFILE.read_text())


def place_of_environment() -> str:
    (made,) = [shlex.split(rest)[-1] for name, rest in LAYOUT if name == "COPY" and "--from=build" in rest]
    return str(made)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("image") / "environment"
    make_environment(directory, place_of_environment())
    return directory


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o700)
    return directory


def settings() -> dict[str, str]:
    """Of the image and of both compose files; the port is the system's choice, and nobody else comes to it."""
    variables = [pair.partition("=") for name, rest in LAYOUT if name == "ENV" for pair in shlex.split(rest)]
    path = next(value for name, _, value in variables if name == "PATH").replace("$PATH", "/usr/bin:/bin")
    asked = {name: str(value) for name, value in service_of(CONTAINED)["environment"].items()}
    local = {"HOLDFAST_HOST": "127.0.0.1", "HOLDFAST_PORT": "0"}
    return {"PATH": path, **image_settings(LAYOUT), **asked, **local}


@asynccontextmanager
async def serving(environment: Path, data: Path) -> AsyncIterator[str]:
    """The address that the image's own command serves at."""
    argv = in_image(environment, place_of_environment(), data, settings(), ["holdfast", "serve"])
    process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    try:
        said: list[str] = []
        async with asyncio.timeout(60):
            while not (found := re.search(r"http://[^/\s]+", said[-1] if said else "")):
                if not (line := await process.stdout.readline()):
                    pytest.fail("".join(said))
                said.append(line.decode())
        yield found[0]
    finally:
        if process.returncode is None:
            process.kill()  # and with it all that it started
        await process.communicate()


async def test_the_image_starts_a_contained_sandbox(environment: Path, data: Path) -> None:
    """Its environment lay where sandboxes mount their code, on a directory that is read-only: it could not start."""
    async with serving(environment, data) as address:
        secret = (data / "secrets" / "jwt_secret").read_text().strip()
        token = jwt.encode({"userId": "ada", "email": "ada@example.com", "exp": time.time() + 600}, secret)
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=address, headers=headers, timeout=60, trust_env=False) as ada:
            assert (await ada.post("/api/sandboxes/first")).status_code == 201
            described = await comes_to(ada, "first", "running")
            assert described["level"] == "contained"
