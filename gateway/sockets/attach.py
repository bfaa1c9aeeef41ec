"""How a socket gets into a session, stays while its token is good, and leaves: the same for every dialect."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from starlette.websockets import WebSocket

from gateway.auth.policy import refuse
from gateway.auth.tokens import LEEWAY_SECONDS, SHARE_ENDED, Principal, TokenError, TokenVerifier
from gateway.limits.rate import Budget
from gateway.protocol.close_codes import CloseCode
from gateway.protocol.errors import ApiError
from gateway.server.message_socket import OUTLET, MessageSocket
from gateway.server.viewer import Viewer
from gateway.session.actor import SessionActor
from gateway.session.creation.create import SessionCreation
from gateway.session.drain import SessionDrain
from gateway.session.guests import Guests
from gateway.session.registry import SessionRegistry
from persistence.errors import StoreUnavailable
from persistence.record_json import iso
from sandbox.protocol.values import Position

WARN_SECONDS = 60.0
RENEWALS_A_SECOND, RENEWALS_AT_ONCE = 1, 10
CUT_SECONDS = 3.0  # for a viewer whose share was taken back to answer the close
LARGEST_OFFSET = 2**53


class SocketAttacher:
    """Finds the session that a socket asks for, and admits its owner (or a service). With `creation`, an unknown id
    becomes a session of the user who asks for it."""

    def __init__(
        self,
        registry: SessionRegistry,
        drain: SessionDrain,
        verifier: TokenVerifier,
        creation: SessionCreation | None = None,
    ) -> None:
        self._registry = registry
        self._drain = drain
        self.verifier = verifier
        self._creation = creation

    async def enter(self, websocket: WebSocket) -> SessionActor | None:
        """The session; None if the upgrade was refused, which is answered as plain HTTP."""
        try:
            return await self._find(websocket)
        except StoreUnavailable:
            error = ApiError(503, "storage_unavailable", "the store does not answer: try again later")
        except ApiError as refusal:
            error = refusal
        await refuse(websocket.scope, websocket.receive, websocket.send, error)
        return None

    async def _find(self, websocket: WebSocket) -> SessionActor:
        who: Principal = websocket.state.principal
        session_id: str = websocket.state.session_id
        self._drain.refuse()
        user_id = who.user_id if who.kind == "user" else None
        actor = await self._registry.find(session_id, user_id=user_id)
        if actor is None and self._creation is not None and user_id is not None and not who.session_id:
            actor = await self._creation.attach_or_create(session_id, user_id)
        if actor is None:
            raise ApiError(404, "unknown_session", "there is no such session")
        return actor


def asked_position(websocket: WebSocket) -> Position | None:
    """The position in `?epoch=&offset=`; None without them. An unreadable one becomes a position that no ring can
    have."""
    epoch, offset = websocket.query_params.get("epoch"), websocket.query_params.get("offset")
    if epoch is None and offset is None:
        return None
    readable = offset is not None and offset.isascii() and offset.isdecimal() and len(offset) <= 16
    return Position(epoch or "", int(offset)) if readable and offset is not None else Position("", LARGEST_OFFSET)


def outlet_of(websocket: WebSocket) -> MessageSocket:
    outlet = websocket.scope["extensions"][OUTLET]
    assert isinstance(outlet, MessageSocket)
    return outlet


async def until_disconnect(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


def slow_down(actor: SessionActor, viewer: Viewer) -> None:
    """Stop reading a viewer whose session has too much work, until there is room."""

    async def read_on() -> None:
        await actor.inbox.wait_for_room()
        if not viewer.leaving:
            viewer.outlet.resume_reading()

    if actor.inbox.crowded:
        viewer.outlet.pause_reading()
        actor.host.spawn(read_on(), "room")


class Admitted(Protocol):
    """A viewer that AccessWatch admits."""

    def tell_expiring(self, at: str) -> None: ...
    def tell_trouble(self, code: str, reason: str) -> None: ...
    def close(self, code: CloseCode, reason: str | None = None) -> None: ...
    def abort(self) -> None: ...


class AccessWatch:
    """A viewer's access: it is warned 60 s before its token ends, may refresh the token in band, and is closed with
    4401 after the end. A viewer that came by a share is among the session's `guests`, and is closed when the share is
    taken back."""

    __slots__ = ("_budget", "_busy", "_guests", "_newest", "_over", "_timer", "_utcnow", "_verifier", "_viewer", "_who")

    def __init__(
        self,
        viewer: Admitted,
        who: Principal,
        verifier: TokenVerifier,
        guests: Guests | None = None,
        utcnow: Callable[[], float] = time.time,
    ) -> None:
        self._viewer = viewer
        self._who = who
        self._verifier = verifier
        self._guests = guests
        self._utcnow = utcnow
        self._timer: asyncio.TimerHandle | None = None
        self._over = False
        self._busy = False
        self._newest: str | None = None  # of the tokens that came while one is being verified
        self._budget: Budget | None = None

    def begin(self) -> None:
        """Start the timer. Posted to the session after `attach`, so that a token near its end is welcomed first."""
        if self._over:
            return
        if not self._enter(self._who):  # it was taken back since the upgrade was asked for
            self.taken_back()
            return
        left = self._who.expires_at - self._utcnow()
        if left < 400 * 86400:  # services' credentials do not end
            self._wait(left - WARN_SECONDS, self._warn)

    def end(self) -> None:
        self._over = True
        self._disarm()
        self._leave()

    def _enter(self, who: Principal) -> bool:
        if who.share is None:
            return True
        return self._guests is not None and self._guests.enter(self, who.share)

    def _leave(self) -> None:
        if self._guests is not None and self._who.share is not None:
            self._guests.leave(self, self._who.share)

    def taken_back(self) -> None:
        """See Guest. The connection is cut after CUT_SECONDS if the close is not answered, or cannot be sent."""
        self._disarm()
        self._viewer.close(CloseCode.TOKEN, "the share was taken back")
        asyncio.get_running_loop().call_later(CUT_SECONDS, self._viewer.abort)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self._disarm()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, seconds), then)

    def _warn(self) -> None:
        self._viewer.tell_expiring(iso(self._who.expires_at))
        self._wait(self._who.expires_at + LEEWAY_SECONDS - self._utcnow(), self._expire)

    def _expire(self) -> None:
        self._viewer.close(CloseCode.TOKEN, "the token has expired")

    def renew(self, token: str, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        """Verify a new token, in a task. One at a time: of those that come meanwhile, the newest is next. Tokens that
        come too often are refused in words."""
        if self._over:
            return
        now = asyncio.get_running_loop().time()
        if self._budget is None:
            self._budget = Budget(RENEWALS_A_SECOND, RENEWALS_AT_ONCE, now)
        if self._budget.ask(1, now):
            self._viewer.tell_trouble("too_many_tokens", "tokens come too often; wait a second")
            return
        if self._busy:
            self._newest = token
            return
        self._busy = True
        spawn(self._refresh(token))

    async def _refresh(self, token: str | None) -> None:
        try:
            while token is not None and not self._over:
                await self._look_at(token)
                token, self._newest = self._newest, None
        finally:
            self._busy = False

    async def _look_at(self, token: str) -> None:
        """A new token of the same user, for no less, moves the end of access. Any other changes nothing and gets an
        error frame."""
        try:
            who = await self._verifier.verify(token, via=self._who.via)
        except TokenError as error:
            self._viewer.tell_trouble(error.code, error.message)
            return
        if (who.user_id, who.session_id, who.role) != (self._who.user_id, self._who.session_id, self._who.role):
            self._viewer.tell_trouble("other_user", "the token is another user's, or for something else")
            return
        if self._over:
            return
        if not self._enter(who):
            self._viewer.tell_trouble("share_ended", SHARE_ENDED)
            return
        if who.share != self._who.share:
            self._leave()
        self._who = who
        self.begin()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
