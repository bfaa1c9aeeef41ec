"""Things that go wrong on purpose."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Protocol, Self, TypeVar

from msgspec.structs import replace

from persistence.errors import StoreBroken, StoreFull, StoreUnavailable
from persistence.listener import StoreListener
from persistence.ports import MessageStore, UserStore
from persistence.record import DeadLetter, Loaded, Outcome, Record, Session, Usage, Write
from persistence.user_record import SealedCredential, UserConfig

T = TypeVar("T")


class Fault(Enum):
    AWAY = "nothing is done, StoreUnavailable"
    FULL = "nothing is done, StoreFull"
    LOST_REPLY = "it is done, and StoreUnavailable is raised all the same"
    BROKEN = "nothing is done, StoreBroken"
    BUG = "nothing is done, and an error comes out that no store may raise"


class Call(Protocol):
    async def __call__(self, do: Callable[[], Awaitable[T]], /) -> T: ...


class FlakyUsers:
    """Another store's users, whose calls count among the store's."""

    def __init__(self, inner: UserStore, call: "Call") -> None:
        self.inner = inner
        self._call = call

    async def credential(self, user_id: str, provider: str) -> SealedCredential | None:
        return await self._call(lambda: self.inner.credential(user_id, provider))

    async def credentials(self, user_id: str) -> list[SealedCredential]:
        return await self._call(lambda: self.inner.credentials(user_id))

    async def put_credential(self, row: SealedCredential, *, expected: int | None = None) -> int | None:
        return await self._call(lambda: self.inner.put_credential(row, expected=expected))

    async def delete_credential(self, user_id: str, provider: str) -> bool:
        return await self._call(lambda: self.inner.delete_credential(user_id, provider))

    async def key_ids(self) -> dict[str, int]:
        return await self._call(self.inner.key_ids)

    async def sealed_otherwise(self, key_id: str, *, after: int = 0, limit: int = 100) -> list[SealedCredential]:
        return await self._call(lambda: self.inner.sealed_otherwise(key_id, after=after, limit=limit))

    async def config(self, user_id: str) -> UserConfig | None:
        return await self._call(lambda: self.inner.config(user_id))

    async def put_config(self, config: UserConfig) -> None:
        await self._call(lambda: self.inner.put_config(config))


class FlakyStore:
    """Another store, with faults: call number n (from 1; opening and closing do not count) fails as `faults[n]` says,
    every other call as `outage` says while it is set. While `gate` is clear, calls wait before they do anything.
    While `held` is set, its data can be read, and nothing is committed. Records whose payload contains `poison` are
    never stored."""

    def __init__(self, inner: MessageStore, faults: Mapping[int, Fault] | None = None) -> None:
        self.inner = inner
        self.faults = dict(faults or {})
        self.outage: Fault | None = None
        self.held = False
        self.poison: bytes | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.calls = 0

    @property
    def heard(self) -> StoreListener:
        return self.inner.heard

    @heard.setter
    def heard(self, heard: StoreListener) -> None:
        self.inner.heard = heard

    @property
    def users(self) -> UserStore:
        return FlakyUsers(self.inner.users, self.call)

    async def call(self, do: Callable[[], Awaitable[T]]) -> T:
        self.calls += 1
        fault = self.faults.get(self.calls, self.outage)
        await self.gate.wait()
        if fault is Fault.AWAY:
            raise StoreUnavailable("injected")
        if fault is Fault.FULL:
            raise StoreFull("injected")
        if fault is Fault.BROKEN:
            raise StoreBroken("injected")
        if fault is Fault.BUG:
            raise ZeroDivisionError("injected")
        result = await do()
        if fault is Fault.LOST_REPLY:
            raise StoreUnavailable("injected: the reply was lost")
        return result

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.inner.__aexit__(kind, error, trace)

    async def installation(self, proposed: str) -> str:
        return await self.call(lambda: self.inner.installation(proposed))

    async def create(self, session: Session) -> Session:
        return await self.call(lambda: self.inner.create(session))

    async def find(self, session_id: str) -> Session | None:
        return await self.call(lambda: self.inner.find(session_id))

    async def load(self, session_id: str) -> Loaded | None:
        return await self.call(lambda: self.inner.load(session_id))

    async def sessions(
        self, user_id: str | None = None, *, after: str | None = None, limit: int | None = None
    ) -> list[Session]:
        return await self.call(lambda: self.inner.sessions(user_id, after=after, limit=limit))

    async def usage(self, user_id: str) -> Usage:
        return await self.call(lambda: self.inner.usage(user_id))

    async def waiting(self) -> list[str]:
        return await self.call(self.inner.waiting)

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        return await self.call(lambda: self._commit(writes))

    async def _commit(self, writes: Sequence[Write]) -> list[Outcome]:
        if self.held:
            raise StoreUnavailable("injected: held")
        return await self.inner.commit([self._spoilt(write) for write in writes])

    def _spoilt(self, write: Write) -> Write:
        record = write.append
        if self.poison is None or record is None or self.poison not in record.payload:
            return write
        return replace(write, append=replace(record, role=f"{record.role}\0"))

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
        return await self.call(
            lambda: self.inner.messages(
                session_id, after=after, before=before, limit=limit, role=role, type=type, max_bytes=max_bytes
            )
        )

    async def by_cid(self, session_id: str, cid: str) -> Record | None:
        return await self.call(lambda: self.inner.by_cid(session_id, cid))

    def behind(self, session_id: str) -> bool:
        return self.inner.behind(session_id)

    async def trim(
        self, session_id: str, *, older_than: float | None, keep: int | None, below: int, limit: int = 1000
    ) -> int:
        return await self.call(
            lambda: self.inner.trim(session_id, older_than=older_than, keep=keep, below=below, limit=limit)
        )

    async def purge(self, session_id: str) -> None:
        await self.call(lambda: self.inner.purge(session_id))

    async def dead_letters(
        self, session_id: str | None = None, *, after: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        return await self.call(lambda: self.inner.dead_letters(session_id, after=after, limit=limit))

    async def retry_dead_letter(self, number: int) -> Outcome | None:
        return await self.call(lambda: self.inner.retry_dead_letter(number))

    async def drop_dead_letter(self, number: int) -> bool:
        return await self.call(lambda: self.inner.drop_dead_letter(number))
