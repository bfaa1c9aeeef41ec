"""A real bridge process on a unix socket, and an owner of links that records their events."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from sandbox.client.agent_link import BridgeLink, Timings, connect
from sandbox.client.endpoint import Endpoint, Find, UnixEndpoint
from sandbox.protocol.values import AgentExit, Hello, Position
from tests.support.waiting import until

TOKEN = "t" * 43
ROOT = Path(__file__).parents[2]


@dataclass
class Owner:
    """LinkEvents that keeps everything. `output` is the output of each epoch so far, by offset."""

    hellos: list[Hello] = field(default_factory=list)
    epochs: list[tuple[str, int]] = field(default_factory=list)
    output: dict[str, dict[int, bytes]] = field(default_factory=dict)
    exits: list[AgentExit] = field(default_factory=list)
    taken: int = 0
    recalled: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unknown: list[tuple[str, dict[str, int]]] = field(default_factory=list)
    changes: int = 0
    lost: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    received: int = 0  # frames, also repeated ones

    def on_hello(self, hello: Hello) -> None:
        self.order.append("hello")
        self.hellos.append(hello)
        self.taken = max(self.taken, hello.taken)

    def on_epoch(self, epoch: str, base: int) -> None:
        self.order.append("epoch")
        self.epochs.append((epoch, base))

    def on_frames(self, epoch: str, first: int, lines: Sequence[bytes]) -> None:
        self.order.append("frames")
        self.received += len(lines)
        frames = self.output.setdefault(epoch, {})
        for offset, line in enumerate(lines, first):
            assert frames.setdefault(offset, line) == line, "a frame changed"

    def on_recalled(self, seq: int) -> None:
        self.order.append("recalled")
        self.recalled.append(seq)

    def on_exit(self, exit: AgentExit) -> None:
        self.order.append("exit")
        self.exits.append(exit)

    def on_taken(self, seq: int) -> None:
        self.order.append("taken")
        self.taken = seq

    def on_problem(self, reason: str) -> None:
        self.order.append("problem")
        self.problems.append(reason)

    def on_unknown(self, core: str, counts: Mapping[str, int]) -> None:
        self.unknown.append((core, dict(counts)))

    def on_changed(self) -> None:
        self.changes += 1  # not in `order`: a hint may come at any time

    def on_lost(self, reason: str) -> None:
        self.order.append("lost")
        self.lost.append(reason)

    @property
    def epoch(self) -> str:
        return self.epochs[-1][0]

    def lines(self, epoch: str | None = None) -> list[bytes]:
        """The lines of `epoch` (the newest), in order; fails if there is a hole."""
        frames = self.output.get(epoch or self.epoch, {})
        first = min(frames, default=1)
        assert sorted(frames) == list(range(first, first + len(frames)))
        return [frames[offset] for offset in sorted(frames)]

    @property
    def position(self) -> Position:
        return Position(self.epoch, max(self.output.get(self.epoch, {}), default=0))


class BridgeProcess:
    """One bridge; `start` again after `kill` is the same sandbox, on the same state directory."""

    def __init__(
        self,
        home: Path,
        agent: Sequence[str],
        *,
        code: Path = ROOT,
        module: str = "sandbox.bridge",
        **settings: Any,
    ) -> None:
        self.home = home
        self.code = code
        self.module = module
        self.kept = home / "kept"
        self.workspace = self.kept / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.config: dict[str, Any] = {
            "session_id": "s1",
            "incarnation": 1,
            "token": TOKEN,
            "agent": list(agent),
            "env": {},
            "base_env": {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)},
            "kept": str(self.kept),
            "workspace": str(self.workspace),
            "state": str(home / "state"),
            "agent_log": str(home / "agent.log"),
            **settings,
        }
        self.path = str(home / "bridge.sock")
        self.process: subprocess.Popen[bytes] | None = None
        self.links: list[BridgeLink] = []

    def start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        with socket.socket(socket.AF_UNIX) as listener, open(self.home / "bridge.log", "ab") as log:
            listener.bind(self.path)
            listener.listen(64)
            reading, writing = os.pipe()
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", self.module, str(reading), str(listener.fileno())],
                    pass_fds=[reading, listener.fileno()],
                    cwd=self.code,
                    env={"PYTHONPATH": str(self.code), "PATH": os.environ["PATH"]},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            finally:
                os.close(reading)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(json.dumps(self.config).encode())

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def terminate(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=30)

    async def link(
        self, events: Owner, after: Position | None = None, *, timings: Timings | None = None, token: str = TOKEN
    ) -> BridgeLink:
        """Attach; the bridge may still be starting."""
        hellos = len(events.hellos)
        timings = timings or Timings(handshake_seconds=30)
        link = await connect(UnixEndpoint(self.path, token), events, after, timings=timings)
        self.links.append(link)
        await until(lambda: len(events.hellos) > hellos or events.lost)
        return link

    def client(self, token: str | None = TOKEN) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=self.path),
            base_url="http://bridge",
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            timeout=60,
        )

    @property
    def log(self) -> str:
        return (self.home / "bridge.log").read_text()


def at(path: str, token: str = TOKEN) -> Find:
    """Where a test's bridge is."""

    async def find() -> Endpoint:
        return UnixEndpoint(path, token)

    return find


@contextlib.contextmanager
def running_bridge(home: Path, agent: Sequence[str], **settings: Any) -> Iterator[BridgeProcess]:
    bridge = BridgeProcess(home, agent, **settings)
    bridge.start()
    try:
        yield bridge
    finally:
        for link in bridge.links:
            link.close()
        with contextlib.suppress(ProcessLookupError):
            bridge.signal(signal.SIGCONT)
        bridge.kill()
