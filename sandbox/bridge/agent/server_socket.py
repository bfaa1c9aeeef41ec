"""The pipes of an agent that is a server: its lines travel as text frames of a WebSocket.

The program starts like any other; its output goes to its log. The bridge asks for its health again and again, then
for the WebSocket. If it does not answer within `server_start_seconds`, the bridge tells the user why and ends it.
Nothing is pulled before the connection stands, so no record counts as taken that no server could have had.

A connection that ends while the program runs is made again in the same way, unless the program is to stop. The first
line of each further connection is the session's `start`, with `resume`. Work in progress on the old connection may be
lost, and the bridge tells the user. When the program ends, the agent has ended: the bridge reads the rest of the
socket and connects no more.

Bounds: a frame of MAX_LINE bytes in 1,024 fragments, and what one read brings after it; beyond that the connection is
closed. While the bridge or the server does not read, TCP pushes back.
"""

import asyncio
import errno
import json
import os
import re
import socket
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha1
from typing import cast

from sandbox.protocol.agent import MAX_LINE
from sandbox.protocol.agent_server import AgentServer
from sandbox.protocol.websocket_frames import BINARY, CLOSE, PING, PONG, TEXT, FrameError, FrameReader, client_frame

MAX_FRAGMENTS = 1024
MAX_HEAD = 16 << 10  # bytes of an answer to a request
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
FIRST_PATIENCE, LONGEST_PATIENCE = 1.0, 10.0  # seconds for one answer; the first may never come
SHORT_SECONDS, MOST_SHORT = 10.0, 10  # so many connections in a row, so short and silent: the end
MADE_AGAIN = "the connection to the agent's server ended and was made again: what was under way may be lost"
END_SECONDS = 1.0  # for the server to take the last bytes

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: |\r|\Z)")


class ServerUnready(Exception):
    """The server cannot talk yet. The text says why."""


def taken_port(server: AgentServer) -> bool:
    """Whether another program listens on the port. Where sandboxes share a network, the bridge could take it for this
    agent."""
    return any(_is_taken(host, server.port) for host in server.hosts)


def _is_taken(host: str, port: int) -> bool:
    try:
        probe = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError:
        return False  # a machine without IPv6
    with probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ended connections do not count
        try:
            probe.bind((host, port))
        except OSError as exc:
            return exc.errno == errno.EADDRINUSE
    return False


class AgentSocket:
    """Looks like a pipe's Writer and Reader (sandbox/system/child.py). `start` is the first line on each connection
    but the first. `on_problem` gets texts for the user, `on_lost` the reason why the program must end."""

    def __init__(
        self,
        server: AgentServer,
        *,
        start_seconds: float,
        start: bytes | None,
        pull: Callable[[], bytes],
        on_chunk: Callable[[bytes], None],
        on_problem: Callable[[str], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._server = server
        self._start_seconds = start_seconds
        self._start = start
        self._pull = pull
        self._on_chunk = on_chunk
        self._on_problem = on_problem
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._connection: _Connection | None = None
        self._reading = True
        self._program_ended = False
        self._silent_check: asyncio.TimerHandle | None = None
        self._told_binary = False
        self._spoke = False  # the server sent something on this connection
        self.closed = False  # nothing more can be written
        self.done = False  # nothing more can be read
        self._task = asyncio.create_task(self._keep_connected(), name="agent.socket")

    # Connecting

    async def _keep_connected(self) -> None:
        connections = quick = short = 0
        while self._goes_on():
            why = ""
            deadline = self._loop.time() + self._start_seconds
            pause, patience = FIRST_PAUSE, FIRST_PATIENCE
            while self._connection is None and self._goes_on() and (left := deadline - self._loop.time()) > 0:
                try:
                    async with asyncio.timeout(min(patience, left)):
                        await check_health(self._server)
                        self._connection = await dial(self._server, self.write)
                except TimeoutError:
                    why = why or "no answer"
                except OSError as exc:
                    why = os.strerror(exc.errno) if exc.errno else str(exc)
                except ServerUnready as exc:
                    why = str(exc)
                else:
                    break
                await asyncio.sleep(pause)
                pause, patience = min(pause * 2, LONGEST_PAUSE), min(patience * 2, LONGEST_PATIENCE)
            if self._connection is None and not self._goes_on():
                break
            if self._connection is None:
                told = f"the agent's server at {self._server.address} was not ready within {self._start_seconds:g} s"
                self._on_lost(f"{told}: {why}")
                return
            connections += 1
            begun = self._loop.time()
            await self._speak(self._connection, is_first=connections == 1)
            self._connection = None
            if self._goes_on():
                lasted = self._loop.time() - begun
                quick = quick + 1 if lasted < LONGEST_PAUSE else 0
                short = short + 1 if lasted < SHORT_SECONDS and not self._spoke else 0
                if short == MOST_SHORT:
                    self._on_lost(f"the agent's server closed {MOST_SHORT} connections without a word")
                    return
                await asyncio.sleep(min(FIRST_PAUSE * 2 ** min(quick, 8), LONGEST_PAUSE))
        self._end_output()

    def _goes_on(self) -> bool:
        """Whether the program runs and is not to stop."""
        return not (self._program_ended or self.closed)

    async def _speak(self, connection: "_Connection", *, is_first: bool) -> None:
        """Talk until the connection ends."""
        self._spoke = False
        if not is_first:
            self._on_problem(MADE_AGAIN)
            if self._start is not None:
                connection.say(_again(self._start))
        connection.read(self._heard, reading=self._reading)
        if self.closed:
            connection.say_goodbye()
        self.write()
        reason = await connection.gone
        if reason and not self._program_ended:
            self._on_problem(f"the connection to the agent's server was closed: {reason}")

    # Writing

    @property
    def is_free(self) -> bool:
        """Whether the server surely takes a piece."""
        return self._connection is not None and self._connection.can_write

    def write(self) -> None:
        """Write until the server stops reading or `pull` returns b""."""
        connection = self._connection
        while connection is not None and connection.can_write and not self.closed and (piece := self._pull()):
            for line in piece.split(b"\n")[:-1]:
                connection.say(line)

    def finish(self) -> None:
        """Write no more, and tell the server."""
        self.closed = True
        if self._connection is not None:
            self._connection.say_goodbye()

    def close(self) -> None:
        self.closed = True

    # Reading

    def _heard(self, opcode: int, payload: bytes) -> None:
        self._spoke = True
        if opcode == TEXT:
            self._on_chunk(payload.replace(b"\n", b" ") + b"\n")
        elif not self._told_binary:
            self._told_binary = True
            self._on_problem("the agent's server sent a binary frame, which was left out: a line is a text frame")

    def pause(self) -> None:
        self._reading = False
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        self._reading = True
        if self._connection is not None:
            self._connection.resume()

    def end_when_silent(self, seconds: float) -> None:
        """The program has ended: read the rest. A program that left its group may hold the connection open, so after
        `seconds` of silence it counts as ended."""
        self._program_ended = True
        if self._connection is None:
            self._task.cancel()
            self._loop.call_soon(self._end_output)
        else:
            self._await_silence(seconds, -1)

    def _await_silence(self, seconds: float, seen: int) -> None:
        if self._connection is None or self.done:
            return
        if self._reading and self._connection.reads == seen:
            self._connection.abort()
        else:
            now = self._connection.reads if self._reading else -1
            self._silent_check = self._loop.call_later(seconds, self._await_silence, seconds, now)

    def _end_output(self) -> None:
        if not self.done:
            self.done = True
            if self._silent_check is not None:
                self._silent_check.cancel()
            self._on_chunk(b"")


def _again(start: bytes) -> bytes:
    """The session's `start` for a further connection to the same program."""
    try:
        members = json.loads(start)
    except (ValueError, RecursionError):
        return start
    return json.dumps({**members, "resume": True}).encode() if isinstance(members, dict) else start


async def check_health(server: AgentServer) -> None:
    """Raises OSError, ServerUnready."""
    if not server.health:
        return
    for host in server.hosts:
        try:
            reader, writer = await asyncio.open_connection(host, server.port, limit=MAX_HEAD)
        except OSError:
            if host == server.hosts[-1]:
                raise
            continue
        try:
            ask = f"GET {server.health} HTTP/1.1\r\nHost: {server.address}\r\nConnection: close\r\n\r\n"
            writer.write(ask.encode())
            try:
                status = _STATUS.match(await reader.readline())
            except ValueError:
                status = None
        finally:
            writer.transport.abort()
        if status is None or not status[1].startswith(b"2"):
            said = "no HTTP answer" if status is None else f"status {status[1].decode()}"
            raise ServerUnready(f"{server.health}: {said}")
        return


async def dial(server: AgentServer, on_room: Callable[[], None]) -> "_Connection":
    """A WebSocket to the server; `on_room` is called when there is room to write. Raises OSError, ServerUnready."""
    for host in server.hosts:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(server, on_room), host, server.port
            )
        except OSError:
            if host == server.hosts[-1]:
                raise
            continue
        try:
            why = await connection.opened
        except BaseException:
            connection.abort()
            raise
        if why:
            raise ServerUnready(why)
        return connection
    raise AssertionError("a server has a host")


class _Connection(asyncio.Protocol):
    """One WebSocket to the server. `opened` is set when it stands or never will. `gone` is set at its end: with a
    text if something was wrong, else with ""."""

    def __init__(self, server: AgentServer, on_room: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._on_room = on_room
        self._key = b64encode(os.urandom(16))
        self._head = b""
        self._reader = FrameReader(MAX_LINE, MAX_FRAGMENTS, masked=False)
        self._on_message: Callable[[int, bytes], None] | None = None
        self._transport: asyncio.Transport | None = None
        self._full = False
        self._parting = False  # the bridge's CLOSE is written
        self._wrong = ""
        self.reads = 0
        self.opened: asyncio.Future[str] = self._loop.create_future()
        self.gone: asyncio.Future[str] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = link = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass
        lines = [
            f"GET {self._server.target} HTTP/1.1",
            f"Host: {self._server.address}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {self._key.decode()}",
            "Sec-WebSocket-Version: 13",
        ]
        link.write("\r\n".join(lines).encode() + b"\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        if self.opened.done():
            self._reader.feed(data)
            self._read()
            return
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if end:
            self._reader.feed(rest)
            self._open(head)
        elif len(head) > MAX_HEAD:
            self._refuse("the answer's head has no end")

    def _open(self, head: bytes) -> None:
        self._head = b""
        status, *headers = head.split(b"\r\n")
        found = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in headers)}
        said = _STATUS.match(status)
        if said is None or said[1] != b"101":
            return self._refuse(f"{self._server.target}: {'no HTTP answer' if said is None else said[1].decode()}")
        if found.get(b"sec-websocket-accept") != b64encode(sha1(self._key + _GUID).digest()):
            return self._refuse(f"{self._server.target}: not a WebSocket")
        assert self._transport is not None
        self._transport.pause_reading()  # until somebody reads
        self.opened.set_result("")

    def _refuse(self, why: str) -> None:
        self.opened.set_result(why)
        self.abort()

    def read(self, on_message: Callable[[int, bytes], None], *, reading: bool) -> None:
        self._on_message = on_message
        self._read()
        if reading:
            self.resume()

    def _read(self) -> None:
        """Pass on the messages that have come."""
        try:
            while self._on_message is not None and (found := self._reader.read()) is not None:
                opcode, payload = found
                if opcode in (TEXT, BINARY):
                    self._on_message(opcode, payload)
                elif opcode == PING and not self._full:
                    self._write(client_frame(PONG, payload))
                elif opcode == CLOSE:
                    self._on_message = None
                    self.say_goodbye()
                    self._end()
        except FrameError as exc:
            self._wrong = exc.reason
            self._on_message = None
            self._write(client_frame(CLOSE, exc.code.to_bytes(2, "big")))
            self._end()

    def _end(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(END_SECONDS, self._transport.abort)

    @property
    def can_write(self) -> bool:
        return not (self._full or self._parting or self._transport is None or self._transport.is_closing())

    def say(self, line: bytes) -> None:
        self._write(client_frame(TEXT, line))

    def say_goodbye(self) -> None:
        if not self._parting:
            self._write(client_frame(CLOSE, (1000).to_bytes(2, "big")))
            self._parting = True

    def _write(self, frame: bytes) -> None:
        if self._transport is not None and not (self._parting or self._transport.is_closing()):
            self._transport.write(frame)

    def pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._on_room()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_result("the connection was closed")
        if not self.gone.done():
            self.gone.set_result(self._wrong)
