"""The real gateway, whole: launcher, guard, identity, sessions, SQLite with synchronous=FULL. Only its sandboxes are
one stand-in, reached through the real link; their terminals are another's, if its socket is given.

    HOLDFAST_...=... python -m bench.gateway_under_test STAND_IN_PORT [TERMINALS_SOCKET]
"""

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import uvloop

from bench.processes import raise_descriptor_limit
from gateway.app import build_house
from gateway.config.data_dir import DataDirLock
from gateway.config.settings import Settings, load_settings, resolve_secrets
from gateway.server.server import serve
from gateway.telemetry.telemetry import configure_logging
from sandbox.client import agent_link
from sandbox.client.endpoint import P, UnixEndpoint
from sandbox.client.terminals import BridgeTerminals
from sandbox.ports.link import LinkEvents
from sandbox.ports.provider import SandboxSpec
from sandbox.protocol.values import Position
from sandbox.providers.memory.tree import MemoryRoots, MemoryTree


@dataclass(frozen=True, slots=True)
class StandInEndpoint:
    port: int

    prefix = ""
    host = "bridge"
    headers: ClassVar = {"Authorization": "Bearer standin"}

    async def dial(self, factory: Callable[[], P]) -> P:
        return (await asyncio.get_running_loop().create_connection(factory, "127.0.0.1", self.port))[1]


class StandInProvider:
    """A SandboxProvider whose every sandbox is the same process."""

    name = "standin"
    level = "trusted"

    def __init__(self, port: int, terminals_socket: str) -> None:
        async def find_terminals() -> UnixEndpoint:
            return UnixEndpoint(terminals_socket, "standin")

        self._agent = StandInEndpoint(port)
        self._terminals = BridgeTerminals(find_terminals)
        self._running: set[str] = set()

    async def open(self) -> None:
        return None

    def check(self, spec: SandboxSpec) -> None:
        pass

    async def start(self, spec: SandboxSpec) -> None:
        self._running.add(spec.session_id)

    async def connect(self, session_id: str, events: LinkEvents, after: Position | None) -> agent_link.BridgeLink:
        return await agent_link.connect(self._agent, events, after)

    async def running(self) -> list[str]:
        return list(self._running)

    async def stop(self, session_id: str) -> None:
        self._running.discard(session_id)

    async def kill(self, session_id: str) -> bool:
        return False

    async def destroy(self, session_id: str) -> None:
        self._running.discard(session_id)

    def tree(self, session_id: str) -> MemoryTree:
        roots = MemoryRoots()  # empty, and nothing is ever in it
        return MemoryTree(lambda: roots)

    def terminals(self, session_id: str) -> BridgeTerminals:
        return self._terminals

    async def logs(self, session_id: str, *, limit: int = 65536) -> bytes:
        return b""

    async def close(self) -> None:
        return None


async def run(settings: Settings, provider: StandInProvider) -> int:
    house = build_house(settings, resolve_secrets(settings), provider=provider)
    return await serve(
        house.app,
        settings,
        door=house.door,
        drain=house.drain,
        on_ready=lambda address: print("port", address.rsplit(":", 1)[1], flush=True),
    )


def main(port: int, terminals_socket: str = "") -> int:
    raise_descriptor_limit()
    settings = load_settings(os.environ)
    configure_logging(settings.log_level)
    with DataDirLock(settings.data_dir), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(settings, StandInProvider(port, terminals_socket)))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
