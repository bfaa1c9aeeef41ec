"""A database that goes away, hangs, answers to nobody; and what its store does meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from persistence.errors import StoreUnavailable
from persistence.listener import NobodyListens
from persistence.postgres import store as postgres
from persistence.postgres.listener import NOTIFY_BYTES, named, notification
from persistence.postgres.store import PostgresStore
from persistence.record import Duplicate, Session, Stored, Write
from tests.support.postgres import PostgresServer
from tests.support.proxy import CuttingProxy, Passage
from tests.support.records import said
from tests.support.waiting import until


class DeafProxy(CuttingProxy):
    """Once told so, passes on one more question of each connection, and cuts it instead of passing on the answer."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.deaf = False
        self.cuts = 0

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        passage = Passage(writer, far_writer)
        self._passages.append(passage)
        try:
            await asyncio.gather(passage.pump(reader, far_writer), self._answer(far_reader, writer, passage))
        finally:
            passage.cut()
            self._passages.remove(passage)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passage: Passage) -> None:
        while data := await reader.read(65536):
            if self.deaf:
                self.cuts += 1
                break
            writer.write(data)
        passage.cut()


class LateProxy(CuttingProxy):
    """While `holding`, keeps the next question of a connection, cuts its asker off, and asks it when told to."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.holding = False
        self.kept: list[tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        answers = asyncio.create_task(self._answer(far_reader, writer))
        kept = False
        try:
            while not kept and (data := await reader.read(65536)):
                kept = self.holding
                if kept:
                    self.kept.append((data, far_reader, far_writer))
                else:
                    far_writer.write(data)
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            writer.transport.abort()
            if not kept:
                far_writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)

    async def ask_late(self) -> bytes:
        """Let the server have what was kept, and return all it says to that."""
        said = b""
        for data, reader, writer in self.kept:
            writer.write(data)
            writer.write(b"X\0\0\0\4")  # goodbye: the server closes when it has done what it was asked
            said += await reader.read()
            writer.close()
        return said


class Ear(NobodyListens):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def grown(self, session_id: str) -> None:
        self.heard.append(session_id)


async def try_again(store: PostgresStore, writes: list[Write]) -> list[object]:
    """What the queue does."""
    async with asyncio.timeout(60):
        while True:
            try:
                return list(await store.commit(writes))
            except StoreUnavailable:
                await asyncio.sleep(0.02)


async def until_reached(store: PostgresStore) -> None:
    """Its pool may still hold connections to the server as it was before."""
    async with asyncio.timeout(60):
        while True:
            try:
                await asyncio.gather(*(store.sessions() for _ in range(8)))
                return
            except StoreUnavailable:
                await asyncio.sleep(0.02)


async def write_until_heard(writer: PostgresStore, names: list[str], ear: Ear, wanted: str) -> None:
    """Again and again: nobody promises that a listener listens already."""
    async with asyncio.timeout(60):
        while wanted not in ear.heard:
            loaded = await writer.load(names[0])
            assert loaded is not None
            await writer.commit([said(name, loaded.session.last_seq + 1) for name in names])
            await asyncio.sleep(0.05)


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.create_database()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(url) as store:
        await store.create(Session("s", "ann", 1.0))
        await store.load("s")
        yield store


@pytest.mark.parametrize("remembered", [True, False])
async def test_a_commit_whose_reply_was_lost_is_tried_again_without_a_second_record(
    postgres_server: PostgresServer, url: str, remembered: bool
) -> None:
    async with DeafProxy(postgres_server.port) as proxy:
        near = url.replace(f":{postgres_server.port}", f":{proxy.port}")
        async with PostgresStore(near) as store, PostgresStore(url) as witness:
            await store.create(Session("s", "ann", 1.0))
            await store.commit([said("s", 1, "x")])
            batch = [said("s", 2), said("s", 3, "x"), Write("s", delivered=1, state=b"new"), said("s", 4)]
            if not remembered:
                store._heads.forget("s")
            proxy.deaf = True
            with pytest.raises(StoreUnavailable):
                await store.commit(batch)
            proxy.deaf = False
            assert proxy.cuts > 0
            expected = [Stored(2), Duplicate(1), Stored(0), Stored(4)]
            assert await try_again(store, batch) == expected
            assert await try_again(store, batch) == expected
            assert [record.cid for record in await witness.messages("s")] == ["x", "c2", "duplicate:3", "c4"]


async def test_a_batch_that_comes_through_late_does_not_set_a_session_back(
    postgres_server: PostgresServer, url: str
) -> None:
    async with LateProxy(postgres_server.port) as proxy, PostgresStore(url) as witness:
        near = url.replace(f":{postgres_server.port}", f":{proxy.port}")
        async with PostgresStore(near) as store:
            await store.create(Session("s", "ann", 1.0))
            await store.commit([said("s", 1)])
            await store.commit([Write("s", state=b"begun", checkpoint=b"begun")])  # so that nothing is left to prepare
            old = [Write("s", state=b"old", checkpoint=b"old")]
            proxy.holding = True
            with pytest.raises(StoreUnavailable):
                await store.commit(old)
            proxy.holding = False
            assert await try_again(store, old) == [Stored(0)]
            assert await try_again(store, [Write("s", state=b"new", checkpoint=b"new")]) == [Stored(0)]
            assert b"HF001" in await proxy.ask_late()
        loaded = await witness.load("s")
        assert loaded is not None
        assert (loaded.session.state, loaded.checkpoint) == (b"new", b"new")


async def test_a_lone_record_that_comes_through_late_does_not_set_a_session_back(
    postgres_server: PostgresServer, url: str
) -> None:
    async with LateProxy(postgres_server.port) as proxy, PostgresStore(url) as witness:
        near = url.replace(f":{postgres_server.port}", f":{proxy.port}")
        async with PostgresStore(near) as store:
            await store.create(Session("s", "ann", 1.0))
            await store.commit([said("s", 1)])
            await store.commit([said("s", 2)])  # so that nothing is left to prepare
            old = [replace(said("s", 3), state=b"old")]
            proxy.holding = True
            with pytest.raises(StoreUnavailable):
                await store.commit(old)
            proxy.holding = False
            assert await try_again(store, old) == [Stored(3)]
            assert await try_again(store, [replace(said("s", 4), state=b"new")]) == [Stored(4)]
            assert b"INSERT 0 0" in await proxy.ask_late()
        loaded = await witness.load("s")
        assert loaded is not None
        assert (loaded.session.state, loaded.session.last_seq) == (b"new", 4)
        assert [record.seq for record in await witness.messages("s")] == [1, 2, 3, 4]


async def test_what_is_stored_is_flushed_also_where_that_is_not_the_default(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$"
        )
    finally:
        await connection.close()
    async with PostgresStore(url) as store, store._connections.committing() as committing:
        assert await committing.fetchval("SHOW synchronous_commit") == "on"


@pytest.mark.parametrize("how", ["restart", "kill"])
async def test_a_server_that_comes_back_is_found_again_and_has_what_was_stored(
    postgres_server: PostgresServer, store: PostgresStore, how: str
) -> None:
    for seq in (1, 2, 3):
        assert await try_again(store, [said("s", seq)]) == [Stored(seq)]
        if how == "kill":
            postgres_server.kill()
            postgres_server.start()
        else:
            postgres_server.restart()
    assert await try_again(store, [said("s", 4)]) == [Stored(4)]
    await until_reached(store)
    assert [record.seq for record in await store.messages("s")] == [1, 2, 3, 4]


async def test_a_server_that_hangs_is_unavailable_and_forgiven(
    postgres_server: PostgresServer, url: str, store: PostgresStore
) -> None:
    async with PostgresStore(url, statement_seconds=1.0) as hasty:  # also while it does not hang: hence `try_again`
        assert await try_again(hasty, [said("s", 1)]) == [Stored(1)]
        postgres_server.pause()
        try:
            for ask in (
                hasty.commit([said("s", 2)]), hasty.messages("s"), hasty.load("s"), hasty.commit([said("s", 2)])
            ):  # fmt: skip
                with pytest.raises(StoreUnavailable):
                    await ask
        finally:
            postgres_server.resume()
        assert await try_again(hasty, [said("s", 2), said("s", 3)]) == [Stored(2), Stored(3)]


async def test_who_reads_waits_less_for_a_server_that_hangs_than_who_writes(
    url: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresStore(url) as store:
        await store.create(Session("s", "ann", 1.0))
        assert await store.commit([said("s", 1)]) == [Stored(1)]
        assert len(await store.messages("s")) == 1
        monkeypatch.setattr(postgres, "READ_SECONDS", 0.2)
        postgres_server.pause()
        try:
            writing = asyncio.create_task(store.commit([said("s", 2)]))
            for ask in (store.messages("s"), store.find("s"), store.by_cid("s", "c1"), store.sessions("ann")):
                with pytest.raises(StoreUnavailable):
                    await ask
            assert not writing.done()
        finally:
            postgres_server.resume()
        assert await writing == [Stored(2)]
        monkeypatch.undo()
        assert [record.seq for record in await store.messages("s")] == [1, 2]


async def test_a_cancelled_call_leaves_the_store_usable(store: PostgresStore) -> None:
    """Cancelled after one turn of the loop, two, three, ...: at each of its awaits, in the end."""
    seq = 1
    calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: store.load("s"),
        lambda: store.messages("s"),
        lambda: store.trim("s", older_than=None, keep=1000, below=1),
        lambda: store.commit([said("s", seq)]),
    ]
    for turns in range(1, 40):
        for call in calls:
            task = asyncio.create_task(call())
            for _ in range(turns):
                await asyncio.sleep(0)
            if turns % 4 == 0:
                await asyncio.sleep(0.001 * turns / 4)
            task.cancel()
            await asyncio.wait([task])
        seq = (await store.load("s")).session.last_seq + 1  # type: ignore[union-attr]
    assert await store.commit([said("s", seq)]) == [Stored(seq)]
    assert [record.seq for record in await store.messages("s", limit=1000)] == list(range(1, seq + 1))


async def test_twenty_who_load_at_once_get_twenty_fences(store: PostgresStore) -> None:
    loaded = await asyncio.gather(*(store.load("s") for _ in range(20)))
    assert len({one.fence for one in loaded if one is not None}) == 20


async def test_what_another_gateway_commits_is_heard_also_after_the_connection_was_lost(
    postgres_server: PostgresServer, url: str, store: PostgresStore
) -> None:
    ear = Ear()
    store.heard = ear
    await store.messages("asked about")
    async with PostgresStore(url) as other:
        await write_until_heard(other, ["s"], ear, "s")
        ear.heard.clear()
        postgres_server.restart()
        await until(lambda: "asked about" in ear.heard)  # what was missed may have been about it
        await until_reached(other)
        await write_until_heard(other, ["s"], ear, "s")


async def test_news_of_too_many_sessions_is_told_for_those_somebody_asked_about(url: str, store: PostgresStore) -> None:
    ear = Ear()
    store.heard = ear
    names = [f"{'long' * 20}{number}" for number in range(120)]
    async with PostgresStore(url) as other:
        for name in names:
            await other.create(Session(name, "ann", 1.0))
        await store.messages("asked about")
        await write_until_heard(other, names, ear, "asked about")
        assert set(ear.heard) <= {"asked about", *names}


def test_a_notification_names_its_sessions_or_means_any() -> None:
    assert named(notification(["a", 'b"', "\u00e4\n"])) == ["a", 'b"', "\u00e4\n"]
    assert len(notification(["x" * 10] * 600)) <= NOTIFY_BYTES
    assert len(notification(["\U0001f642" * 100] * 7)) <= NOTIFY_BYTES
    for strange in ("", "{}", "5", "garbage", '{"a": 1}'):
        assert named(strange) is None
    assert named('["a", 5, null]') == ["a"]
