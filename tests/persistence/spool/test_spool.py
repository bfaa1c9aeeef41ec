"""What every FirstStage promises, and what only the spool in its file does."""

import asyncio
import math
import os
import sqlite3
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from persistence import crash_points
from persistence.errors import CannotOpen, StoreBroken, StoreFull
from persistence.memory import MemoryStore
from persistence.record import Record, Session, Status, Write
from persistence.spool import spool
from persistence.spool.drainer import Drainer
from persistence.spool.failover import Failover
from persistence.spool.ports import SpoolPort, SpoolRow
from persistence.spool.spool import Spool
from tests.contract.spooling import Impatient
from tests.support.memory_spool import MemorySpool
from tests.support.records import said

FULL_WRITE = Write(
    "s",
    Record("s", 3, "c\u00efd", "user", "message", b'{"content":"\xc3\xbc"}', 1.25, Status.STORED),
    marks=((1, Status.EXPIRED), (2, "\ud800")),
    delivered=2,
    state=b"state",
    checkpoint=b"",
    spec=b"spec",
    fence=7,
)


async def everything(stage: SpoolPort, **limits: int) -> list[Write]:
    rows = await stage.first(limits.get("writes", 99), limits.get("size", 10**9), up_to=stage.last_no, without=())
    return [row.write for row in rows]


class FirstStageContract:
    async def test_writes_come_out_as_and_in_the_order_they_went_in(self, stage: SpoolPort) -> None:
        writes = [said("s", 1), Write("t", checkpoint=b"x"), FULL_WRITE, Write("t", fence=1, state=b"")]
        rows = await stage.append(writes[:2]) + await stage.append(writes[2:])
        assert [row.write for row in rows] == writes == await everything(stage)
        assert [row.no for row in rows] == sorted({row.no for row in rows})
        assert stage.last_no == rows[-1].no
        assert (stage.tails.writes, stage.tails.bytes) == (4, sum(write.size for write in writes))
        assert stage.oldest_at is not None

    async def test_the_first_rows_are_bounded_and_chosen(self, stage: SpoolPort) -> None:
        rows = await stage.append([said("s", 1), said("t", 1), said("s", 2, content="x" * 5_000), said("t", 2)])
        assert await stage.first(2, 10**9, up_to=stage.last_no, without=()) == rows[:2]
        assert await stage.first(9, rows[0].write.size * 2, up_to=stage.last_no, without=()) == rows[:2]
        assert await stage.first(9, 1, up_to=stage.last_no, without={"t"}) == rows[:1]
        assert await stage.first(9, 10**9, up_to=stage.last_no, without={"s"}) == [rows[1], rows[3]]
        assert await stage.first(9, 10**9, up_to=rows[2].no, without={"s", "u"}) == [rows[1]]

    async def test_removed_rows_are_gone_and_numbers_are_not_given_again(self, stage: SpoolPort) -> None:
        rows = await stage.append([said("s", 1), said("s", 2), Write("t", state=b"x")])
        await stage.remove([rows[0].no, rows[2].no, 999])
        assert await everything(stage) == [said("s", 2)]
        assert list(stage.tails.by_session) == ["s"]
        await stage.remove([rows[1].no])
        await stage.remove([rows[1].no])
        assert (stage.tails.writes, stage.tails.bytes, stage.oldest_at) == (0, 0, None)
        assert (await stage.append([said("s", 3)]))[0].no > rows[-1].no

    async def test_records_are_read_in_windows(self, stage: SpoolPort) -> None:
        answer = Write("s", Record("s", 6, "a", "assistant", "answer", b"{}", 1.0))
        await stage.append([said("s", 4), said("t", 1), said("s", 5), Write("s", state=b"x"), answer, said("s", 7)])
        ask = stage.records
        assert [r.seq for r in (await ask("s"))[0]] == [4, 5, 6, 7]
        assert [r.seq for r in (await ask("s", after=4, limit=2))[0]] == [5, 6]
        assert [r.seq for r in (await ask("s", before=7, limit=2, newest=True))[0]] == [5, 6]
        assert [r.seq for r in (await ask("s", role="user", before=7))[0]] == [4, 5]
        assert await ask("s", type="answer") == ([answer.append], 4)
        assert await ask("s", limit=0, newest=True) == ([], 4)
        assert await ask("u") == ([], None)
        assert await stage.by_cid("s", "a") == answer.append
        assert await stage.by_cid("t", "a") is None

    async def test_a_lost_record_is_kept_as_a_letter(self, stage: SpoolPort) -> None:
        rows = await stage.append([said("s", 1), said("t", 1)])
        record = Record("s", 1, "\ud800", "user", "message", b"{}", math.nan, Status.STORED)
        await stage.remove([row.no for row in rows], [(record, "no"), (said("t", 1).append or record, "nor this")])
        first, second = await stage.lost(None, after=0, limit=9)
        assert (first.record.cid, first.record.status, first.reason) == ("\\ud800", "interrupted", "no")
        assert await stage.lost("t", after=0, limit=9) == [second]
        assert await stage.lost(None, after=first.number, limit=1) == [second]
        assert await stage.lost(None, after=0, limit=0) == []
        assert await stage.drop_lost(first.number)
        assert not await stage.drop_lost(first.number)
        assert await stage.lost(None, after=0, limit=9) == [second]

    async def test_a_forgotten_session_leaves_nothing(self, stage: SpoolPort) -> None:
        rows = await stage.append([said("s", 1), said("t", 1), said("s", 2)])
        await stage.remove([rows[0].no], [(said("s", 1).append or Record("", 0, "", "", "", b"", 0.0), "no")])
        await stage.forget("s")
        await stage.forget("nobody")
        assert await everything(stage) == [said("t", 1)]
        assert await stage.lost(None, after=0, limit=9) == []
        assert list(stage.tails.by_session) == ["t"]


class TestMemorySpool(FirstStageContract):
    @pytest.fixture
    async def stage(self) -> AsyncIterator[SpoolPort]:
        async with MemorySpool() as stage:
            yield stage


class TestSpool(FirstStageContract):
    @pytest.fixture
    async def stage(self, tmp_path: Path) -> AsyncIterator[SpoolPort]:
        async with Spool(tmp_path / "spool.db") as stage:
            yield stage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.db"


async def test_everything_is_there_after_reopening(path: Path) -> None:
    async with Spool(path) as stage:
        rows = await stage.append([said("s", 1), FULL_WRITE, said("t", 9)])
        await stage.remove([rows[0].no])
        before = stage.tails
        oldest_at = stage.oldest_at
    async with Spool(path) as stage:
        assert await everything(stage) == [FULL_WRITE, said("t", 9)]
        assert (stage.tails.writes, stage.tails.bytes, stage.last_no) == (before.writes, before.bytes, rows[-1].no)
        assert stage.oldest_at == oldest_at
        tail = stage.tails.by_session["s"]
        assert (tail.last_seq, tail.delivered, tail.state, tail.spec) == (3, 2, b"state", b"spec")
        assert tail.over(Session("s", "ann", 1.0)).last_seq == 3
        await stage.remove([row.no for row in rows])
    async with Spool(path) as stage:
        assert (await stage.append([said("s", 2)]))[0].no == rows[-1].no + 1  # although the file was empty


async def test_the_spool_is_readable_by_its_owner_alone_and_with_sql(path: Path) -> None:
    async with Spool(path) as stage:
        await stage.append([said("s", 1)])
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
        with sqlite3.connect(path) as db:
            found = db.execute("SELECT session_id, seq, cid, role, type, status FROM spool").fetchall()
        db.close()
    assert found == [("s", 1, "c1", "user", "message", "stored")]


async def test_a_spool_at_its_bound_is_full_until_rows_leave(path: Path) -> None:
    write = said("s", 1, content="x" * 1_000)
    async with Spool(path, max_bytes=write.size * 2) as stage:
        rows = await stage.append([write, write])
        with pytest.raises(StoreFull, match="HOLDFAST_SPOOL_BYTES"):
            await stage.append([Write("s", state=b"x")])
        assert stage.tails.writes == 2
        await stage.remove([rows[0].no])
        await stage.append([said("s", 2)])


async def test_an_answer_that_streams_into_an_outage_keeps_one_checkpoint(path: Path) -> None:
    """It once kept all of them: an answer of a few MiB filled the spool for everybody."""
    async with Spool(path) as spool:
        for grown in range(1, 51):
            await spool.append([Write("a", state=b"%d" % grown, checkpoint=b"x" * grown * 1000), said("b", grown)])
        assert spool.tails.bytes < 100_000
        rows = await spool.first(1000, 10**9, up_to=10**9, without=())
        kept = [row.write.checkpoint for row in rows if row.write.session_id == "a"]
        assert kept == [None] * 49 + [b"x" * 50_000]
        counted = spool.tails.bytes
    async with Spool(path) as spool:
        assert spool.tails.bytes == counted
        await spool.append([Write("a", checkpoint=b"")])  # the answer is whole
        assert spool.tails.bytes < 50_000
        await spool.remove([row.no for row in await spool.first(1000, 10**9, up_to=10**9, without=())])
        assert (spool.tails.writes, spool.tails.bytes) == (0, 0)


async def test_a_caller_that_is_cancelled_leaves_the_counts_true(path: Path) -> None:
    async with Spool(path) as stage:
        asking = asyncio.create_task(stage.append([said("s", 1)]))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await stage.append([said("s", 2)])
        assert await everything(stage) == [said("s", 1), said("s", 2)]
        assert stage.tails.writes == 2


async def test_a_damaged_spool_is_never_opened_as_an_empty_one(path: Path) -> None:
    async with Spool(path) as stage:
        await stage.append([said("s", seq, content="x" * 3_000) for seq in range(1, 50)])
    content = bytearray(path.read_bytes())
    for page in range(2, len(content) // 4096):
        content[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    path.write_bytes(content)
    with pytest.raises(CannotOpen, match=r"damaged.*do not remove"):
        async with Spool(path):
            pass
    assert path.read_bytes() == content


async def test_damage_that_is_met_later_ends_it(path: Path) -> None:
    async with Spool(path) as stage:
        await stage.append([said("s", seq, content="x" * 3_000) for seq in range(1, 50)])

        def fail(_: sqlite3.Connection) -> None:
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error

        with pytest.raises(StoreBroken, match="damaged"):
            await stage._read("replay", fail)


async def test_a_file_that_an_outage_made_large_is_made_small_when_it_is_empty(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "SHRINK_BYTES", 100_000)
    async with Spool(path) as stage:
        rows = await stage.append([said("s", seq, content="x" * 3_000) for seq in range(1, 200)])
        await stage.remove([row.no for row in rows[:-1]])
        await stage.remove([rows[-1].no])
        assert path.stat().st_size < 100_000
        assert (await stage.append([said("s", 200)]))[0].no == rows[-1].no + 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB where this user may mount one, else a plain directory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, check=False)
    yield disk
    if mount.returncode == 0:
        subprocess.run(["umount", disk], check=True)


async def test_a_spool_that_filled_the_disk_can_be_emptied(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removing rows needs room, too: the spool never takes the last of it."""
    if not os.path.ismount(small_disk):
        real = os.statvfs

        class Nearly:
            f_frsize, f_blocks = 1, 2 * 2**20

            @property
            def f_bavail(self) -> int:
                return self.f_blocks - sum(file.stat().st_size for file in small_disk.iterdir())

        monkeypatch.setattr(os, "statvfs", lambda path: Nearly() if Path(path).parent == small_disk else real(path))
    kept: list[SpoolRow] = []
    async with Spool(small_disk / "spool.db") as stage:

        async def fill() -> None:
            for seq in range(1, 2_000):
                try:
                    kept.extend(await stage.append([said("s", seq, content="x" * 2_000)]))
                except StoreFull:  # the log has been emptied
                    kept.extend(await stage.append([said("s", seq, content="x" * 2_000)]))

        for _ in range(3):
            with pytest.raises(StoreFull):
                await fill()
            assert stage.tails.writes == len(kept) > 50
            drainer = Drainer(MemoryStore(), stage, Failover(), Impatient())
            await drainer._let_go([row.no for row in kept], {})
            assert stage.tails.writes == 0
            kept.clear()


async def test_a_write_is_durable_before_the_caller_knows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []

    def look(point: str) -> None:
        with sqlite3.connect(path) as db:
            seen.append((point, db.execute("SELECT count(*) FROM spool").fetchone()[0]))
        db.close()

    async with Spool(path) as stage:
        monkeypatch.setattr(crash_points, "reached", look)
        await stage.append([said("s", 1), said("s", 2)])
    assert seen == [("spool.written", 0), ("spool.committed", 2)]
