"""A bound on answers of one kind at once for each user, and so on the memory that long answers hold.

A request that finds all places taken waits its turn, and is answered 429 when that takes too long, or when too many
wait already. All guests of one user, in any of the user's sessions, share as many places beside the user's own: guests
do not lock the owner out, and a user gets no more places by shares. Services are not counted.
"""

import asyncio
from collections.abc import Callable

from starlette.requests import Request

from gateway.http.access import principal
from gateway.protocol.errors import ApiError

WAIT_SECONDS = 5.0
WAITING = 64


class _Gate:
    __slots__ = ("taken", "waiting")

    def __init__(self) -> None:
        self.taken = 0
        self.waiting: dict[asyncio.Future[None], None] = {}


class ConcurrencyLimit:
    def __init__(self, at_once: int, what: str, *, wait_seconds: float = WAIT_SECONDS, waiting: int = WAITING) -> None:
        self._at_once = at_once
        self._what = what  # the kind of answer, for people
        self._wait_seconds = wait_seconds
        self._waiting = waiting
        self._gates: dict[str, _Gate] = {}

    def __len__(self) -> int:
        return len(self._gates)

    async def enter(self, request: Request) -> Callable[[], None]:
        """Wait for a place; return the call that gives it back, which may be called again. Raises ApiError (429)."""
        who = principal(request)
        return await self.enter_as(who.spends_as) if who.kind == "user" else lambda: None

    async def enter_as(self, user: str) -> Callable[[], None]:
        gate = self._gates.setdefault(user, _Gate())
        if gate.taken < self._at_once and not gate.waiting:
            gate.taken += 1
        else:
            await self._wait(user, gate)
        left = False

        def leave() -> None:
            nonlocal left
            if not left:
                left = True
                self._leave(user, gate)

        return leave

    async def _wait(self, user: str, gate: _Gate) -> None:
        if len(gate.waiting) >= self._waiting:
            raise self._refusal()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gate.waiting[turn] = None
        try:
            async with asyncio.timeout(self._wait_seconds):
                await turn
        except BaseException as error:
            gate.waiting.pop(turn, None)
            if not turn.cancelled():  # the place was given in the moment it was given up
                self._leave(user, gate)
            if isinstance(error, TimeoutError):
                raise self._refusal() from None
            raise

    def _leave(self, user: str, gate: _Gate) -> None:
        self._pass_on(gate)
        if not gate.taken and not gate.waiting:
            self._gates.pop(user, None)

    def _pass_on(self, gate: _Gate) -> None:
        """A place is free: the request that waits longest gets it."""
        while gate.waiting:
            turn = next(iter(gate.waiting))
            del gate.waiting[turn]
            if not turn.done():  # else the waiting request has given up, and is about to leave
                turn.set_result(None)
                return
        gate.taken -= 1

    def _refusal(self) -> ApiError:
        told = f"this user has {self._at_once} {self._what} open already: read or close one, then try again"
        return ApiError(429, "too_many_readers", told, retry_after=5)
