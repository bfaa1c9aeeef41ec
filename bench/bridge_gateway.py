"""The real gateway with a bridge for each session: the real bridge or the barest one (bench/bare_bridge.py).

HOLDFAST_...=... python -m bench.bridge_gateway real|bare
"""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import uvloop

from bench.gateway_under_test import StandInFleet, StandInSandbox
from bench.processes import raise_descriptor_limit
from gateway.app import build_house
from gateway.config.data_dir import DataDirLock
from gateway.config.loading import load_settings
from gateway.config.settings import Settings, resolve_secrets
from gateway.server.server import serve
from gateway.telemetry.telemetry import configure_logging
from sandbox.client import agent_link
from sandbox.client.endpoint import UnixEndpoint
from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.link import LinkEvents
from sandbox.ports.progress import OnProgress, unheard
from sandbox.protocol.values import Position

LOOK_SECONDS = 0.01


class BareFleet(StandInFleet):
    """Each sandbox is a bare bridge with its agent. They end with the gateway."""

    def __init__(self, directory: Path, agent: tuple[str, ...]) -> None:
        super().__init__(0, "")
        self._directory = directory
        self._agent = agent
        self._bridges: list[asyncio.subprocess.Process] = []

    def socket(self, session_id: str) -> Path:
        return self._directory / f"{session_id}.sock"

    async def open(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)

    async def start(self, spec: SandboxSpec, progress: OnProgress = unheard) -> None:
        path = self.socket(spec.session_id)
        command = [sys.executable, "-m", "bench.bare_bridge", str(path), f"{path}.notes", *self._agent]
        self._bridges.append(await asyncio.create_subprocess_exec(*command))
        while not path.exists():  # noqa: ASYNC110 - a quick check
            await asyncio.sleep(LOOK_SECONDS)
        await super().start(spec, progress)

    def sandbox(self, session_id: str) -> "BareSandbox":
        return BareSandbox(session_id, self)

    async def close(self) -> None:
        for bridge in self._bridges:
            with contextlib.suppress(ProcessLookupError):
                bridge.kill()
            await bridge.wait()


class BareSandbox(StandInSandbox):
    def __init__(self, session_id: str, fleet: BareFleet) -> None:
        super().__init__(session_id, fleet)
        self._endpoint = UnixEndpoint(str(fleet.socket(session_id)), "bare")

    async def connect(self, events: LinkEvents, after: Position | None) -> agent_link.BridgeLink:
        return await agent_link.connect(self._endpoint, events, after)


async def run(settings: Settings, fleet: BareFleet | None) -> int:
    house = build_house(settings, resolve_secrets(settings), fleet=fleet)
    return await serve(
        house.app,
        settings,
        door=house.door,
        drain=house.drain,
        on_ready=lambda address: print("port", address.rsplit(":", 1)[1], flush=True),
    )


def main(kind: str) -> int:
    raise_descriptor_limit()
    settings = load_settings(os.environ)
    configure_logging(settings.log_level)
    with DataDirLock(settings.data_dir), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        fleet = BareFleet(settings.data_dir / "bare", settings.agent.command) if kind == "bare" else None
        return runner.run(run(settings, fleet))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
