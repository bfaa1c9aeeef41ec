"""One end of the connection between gateway and proxy: whole messages, each with at most one descriptor.

A packet socket keeps messages apart, and a descriptor with its message. Bound: QUEUED messages and QUEUED_BYTES wait to
be sent; then `send` refuses. So messages to an end that does not read are refused, never kept without bound.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Callable

from gateway.egress.messages import MAX_MESSAGE

QUEUED, QUEUED_BYTES = 8192, 32 * 1024 * 1024
_AT_ONCE = 64  # packets of one turn of the loop

OnPacket = Callable[[bytes, socket.socket | None], None]


class Channel:
    """`on_packet` gets each packet, and the descriptor that came with it as a socket of its own; `on_lost` is called
    once, at the end."""

    def __init__(self, connection: socket.socket, on_packet: OnPacket, on_lost: Callable[[], None]) -> None:
        connection.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            connection.setsockopt(socket.SOL_SOCKET, option, 2 * MAX_MESSAGE)
        self._connection = connection
        self._on_packet, self._on_lost = on_packet, on_lost
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._waiting_bytes = 0
        self._open = True
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection.fileno(), self._read)

    @property
    def is_open(self) -> bool:
        return self._open

    def send(self, packet: bytes, descriptor: int = -1) -> bool:
        """True if the packet is sent, or waits to be. The descriptor stays the caller's."""
        if not self._open:
            return False
        if not self._waiting:
            sent = self._try(packet, descriptor)
            if sent is not None:
                return sent
        if len(self._waiting) >= QUEUED or self._waiting_bytes + len(packet) > QUEUED_BYTES:
            return False
        kept = os.dup(descriptor) if descriptor >= 0 else -1
        if not self._waiting:
            self._loop.add_writer(self._connection.fileno(), self._write)
        self._waiting.append((packet, kept))
        self._waiting_bytes += len(packet)
        return True

    def close(self) -> None:
        """Close without calling `on_lost`."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._connection.fileno())
        self._loop.remove_writer(self._connection.fileno())
        self._connection.close()
        for _, descriptor in self._waiting:
            if descriptor >= 0:
                os.close(descriptor)
        self._waiting.clear()

    def _try(self, packet: bytes, descriptor: int) -> bool | None:
        """None: there is no room now."""
        try:
            if descriptor >= 0:
                socket.send_fds(self._connection, [packet], [descriptor])
            else:
                self._connection.send(packet)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            self._lose()
            return False
        return True

    def _write(self) -> None:
        while self._waiting and self._open:
            packet, descriptor = self._waiting[0]
            if not self._try(packet, descriptor):  # there is no room, or the other end has gone
                return
            self._waiting.popleft()
            self._waiting_bytes -= len(packet)
            if descriptor >= 0:
                os.close(descriptor)
        if self._open:
            self._loop.remove_writer(self._connection.fileno())

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._open:
                return
            try:
                packet, descriptors, flags, _ = socket.recv_fds(self._connection, MAX_MESSAGE, 4)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return self._lose()
            given = [socket.socket(fileno=each) for each in descriptors if _is_socket(each)]
            cut = bool(flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)) or len(given) > 1
            if not packet or cut:  # an end, or no message of ours
                _close_all(given)
                return self._lose()
            self._on_packet(packet, given[0] if given else None)

    def _lose(self) -> None:
        if self._open:
            self.close()
            self._on_lost()


def _is_socket(descriptor: int) -> bool:
    os.set_inheritable(descriptor, False)
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)):
        return True
    os.close(descriptor)
    return False


def _close_all(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


def is_ours(connection: socket.socket) -> bool:
    """True if the other end runs as our own user, or as root."""
    _, uid, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid in (0, os.geteuid())


def is_listener(given: socket.socket) -> bool:
    """True for a listening TCP socket, which is all that a sandbox may hand out. Its word alone is not trusted."""
    return (
        given.family in (socket.AF_INET, socket.AF_INET6)
        and given.type & 0xF == socket.SOCK_STREAM
        and bool(given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    )
