"""A terminal's viewer that comes back: one connection at a time to `/terminal/{id}`, in the native dialect.

`TerminalView` decides what to send and what to show; this performs it. The connection belongs to the one iteration over
`events()`; cancelling that ends it. Frames to send wait in the viewer, whose typing is bounded: `type` waits while it
is full.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from random import Random
from types import TracebackType
from typing import Self
from urllib.parse import quote

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol

from gateway.cli.client.chat import ConnectionEnded, Lost, is_loopback, said_farewell
from gateway.cli.client.terminal_view import PROTOCOL, Event, Expiring, Greeted, TerminalView, UnreadableGateway
from gateway.protocol.close_codes import CloseCode
from gateway.protocol.reconnect import FIRST_PAUSE, Comeback, NextAttempt
from sandbox.protocol.terminal import MAX_PICTURE, Size

OPEN_SECONDS = 10.0
CLOSE_SECONDS = 1.0


class TerminalClient:
    """`token` is called before every connection and when the gateway reports that the old one expires. Use it as an
    async context manager: the sending task lives in it."""

    def __init__(
        self,
        url: str,
        session_id: str,
        token: Callable[[], str],
        viewer: TerminalView,
        *,
        rng: Random,
        first_pause: float = FIRST_PAUSE,
    ) -> None:
        self._address = f"ws{url.rstrip('/').removeprefix('http')}/terminal/{quote(session_id, safe='')}"
        self._direct = is_loopback(url)
        self._token = token
        self.viewer = viewer
        self._comeback = Comeback(rng, first=first_pause)
        self._socket: ClientConnection | None = None
        self._restarting = False
        self._owing = asyncio.Event()
        self._room = asyncio.Event()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._sending = self._tasks.create_task(self._send(), name="terminal.send")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sending.cancel()
        await self._tasks.__aexit__(None, None, None)  # an error of the body is raised as it is, not in a group

    async def type(self, keys: bytes) -> None:
        """Send keys, now or after the next reconnect if that finds the same process. Waits while too much is unsent."""
        while not self.viewer.type(keys, live=self._socket is not None):
            self._room.clear()
            await self._room.wait()
        self._owing.set()

    def resize(self, size: Size) -> None:
        self.viewer.resize(size)
        self._owing.set()

    async def repaint(self) -> None:
        """Have the whole screen sent, by another connection."""
        self.viewer.start_over()
        if self._socket is not None:
            self._restarting = True
            await self._socket.close()

    async def events(self) -> AsyncGenerator[Event | Lost | ConnectionEnded, None]:
        """Connect, and stay connected. The iteration ends after `ConnectionEnded`."""
        while True:
            try:
                async with self._connect() as socket:
                    async for event in self._listen(socket):
                        yield event
                coming = self._comeback.cut("the connection was cut")
            except InvalidStatus as error:
                answer = error.response
                coming = self._comeback.refused(answer.status_code, answer.body, answer.headers.get("Retry-After"))
            except ConnectionClosed as closed:
                coming = self._comeback.closed(*said_farewell(closed), asyncio.get_running_loop().time())
            except UnreadableGateway as error:
                coming = NextAttempt(f"the gateway speaks another protocol: {error}", None)
            except InvalidURI as error:
                coming = NextAttempt(str(error), None)
            except (OSError, TimeoutError, InvalidHandshake) as error:
                coming = self._comeback.cut(str(error) or type(error).__name__)
            finally:
                self._socket = None
            if self._restarting:
                self._restarting = False
                continue
            if coming.seconds is None:
                yield ConnectionEnded(coming.reason, failed=coming.reason != CloseCode.FINISHED.reason)
                return
            if coming.seconds:  # else another token is shown at once
                yield Lost(coming.reason, coming.seconds)
                await asyncio.sleep(coming.seconds)

    def _connect(self) -> connect:
        return connect(
            f"{self._address}?{self.viewer.connecting()}",
            additional_headers={"Authorization": f"Bearer {self._token()}"},
            subprotocols=[Subprotocol(PROTOCOL)],
            compression=None,
            max_size=MAX_PICTURE,
            open_timeout=OPEN_SECONDS,
            close_timeout=CLOSE_SECONDS,
            proxy=None if self._direct else True,
        )

    async def _listen(self, socket: ClientConnection) -> AsyncIterator[Event]:
        while True:
            event = self.viewer.hear(await socket.recv())
            if isinstance(event, Greeted):
                self._comeback.greeted(asyncio.get_running_loop().time())
                self._socket = socket
            elif isinstance(event, Expiring):
                self.viewer.renew(self._token())
            self._owing.set()
            self._room.set()  # another process: keys for the old one were dropped
            if event is not None:
                yield event

    async def _send(self) -> None:
        while True:
            await self._owing.wait()
            self._owing.clear()
            while self._socket is not None and (frame := self.viewer.next_frame()) is not None:
                try:
                    await self._socket.send(frame)
                except ConnectionClosed:
                    break
                self._room.set()
