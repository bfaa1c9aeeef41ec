"""Objects in memory: they live as long as the process. For tests, and for data that need not survive it."""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from sync.objects.object_keys import check_key, check_prefix
from sync.ports import Conflict, Found, Got


class MemoryObjects:
    """Every call first lets other tasks run, as a call over a network would."""

    def __init__(self) -> None:
        self._kept: dict[str, Got] = {}
        self._writes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def put(self, key: str, content: bytes) -> str:
        check_key(key)
        await asyncio.sleep(0)
        return self._write(key, content)

    async def create(self, key: str, content: bytes) -> str:
        check_key(key)
        await asyncio.sleep(0)
        if key in self._kept:
            raise Conflict(f"{key} exists")
        return self._write(key, content)

    async def replace(self, key: str, content: bytes, etag: str) -> str:
        check_key(key)
        await asyncio.sleep(0)
        there = self._kept.get(key)
        if there is None or there.etag != etag:
            raise Conflict(f"{key} is gone" if there is None else f"{key} has changed")
        return self._write(key, content)

    async def get(self, key: str) -> Got | None:
        check_key(key)
        await asyncio.sleep(0)
        return self._kept.get(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes | None:
        there = await self.get(key)
        return None if there is None else there.content[start : start + length]

    async def head(self, key: str) -> Found | None:
        there = await self.get(key)
        return None if there is None else Found(key, len(there.content), there.etag)

    async def list(self, prefix: str) -> AsyncIterator[Found]:
        check_prefix(prefix)
        await asyncio.sleep(0)
        for key, there in [each for each in self._kept.items() if each[0].startswith(prefix)]:
            yield Found(key, len(there.content), there.etag)

    async def delete(self, key: str) -> None:
        check_key(key)
        await asyncio.sleep(0)
        self._kept.pop(key, None)

    def _write(self, key: str, content: bytes) -> str:
        self._writes += 1
        self._kept[key] = Got(bytes(content), f"w{self._writes}")
        return self._kept[key].etag
