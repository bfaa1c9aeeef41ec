"""What only the SQLite store does: files, migrations, full disks, broken disks, other writers."""

import asyncio
import os
import resource
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from persistence.errors import CannotOpen, StoreBroken, StoreFull, StoreUnavailable
from persistence.heads import RememberedHeads
from persistence.migrations import Migration, shipped
from persistence.queue.backlog import QueueLimits
from persistence.queue.queue import PersistenceQueue
from persistence.record import Fenced, Outcome, Session, Stored, Write
from persistence.sqlite import file as sqlite_file
from persistence.sqlite.store import SqliteStore
from tests.support.records import said

ANN = Session("s", "ann", 1.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "messages.db"


async def test_everything_is_there_after_reopening(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.create(ANN)
        await store.commit([said("s", 1), Write("s", state=b"here", checkpoint=b"part")])
        before = await store.load("s")
    async with SqliteStore(path) as store:
        after = await store.load("s")
        assert before is not None
        assert after == replace(before, fence=before.fence + 1)
        assert await store.commit([said("s", 2)]) == [Stored(2)]


async def test_conversations_are_readable_by_their_owner_alone(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.create(ANN)
        files = list(path.parent.iterdir())
        assert len(files) == 3
        assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3


async def test_a_database_newer_than_the_code_is_refused_and_left_alone(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.create(ANN)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(CannotOpen, match="schema 99"):
        async with SqliteStore(path):
            pass
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM sessions").fetchone() == (1,)
    db.close()


async def test_a_migration_that_fails_leaves_the_database_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteStore(path) as store:
        await store.create(ANN)
    halfway = Migration(99, "halfway", "DELETE FROM sessions; SELECT * FROM nowhere")
    monkeypatch.setattr(sqlite_file, "shipped", lambda database: [*shipped(database), halfway])
    with pytest.raises(CannotOpen, match="nowhere"):
        async with SqliteStore(path):
            pass
    monkeypatch.undo()
    async with SqliteStore(path) as store:
        assert await store.find("s") == ANN


async def test_a_file_that_is_no_database_is_refused_with_advice(path: Path) -> None:
    content = b"not a database, but long enough to look like a file" * 40
    path.write_bytes(content)
    with pytest.raises(CannotOpen, match="is a Holdfast database"):
        async with SqliteStore(path):
            pass
    assert path.read_bytes() == content


async def test_a_missing_directory_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(CannotOpen, match="directory exists"):
        async with SqliteStore(tmp_path / "nowhere" / "messages.db"):
            pass


async def test_a_closed_store_says_so(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.find("s")
    async with store:
        assert await store.find("s") is None
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.commit([])


async def test_another_writer_makes_it_unavailable_and_nothing_is_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.01)
    async with SqliteStore(path) as store:
        await store.create(ANN)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable) as caught:
            await store.commit([said("s", 1)])
        assert not isinstance(caught.value, StoreFull)
        with pytest.raises(StoreUnavailable):
            await store.create(Session("t", "ann", 1.0))
        assert await store.messages("s") == []  # readers do not wait
        other.execute("ROLLBACK")
        other.close()
        assert await store.commit([said("s", 1)]) == [Stored(1)]


async def test_a_write_by_another_process_is_seen_inside_the_transaction(path: Path) -> None:
    async with SqliteStore(path) as mine, SqliteStore(path) as theirs:
        await mine.create(ANN)
        assert await mine.commit([said("s", 1)]) == [Stored(1)]
        assert await theirs.commit([said("s", 2, "theirs")]) == [Stored(2)]
        (outcome,) = await mine.commit([said("s", 2, "mine")])
        assert not isinstance(outcome, Stored)
        assert [record.cid for record in await mine.messages("s")] == ["c1", "theirs"]


async def test_a_writer_that_another_process_has_displaced_is_fenced(path: Path) -> None:
    async with SqliteStore(path) as mine, SqliteStore(path) as theirs:
        await mine.create(ANN)
        old = await mine.load("s")
        assert old is not None
        assert await mine.commit([replace(said("s", 1), fence=old.fence)]) == [Stored(1)]
        assert await theirs.load("s") is not None
        assert await mine.commit([replace(said("s", 2), fence=old.fence)]) == [Fenced()]


async def _asks(store: SqliteStore, write: Write) -> bool:
    """Whether storing this makes the writer ask where the session was left."""
    statements: list[str] = []
    await store._file._writer.run("trace", lambda db: db.set_trace_callback(statements.append))
    assert await store.commit([write]) == [Stored(write.append.seq if write.append else 0)]
    await store._file._writer.run("trace", lambda db: db.set_trace_callback(None))
    assert any(sql.startswith("INSERT INTO messages") for sql in statements)
    return any(sql.startswith("SELECT id, no, last_seq") for sql in statements)


async def test_a_batch_of_sessions_that_wrote_before_asks_for_none(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.create(ANN)
        assert await _asks(store, said("s", 1))
        await store.commit([Write("s", delivered=1, state=b"x", checkpoint=b"part")])
        assert not await _asks(store, said("s", 2))


@pytest.mark.parametrize("what", ["load", "trim", "purge", "another process", "failed", "crowded out"])
async def test_where_a_session_was_left_is_forgotten(path: Path, what: str) -> None:
    async with SqliteStore(path) as store:
        await store.create(ANN)
        if what == "crowded out":
            store._batches._heads = RememberedHeads(most=1)
            await store.create(replace(ANN, id="t"))
        await store.commit([said("s", 1), said("s", 2), Write("s", checkpoint=b"part")])
        following = 3
        match what:
            case "load":
                await store.load("s")
            case "trim":
                assert await store.trim("s", older_than=None, keep=1, below=2) == 0  # it awaits delivery
            case "purge":
                await store.purge("s")
                await store.create(ANN)
                following = 1
            case "another process":
                async with SqliteStore(path) as theirs:
                    assert await theirs.commit([said("s", 3)]) == [Stored(3)]
                following = 4
            case "failed":
                await store._file._writer.run("limit", lambda db: _leave_pages(db, 0))
                with pytest.raises(StoreFull):
                    await store.commit([Write("s", checkpoint=b""), said("s", 3, content="x" * 10_000)])
                await store._file._writer.run("limit", lambda db: _leave_pages(db, 1_000))
            case "crowded out":
                await store.commit([said("t", 1)])
        assert await _asks(store, said("s", following))
        assert await store.commit([Write("s", checkpoint=b"")]) == [Stored(0)]
        loaded = await store.load("s")
        assert loaded is not None
        assert loaded.checkpoint == b""


async def test_the_log_is_folded_back_so_that_it_does_not_grow_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "CHECKPOINT_BYTES", 200_000)
    async with SqliteStore(path) as store:
        await store.create(ANN)
        for seq in range(1, 401):
            await store.commit([said("s", seq, content="x" * 20_000)])
        log = Path(f"{path}-wal").stat().st_size
    assert log < 2_000_000  # 8 MB went through it


async def test_a_commit_cancelled_halfway_is_whole_or_absent_and_the_store_goes_on(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.create(ANN)
        for turn in range(20):
            last = (await store.find("s") or ANN).last_seq
            batch = [said("s", last + 1, f"{turn}.1"), said("s", last + 2, f"{turn}.2")]
            commit = asyncio.create_task(store.commit(batch))
            await asyncio.sleep(0.0005 * (turn % 4))
            commit.cancel()
            await asyncio.wait([commit])
            assert await store.commit([]) == []  # whatever had begun is over
            assert (await store.find("s") or ANN).last_seq in (last, last + 2)


def _leave_pages(db: sqlite3.Connection, extra: int) -> None:
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages + extra}")


async def test_a_full_database_says_full_and_heals(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.create(ANN)
        await store._file._writer.run("limit", lambda db: _leave_pages(db, 0))
        told: list[Outcome] = []
        async with PersistenceQueue(store, QueueLimits(), Random(1)) as queue:
            for seq in range(1, 4):
                queue.put(said("s", seq, content="x" * 10_000), told.append)
            async with asyncio.timeout(30):
                while queue.room(1) != "storage_full":
                    await store.find("s")
            assert not queue.put(said("s", 4))
            assert told == []
            assert await store.messages("s") == []  # reading goes on
            await store._file._writer.run("limit", lambda db: _leave_pages(db, 1_000))
            assert await queue.flush(30) == 0
        assert told == [Stored(1), Stored(2), Stored(3)]


async def is_full(store: SqliteStore) -> bool:
    """After a look."""
    await store.try_room()
    return store.full


async def test_a_store_without_room_says_so_until_a_look_finds_some(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.create(ANN)
        assert not await is_full(store)
        await store._file._writer.run("limit", lambda db: _leave_pages(db, 0))
        with pytest.raises(StoreFull):
            await store.create(replace(ANN, id="other", spec=b"x" * 10_000))
        await store.find("s")  # says nothing about it
        assert store.full
        assert not await is_full(store)


async def test_a_disk_without_room_is_found_by_a_look(small_disk: Path) -> None:
    async with SqliteStore(small_disk / "messages.db") as store:
        if not os.path.ismount(small_disk):
            pytest.skip("this user may not mount a small disk")
        fill_up(small_disk / "ballast")
        assert await is_full(store)
        assert await is_full(store)
        (small_disk / "ballast").unlink()
        assert not await is_full(store)


def fill_up(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB where this user may mount one, else a plain directory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, check=False)
    yield disk
    if mount.returncode == 0:
        subprocess.run(["umount", disk], check=True)


async def test_a_full_disk_loses_nothing_that_was_acknowledged(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    acked: list[int] = []
    async with SqliteStore(small_disk / "messages.db") as store:
        await store.create(ANN)

        async def fill() -> None:
            if os.path.ismount(small_disk):
                room = os.statvfs(small_disk)
                ballast.write_bytes(b"x" * max(0, room.f_bavail * room.f_bsize - 40_000))
            else:
                await store._file._writer.run("limit", lambda db: _leave_pages(db, 10))

        async def free() -> None:
            ballast.unlink(missing_ok=True)
            await store._file._writer.run("limit", lambda db: _leave_pages(db, 10_000))

        async def append_until_it_fails() -> None:
            for seq in range(len(acked) + 1, len(acked) + 1_000):
                assert await store.commit([said("s", seq, content="x" * 5_000)]) == [Stored(seq)]
                acked.append(seq)

        for _ in range(5):
            await fill()
            with pytest.raises(StoreFull):
                await append_until_it_fails()
            assert [record.seq for record in await store.messages("s", limit=1_000)] == acked
            await free()
            acked.append(len(acked) + 1)
            assert await store.commit([said("s", acked[-1], content="x" * 5_000)]) == [Stored(acked[-1])]
    async with SqliteStore(small_disk / "messages.db") as store:
        assert [record.seq for record in await store.messages("s", limit=1_000)] == acked


@pytest.fixture
def files_may_grow_to() -> Iterator[Callable[[int], None]]:
    """Past this size, the system answers a write to any file with an error that is not "no space": a failing disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_after_an_error_of_the_disk_nothing_is_acknowledged_any_more(
    path: Path, files_may_grow_to: Callable[[int], None]
) -> None:
    async with SqliteStore(path) as store:
        await store.create(ANN)
        await store.commit([said("s", 1)])
        files_may_grow_to(Path(f"{path}-wal").stat().st_size + 10_000)
        with pytest.raises(StoreBroken):
            await store.commit([said("s", 2, content="x" * 100_000)])
        files_may_grow_to(resource.RLIM_INFINITY)
        with pytest.raises(StoreBroken):  # trying again could seem to work, without the bytes
            await store.commit([said("s", 2)])
    async with SqliteStore(path) as store:
        assert [record.seq for record in await store.messages("s")] == [1]
        assert await store.commit([said("s", 2)]) == [Stored(2)]


async def test_an_error_while_the_log_is_folded_back_is_not_overlooked(
    path: Path, files_may_grow_to: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteStore(path) as store:
        await store.create(ANN)
        await store.commit([said("s", seq, content="x" * 10_000) for seq in range(1, 101)])
    monkeypatch.setattr(sqlite_file, "CHECKPOINT_BYTES", 1)
    async with SqliteStore(path) as store:
        files_may_grow_to(path.stat().st_size)  # the log is far below it
        assert await store.commit([said("s", 101, content="x" * 30_000)]) == [Stored(101)]
        with pytest.raises(StoreBroken, match="checkpoint"):
            await store.commit([said("s", 102)])
        files_may_grow_to(resource.RLIM_INFINITY)
    async with SqliteStore(path) as store:
        assert await store.commit([said("s", 102)]) == [Stored(102)]


async def test_a_damaged_database_is_broken_not_retried(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.create(ANN)
        await store.commit([said("s", seq, content="x" * 2_000) for seq in range(1, 50)])
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    async with SqliteStore(path) as store:
        with pytest.raises(StoreBroken):
            await store.commit([said("s", 50)])
        with pytest.raises(StoreUnavailable):
            await store.messages("s")
