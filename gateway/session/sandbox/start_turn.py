"""A session's turn to start its sandbox, or to find it again: awaited, held, given back."""

import asyncio
from collections.abc import Callable

from gateway.limits.start_turns import StartTurns, Waiting
from gateway.session.sandbox.lifecycle.effects import AskTurn


def visit_name(session_id: str) -> str:
    """The name of a visit that waits for a turn: meanwhile the session is not shown as starting."""
    return f"{session_id} visited"


def session_named(name: str) -> str:
    """The id of the session to which that name belongs."""
    return name.partition(" ")[0]


def own_names(session_id: str) -> tuple[str, str]:
    """The names under which a session may wait for a turn, or have one."""
    return session_id, visit_name(session_id)


class StartTurn:
    """`run` in a task of its own until the turn is over."""

    __slots__ = ("_asked", "_over", "_placed", "_session_id", "_turns", "_user_id")

    def __init__(
        self, asked: AskTurn, turns: StartTurns, session_id: str, user_id: str, placed: Callable[[], bool]
    ) -> None:
        self._asked = asked
        self._turns = turns
        self._session_id = session_id
        self._user_id = user_id
        self._placed = placed  # True if the session keeps its place afterwards
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def number(self) -> int:
        return self._asked.number

    def end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    async def run(self, given: Callable[[], None], told: Callable[[Waiting], None]) -> None:
        """Wait for the turn and hold it until `end`. `given` is called when the turn has come, `told` with the
        session's place while it waits. Cancelling this gives the turn up, or back."""
        if self._asked.visit:
            await self._run(visit_name(self._session_id), lambda: False, given, lambda _: None)
        else:
            await self._run(self._session_id, self._placed, given, told)

    async def _run(
        self, key: str, placed: Callable[[], bool], given: Callable[[], None], told: Callable[[Waiting], None]
    ) -> None:
        turns, user_id = self._turns, self._user_id
        async with turns.turn(key, user_id, runs=self._asked.runs, placed=placed, told=told) as begun:
            if begun is not None:
                if self._asked.visit:  # it takes one of its user's places
                    turns.note(key, user_id, placed=True)
                given()
                await self._over
