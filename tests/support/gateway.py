"""A real gateway process on a data directory of its own, for tests that talk to it as its users do."""

import asyncio
import os
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, Self

import httpx
import jwt
from websockets.asyncio.client import ClientConnection, connect

from tests.support import unheard
from tests.support.launcher import UNTOUCHED, Launcher, launch
from tests.support.waiting import PATIENCE

ADDRESS = re.compile(r"http://[^\s/]+:\d+")
PASSED_ON = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH")
REPOSITORY = Path(__file__).resolve().parents[2]


class GatewayFailed(AssertionError):
    """The process ended, or did not print its address; the text holds its log."""


class ServerProcess(Protocol):
    """The needed part of a process, whoever started it."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    @property
    def stdout(self) -> asyncio.StreamReader | None: ...
    def kill(self) -> None: ...
    def send_signal(self, signal: int, /) -> None: ...
    async def wait(self) -> int: ...


def _reserved_port() -> socket.socket:
    """A port that no other process gets while this is open: neither by `bind` to 0, nor as a connection's near end. A
    process that names it may listen there, as long as this does not."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


class Gateway:
    """`holdfast serve` in a process of its own, on one port for all its starts.

    Sandboxes run at level `trusted` unless `LOCAL_LEVEL` says otherwise; `settings` are HOLDFAST_* names without the
    prefix. Use it as an async context manager: leaving ends the process and every sandbox it started. It is a fork of
    the warm process, which takes a tenth of the time of the command line. What `tampering` says is done to it. With a
    `launcher` it ends when that does.
    """

    by_command_line = False

    def __init__(self, data_dir: Path, **settings: object) -> None:
        self.data_dir = data_dir
        self.launcher: Launcher | None = None
        self.tampering = UNTOUCHED
        self.code = REPOSITORY  # where the packages lie that it runs
        self.settings: dict[str, object] = {"HOST": "127.0.0.1", "PORT": 0, "LOCAL_LEVEL": "trusted", **settings}
        self.url = ""
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self._process: ServerProcess | None = None
        self._reader: asyncio.Task[None] | None = None
        self._reserved: socket.socket | None = None
        self.printed = ""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            self._give_back_port()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.kill()
        await self._end_sandboxes()
        self._give_back_port()
        if kind is None and self.code == REPOSITORY:
            assert unheard.in_log(self.log) == []

    def _give_back_port(self) -> None:
        if self._reserved is not None:
            self._reserved.close()

    # the process

    @property
    def process(self) -> ServerProcess:
        assert self._process is not None, "the gateway was not started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def rss(self) -> int:
        """Resident bytes now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def log(self) -> str:
        """Everything the process wrote to stderr so far, over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def environment(self) -> dict[str, str]:
        """The process's environment: none of the test's own HOLDFAST_* names or PORT reaches it."""
        base = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        mine = {f"HOLDFAST_{name}": str(value) for name, value in self.settings.items()}
        return base | {"HOLDFAST_DATA_DIR": str(self.data_dir)} | mine

    async def start(self, *, ready_within: float = PATIENCE) -> None:
        """Start, and return when it has printed its address: from then on it answers."""
        assert not self.running, "the gateway runs already"
        if self.settings["PORT"] == 0:
            self._reserved = _reserved_port()
            self.settings["PORT"] = self._reserved.getsockname()[1]
        self._process = await self._spawn()
        self.printed = ""
        try:
            async with asyncio.timeout(ready_within):
                self.url = await self._printed_address()
        except TimeoutError:
            await self.kill()
            raise GatewayFailed(f"no address within {ready_within} s\n{self.printed}\n{self.log}") from None
        self._reader = asyncio.create_task(self._read_on(), name="gateway-stdout")

    async def _spawn(self) -> ServerProcess:
        if self.by_command_line or self.code != REPOSITORY:
            assert self.tampering == UNTOUCHED, "only what is forked can be tampered with"
            with self.log_path.open("ab") as log:
                return await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "gateway", "serve",
                    stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log,
                    env=self.environment(), cwd=self.code, start_new_session=True,
                )  # fmt: skip
        if self.launcher is not None:
            return await self.launcher.start(self.environment(), self.log_path, self.tampering)
        with self.log_path.open("ab") as log:
            return await launch(
                "serve", env=self.environment(), stdout=asyncio.subprocess.PIPE, stderr=log.fileno(),
                tampering=self.tampering,
            )  # fmt: skip

    async def _printed_address(self) -> str:
        assert self.process.stdout is not None
        while True:
            line = (await self.process.stdout.readline()).decode(errors="replace")
            self.printed += line
            if found := ADDRESS.search(line):
                return found[0]
            if not line:
                code = await self.process.wait()
                raise GatewayFailed(f"ended with {code} before it served\n{self.printed}\n{self.log}")

    async def _read_on(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.printed += line.decode(errors="replace")

    async def wait(self, *, within: float = PATIENCE) -> int:
        """Wait until the process has ended; its exit code."""
        async with asyncio.timeout(within):
            code = await self.process.wait()
            if self._reader is not None:
                await self._reader
                self._reader = None
        return code

    async def kill(self) -> None:
        """SIGKILL: no drain, no flush. Sandboxes go on."""
        if self._process is not None:
            if self.running:
                self.process.kill()
            await self.wait()

    async def terminate(self) -> int:
        """SIGTERM: drains; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await self.wait()

    async def restart(self, *, kill: bool = False) -> float:
        """End it (orderly, or by SIGKILL), start it again on the same data and port; seconds until it served."""
        if kill:
            await self.kill()
        else:
            await self.terminate()
        began = time.monotonic()
        await self.start()
        return time.monotonic() - began

    async def _end_sandboxes(self) -> None:
        from sandbox.providers.local.fleet import LocalFleet

        if not (self.data_dir / "sandboxes").exists():
            return
        provider = LocalFleet(data_dir=self.data_dir, level="trusted", loopback_only=True)
        await provider.open()
        try:
            await asyncio.gather(*(provider.sandbox(session_id).stop() for session_id in await provider.running()))
        finally:
            await provider.close()
        self._end_proxy()

    def _end_proxy(self) -> None:
        """The proxy of its sandboxes outlives a gateway, as they do."""
        from gateway.egress import process

        note = process.noted(self.data_dir / "run")
        if note is not None:
            note.process.signal(signal.SIGKILL)

    # identity

    def secret(self, name: str) -> str:
        """One of jwt_secret, api_token, internal_token, relay_secret: as set, or as made in the data directory."""
        if (given := self.settings.get(name.upper())) is not None:
            return str(given)
        return (self.data_dir / "secrets" / name).read_text().strip()

    def token(self, user: str = "ada", email: str | None = None, *, ttl: float = 3600, **claims: Any) -> str:
        claims = {"userId": user, "email": email or f"{user}@example.com", "exp": time.time() + ttl} | claims
        return jwt.encode(claims, self.secret("jwt_secret"), algorithm="HS256")

    def bearer(self, user: str = "ada") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token(user)}"}

    @property
    def admin(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret('api_token')}"}

    @property
    def internal(self) -> dict[str, str]:
        return {"X-Service-Token": self.secret("internal_token")}

    @property
    def relay(self) -> dict[str, str]:
        return {"X-Relay-Secret": self.secret("relay_secret")}

    # talking to it

    @asynccontextmanager
    async def http(self, headers: Mapping[str, str] | None = None) -> AsyncIterator[httpx.AsyncClient]:
        """A client as `ada`, or with `headers` ({} is nobody)."""
        chosen = self.bearer() if headers is None else headers
        async with httpx.AsyncClient(
            base_url=self.url, headers=chosen, timeout=60, trust_env=False, verify=False
        ) as client:
            yield client

    async def create(self, session_id: str, user: str = "ada", **wish: Any) -> dict[str, Any]:
        """Create the session for `user`; its description."""
        async with self.http(self.bearer(user)) as client:
            answer = await client.post(f"/api/sandboxes/{session_id}", json=wish)
        assert answer.status_code in (200, 201), answer.text
        described: dict[str, Any] = answer.json()
        return described

    async def messages(self, session_id: str) -> list[dict[str, Any]]:
        """The whole history, over as many pages as it takes."""
        found: list[dict[str, Any]] = []
        async with self.http(self.internal) as client:
            while True:
                after = found[-1]["seq"] if found else 0
                answer = await client.get(
                    f"/internal/sessions/{session_id}/messages", params={"after": after, "limit": 1000}
                )
                assert answer.status_code == 200, answer.text
                page = answer.json()["messages"]
                found += page
                if len(page) < 1000:
                    return found

    def chat(self, session_id: str, user: str = "ada", **query: object) -> connect:
        """A bare `/ws/v2` connection: `async with gateway.chat("s1") as socket`."""
        return self.socket("/ws/v2", user, sessionId=session_id, **query)

    def socket(self, path: str, user: str = "ada", **query: object) -> connect:
        address = httpx.URL(self.url.replace("http", "ws", 1) + path, params={k: str(v) for k, v in query.items()})
        return connect(
            str(address), additional_headers=self.bearer(user), max_size=4 << 20, compression=None, proxy=None,
            open_timeout=PATIENCE, ping_timeout=PATIENCE,
        )  # fmt: skip


class GatewayByCommandLine(Gateway):
    """The same by `python -m gateway serve`, for tests of the start, of signals and of memory."""

    by_command_line = True


__all__ = ["ClientConnection", "Gateway", "GatewayByCommandLine", "GatewayFailed"]
