"""What Holdfast needs of a place that keeps conversations."""

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from persistence.record import Loaded, Outcome, Record, Session, Write


class MessageStore(Protocol):
    """Keeps sessions and their records. Every method may raise StoreUnavailable; nothing else leaves an adapter but
    StoreBroken (from `commit`) and, from opening, an error that says what to do. Constructors do no I/O."""

    async def __aenter__(self) -> Self:
        """Open and migrate."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def create(self, session: Session) -> Session:
        """Keep a new session. A known id is left as it is and returned: compare `user_id`."""
        ...

    async def find(self, session_id: str) -> Session | None: ...

    async def load(self, session_id: str) -> Loaded | None:
        """All that the session's one writer needs before it takes a message; None if there is no such session."""
        ...

    async def sessions(self, user_id: str | None = None) -> list[Session]:
        """All sessions, or one user's, newest first."""
        ...

    async def waiting(self) -> list[str]:
        """Ids of sessions with STORED records that were not delivered."""
        ...

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        """Make all writes durable, in order, in one transaction; return one outcome each, in order.

        An appended record must have `seq = last + 1`, else its write is Rejected. A known (session, cid) at the same
        seq is the same write again (its reply was lost): Stored. At a new seq it is Duplicate. A write that is rejected
        harms no other write of the batch. Raises StoreUnavailable (nothing was kept, or the retry will find out),
        StoreBroken.
        """
        ...

    async def messages(
        self, session_id: str, *, after: int = 0, before: int | None = None, limit: int = 100
    ) -> list[Record]:
        """Records with after < seq < before in seq order: the first `limit` after `after`, or, if only `before` is
        given, the last `limit` before it. STORED records up to the session's `delivered` come out as DELIVERED."""
        ...

    async def by_cid(self, session_id: str, cid: str) -> Record | None: ...

    async def purge(self, session_id: str) -> None:
        """Remove the session and all its records. An unknown id is fine."""
        ...
