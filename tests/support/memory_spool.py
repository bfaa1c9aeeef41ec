"""A spool in memory, for virtual time."""

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Self

from persistence.commit_plan import buried
from persistence.errors import StoreFull
from persistence.record import DeadLetter, Record, Write
from persistence.spool.overlay import SpoolOverlay
from persistence.spool.ports import SpoolRow


@dataclass
class Disk:
    """The part that outlives a process. While it is `full` nothing can be written."""

    rows: dict[int, Write] = field(default_factory=dict)
    lost: dict[int, DeadLetter] = field(default_factory=dict)
    last_no: int = 0
    last_lost: int = 0
    full: bool = False


class MemorySpool:
    """A FirstStage. Every call waits before and after it has done something, as one that does I/O would: a turn of the
    loop, or with `rng` sometimes more."""

    def __init__(self, disk: Disk | None = None, rng: Random | None = None) -> None:
        self._rng = rng
        self.disk = disk or Disk()
        self.tails = SpoolOverlay()
        self.oldest_at: float | None = None
        self.last_no = 0

    async def __aenter__(self) -> Self:
        self.last_no = self.disk.last_no
        for write in self.disk.rows.values():
            self.tails.add(write, write.size)
        self.oldest_at = time.time() if self.tails.writes else None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def _turn(self) -> None:
        await asyncio.sleep(self._rng.choice((0, 0, 0.0001, 0.01)) if self._rng else 0)

    async def append(self, writes: Sequence[Write]) -> list[SpoolRow]:
        await self._turn()
        if self.disk.full:
            raise StoreFull("injected")
        rows = [SpoolRow(no, write) for no, write in enumerate(writes, self.disk.last_no + 1)]
        self.disk.rows |= {row.no: row.write for row in rows}
        self.last_no = self.disk.last_no = self.disk.last_no + len(rows)
        for write in writes:
            self.tails.add(write, write.size)
        self.oldest_at = self.oldest_at or time.time()
        await self._turn()
        return rows

    async def first(self, writes: int, size: int, *, up_to: int, without: Collection[str]) -> list[SpoolRow]:
        await self._turn()
        found: list[SpoolRow] = []
        for no, write in sorted(self.disk.rows.items()):
            if no > up_to or len(found) == writes:
                break
            if write.session_id not in without:
                size -= write.size
                if found and size < 0:
                    break
                found.append(SpoolRow(no, write))
        await self._turn()
        return found

    async def remove(self, nos: Sequence[int], lost: Sequence[tuple[Record, str]] = ()) -> None:
        await self._turn()
        if self.disk.full:
            raise StoreFull("injected")
        for record, reason in lost:
            self.disk.last_lost += 1
            number = self.disk.last_lost
            self.disk.lost[number] = DeadLetter(number, buried(record), reason, time.time())
        self._take_away([no for no in nos if no in self.disk.rows])
        await self._turn()

    async def forget(self, session_id: str) -> None:
        await self._turn()
        if self.disk.full:
            raise StoreFull("injected")
        self.disk.lost = {n: kept for n, kept in self.disk.lost.items() if kept.record.session_id != session_id}
        self._take_away([no for no, write in self.disk.rows.items() if write.session_id == session_id])
        await self._turn()

    def _take_away(self, nos: Sequence[int]) -> None:
        gone = [self.disk.rows.pop(no) for no in nos]
        self.tails.remove((write.session_id, write.append is not None, write.size) for write in gone)
        self.oldest_at = self.oldest_at if self.disk.rows else None

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
        await self._turn()
        ours = [write.append for _, write in sorted(self.disk.rows.items()) if write.session_id == session_id]
        records = sorted((record for record in ours if record is not None), key=lambda record: record.seq)
        found = [
            record
            for record in records
            if after < record.seq
            and (before is None or record.seq < before)
            and role in (None, record.role)
            and type in (None, record.type)
        ]
        limit = max(limit, 0)
        return found[max(len(found) - limit, 0) :] if newest else found[:limit], records[0].seq if records else None

    async def by_cid(self, session_id: str, cid: str) -> Record | None:
        found, _ = await self.records(session_id, limit=10**9)
        return next((record for record in found if record.cid == cid), None)

    async def lost(self, session_id: str | None, *, after: int, limit: int) -> list[DeadLetter]:
        await self._turn()
        found = [n for n, kept in self.disk.lost.items() if n > after and session_id in (None, kept.record.session_id)]
        return [self.disk.lost[number] for number in found[: max(limit, 0)]]

    async def drop_lost(self, number: int) -> bool:
        return self.disk.lost.pop(number, None) is not None
