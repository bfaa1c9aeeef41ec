"""Room for a new session: among its user's sessions, and for its sandbox where that starts at once."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from gateway.limits.quota import Quota
from gateway.limits.start_turns import StartTurns
from gateway.protocol.errors import ApiError


class CreationRoom:
    """`refused` counts each refusal by its code."""

    def __init__(self, quota: Quota, turns: StartTurns, refused: Callable[[str], None]) -> None:
        self._quota = quota
        self._turns = turns
        self._refused = refused

    @asynccontextmanager
    async def new(self, session_id: str, user_id: str, *, starts: bool) -> AsyncIterator[None]:
        """Held while the session is created. If it `starts`, it counts as one that waits for its turn until it asks for
        it or is forgotten. Raises ApiError 429, StoreUnavailable."""
        if starts:
            with self._counted():
                self._turns.refuse_if_full(user_id)
            self._turns.expect(session_id, user_id)
        try:
            with self._counted():
                async with self._quota.session(user_id):
                    yield
        except BaseException:
            self._turns.forget(session_id)
            raise

    @asynccontextmanager
    async def branch(self, user_id: str) -> AsyncIterator[None]:
        """The same for a session that sleeps and has files. Raises ApiError 429, StoreUnavailable."""
        with self._counted():
            async with self._quota.session(user_id, stores=True):
                yield

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except ApiError as error:
            if error.status == 429:
                self._refused(error.code)
            raise
