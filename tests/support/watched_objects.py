"""An object store that counts requests, and fails on command."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Self, TypeVar

from sync.ports import Found, Got, ObjectStore, ObjectsUnavailable

T = TypeVar("T")

WRITES = ("put", "create", "replace", "delete")


class Crash(BaseException):
    """The process ends here: nobody may catch this and go on."""


class Fault(Enum):
    AWAY = "nothing is done, ObjectsUnavailable"
    LOST_REPLY = "it is done, and ObjectsUnavailable is raised all the same"
    CRASH_BEFORE = "nothing is done, and the process ends"
    CRASH_AFTER = "it is done, and the process ends"


@dataclass(frozen=True, slots=True)
class Request:
    number: int  # from 1
    verb: str
    key: str
    sent_bytes: int = 0


def nth(number: int, fault: Fault) -> Callable[[Request], Fault | None]:
    """That request fails, and no other."""
    return lambda request: fault if request.number == number else None


class WatchedObjects:
    """Another store. Each request is noted in `requests`, and `fault` decides its result. A listing is one request,
    and counts when it begins."""

    def __init__(self, inner: ObjectStore, fault: Callable[[Request], Fault | None] = lambda request: None) -> None:
        self.inner = inner
        self.fault = fault
        self.requests: list[Request] = []

    def since(self, count: int) -> list[Request]:
        """The requests after the first `count`."""
        return self.requests[count:]

    @property
    def sent_bytes(self) -> int:
        return sum(request.sent_bytes for request in self.requests)

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.inner.__aexit__(kind, error, trace)

    async def put(self, key: str, content: bytes) -> str:
        return await self._ask("put", key, lambda: self.inner.put(key, content), len(content))

    async def create(self, key: str, content: bytes) -> str:
        return await self._ask("create", key, lambda: self.inner.create(key, content), len(content))

    async def replace(self, key: str, content: bytes, etag: str) -> str:
        return await self._ask("replace", key, lambda: self.inner.replace(key, content, etag), len(content))

    async def get(self, key: str) -> Got | None:
        return await self._ask("get", key, lambda: self.inner.get(key))

    async def get_range(self, key: str, start: int, length: int) -> bytes | None:
        return await self._ask("get_range", key, lambda: self.inner.get_range(key, start, length))

    async def head(self, key: str) -> Found | None:
        return await self._ask("head", key, lambda: self.inner.head(key))

    async def delete(self, key: str) -> None:
        await self._ask("delete", key, lambda: self.inner.delete(key))

    async def list(self, prefix: str) -> AsyncIterator[Found]:
        async def listed() -> tuple[Found, ...]:
            return tuple([found async for found in self.inner.list(prefix)])

        for found in await self._ask("list", prefix, listed):
            yield found

    async def _ask(self, verb: str, key: str, do: Callable[[], Awaitable[T]], size: int = 0) -> T:
        request = Request(len(self.requests) + 1, verb, key, size)
        self.requests.append(request)
        fault = self.fault(request)
        if fault is Fault.AWAY:
            raise ObjectsUnavailable("injected")
        if fault is Fault.CRASH_BEFORE:
            raise Crash
        result = await do()
        if fault is Fault.LOST_REPLY:
            raise ObjectsUnavailable("injected")
        if fault is Fault.CRASH_AFTER:
            raise Crash
        return result
