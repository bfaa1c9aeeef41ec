"""`/ws/events`: a user's own sessions, live."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.websockets import WebSocket

from gateway.auth.policy import SIGNED_IN, refuse
from gateway.auth.tokens import Principal, TokenVerifier
from gateway.feed.feed import SessionFeed
from gateway.feed.viewer import EventViewer
from gateway.protocol import chat_frames
from gateway.protocol.close_codes import CloseCode
from gateway.protocol.errors import ApiError
from gateway.routing.route import socket
from gateway.session.drain import SessionDrain
from gateway.sockets.attach import AccessWatch, outlet_of, until_disconnect
from gateway.terminal.dialects.control import read_control
from persistence.errors import StoreUnavailable
from sandbox.protocol.websocket_frames import FrameError, frame_text

PROTOCOL = "holdfast.events.v1"


class EventsSocket:
    def __init__(self, feed: SessionFeed, drain: SessionDrain, verifier: TokenVerifier) -> None:
        self._feed = feed
        self._drain = drain
        self._verifier = verifier

    @socket("/ws/events", SIGNED_IN, "a user's own sessions, live: the list, then every change")
    async def serve(self, websocket: WebSocket) -> None:
        who: Principal = websocket.state.principal
        viewer = EventViewer(outlet_of(websocket))
        try:
            await self._join(who, viewer)
            await websocket.accept(subprotocol=PROTOCOL if PROTOCOL in websocket.scope["subprotocols"] else None)
            self._feed.begin(who.user_id, viewer)
            await self._stay(websocket, viewer, who)
        except ApiError as error:
            await refuse(websocket.scope, websocket.receive, websocket.send, error)
        finally:
            self._feed.leave(who.user_id, viewer)

    async def _join(self, who: Principal, viewer: EventViewer) -> None:
        self._drain.refuse()
        try:
            await self._feed.join(who.user_id, viewer)
        except StoreUnavailable:
            self._drain.refuse()
            raise ApiError(503, "storage_unavailable", "the store does not answer: try again later") from None

    async def _stay(self, websocket: WebSocket, viewer: EventViewer, who: Principal) -> None:
        entry = AccessWatch(viewer, who, self._verifier)
        async with asyncio.TaskGroup() as beside:
            reader = _EventsReader(viewer, entry, beside)
            outlet_of(websocket).on_text = reader.on_text
            entry.begin()
            try:
                await until_disconnect(websocket)
            finally:
                entry.end()
                reader.end()


class _EventsReader:
    """The input of a page. MessageSocket calls it with each whole text message; it never waits."""

    __slots__ = ("_beside", "_entry", "_refreshing", "_viewer")

    def __init__(self, viewer: EventViewer, entry: AccessWatch, beside: asyncio.TaskGroup) -> None:
        self._viewer = viewer
        self._entry = entry
        self._beside = beside
        self._refreshing: asyncio.Task[None] | None = None

    def on_text(self, raw: bytes) -> None:
        """`auth` and `ping`. An unknown type is ignored: a newer page may use more."""
        try:
            type, body = read_control(raw)
        except FrameError as error:
            self._viewer.close(CloseCode.BAD_FRAME, error.reason)
            return
        if type == "ping":
            self._viewer.say(frame_text(chat_frames.dump("pong", id=body.get("id"))))
        elif type == "auth":
            if isinstance(token := body.get("token"), str):
                self._entry.renew(token, self._spawn)
            else:
                self._viewer.close(CloseCode.BAD_FRAME, "token must be a string")

    def _spawn(self, refreshing: Coroutine[Any, Any, None]) -> None:
        self._refreshing = self._beside.create_task(refreshing, name="auth")

    def end(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
