"""The gateway's side of the door: a socket that one container can see, once, for as long as it starts.

The directory with the door is mounted read-only, so nothing inside can put another socket in its place. The door is
gone as soon as the first program inside was let in. The kernel identifies a caller: only the uid that the container
runs with, and its first process, get anything.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.providers.container.door import KEEP
from sandbox.providers.local.launch import listen

DOOR = "door"


@dataclass(frozen=True, slots=True)
class Caller:
    """The process at the other end of a socket, in this host's numbers. `pid` is 0 if it is invisible from here."""

    pid: int
    uid: int


@dataclass(slots=True)
class Doorway:
    directory: Path
    listener: socket.socket
    _stays: bool = False

    async def hand_over(self, descriptors: list[int], uid: int, is_first: Callable[[int], Awaitable[bool]]) -> Caller:
        """Send the descriptors to the first program of the container: one with this `uid`, whose pid `is_first`.
        Others are sent away. Waits for ever."""
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self.listener)
            with connection:
                caller = _caller(connection)
                if caller.uid == uid and (caller.pid == 0 or await is_first(caller.pid)):
                    connection.setblocking(True)  # the message fits into any socket's buffer
                    socket.send_fds(connection, [b"h"], descriptors)
                    return caller

    async def hand_over_and_keep(self, descriptors: list[int], uid: int) -> socket.socket:
        """The same for a sandbox whose connections are made by a process of its runtime, as root: the first who knocks
        is the first program, and the connection stays. Waits for ever."""
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self.listener)
            try:
                if _caller(connection).uid in (0, uid):
                    connection.setblocking(True)
                    socket.send_fds(connection, [KEEP], descriptors)
                    return connection
            except BaseException:
                connection.close()
                raise
            connection.close()

    def kept(self) -> "Doorway":
        """The same, which stays when this one is closed."""
        self._stays = True
        return Doorway(self.directory, self.listener.dup())

    def close(self) -> None:
        """No door is there any more."""
        self.listener.close()
        if not self._stays:
            with contextlib.suppress(FileNotFoundError):
                (self.directory / DOOR).unlink()


def open_door(directory: Path) -> Doorway:
    """A door in `directory`, in place of one that may be there. Raises OSError."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    directory.chmod(0o755)  # whatever the umask: the container has another user
    at = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        listener = listen(at, DOOR)
        listener.setblocking(False)
        os.chmod(DOOR, 0o666, dir_fd=at)
        return Doorway(directory, listener)
    finally:
        os.close(at)


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[Doorway]:
    """A door in `directory`, and in the end none. Raises OSError."""
    door = open_door(directory)
    try:
        yield door
    finally:
        door.close()


def _caller(connection: socket.socket) -> Caller:
    pid, uid, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Caller(pid, uid)
