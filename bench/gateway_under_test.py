"""The whole real gateway: launcher, guard, identity, sessions, SQLite with synchronous=FULL. Only its sandboxes are
replaced, by one stand-in behind the real link. Their terminals are at another stand-in, if its socket is given.

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
from gateway.config.loading import load_settings
from gateway.config.settings import Settings, resolve_secrets
from gateway.server.server import serve
from gateway.telemetry.telemetry import configure_logging
from sandbox.client import agent_link
from sandbox.client.endpoint import P, UnixEndpoint
from sandbox.client.terminals import BridgeTerminals
from sandbox.ports.fleet import ProviderHealth, SandboxSpec
from sandbox.ports.link import LinkEvents
from sandbox.ports.progress import OnProgress, unheard
from sandbox.ports.sandbox import Command, CommandRefused, CommandResult
from sandbox.ports.tree import LiveFile, LiveListing
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


class StandInFleet:
    """A Fleet whose every sandbox is the same process."""

    name = "standin"
    level = "trusted"

    def __init__(self, port: int, terminals_socket: str) -> None:
        async def find_terminals() -> UnixEndpoint:
            return UnixEndpoint(terminals_socket, "standin")

        self.agent = StandInEndpoint(port)
        self.terminals = BridgeTerminals(find_terminals)
        self.alive: set[str] = set()

    async def open(self) -> None:
        return None

    async def health(self) -> ProviderHealth:
        return ProviderHealth()

    def check(self, spec: SandboxSpec) -> None:
        pass

    async def start(self, spec: SandboxSpec, progress: OnProgress = unheard) -> None:
        self.alive.add(spec.session_id)

    async def running(self) -> list[str]:
        return list(self.alive)

    def sandbox(self, session_id: str) -> "StandInSandbox":
        return StandInSandbox(session_id, self)

    async def close(self) -> None:
        return None


class StandInSandbox:
    provider = StandInFleet.name
    level = StandInFleet.level
    mounts_roots = False

    def __init__(self, session_id: str, fleet: StandInFleet) -> None:
        self.session_id = session_id
        self._fleet = fleet

    async def runs(self) -> bool:
        return self.session_id in self._fleet.alive

    async def connect(self, events: LinkEvents, after: Position | None) -> agent_link.BridgeLink:
        return await agent_link.connect(self._fleet.agent, events, after)

    def tree(self) -> MemoryTree:
        roots = MemoryRoots()  # always empty
        return MemoryTree(lambda: roots)

    def terminals(self) -> BridgeTerminals:
        return self._fleet.terminals

    async def files(
        self, root: bytes, path: bytes, *, start: int = 0, length: int | None = None
    ) -> LiveListing | LiveFile | None:
        return None

    async def exec(self, command: Command) -> CommandResult:
        raise CommandRefused("the stand-in runs nothing")

    async def egress(self) -> None:
        return None

    async def logs(self, *, limit: int = 65536) -> bytes:
        return b""

    async def resources(self) -> None:
        return None

    async def stop(self) -> None:
        self._fleet.alive.discard(self.session_id)

    async def kill(self) -> bool:
        return False

    async def destroy(self) -> None:
        await self.stop()


async def run(settings: Settings, fleet: StandInFleet) -> int:
    house = build_house(settings, resolve_secrets(settings), fleet=fleet)
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
        return runner.run(run(settings, StandInFleet(port, terminals_socket)))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
