"""What several tests of the local provider need."""

import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from sandbox.client.bridge_requests import call
from sandbox.client.endpoint import UnixEndpoint
from sandbox.ports.link import Link, LinkEvents
from sandbox.ports.provider import SandboxSpec
from sandbox.protocol.values import Position
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.provider import LocalProvider
from sandbox.providers.local.teardown import end

LEVELS = ("trusted", "contained")


class Provider(LocalProvider):
    """One that closes its links at the end: a loop may not be closed before they are."""

    def __init__(self, data_dir: Path, **settings: Any) -> None:
        super().__init__(data_dir, **settings)
        self.links: list[Link] = []

    async def connect(self, session_id: str, events: LinkEvents, after: Position | None) -> Link:
        self.links.append(await super().connect(session_id, events, after))
        return self.links[-1]


@contextlib.asynccontextmanager
async def opened(data_dir: Path, level: str, **settings: Any) -> AsyncIterator[LocalProvider]:
    """A provider on `data_dir`; whatever runs there at the end is ended."""
    provider = Provider(data_dir, level=level, **settings)
    await provider.open()
    try:
        yield provider
    finally:
        for link in provider.links:
            link.close()
        await let_go(provider)


async def let_go(provider: LocalProvider) -> None:
    """Kill whatever runs and close the provider."""
    for session_id in await provider.running():
        await end(SandboxHome(provider.data_dir, session_id), patience=0)
    await provider.close()


def spec(session_id: str = "s1", agent: Sequence[str] = ("cat",), **wishes: Any) -> SandboxSpec:
    return SandboxSpec(session_id, 1, tuple(agent), **wishes)


def python(source: str) -> tuple[str, ...]:
    return (sys.executable, "-c", source)


async def command(provider: LocalProvider, session_id: str, argv: Sequence[str]) -> dict[str, Any]:
    """Run a command inside, through the bridge."""
    home = SandboxHome(provider.data_dir, session_id)
    bridge = home.read_note()
    assert bridge is not None
    endpoint = UnixEndpoint(provider.socket_path(bridge.socket), bridge.token)
    answer: dict[str, Any] = await call(endpoint, "POST", "/exec", body={"argv": list(argv)}, timeout=60)
    return answer
