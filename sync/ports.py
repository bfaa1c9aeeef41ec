"""The port to an object store. sandbox/ports/tree.py is the port to a tree."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self


class ObjectsUnavailable(Exception):
    """The object store did not do it now, and may do it later. The text names the key and the cause."""


class TooManyRequests(ObjectsUnavailable):
    """The object store refuses more requests for now: Cloudflare R2 takes one write a second to one key. Repeat it a
    second later, not sooner."""


class ObjectsRefused(Exception):
    """The object store will never accept this: credentials, a missing bucket, a bad key. The text says what to
    change."""


class Conflict(Exception):
    """A conditional write whose condition did not hold: another writer was first."""


@dataclass(frozen=True, slots=True)
class Found:
    """An object, as `head` and `list` return it. `etag` is opaque; it changes whenever the content does."""

    key: str
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Got:
    content: bytes
    etag: str


class ObjectStore(Protocol):
    """Objects by key. Reads see every write that was answered before they began. Keys are `/`-separated components of
    `[A-Za-z0-9._-]`, none of them `.` or `..`; any other raises ObjectsRefused. Where `a` is an object, `a/b` must
    not be one: some stores are directories. A write is whole or absent, even if the process or the store is killed in
    the middle. Every method may raise ObjectsUnavailable and ObjectsRefused. A write that raised ObjectsUnavailable
    may have happened."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def put(self, key: str, content: bytes) -> str:
        """Write, whether or not something is there; return the new etag. Large content goes up in parts."""
        ...

    async def create(self, key: str, content: bytes) -> str:
        """Write if nothing is there, and return the etag; raises Conflict if something is. Of several racing callers
        one wins."""
        ...

    async def replace(self, key: str, content: bytes, etag: str) -> str:
        """Write if the present object has `etag`; raises Conflict if it has another or is gone. Of several racing
        callers one wins."""
        ...

    async def get(self, key: str) -> Got | None:
        """The object; None if there is none."""
        ...

    async def get_range(self, key: str, start: int, length: int) -> bytes | None:
        """`length` bytes from `start`, fewer at the object's end (none past it); None if there is no object."""
        ...

    async def head(self, key: str) -> Found | None: ...

    def list(self, prefix: str) -> AsyncIterator[Found]:
        """Every object under `prefix`, which ends with `/` or is empty, in no particular order, however many."""
        ...

    async def delete(self, key: str) -> None:
        """Remove the object. No error if there is none."""
        ...
