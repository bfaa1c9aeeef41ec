"""The starts that bench/starts.py times: Holdfast as an installation has it, its peers, and an agent through a gateway
and a sandbox."""

import asyncio
import compileall
import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.request import Request, urlopen

import jwt
from websockets.asyncio.client import connect

from bench import bare_app, reading_agent
from bench.contenders import SECRET
from bench.load import PATIENCE_SECONDS, LoadFailed
from bench.processes import END_SECONDS, UNDER_TEST, WIDE_LIMITS, Process, cpu_seconds, pin
from bench.terminal_peers import free_port
from tests.support.image import make_environment

_ADDRESS = re.compile(rb"http://[^\s/]+:(\d+)")
_READ_AT = re.compile(r"read at (\d+)")
_MESSAGE = '{"type":"message","content":"Are you there?"}'
_LOOK_SECONDS = 0.001
_HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Took:
    """Milliseconds of wall time and of CPU time."""

    wall: float
    cpu: float


class Installed:
    """An installation of Holdfast, with its programs in `programs`. Other programs to start are put into `home`."""

    def __init__(self, home: Path, programs: Path) -> None:
        self.python = programs / "python"
        self.holdfast = programs / "holdfast"
        self.app = home / "bare_app.py"
        agent = home / "reading_agent.py"
        shutil.copy(bare_app.__file__, self.app)
        shutil.copy(reading_agent.__file__, agent)
        self.agent = [str(self.python), "-I", "-S", str(agent)]
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))
        }


def install(directory: Path) -> Installed:
    """Install what an installation has: the pinned packages and ours, compiled. It has no developers' tools, because
    some packages load them when they find them."""
    make_environment(directory, str(directory))
    compileall.compile_dir(directory / "lib", quiet=2)
    return Installed(directory, directory / "bin")  # a contained sandbox can read what is in its environment


def until_end(installed: Installed, command: Sequence[str | Path]) -> Took:
    """The time of a command that ends by itself."""
    before = time.monotonic()
    with _on_the_core():
        process = subprocess.Popen(command, env=installed.environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise LoadFailed(f"{command} ended with {process.returncode}")
    return Took((time.monotonic() - before) * 1e3, (used.ru_utime + used.ru_stime) * 1e3)


def until_healthy(installed: Installed, command: Callable[[int], Sequence[str | Path]], home: Path, log: Path) -> Took:
    """The time until a server answers `/health`. The port is given to `command`, and as `HOLDFAST_PORT`."""
    port = free_port()
    before = time.monotonic()
    with log.open("ab") as said, _on_the_core():
        process = subprocess.Popen(
            command(port),
            env={**installed.environment, "HOLDFAST_DATA_DIR": str(home), "HOLDFAST_PORT": str(port)},
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
    try:
        while not _is_healthy(port):
            if process.poll() is not None or time.monotonic() > before + PATIENCE_SECONDS:
                raise LoadFailed(f"it did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(_LOOK_SECONDS)
        return Took((time.monotonic() - before) * 1e3, cpu_seconds(process.pid) * 1e3)
    finally:
        process.terminate()
        process.wait(END_SECONDS)


@contextlib.contextmanager
def _on_the_core() -> Iterator[None]:
    """Programs started here run on the measured core from their first moment on."""
    before = os.sched_getaffinity(0)
    pin(0, UNDER_TEST)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _is_healthy(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as asking:
        asking.sendall(_HEALTH)
        return asking.recv(64).startswith(b"HTTP/1.1 200")
    return False


def until_it_reads(installed: Installed) -> Took:
    """The time of the agent alone, from its spawn until it has read a message."""
    before = time.monotonic_ns()
    with _on_the_core():
        process = subprocess.Popen(installed.agent, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{_MESSAGE}\n".encode())
        process.stdin.flush()
        said = process.stdout.readline().decode()
        return Took(_since(before, said), cpu_seconds(process.pid) * 1e3)


def _since(before: int, said: str) -> float:
    found = _READ_AT.search(said)
    if found is None:
        raise LoadFailed(f"the agent read nothing: {said[:500]!r}")
    return (int(found[1]) - before) / 1e6


class StartingGateway(Process):
    """A gateway that starts a sandbox and its agent for each requested session."""

    def __init__(self, installed: Installed, level: str, directory: Path) -> None:
        env = {
            "HOLDFAST_DATA_DIR": str(directory / level),
            "HOLDFAST_PORT": "0",
            "HOLDFAST_JWT_SECRET": SECRET,
            "HOLDFAST_CREATE_ON_ATTACH": "1",
            "HOLDFAST_LOCAL_LEVEL": level,
            "HOLDFAST_AGENT": " ".join(installed.agent),
            # An installation has compiled code. The bench itself may run where Python must not write it.
            **dict.fromkeys((name for name in os.environ if name.startswith("PYTHON")), ""),
            **WIDE_LIMITS,
        }
        super().__init__([installed.holdfast, "serve"], core=UNDER_TEST, log=directory / f"{level}.log", env=env)
        assert self._process.stdout is not None
        found = _ADDRESS.search(self._process.stdout.readline())
        if found is None:
            self._give_up()
        self._address = f"127.0.0.1:{int(found[1])}"
        self._sessions = count()
        claims = {"userId": "u", "email": "u@example.com", "exp": time.time() + 3600}
        self._authorization = {"Authorization": f"Bearer {jwt.encode(claims, SECRET, algorithm='HS256')}"}

    async def until_it_reads(self) -> Took:
        """The time from the first message of a new session until its agent has read it. CPU is that of the gateway, the
        bridge and the agent."""
        async with self._session() as session, asyncio.timeout(PATIENCE_SECONDS):
            url = f"ws://{self._address}/ws/v2?sessionId={session}"
            async with connect(url, additional_headers=self._authorization) as socket:
                await self._settled()
                cpu, before = self.cpu_seconds(), time.monotonic_ns()
                await socket.send(_MESSAGE)
                async for frame in socket:
                    if "read at" in str(frame):
                        return Took(_since(before, str(frame)), (cpu_seconds(*self.pids()) - cpu) * 1e3)
        raise LoadFailed("the agent did not answer")

    @contextlib.asynccontextmanager
    async def _session(self) -> AsyncIterator[str]:
        session = f"s{next(self._sessions)}"
        try:
            yield session
        finally:  # end its sandbox, too, which would outlive the gateway
            asked = Request(
                f"http://{self._address}/api/sandboxes/{session}", headers=self._authorization, method="DELETE"
            )
            await asyncio.to_thread(lambda: urlopen(asked).close())

    async def _settled(self) -> None:
        """Wait until the gateway has finished its work for the viewer that attached."""
        before = -1.0
        while (now := self.cpu_seconds()) - before > 1e-3:
            before = now
            await asyncio.sleep(0.05)
