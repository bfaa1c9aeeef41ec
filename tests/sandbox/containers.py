"""What several tests of sandboxes in containers need."""

import contextlib
import os
import shlex
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sandbox.ports.link import Link, LinkEvents
from sandbox.protocol.values import Position
from sandbox.providers.container.containers import Containers
from sandbox.providers.container.document import KIT
from sandbox.providers.container.fleet import ContainerFleet
from sandbox.providers.container.installation import Propose
from sandbox.providers.container.kit_maker import start_line
from sandbox.providers.container.kits import Kits
from sandbox.providers.container.sandbox import ContainerSandbox
from tests.contract.test_fleets import LocalHands
from tests.support.engine import DockerEngine, PodmanEngine

AnyEngine = DockerEngine | PodmanEngine
UID = 1000  # of what runs in a container, for a gateway that is root


class _Sandbox(ContainerSandbox):
    links: list[Link]

    async def connect(self, events: LinkEvents, after: Position | None) -> Link:
        self.links.append(await super().connect(events, after))
        return self.links[-1]


class _Fleet(ContainerFleet):
    """One that closes its links at the end: a loop may not be closed before they are."""

    def __init__(self, data_dir: Path, **settings: Any) -> None:
        super().__init__(data_dir, **settings)
        self.data_dir = data_dir
        self.links: list[Link] = []

    @property
    def containers(self) -> Containers:
        return self._containers

    def sandbox(self, session_id: str) -> ContainerSandbox:
        sandbox = _Sandbox(session_id, self._containers)
        sandbox.links = self.links
        return sandbox


def named(installation: str) -> Propose:
    """A store that says so."""

    async def propose(own: str) -> str | None:
        return installation

    return propose


def fleet_on(engine: AnyEngine, data_dir: Path, kits: Kits, **settings: Any) -> _Fleet:
    """A fleet whose containers can run the tests' agents by the path of this Python: the kit's is behind it."""
    programs = data_dir.parent / f"{data_dir.name}-programs"
    programs.mkdir(mode=0o755, exist_ok=True)
    program = programs / os.path.basename(sys.executable)
    program.write_text(f'#!/bin/sh\nexec {shlex.join(start_line(KIT))} "$@"\n')
    program.chmod(0o755)
    ours = {
        "engine": f"unix://{engine.socket}",
        "image": engine.image,
        "propose": named(uuid.uuid4().hex[:12]),
        "readable": {programs: os.path.dirname(sys.executable)},
        "kits": kits,
        "may_pull": False,  # the names of images here are of no registry
    }
    return _Fleet(data_dir, **{**ours, **settings})


@contextlib.asynccontextmanager
async def opened(engine: AnyEngine, data_dir: Path, kits: Kits, **settings: Any) -> AsyncIterator[_Fleet]:
    """A fleet on `data_dir`; whatever runs there at the end is ended."""
    fleet = fleet_on(engine, data_dir, kits, **settings)
    await fleet.open()
    try:
        yield fleet
    finally:
        for link in fleet.links:
            link.close()
        for found in await fleet.containers.all(stopped=True):
            await fleet.containers.engine.remove(found["Id"])
        await fleet.close()


class ContainerHands(LocalHands):
    """From outside, as root: what it makes is given to whom the containers run as."""

    def write(self, path: bytes, content: bytes) -> None:
        super().write(path, content)
        self._give(path)

    def link(self, path: bytes, target: bytes) -> None:
        super().link(path, target)
        self._give(path)

    def make_directory(self, path: bytes) -> None:
        super().make_directory(path)
        self._give(path)

    def _give(self, path: bytes) -> None:
        while path:
            os.chown(os.path.join(self._kept, path), UID, UID, follow_symlinks=False)
            path = os.path.dirname(path)
