"""One session's sandbox on this host. The note that its start left identifies it, so any gateway on the same data
directory finds it."""

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
from sandbox.providers.local.host import LocalHost
from sandbox.providers.local.isolation import Level
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.teardown import end, first_inside, kill, remove_group, runs

NAME = "local"
_END_SECONDS = 5.0


class LocalSandbox:
    """Implements sandbox.ports.sandbox.Sandbox."""

    provider = NAME

    def __init__(self, session_id: str, level: Level, host: LocalHost) -> None:
        self.session_id = session_id
        self.level = level.name
        self.mounts_roots = level.mounts_roots
        self._host = host

    @property
    def _home(self) -> SandboxHome:
        return self._host.home(self.session_id)

    async def runs(self) -> bool:
        return await asyncio.to_thread(runs_at, self._home)

    async def connect(self, events: LinkEvents, after: Position | None) -> Link:
        endpoint = await self._find()
        watched = self._host.limits.watched(self.session_id, group_of(self._home), events)
        return await agent_link.connect(endpoint, watched, after)

    def tree(self) -> BridgeTree:
        return BridgeTree(self._find, listings=self._host.listings)

    def terminals(self) -> BridgeTerminals:
        return BridgeTerminals(self._find)

    async def files(
        self, root: bytes, path: bytes, *, start: int = 0, length: int | None = None
    ) -> LiveListing | LiveFile | None:
        return await self.tree().files(root, path, start=start, length=length)

    async def exec(self, command: Command) -> CommandResult:
        endpoint, group = await self._find(), group_of(self._home)
        before = group.read() if group is not None else None
        return self._host.limits.of_command(before, group, await exec.run(endpoint, command))

    async def egress(self) -> socket.socket | None:
        return await take_listener(await self._find())

    async def logs(self, *, limit: int = 65536) -> bytes:
        return await asyncio.to_thread(self._home.logs, limit)

    async def resources(self) -> Resources | None:
        return await asyncio.to_thread(_resources, self._home)

    async def stop(self) -> None:
        async with self._host.turn(self.session_id):
            await end(self._home, patience=self._host.stop_timeout)

    async def kill(self) -> bool:
        bridge = self._home.read_note()
        killed = await asyncio.to_thread(kill, self._home)
        if killed and bridge is not None and bridge.group:
            await first_inside(bridge).ended(_END_SECONDS)  # when its first process ends, all of it ends
            await remove_group(bridge)
        return killed

    async def destroy(self) -> None:
        home = self._home
        async with self._host.turn(self.session_id):
            await end(home, patience=self._host.stop_timeout)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(home.socket, dir_fd=self._host.sockets)
            try:
                await asyncio.to_thread(self._host.trash.take, home.root)
            except OSError as exc:
                why = exc.strerror or exc
                raise SandboxFailed(f"the files of {self.session_id} could not be removed: {why}") from exc

    async def _find(self) -> UnixEndpoint:
        """The endpoint of the running bridge. Raises LinkRefused."""
        bridge = self._home.read_note()
        if bridge is None or not runs(bridge):
            raise LinkRefused(f"no sandbox runs for {self.session_id}")
        return self._host.endpoint(bridge.socket, bridge.token)


def runs_at(home: SandboxHome) -> bool:
    bridge = home.read_note()
    return bridge is not None and runs(bridge)


def group_of(home: SandboxHome) -> Group | None:
    """The control group of the session's last start, if it has one."""
    bridge = home.read_note()
    return None if bridge is None else Group.noted(bridge.group)


def _resources(home: SandboxHome) -> Resources | None:
    group = group_of(home) if runs_at(home) else None
    reading = None if group is None else group.read()
    return None if reading is None else reading.resources
