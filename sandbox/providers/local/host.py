"""Shared by the local fleet and the handles of its sandboxes: the data directory, its sockets, its trash, one turn
per sandbox, and the places for long listings."""

import asyncio
import os
import weakref
from collections.abc import Callable
from pathlib import Path

from sandbox.client.endpoint import UnixEndpoint
from sandbox.client.files import LISTINGS_AT_ONCE
from sandbox.ports.resources import NO_LIMITS, ResourceLimits
from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.limit_watch import LimitWatch
from sandbox.providers.local.trash import Trash


class LocalHost:
    def __init__(
        self,
        data_dir: Path,
        warn: Callable[[str], None],
        *,
        stop_timeout: float,
        trash: str = "trash",
        limits: ResourceLimits = NO_LIMITS,
        met_limit: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`trash` is the name of this fleet's own: two may have one data directory."""
        self.data_dir = data_dir.absolute()
        self.stop_timeout = stop_timeout
        self._trash_path = self.data_dir / trash
        self.trash = Trash(self._trash_path, warn)
        self.sockets = -1  # their directory, open
        self.limits = LimitWatch(limits, met_limit)
        self.listings = asyncio.Semaphore(LISTINGS_AT_ONCE)
        self._busy: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def open(self) -> None:
        """Raises SandboxFailed."""
        try:
            for path in (self.data_dir / "sandboxes", self.data_dir / "run", self._trash_path):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.sockets = os.open(self.data_dir / "run", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as exc:
            raise SandboxFailed(f"the data directory cannot be used: {exc}") from exc
        self.trash.open()

    def close(self) -> None:
        self.trash.close()
        if self.sockets >= 0:
            os.close(self.sockets)
            self.sockets = -1

    def home(self, session_id: str) -> SandboxHome:
        return SandboxHome(self.data_dir, session_id)

    def endpoint(self, socket: str, token: str = "") -> UnixEndpoint:
        """By way of the open directory: the whole path may be longer than a socket's address can be."""
        return UnixEndpoint(f"/proc/self/fd/{self.sockets}/{socket}", token)

    def turn(self, session_id: str) -> asyncio.Lock:
        """One change of a sandbox at a time."""
        lock = self._busy.get(session_id)
        if lock is None:
            lock = self._busy[session_id] = asyncio.Lock()
        return lock
