"""The state that all connections of one server share: the bounds, the counts, and the drain."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gateway.config.settings import Settings
from gateway.limits.allowance import Allowance, Throttled
from gateway.limits.inbound_bytes import ROOM_BYTES, UsersInboundBytes
from gateway.limits.rate import Budget, Budgets
from gateway.limits.unclaimed_memory import UnclaimedMemory
from gateway.server.admission import Admission, Proxies, Refusal, void
from gateway.server.socket_turns import Clock, SocketTurns

HEALTH = b"/health"
LATE_SECONDS = 0.25  # a loop later than this has read no socket for that long
_FREE = 1e15
OPEN_WHILE_DRAINING = frozenset((HEALTH, b"/ready", b"/metrics"))


@dataclass(frozen=True, kw_only=True)
class GuardLimits:
    """Bounds on the resources that a client may use. Times are seconds."""

    frame_bytes: int = 1 << 20
    fragments: int = 1024
    head_bytes: int = 64 << 10
    head_count: int = 200
    body_bytes: int = 1 << 20
    pipelined: int = 16
    stranger_bytes: int = 8 << 10  # held by a connection whose request was not asked for yet
    reserve_bytes: int = 8 << 20  # above that, for the heads of all such connections together; as much for their bodies
    write_bytes: int = 1 << 20  # unsent on one connection; above, the viewer is too slow
    pings: int = 600  # per `ping_window`
    ping_window: float = 10.0
    head_seconds: float = 5.0
    body_seconds: float = 30.0
    auth_seconds: float = 10.0
    idle_seconds: int = 15  # between two requests of one connection
    ping_after: float = 12.0  # of silence
    dead_after: float = 22.0  # of silence; with the sweep's step a half-open peer is found within 25 s
    stall_seconds: float = 25.0  # in which the peer takes none of the unsent bytes
    close_seconds: float = 5.0  # for the peer to answer a close
    sweep_seconds: float = 2.5

    @classmethod
    def of(cls, settings: Settings) -> "GuardLimits":
        return cls(
            frame_bytes=settings.max_frame_bytes,
            head_seconds=settings.handshake_timeout,
            auth_seconds=settings.auth_timeout,
        )


def answer_bytes(refusal: Refusal) -> bytes:
    """A whole HTTP answer, for a connection that ends with it."""
    body = orjson.dumps({"error": refusal.message, "code": refusal.code})
    head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
    if refusal.status in (429, 503):
        head += b"retry-after: 5\r\n"
    return STATUS_LINE[refusal.status] + head + b"\r\n" + body


class Checked(Protocol):
    def check(self, now: float, late: float) -> None:
        """Ping the peer, or end the connection, if its time has come. For `late` seconds no socket was read."""


class FrontDoor:
    """One per server. `draining` is reported by `/ready`; `fatal` ends the process in an orderly way."""

    def __init__(
        self, settings: Settings, *, limits: GuardLimits | None = None, refused: Callable[[str], None] = void
    ) -> None:
        self.limits = limits or GuardLimits.of(settings)
        self.proxies = Proxies(settings.trusted_proxies)
        self.counters = Admission(
            settings.max_connections, settings.max_connections_per_address, settings.max_connections_per_user
        )
        self.reserve = UnclaimedMemory(self.limits.reserve_bytes)
        self.bodies = UnclaimedMemory(self.limits.reserve_bytes)  # separate: any client may send heads that never end
        self.rooms = UsersInboundBytes(max(ROOM_BYTES, 4 * self.limits.frame_bytes))
        self.throttled = Throttled()
        self._frames = Budgets(settings.max_frames_per_user, 2 * settings.max_frames_per_user)
        self._bytes = Budgets(settings.max_input_per_user, 2 * settings.max_input_per_user)
        self._turns: dict[str, SocketTurns] = {}
        self._clock: Clock | None = None
        self.refused = refused  # called with the code of each refusal, for the metrics
        self.draining = False
        self.failure: BaseException | None = None
        self.sockets: set[Checked] = set()
        self._stop = asyncio.Event()

    def turns_of(self, user: str | None) -> SocketTurns:
        """The turns that the sockets of `user` share. None: a service's socket, which has turns of its own and no
        budget."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if user is None:
            free = Allowance(Budget(_FREE, _FREE, now), Budget(_FREE, _FREE, now), self.throttled)
            return SocketTurns(loop, self._clock_of(loop), free, lambda: None)
        if user not in self._turns:
            allowance = Allowance(self._frames.of(user, now), self._bytes.of(user, now), self.throttled)
            self._turns[user] = SocketTurns(
                loop, self._clock_of(loop), allowance, lambda: void(self._turns.pop(user, None))
            )
        return self._turns[user]

    def _clock_of(self, loop: asyncio.AbstractEventLoop) -> Clock:
        if self._clock is None:
            self._clock = Clock(loop)
        return self._clock

    def fatal(self, error: BaseException) -> None:
        """A part that the gateway depends on has died: drain and end with a non-zero exit code."""
        self.failure = self.failure or error
        self.stop()

    def stop(self) -> None:
        self._stop.set()

    async def stopped(self) -> None:
        await self._stop.wait()

    async def sweep(self) -> None:
        """Check silent and stalled peers for ever: one task for all sockets, instead of a timer for each."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self.limits.sweep_seconds
            await asyncio.sleep(self.limits.sweep_seconds)
            now = loop.time()
            late = now - due if now - due > LATE_SECONDS else 0.0
            for socket in tuple(self.sockets):
                socket.check(now, late)
