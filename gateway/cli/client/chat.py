"""A chat client that comes back: it resumes at its position, sends unacknowledged messages again, obeys the close
codes.

`ClientConversation` knows the unsettled messages, `Comeback` when to connect. This is their shell: one connection at a
time, owned by the one iteration over `events()`. Nothing is sent before the gateway's `welcome`, and all frames leave
in the order of `send`, also across connections; a message's `cid` makes the second sending of it harmless.
"""

import asyncio
import ipaddress
import json
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from gateway.cli.client.conversation import ClientConversation, Fate, spelled
from gateway.protocol.close_codes import CloseCode
from gateway.protocol.reconnect import FIRST_PAUSE, Comeback, NextAttempt

FRAME_BYTES = 4 << 20
OPEN_SECONDS = 10.0
WHY_NOT = {
    "too_long": "longer than the gateway takes",
    "outbox_full": "too much waits to be sent",
    "invalid": "its cid is one of a message that is on its way",
}


@dataclass(frozen=True, slots=True)
class Connected:
    """`recovered` is True: nothing was missed. False: read the history. None: there was no position to resume from."""

    again: bool
    recovered: bool | None
    last_seq: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection is gone; the next attempt begins after `retry_seconds`."""

    reason: str
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """The last event: coming back would not help (`failed`), or there is nothing to come back to."""

    reason: str
    failed: bool


@dataclass(frozen=True, slots=True)
class FrameHeard:
    """A frame of the gateway or the agent, each once."""

    type: str
    body: dict[str, Any]


Event = Connected | Lost | ConnectionEnded | FrameHeard


class NotTaken(Exception):
    """A frame cannot be sent; the text is the reason."""


class ChatClient:
    """`token` is called before every connection and when the gateway reports that the old one expires."""

    def __init__(
        self, url: str, session_id: str, token: Callable[[], str], *, rng: Random, first_pause: float = FIRST_PAUSE
    ) -> None:
        self._base = url.rstrip("/")
        self._session_id = session_id
        self._token = token
        self._rng = rng
        self._comeback = Comeback(rng, first=first_pause)
        self._conversation = ClientConversation()
        self._open: ClientConnection | None = None
        self._socket: ClientConnection | None = None  # the open one, from its welcome on
        self._sending = asyncio.Lock()
        self._leaving = asyncio.Event()

    @property
    def unsettled(self) -> int:
        """The number of frames that were sent (or wait to be) and are not known to be durable or refused."""
        return self._conversation.unsettled

    async def send(self, content: str | list[dict[str, Any]], *, steer: bool = False) -> str:
        """Send a message, now or after the next reconnect; return its cid. `steer`: it is for the turn that runs."""
        meant = {"metadata": {"steer": True}} if steer else {}
        return await self.post({"type": "message", "content": content, **meant})

    async def post(self, frame: dict[str, Any]) -> str:
        """Send any frame that the gateway acknowledges; return its cid. Raises NotTaken."""
        cid = secrets.token_urlsafe(12)
        if (refusal := self._conversation.offer(frame, cid)) is not None:
            raise NotTaken(WHY_NOT[refusal])
        await self._flush()
        return cid

    async def abort(self) -> bool:
        """Stop the running answer; False if there is no connection to send the frame on."""
        return await self._say({"type": "abort"})

    async def leave(self) -> None:
        """End the iteration over `events()`."""
        self._leaving.set()
        if self._open is not None:
            await self._open.close()

    async def events(self) -> AsyncIterator[Event]:
        """Connect, and stay connected; the iteration ends after `ConnectionEnded`, or at once when `leave` is
        called."""
        again = False
        while not self._leaving.is_set():
            refused: list[Fate] = []
            try:
                async with self._connect() as socket:
                    self._open = socket
                    if self._leaving.is_set():
                        return
                    async for event in self._listen(socket, again=again):
                        again = True
                        yield event
                coming = self._comeback.cut("the connection was cut")
            except InvalidStatus as error:
                answer = error.response
                coming = self._comeback.refused(answer.status_code, answer.body, answer.headers.get("Retry-After"))
            except ConnectionClosed as closed:
                coming, refused = self._closed(closed)
            except InvalidURI as error:
                coming = NextAttempt(str(error), None)
            except (OSError, TimeoutError, InvalidHandshake) as error:
                coming = self._comeback.cut(str(error) or type(error).__name__)
            finally:
                self._open = self._socket = None
            if self._leaving.is_set():
                return
            for fate in refused:
                frame = {"type": "nack", "cid": fate.cid, "reason": fate.code, "error": fate.error}
                yield FrameHeard("nack", frame)
            if coming.seconds is None:
                yield ConnectionEnded(coming.reason, failed=not coming.reason.startswith(CloseCode.FINISHED.reason))
                return
            if coming.seconds:  # else another token is shown at once
                yield Lost(coming.reason, coming.seconds)
                await self._rest(coming.seconds)

    def _closed(self, closed: ConnectionClosed) -> tuple[NextAttempt, list[Fate]]:
        """The next attempt, and the messages refused along the way. A frame that is too long for the gateway is given
        up, and the others are sent."""
        code, reason = said_farewell(closed)
        if code == CloseCode.TOO_LONG and self._conversation.too_long() is not None:
            code = None
        return self._comeback.closed(code, reason, asyncio.get_running_loop().time()), self._conversation.take()

    def _connect(self) -> connect:
        query = urlencode({"sessionId": self._session_id, **self._conversation.position()}, quote_via=quote)
        return connect(
            f"ws{self._base.removeprefix('http')}/ws/v2?{query}",
            additional_headers={"Authorization": f"Bearer {self._token()}"},
            compression=None,
            max_size=FRAME_BYTES,
            open_timeout=OPEN_SECONDS,
            close_timeout=2,
            proxy=None if is_loopback(self._base) else True,
        )

    async def _listen(self, socket: ClientConnection, *, again: bool) -> AsyncIterator[Event]:
        loop = asyncio.get_running_loop()
        while True:
            frame = _read(await self._received(socket))
            if frame is None or not self._conversation.heard(frame, loop.time(), self._rng.random()):
                continue
            kind, settled = str(frame.get("type")), self._conversation.take()
            if kind == "nack" and self._is_sent_again(str(frame.get("cid")), settled):
                continue
            if kind == "welcome" and self._socket is None:
                last = frame.get("lastSeq")
                yield Connected(again, frame.get("recovered"), last if isinstance(last, int) else 0)
                self._comeback.greeted(loop.time())
                self._conversation.connected()
                self._socket = socket
                await self._flush()
            elif kind == "auth_expiring":
                await self._say({"type": "auth", "token": self._token()})
            elif kind == "going_away":
                self._comeback.going_away(frame.get("retryAfter"))
            yield FrameHeard(kind, frame)

    async def _received(self, socket: ClientConnection) -> str | bytes:
        """The next frame. Frames that a pause held back are sent meanwhile."""
        while True:
            try:
                async with asyncio.timeout_at(self._conversation.hold):
                    return await socket.recv()
            except TimeoutError:
                await self._flush()

    def _is_sent_again(self, cid: str, settled: list[Fate]) -> bool:
        """True if the refusal is temporary, or about a stored message: then it is not reported."""
        return self._conversation.owes(cid) and not settled

    async def _flush(self) -> None:
        """Send the unsent frames, in order. If the connection ends meanwhile, the next one begins again."""
        loop = asyncio.get_running_loop()
        async with self._sending:
            while self._socket is not None and (frame := self._conversation.next(loop.time())) is not None:
                await self._say(frame)

    async def _say(self, frame: dict[str, Any]) -> bool:
        if self._socket is None:
            return False
        try:
            await self._socket.send(spelled(frame))
        except ConnectionClosed:
            return False
        return True

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._leaving.wait()
        except TimeoutError:
            return


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def said_farewell(closed: ConnectionClosed) -> tuple[int | None, str]:
    """The code and the reason of the close frame that came; None if the connection ended without one."""
    return (None, "") if closed.rcvd is None else (closed.rcvd.code, closed.rcvd.reason)


def _read(data: str | bytes) -> dict[str, Any] | None:
    """Parse a frame; None if it is not a gateway's frame."""
    try:
        frame = json.loads(data)
    except ValueError:
        return None
    return frame if isinstance(frame, dict) else None
