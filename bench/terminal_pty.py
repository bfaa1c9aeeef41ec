"""From a program on a PTY to one viewer: Holdfast with a real bridge, terminado under jupyter_server, and a bare loop
of `os.read` without a viewer, which no server can beat.

The server (bridge and gateway; jupyter_server; the loop) has one core; the program and the viewer share the other.
terminado's bytes are counted as they come, in JSON, which is 5% more than the program wrote.
"""

import asyncio
import itertools
import os
import pty
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import httpx
import orjson

from bench.peers import environment
from bench.processes import CORES, LOAD, START_SECONDS, UNDER_TEST, Process, pin
from bench.rounds import OURS, Rounds, take_turns
from bench.terminal_goals import CEILING, PTY, PTY_CPU, TERMINADO
from bench.terminal_load import Load, Target
from bench.terminal_peers import free_port
from sandbox.providers.local.layout import SandboxHome
from tests.support.gateway import Gateway, GatewayByCommandLine

SESSION = "flooded"
LINE = "the quick brown fox jumps over the lazy dog 0123456789"
NATIVE = "holdfast.terminal.v1"
SHELL = ["/bin/sh"]
SPARE_SECONDS = 0.5
_TOKEN = "a-token-that-guards-nothing-but-this-benchmark"
_ELSEWHERE = ["taskset", "-c", str(CORES[LOAD % len(CORES)])]


class Jupyter(Process):
    """jupyter_server with its defaults. Only its terminals are used."""

    def __init__(self, home: Path, log: Path) -> None:
        self.port = free_port()
        home.mkdir()
        options = [
            "--no-browser",
            "--allow-root",
            f"--ServerApp.port={self.port}",
            "--ServerApp.ip=127.0.0.1",
            f"--IdentityProvider.token={_TOKEN}",
            f"--ServerApp.root_dir={home}",
            f"--ServerApp.terminado_settings=shell_command={SHELL!r}",
        ]
        env = {"HOME": str(home), "JUPYTER_CONFIG_DIR": str(home), "JUPYTER_RUNTIME_DIR": str(home)}
        program = environment("jupyter_server") / "jupyter-server"
        super().__init__([program, *options], core=UNDER_TEST, log=log, env=env)
        self._wait_for_port(self.port)

    def new_terminal(self) -> str:
        """Make a terminal and return its name. The server listens before it answers, so the first call may wait."""
        answer = httpx.post(
            f"http://127.0.0.1:{self.port}/api/terminals", headers=self.identity, timeout=30, trust_env=False
        )
        answer.raise_for_status()
        return str(answer.json()["name"])

    @property
    def identity(self) -> dict[str, str]:
        return {"Authorization": f"token {_TOKEN}"}


async def end_to_end(directory: Path, load: Load, found: Rounds, *, rounds: int, seconds: float) -> None:
    jupyter = Jupyter(directory / "jupyter", directory / "jupyter.log")
    names = itertools.count()
    with jupyter:
        async with _gateway(directory / "holdfast") as (gateway, bridge):

            async def bare() -> Mapping[str, float]:
                rate, cost = _read_bare(seconds)
                return {PTY: rate, PTY_CPU: cost}

            async def terminado() -> Mapping[str, float]:
                typed = orjson.dumps(["stdin", _command(seconds) + "\r"]).decode()
                return await _watch(load, _jupyter_target(directory, jupyter), seconds, typed, "-t")

            async def ours() -> Mapping[str, float]:
                target = _holdfast_target(directory, gateway, bridge, f"lap{next(names)}")
                return await _watch(load, target, seconds, _command(seconds) + "\r")

            await take_turns(rounds, [{CEILING: bare, TERMINADO: terminado, OURS: ours}], Random(), found)


def _command(seconds: float) -> str:
    """The command to type. It ends by itself, so that it does not disturb the next turn."""
    return f"exec timeout {2 * seconds + SPARE_SECONDS:g} {' '.join(_ELSEWHERE)} yes {LINE}"


async def _watch(load: Load, target: Target, seconds: float, typed: str, *options: str) -> Mapping[str, float]:
    began = time.monotonic()
    counted = load.flood(target, 1, 0, seconds, "-m", typed, *options)
    await asyncio.sleep(max(0.0, began + 2 * seconds + 2 * SPARE_SECONDS - time.monotonic()))
    return {PTY: counted.mb_per_second, PTY_CPU: counted.mb_per_cpu_second}


@asynccontextmanager
async def _gateway(data_dir: Path) -> AsyncIterator[tuple[Gateway, int]]:
    """A gateway with one running sandbox, and the pid of its bridge. Both are on the measured core."""
    async with GatewayByCommandLine(data_dir, LOG_LEVEL="warning") as gateway:
        pin(gateway.pid, UNDER_TEST)
        await gateway.create(SESSION)
        async with gateway.http() as client, asyncio.timeout(START_SECONDS):
            while (await client.get(f"/api/sandboxes/{SESSION}")).json()["status"] != "running":  # noqa: ASYNC110 - a look
                await asyncio.sleep(0.05)
        bridge = SandboxHome(data_dir, SESSION).read_note()
        assert bridge is not None
        pin(bridge.init_pid, UNDER_TEST)
        yield gateway, bridge.init_pid


def _holdfast_target(directory: Path, gateway: Gateway, bridge: int, name: str) -> Target:
    identity = f"Authorization: Bearer {gateway.token()}"
    requests = directory / "holdfast-request"
    requests.write_text(f"/terminal/{SESSION}?name={name}\t{identity}\tSec-WebSocket-Protocol: {NATIVE}\n")
    return Target(int(gateway.url.rsplit(":", 1)[1]), requests, None, (gateway.pid, bridge))


def _jupyter_target(directory: Path, jupyter: Jupyter) -> Target:
    requests = directory / "jupyter-request"
    name = jupyter.new_terminal()
    requests.write_text(f"/terminals/websocket/{name}\tAuthorization: {jupyter.identity['Authorization']}\n")
    return Target(jupyter.port, requests, None, (jupyter.pid,))


def _read_bare(seconds: float) -> tuple[float, float]:
    """MB per second, and per CPU-second of the reader, for a loop that only reads."""
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [*_ELSEWHERE, "yes", LINE], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    pin(0, UNDER_TEST)
    try:
        _read(ours, seconds / 10)
        cpu = time.thread_time()
        count = _read(ours, seconds)
        cpu = time.thread_time() - cpu
    finally:
        pin(0, LOAD)
        program.kill()
        program.wait()
        os.close(ours)
    return count / 1e6 / seconds, count / 1e6 / cpu


def _read(descriptor: int, seconds: float) -> int:
    count, ends = 0, time.perf_counter() + seconds
    while time.perf_counter() < ends:
        count += len(os.read(descriptor, 65536))
    return count
