"""`make images`: builds the images of deploy/ and tries them: the gateway in one container, a session in another, and
each agent. It uses the engine that HOLDFAST_DOCKER names, where they stay; if none answers there, one of its own."""

import asyncio
import contextlib
import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.agents.catalogue import AGENTS as KNOWN_AGENTS
from tests.support.engine import DockerEngine, whats_missing
from tests.support.gateway_container import GatewayContainer, a_session_lives_there
from tests.support.image_bases import (
    DEPLOY,
    TRUSTED,
    NoBase,
    gateway_bases,
    of_this_machine,
    proxies,
    sandbox_base,
    trusting,
)

ROOT = DEPLOY.parent
KEPT = ROOT / ".artefacts" / "images"
GATEWAY, SANDBOX, AGENTS = "holdfast", "holdfast-sandbox", "holdfast-agents"
USUAL = "unix:///var/run/docker.sock"
TOOLS = "for tool in git python3 python node npm cc rg; do $tool --version | head -n 1; done"


class ImageBuilder:
    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def docker(self, *words: str) -> str:
        """The output of the engine's own program. Raises CalledProcessError."""
        argv = ["docker", "--host", f"unix://{self._socket}", *words]
        return subprocess.run(argv, capture_output=True, text=True, errors="replace", check=True).stdout

    def build(self) -> None:
        self._build(GATEWAY, "Dockerfile", ROOT, gateway_bases(self.docker, KEPT))
        self._build(SANDBOX, "sandbox.Dockerfile", DEPLOY, sandbox_base(self.docker, KEPT))
        self._build(AGENTS, "agents.Dockerfile", DEPLOY, {"BUILD_IMAGE": trusting(self.docker, GATEWAY)})

    def _build(self, name: str, dockerfile: str, context: Path, arguments: Mapping[str, str]) -> None:
        began = time.monotonic()
        given = [word for argument in arguments.items() for word in ("--build-arg", "=".join(argument))]
        # With the host's network: a proxy or a resolver of names on loopback is no other network's.
        argv = ["docker", "--host", f"unix://{self._socket}", "build", "--network", "host", *given, *proxies()]
        argv += ["--tag", name, "--file", str(DEPLOY / dockerfile), str(context)]
        subprocess.run(argv, stdout=sys.stderr, check=True)
        size = int(self.docker("image", "inspect", "--format", "{{.Size}}", name))
        sys.stdout.write(f"{name}: {size / 1e6:.0f} MB, built in {time.monotonic() - began:.0f} s\n")

    def _in(self, image: str, script: str) -> str:
        return self.docker("run", "--rm", "--network", "none", image, "sh", "-ec", script)

    def try_out(self) -> None:
        """Raises AssertionError."""
        for name in (GATEWAY, SANDBOX, AGENTS):
            made = self.docker("history", "--no-trunc", name) + self.docker("image", "inspect", name)
            assert [each for each in of_this_machine() if each in made] == []
            self._in(name, f"test ! -e {TRUSTED} && test $(id -u) != 0")
        sys.stdout.write(self._in(SANDBOX, TOOLS))
        for agent in KNOWN_AGENTS:
            said = self._in(AGENTS, f"HOME=/tmp /agents/bin/{agent.program} --version")
            assert agent.version in said, said
            sys.stdout.write(f"{agent.title} {agent.version} runs\n")
        with GatewayContainer(self._socket, GATEWAY, {}) as gateway:
            asyncio.run(a_session_lives_there(gateway))
            examined = gateway.run("sh", "-c", "holdfast doctor || true")
            assert re.search(r"(?m)^ok +sandbox +docker, container: a container was started", examined), examined
        sys.stdout.write("a gateway ran in a container, and its session in another: the images work\n")


@contextlib.contextmanager
def engine() -> Iterator[ImageBuilder]:
    """Raises NoBase if there is none."""
    named = os.environ.get("HOLDFAST_DOCKER")
    socket = Path((named or USUAL).removeprefix("unix://"))
    builder = ImageBuilder(socket)
    try:
        builder.docker("version")
    except subprocess.CalledProcessError as exc:
        if named:
            raise NoBase(f"HOLDFAST_DOCKER: {exc.stderr.strip()}") from exc
    except OSError as exc:
        raise NoBase("there is no docker here: install Docker's own client") from exc
    else:
        yield builder
        return
    if reason := whats_missing(*DockerEngine.programs):
        raise NoBase(f"no engine answers at {USUAL}, and one of our own cannot run: {reason}")
    sys.stderr.write(f"no engine answers at {USUAL}: building on one of our own, which ends with this\n")
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one engine at a time may use the kept layers
        with DockerEngine(data=KEPT / "engine") as ours:
            yield ImageBuilder(ours.socket)


def main() -> int:
    try:
        with engine() as builder:
            builder.build()
            builder.try_out()
    except NoBase as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    except subprocess.CalledProcessError as exc:
        sys.stderr.write(f"{exc}\n{exc.stderr or ''}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
