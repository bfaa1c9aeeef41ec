"""A gateway in a container, beside its sandboxes on the same engine, as in deploy/compose.docker.yaml, and checks of
what must work there."""

import re
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml
from websockets.asyncio.client import ClientConnection, connect

from tests.support.chat import hear, say
from tests.support.waiting import PATIENCE, blocking_until, until

DEPLOY = Path(__file__).parents[2] / "deploy"
SOCKET = "/var/run/docker.sock"
_ADDRESS = re.compile(r"http://[^\s/]+:\d+")


def asked_for() -> dict[str, str]:
    """The variables of compose.yaml with compose.docker.yaml over it."""
    found: dict[str, Any] = {}
    for name in ("compose.yaml", "compose.docker.yaml"):
        found |= yaml.safe_load((DEPLOY / name).read_text())["services"]["gateway"]["environment"]
    return {name: str(value) for name, value in found.items() if value is not None}


class GatewayContainer:
    """Use it as a context manager: leaving removes its containers and its volume."""

    def __init__(self, socket: Path, image: str, settings: Mapping[str, str], flags: Sequence[str] = ()) -> None:
        self.name = f"holdfast-tried-{secrets.token_hex(4)}"
        self._socket = socket.resolve()  # a link may lead nowhere where the engine is
        env = asked_for() | {"HOLDFAST_HOST": "127.0.0.1", "HOLDFAST_PORT": "0"} | dict(settings)
        self._run = ["--detach", "--network", "host", "--group-add", str(self._socket.stat().st_gid)]
        self._run += ["--volume", f"{self.name}:/data", "--name", self.name]
        self._run += ["--mount", f"type=bind,source={self._socket},target={SOCKET}"]
        self._run += [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
        self._run += [*flags, image]
        self.url = ""
        self.token = ""
        self._installation = "none"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(self._logs())
        self._remove()

    def start(self) -> None:
        self._docker("run", *self._run)
        self.url = blocking_until(self._address, self._logs)
        if not self.token:
            self._installation = self.run("cat", "/data/installation")
            self.token = self.run("holdfast", "token", "--user", "ada", "--email", "ada@example.com").strip()

    def replace(self) -> None:
        """An orderly stop, and another container with the same volume, as an upgrade does it."""
        self._docker("stop", self.name)
        self._docker("rm", self.name)
        self.start()

    def run(self, *words: str) -> str:
        """The output of a program in the gateway's container."""
        return self._docker("exec", self.name, *words)

    def sandboxes(self) -> list[str]:
        return self._docker("ps", "--quiet", "--no-trunc", "--filter", self._label).split()

    def _address(self) -> str | None:
        runs = self._docker("inspect", "--format", "{{.State.Running}}", self.name).strip()
        said = self._logs()
        if runs != "true":
            raise RuntimeError(said)
        found = _ADDRESS.search(said)
        return found[0] if found else None

    def _logs(self) -> str:
        return self._docker("logs", self.name, stderr=subprocess.STDOUT)

    def _docker(self, *words: str, stderr: int = subprocess.PIPE) -> str:
        argv = ["docker", "--host", f"unix://{self._socket}", *words]
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=stderr, text=True, errors="replace", check=False)
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout

    @property
    def _label(self) -> str:
        return f"label=dev.holdfast.installation={self._installation}"

    def _remove(self) -> None:
        left = self._docker("ps", "--all", "--quiet", "--filter", self._label).split()
        self._docker("rm", "--force", "--volumes", self.name, *left)
        self._docker("volume", "rm", "--force", self.name)


async def a_session_lives_there(gateway: GatewayContainer) -> None:
    """A message gets an answer, a terminal echoes, the sandbox outlives the gateway's container, and a file outlives
    the sandbox."""
    async with _client(gateway) as ada:
        answer = await ada.post("/api/sandboxes/s1")
        assert answer.status_code == 201, answer.text
        assert (await _answered(gateway, "hello")) == "running"
        async with _socket(gateway, "/terminal/s1?cols=80&rows=24") as terminal:
            await terminal.send(b"id -u; echo kept > /workspace/file; echo wr''itten\n")
            await _shows(terminal, b"written")
        (before,) = gateway.sandboxes()
    gateway.replace()
    async with _client(gateway) as ada:
        assert (await _answered(gateway, "still there?")) == "running"
        assert gateway.sandboxes() == [before]
        answer = await ada.post("/api/sandboxes/s1/sleep")
        assert answer.status_code == 200, answer.text
        await until(lambda: gateway.sandboxes() == [], "the end of the sandbox")
        assert (await _answered(gateway, "awake?")) == "running"
        assert gateway.sandboxes() not in ([], [before])
        assert (await ada.get("/files/s1/file")).text == "kept\n"
        assert (await ada.delete("/api/sandboxes/s1?purge=1")).status_code == 200
        assert gateway.sandboxes() == []


def _bearer(gateway: GatewayContainer) -> dict[str, str]:
    return {"Authorization": f"Bearer {gateway.token}"}


def _client(gateway: GatewayContainer) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=gateway.url, headers=_bearer(gateway), timeout=60, trust_env=False)


def _socket(gateway: GatewayContainer, path: str) -> connect:
    address = gateway.url.replace("http", "ws", 1) + path
    return connect(
        address, additional_headers=_bearer(gateway), proxy=None, open_timeout=PATIENCE, ping_timeout=PATIENCE
    )


async def _answered(gateway: GatewayContainer, words: str) -> str:
    """How the session is once its agent has answered."""
    async with _socket(gateway, "/ws/v2?sessionId=s1") as socket:
        await say(socket, "message", content=words)
        await hear(socket, "done")
    async with _client(gateway) as ada:
        return str((await ada.get("/api/sandboxes/s1/status")).json()["status"])


async def _shows(terminal: ClientConnection, text: bytes) -> None:
    seen = b""

    async def look() -> bool:
        nonlocal seen
        seen += await terminal.recv(decode=False)
        return text in seen

    await until(look, lambda: repr(seen[-500:]))
