"""One session's sandbox in a container. The note that its start left says how to reach its bridge; the engine says
whether it runs. So an engine that is down does not disturb running sandboxes."""

import asyncio
import contextlib
import os
import socket

from sandbox.client import agent_link, exec
from sandbox.client.egress import take_listener
from sandbox.client.endpoint import UnixEndpoint
from sandbox.client.terminals import BridgeTerminals
from sandbox.client.tree import BridgeTree
from sandbox.ports.link import Link, LinkEvents, LinkRefused
from sandbox.ports.resources import Resources
from sandbox.ports.sandbox import Command, CommandResult, SandboxFailed
from sandbox.ports.tree import LiveFile, LiveListing
from sandbox.protocol.values import Position
from sandbox.providers.cgroups.groups import Group
from sandbox.providers.container.containers import Containers, runs
from sandbox.providers.container.engine import EngineRefused
from sandbox.providers.container.engine_answers import enforced, held_to, usage
from sandbox.providers.container.note import read_note
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.processes import boot_id

NAME = "docker"


class ContainerSandbox:
    """Implements sandbox.ports.sandbox.Sandbox."""

    provider = NAME
    mounts_roots = True

    def __init__(self, session_id: str, containers: Containers) -> None:
        self.session_id = session_id
        self.level = containers.level
        self._containers = containers

    @property
    def _home(self) -> SandboxHome:
        return self._containers.host.home(self.session_id)

    async def runs(self) -> bool:
        found = await self._containers.find(self.session_id)
        return found is not None and runs(found)

    async def connect(self, events: LinkEvents, after: Position | None) -> Link:
        endpoint = await self._find()
        watched = self._containers.host.limits.watched(self.session_id, self._group(), events)
        return await agent_link.connect(endpoint, watched, after)

    def tree(self) -> BridgeTree:
        return BridgeTree(self._find, listings=self._containers.host.listings)

    def terminals(self) -> BridgeTerminals:
        return BridgeTerminals(self._find)

    async def files(
        self, root: bytes, path: bytes, *, start: int = 0, length: int | None = None
    ) -> LiveListing | LiveFile | None:
        return await self.tree().files(root, path, start=start, length=length)

    async def exec(self, command: Command) -> CommandResult:
        endpoint, group = await self._find(), self._group()
        before = group.read() if group is not None else None
        return self._containers.host.limits.of_command(before, group, await exec.run(endpoint, command))

    async def egress(self) -> socket.socket | None:
        return await take_listener(await self._find())

    async def logs(self, *, limit: int = 65536) -> bytes:
        return await asyncio.to_thread(self._home.logs, limit)

    async def resources(self) -> Resources | None:
        found = await self._containers.find(self.session_id)
        if found is None or not runs(found):
            return None
        used = None
        with contextlib.suppress(EngineRefused):  # it has just ended, or the engine cannot count
            used = await self._containers.engine.stats(found["Id"])
        return None if used is None else Resources(enforced(held_to(found), used), usage(used))

    async def stop(self) -> None:
        host = self._containers.host
        async with host.turn(self.session_id):
            await self._containers.end(self._home, patience=host.stop_timeout)

    async def kill(self) -> bool:
        found = await self._containers.find(self.session_id)
        return found is not None and await self._containers.engine.kill(found["Id"])

    async def destroy(self) -> None:
        host, home = self._containers.host, self._home
        async with host.turn(self.session_id):
            await self._containers.end(home, patience=host.stop_timeout)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(home.socket, dir_fd=host.sockets)
            try:
                await asyncio.to_thread(host.trash.take, home.root)
            except OSError as exc:
                why = exc.strerror or exc
                raise SandboxFailed(f"the files of {self.session_id} could not be removed: {why}") from exc

    def _group(self) -> Group | None:
        """The control group where the kernel counts hits of the container's limits. None if this gateway cannot see it:
        then the end of a program is reported without its reason."""
        note = read_note(self._home)
        first = None if note is None or note.boot != boot_id() else note.first_inside
        return Group.of(first.pid) if first is not None and first.alive else None

    async def _find(self) -> UnixEndpoint:
        """The endpoint of the bridge noted last. If it has ended, nothing listens on its socket. Raises LinkRefused."""
        note = read_note(self._home)
        if note is None or note.boot != boot_id():
            raise LinkRefused(f"no sandbox runs for {self.session_id}")
        if note.door and (first := note.first_inside) is not None and not first.alive:
            raise LinkRefused(f"the sandbox of {self.session_id} has ended")  # here the bridge is not the listener
        try:
            return self._containers.endpoint(note)
        except OSError as exc:
            raise LinkRefused(f"the bridge of {self.session_id} cannot be reached: {exc.strerror or exc}") from exc
