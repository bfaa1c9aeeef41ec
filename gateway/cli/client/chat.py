"""A chat client that comes back: it resumes where it was, sends again what was not acknowledged, obeys the close codes.

`ClientConversation` is the pure core: what was sent and not yet settled, in order, and the position in the agent's
output. `ChatClient` is the shell: one connection at a time, owned by the one iteration over `events()`. Nothing is
sent before the gateway's `welcome`, and everything leaves in the order of `send`, also across connections; a message's
`cid` makes the second sending of it harmless.
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

from gateway.protocol.close_codes import CloseCode
from gateway.protocol.reconnect import FIRST_PAUSE, farewell, pause, refusal

FRAME_BYTES = 4 << 20
OPEN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Connected:
    """`recovered` is True: nothing was missed. False: read the history. None: there was no position to come back to."""

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


class ClientConversation:
    """What one client owes and knows. Pure: frames go in and out as dicts."""

    def __init__(self) -> None:
        self.epoch: str | None = None
        self.offset = 0
        self._unsettled: dict[str, dict[str, Any]] = {}  # cid -> frame, in sending order
        self._unsent: list[str] = []

    @property
    def unsettled(self) -> int:
        return len(self._unsettled)

    def offer(self, frame: dict[str, Any], cid: str) -> None:
        """Take a frame that must arrive: it is sent until it is acknowledged or refused."""
        self._unsettled[cid] = {**frame, "cid": cid}
        self._unsent.append(cid)

    def connected(self) -> None:
        """A new connection: everything unsettled has to be sent on it, oldest first."""
        self._unsent = list(self._unsettled)

    def next_unsent(self) -> dict[str, Any] | None:
        while self._unsent:
            frame = self._unsettled.get(self._unsent.pop(0))
            if frame is not None:
                return frame
        return None

    def position(self) -> dict[str, str]:
        """What to add to the URL so that the gateway goes on from here."""
        return {} if self.epoch is None else {"epoch": self.epoch, "offset": str(self.offset)}

    def heard(self, frame: dict[str, Any]) -> bool:
        """Note what a frame says; False if it was heard before and must not be shown again."""
        kind, offset = frame.get("type"), frame.get("_offset")
        if kind == "welcome":
            epoch, start = frame.get("epoch"), frame.get("offset")
            self.epoch = epoch if isinstance(epoch, str) and epoch else None  # "" before the first agent process
            self.offset = start if isinstance(start, int) else 0
        elif kind in ("ack", "nack"):
            self._unsettled.pop(str(frame.get("cid")), None)
        elif isinstance(offset, int):
            if offset <= self.offset:
                return False
            self.offset = offset
        return True


class ChatClient:
    """`token` is asked before every connection and when the gateway says that the old one expires."""

    def __init__(
        self, url: str, session_id: str, token: Callable[[], str], *, rng: Random, first_pause: float = FIRST_PAUSE
    ) -> None:
        self._base = url.rstrip("/")
        self._session_id = session_id
        self._token = token
        self._rng = rng
        self._first_pause = first_pause
        self._conversation = ClientConversation()
        self._open: ClientConnection | None = None
        self._socket: ClientConnection | None = None  # the open one, from its welcome on
        self._sending = asyncio.Lock()
        self._attempt = 0
        self._retry_after = 0.0
        self._leaving = asyncio.Event()

    @property
    def unsettled(self) -> int:
        """How many frames were sent (or wait to be) without an ack or nack."""
        return self._conversation.unsettled

    async def send(self, content: str | list[dict[str, Any]], *, steer: bool = False) -> str:
        """Send a message, now or after the next reconnect; its cid. `steer`: it is for the turn that runs."""
        meant = {"metadata": {"steer": True}} if steer else {}
        return await self.post({"type": "message", "content": content, **meant})

    async def post(self, frame: dict[str, Any]) -> str:
        """Send any frame that the gateway acknowledges; its cid."""
        cid = secrets.token_urlsafe(12)
        self._conversation.offer(frame, cid)
        await self._flush()
        return cid

    async def abort(self) -> bool:
        """Stop the running answer; False if there is no connection to say it on."""
        return await self._say({"type": "abort"})

    async def leave(self) -> None:
        """End the iteration over `events()`."""
        self._leaving.set()
        if self._open is not None:
            await self._open.close()

    async def events(self) -> AsyncIterator[Event]:
        """Connect, and stay so; the iteration ends after `ConnectionEnded`, or at once when `leave` is called."""
        again = False
        while not self._leaving.is_set():
            reason, hopeless = "", False
            try:
                async with self._connect() as socket:
                    self._open = socket
                    if self._leaving.is_set():
                        return
                    async for event in self._listen(socket, again=again):
                        again = True
                        yield event
            except InvalidStatus as refused:
                reason, hopeless = refusal(refused.response.status_code, refused.response.body)
            except ConnectionClosed as closed:
                reason, hopeless = said_farewell(closed)
            except InvalidURI as error:
                reason, hopeless = str(error), True
            except (OSError, TimeoutError, InvalidHandshake) as error:
                reason = str(error) or type(error).__name__
            finally:
                self._open = self._socket = None
            if self._leaving.is_set():
                return
            if hopeless:
                yield ConnectionEnded(reason, failed=not reason.startswith(CloseCode.FINISHED.reason))
                return
            retry_seconds = self._pause()
            yield Lost(reason, retry_seconds)
            await self._rest(retry_seconds)

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
        self._retry_after = 0.0
        while True:
            frame = json.loads(await socket.recv())
            kind = str(frame.get("type"))
            if not self._conversation.heard(frame):
                continue
            if kind == "welcome" and self._socket is None:
                yield Connected(again, frame.get("recovered"), int(frame.get("lastSeq") or 0))
                self._attempt = 0
                self._conversation.connected()
                self._socket = socket
                await self._flush()
            elif kind == "auth_expiring":
                await self._say({"type": "auth", "token": self._token()})
            elif kind == "going_away":
                self._retry_after = float(frame.get("retryAfter") or 0)
            yield FrameHeard(kind, frame)

    async def _flush(self) -> None:
        """Send what is unsent, in order. A connection that ends meanwhile is no loss: the next one begins again."""
        async with self._sending:
            while self._socket is not None and (frame := self._conversation.next_unsent()) is not None:
                await self._say(frame)

    async def _say(self, frame: dict[str, Any]) -> bool:
        if self._socket is None:
            return False
        try:
            await self._socket.send(json.dumps(frame))
        except ConnectionClosed:
            return False
        return True

    def _pause(self) -> float:
        """The gateway's own wish, or backoff; with jitter either way, for everybody else was cut off too."""
        self._attempt += 1
        return self._retry_after + pause(self._attempt - 1, self._rng, first=self._first_pause)

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


def said_farewell(closed: ConnectionClosed) -> tuple[str, bool]:
    """Why the connection ended, and whether that is final."""
    return farewell(None, "") if closed.rcvd is None else farewell(closed.rcvd.code, closed.rcvd.reason)
