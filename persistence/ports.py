"""The port to a store of conversations."""

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from persistence.listener import StoreListener
from persistence.record import DeadLetter, Loaded, Outcome, Record, Session, Usage, Write
from persistence.user_record import SealedCredential, UserConfig


class UserStore(Protocol):
    """Keeps what belongs to users and to no session. Changes are durable when a method returns. Every method may
    raise StoreUnavailable, those that change something also StoreBroken. A name that is not text belongs to nobody:
    nothing is found under it, and nothing is stored."""

    async def credential(self, user_id: str, provider: str) -> SealedCredential | None: ...

    async def credentials(self, user_id: str) -> list[SealedCredential]:
        """All of one user, in order of provider."""
        ...

    async def put_credential(self, row: SealedCredential, *, expected: int | None = None) -> int | None:
        """Keep the row in place of the one there is, and return its number, whatever `row.number` says. With
        `expected`, only in place of the row with that number: None if there is no such row any more."""
        ...

    async def delete_credential(self, user_id: str, provider: str) -> bool:
        """False: there is none."""
        ...

    async def key_ids(self) -> dict[str, int]:
        """How many credentials each key has sealed."""
        ...

    async def sealed_otherwise(self, key_id: str, *, after: int = 0, limit: int = 100) -> list[SealedCredential]:
        """The first `limit` credentials with a number above `after` that another key has sealed, in order of number."""
        ...

    async def config(self, user_id: str) -> UserConfig | None: ...

    async def put_config(self, config: UserConfig) -> None:
        """Keep it in place of the one there is."""
        ...


class MessageStore(Protocol):
    """Keeps sessions and their records. Every method may raise StoreUnavailable. No other error leaves an adapter,
    except StoreBroken (from `commit`) and CannotOpen (from opening). Constructors do no I/O. `heard` may be set
    before opening."""

    heard: StoreListener

    @property
    def users(self) -> UserStore:
        """The users' data in the same place; open while this is."""
        ...

    async def __aenter__(self) -> Self:
        """Open and migrate."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def installation(self, proposed: str) -> str:
        """The id of this store, for ever: the first proposed one."""
        ...

    async def create(self, session: Session) -> Session:
        """Store a new session. A known id stays unchanged and is returned: compare `user_id`."""
        ...

    async def find(self, session_id: str) -> Session | None: ...

    async def load(self, session_id: str) -> Loaded | None:
        """Everything that the session's one writer needs before it takes a message; None if there is no such session.

        Makes the caller that writer: from here on, writes with an earlier `fence` are Fenced.
        """
        ...

    async def sessions(
        self, user_id: str | None = None, *, after: str | None = None, limit: int | None = None
    ) -> list[Session]:
        """All sessions, or one user's, newest first: the first `limit` of those that come after the session `after`
        (none if that is unknown). A long `spec` comes without its members `start` and `pending`; `find` has them."""
        ...

    async def usage(self, user_id: str) -> Usage:
        """The bytes that the user has stored here, without those that are still in a spool."""
        ...

    async def waiting(self) -> list[str]:
        """Ids of sessions with undelivered STORED records."""
        ...

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        """Make all writes durable, in order, in one transaction; return one outcome each, in order.

        An appended record must have `seq = last + 1`, else its write is Rejected. A known (session, cid) at the same
        seq is the same write again (its reply was lost): Stored. At a new seq it is Duplicate. A record that the
        store refuses is Dead. A write whose `fence` is not the session's is Fenced. A failed write harms no other
        write of the batch. Raises StoreUnavailable (nothing was stored, or the retry will find out), StoreBroken.
        """
        ...

    async def messages(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        role: str | None = None,
        type: str | None = None,
        max_bytes: int | None = None,
    ) -> list[Record]:
        """Records with after < seq < before, of that role and type if given, in seq order: the first `limit` after
        `after`, or, if only `before` is given, the last `limit` before it. STORED records up to the session's
        `delivered` come out as DELIVERED.

        With `max_bytes`, no further record once the payloads of those before it have as many: at least one, and fewer
        than `limit` does not say that there are no more."""
        ...

    async def by_cid(self, session_id: str, cid: str) -> Record | None: ...

    def behind(self, session_id: str) -> bool:
        """Whether some of the session's records are durable here and not yet in their final store."""
        ...

    async def trim(
        self, session_id: str, *, older_than: float | None, keep: int | None, below: int, limit: int = 1000
    ) -> int:
        """Remove the session's oldest records, at most `limit`, and return how many.

        A record goes if it was created before `older_than`, or if more than `keep` come after it. Stops at the first
        that stays, before seq `below`, and at one that awaits delivery or an answer. A seq is never given again.
        """
        ...

    async def purge(self, session_id: str) -> None:
        """Remove the session, all its records and dead letters. No error for an unknown id."""
        ...

    async def dead_letters(
        self, session_id: str | None = None, *, after: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        """The first `limit` dead letters with a number above `after`, of one session or all, in order of number."""
        ...

    async def retry_dead_letter(self, number: int) -> Outcome | None:
        """Try once more to store a dead letter in its place. Stored, or Duplicate if its cid was stored meanwhile: it
        is no dead letter any more. Dead: it stays one. Rejected: its place is gone. None: there is no such letter."""
        ...

    async def drop_dead_letter(self, number: int) -> bool:
        """Forget a dead letter; its marker stays. False: there is no such letter."""
        ...
