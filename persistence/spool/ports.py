"""The port to a place that makes writes durable before the store has them."""

from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Protocol, Self

import msgspec

from persistence.record import DeadLetter, Record, Write
from persistence.spool.overlay import SpoolOverlay


class SpoolRow(msgspec.Struct, frozen=True, gc=False):
    """A write in the spool. A later one has a larger number."""

    no: int
    write: Write


class SpoolPort(Protocol):
    """Keeps writes in order until they are removed. `tails` says what is there. Every method may raise
    StoreUnavailable, and StoreBroken after which nothing here can be trusted."""

    tails: SpoolOverlay
    last_no: int  # of the newest row ever
    oldest_at: float | None  # when the oldest row came, in seconds since 1970

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def append(self, writes: Sequence[Write]) -> list[SpoolRow]:
        """Keep the writes, durable when it returns, all or none. Raises StoreFull. One call at a time. After a cancel
        the caller does not know whether they were kept."""
        ...

    async def first(self, writes: int, size: int, *, up_to: int, without: Collection[str]) -> list[SpoolRow]:
        """The oldest rows up to number `up_to`, at most so many and so large (but one), of other sessions than
        `without`."""
        ...

    async def remove(self, nos: Sequence[int], lost: Sequence[tuple[Record, str]] = ()) -> None:
        """The store has decided about these rows. The `lost` records, which it refused, are kept as letters."""
        ...

    async def forget(self, session_id: str) -> None:
        """Remove the session's rows and letters."""
        ...

    async def records(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        role: str | None = None,
        type: str | None = None,
        newest: bool = False,
    ) -> tuple[list[Record], int | None]:
        """Appended records with after < seq < before as they were written, in seq order: the first or the newest
        `limit`. And the smallest seq of the session here, None if there is none."""
        ...

    async def by_cid(self, session_id: str, cid: str) -> Record | None: ...

    async def lost(self, session_id: str | None, *, after: int, limit: int) -> list[DeadLetter]:
        """Letters with a number above `after`, in order of number."""
        ...

    async def drop_lost(self, number: int) -> bool: ...
