"""The sessions that the proxy serves: each with its policy, its listener, and its open connections.

The listener identifies the session: it is in one sandbox, on a loopback that no other program reaches. Bounds, for each
session: `most` connections; further ones get an answer in words, REFUSING of them at once; above that the listener is
not accepted from, and clients wait in its backlog. A session is accepted from AT_ONCE times in one turn of the loop, so
that a session that connects all the time leaves the others their share. A listener whose accepts wait MOST_WAITED times
in a row is closed: its holder makes them wait.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from gateway.egress.accept import AcceptWaited, accept_at_once
from gateway.egress.head import answer
from gateway.egress.policy import Policy
from gateway.egress.stream import ByteStream, adopt
from gateway.egress.turn_share import TurnShare

log = structlog.get_logger()

AT_ONCE = 8
MOST_WAITED = 3
REFUSING = 64
PAUSE_SECONDS = 0.05
LINGER_SECONDS, LINGER_BYTES = 2.0, 4 * 1024 * 1024
CROWDED = "this session has {} connections open, as many as it may have: close some"

Serve = Callable[["EgressSession", ByteStream], Coroutine[Any, Any, None]]


class EgressSession:
    """`policy` holds from the next request on."""

    def __init__(self, policy: Policy, serve: Serve, most: Callable[[], int]) -> None:
        self.policy = policy
        self.share = TurnShare()
        self._serve = serve
        self._most = most
        self._listener: socket.socket | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._refusing: set[asyncio.Task[None]] = set()
        self._waiting: asyncio.TimerHandle | None = None
        self._waited = 0  # accepts in a row
        self._loop = asyncio.get_running_loop()

    @property
    def connections(self) -> int:
        return len(self._open)

    def listen(self, listener: socket.socket) -> None:
        """Accept from this listener. The session owns it from now on, and closes an earlier one."""
        self.stop_listening()
        self._listener = listener
        self._waited = 0
        self._loop.add_reader(listener.fileno(), self._accept)

    def stop_listening(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if self._listener is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    async def close(self) -> None:
        """End every connection."""
        self.stop_listening()
        tasks = self._open | self._refusing
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(AT_ONCE):
            crowded = len(self._open) >= self._most()
            if crowded and len(self._refusing) >= REFUSING:
                return self._pause()
            try:
                connection = accept_at_once(self._listener)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except AcceptWaited:
                return self._wait_no_more()
            except OSError:  # no descriptor is left: there may be one soon
                return self._pause()
            self._waited = 0
            kept, work = (self._refusing, self._refuse) if crowded else (self._open, self._run)
            task = self._loop.create_task(work(connection), name=f"egress {self.policy.session}")
            kept.add(task)
            task.add_done_callback(kept.discard)

    def _wait_no_more(self) -> None:
        self._waited += 1
        if self._waited < MOST_WAITED:
            return self._pause()
        log.warning("egress.listener_waits", session_id=self.policy.session)
        self.stop_listening()

    def _pause(self) -> None:
        """Accept nothing for a moment."""
        if self._listener is not None and self._waiting is None:
            self._loop.remove_reader(self._listener.fileno())
            self._waiting = self._loop.call_later(PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._waiting = None
        if self._listener is not None:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    async def _run(self, connection: socket.socket) -> None:
        try:
            near = await adopt(connection)
        except OSError:
            return connection.close()
        try:
            await self._serve(self, near)
        finally:
            near.close()

    async def _refuse(self, connection: socket.socket) -> None:
        try:
            near = await adopt(connection)
        except OSError:
            return connection.close()
        await last_words(near, answer(503, CROWDED.format(self._most())))


async def last_words(near: ByteStream, words: bytes) -> None:
    """Answer and close. Input is read for a moment first: closing with unread bytes would reset the connection, and the
    answer would be lost."""
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            await near.write(words)
            near.end_writing()
            left = LINGER_BYTES
            while left > 0 and (piece := await near.read()):
                left -= len(piece)
    except (ConnectionError, TimeoutError):
        pass
    finally:
        near.abort() if near.is_lost else near.close()
