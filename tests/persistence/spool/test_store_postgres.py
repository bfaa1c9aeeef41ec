"""The spool before a real server that is stopped, and one that is frozen."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from persistence.errors import StoreUnavailable
from persistence.listener import NobodyListens
from persistence.postgres import store as postgres
from persistence.postgres.store import PostgresStore
from persistence.queue.backlog import QueueLimits
from persistence.queue.queue import PersistenceQueue
from persistence.record import Outcome, Session, Spooled, Stored
from persistence.spool.spool import Spool
from persistence.spool.store import SpooledStore
from tests.support.postgres import PostgresServer
from tests.support.records import said
from tests.support.waiting import until

SESSIONS = [f"s{number}" for number in range(20)]


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.create_database()


class Ear(NobodyListens):
    def __init__(self) -> None:
        self.told: dict[str, list[int]] = {name: [] for name in SESSIONS}

    def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        assert outcome == Stored(seq)
        self.told[session_id].append(seq)


@pytest.fixture
async def store(url: str, tmp_path: Path) -> AsyncIterator[SpooledStore]:
    async with SpooledStore(PostgresStore(url), Spool(tmp_path / "spool.db"), Random(1)) as store:
        for name in SESSIONS:
            await store.create(Session(name, "ann", 1.0))
        yield store


@pytest.mark.parametrize("ends", [("stop", "start"), ("pause", "resume")], ids="-".join)
async def test_people_go_on_while_the_server_is_gone_and_everything_is_stored(
    store: SpooledStore, postgres_server: PostgresServer, ends: tuple[str, str]
) -> None:
    leave, come_back = (getattr(postgres_server, name) for name in ends)
    store.heard = ear = Ear()
    first: dict[str, list[Outcome]] = {name: [] for name in SESSIONS}
    async with PersistenceQueue(store, QueueLimits(), Random(1)) as queue:

        def all_told(seq: int) -> bool:
            return all(len(told) == seq for told in first.values())

        async def talk(rounds: range) -> None:
            for seq in rounds:
                for name in SESSIONS:
                    assert queue.put(said(name, seq), first[name].append)
                await until(partial(all_told, seq))

        await talk(range(1, 6))
        try:
            leave()
            await talk(range(6, 30))
            assert queue.failing is None
            assert store.behind("s0")
        finally:
            come_back()  # on this thread: the server ends with the thread that started it
        await until(lambda: not store.stats()["rows"])
        await talk(range(30, 40))
        await until(lambda: not store.stats()["rows"])
    for name in SESSIONS:
        told, records = first[name], await store.messages(name)
        assert [record.seq for record in records] == list(range(1, 40))
        spooled = [outcome.seq for outcome in told if isinstance(outcome, Spooled)]
        assert set(range(8, 30)) <= set(spooled)
        assert ear.told[name] == spooled
        assert told[-1] in (Stored(39), Spooled(39))


async def test_readers_are_not_held_up_by_a_server_that_is_known_to_hang(
    store: SpooledStore, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "READ_SECONDS", 600.0)
    await store.commit([said("s0", 1), said("s0", 2), said("s1", 1)])
    await until(lambda: not store.stats()["rows"])
    try:
        postgres_server.pause()
        assert await store.commit([said("s0", 3)]) == [Spooled(3)]
        await until(lambda: store.failing)
        assert [record.seq for record in await store.messages("s0", after=2)] == [3]
        assert [record.seq for record in await store.messages("s0", before=4, limit=1)] == [3]
        assert await store.by_cid("s0", "c3") is not None
        asked: list[Coroutine[Any, Any, object]] = [
            store.messages("s0"),
            store.messages("s1"),
            store.by_cid("s0", "c1"),
            store.find("s0"),
            store.sessions("ann"),
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreUnavailable] * len(asked)
        assert [record.seq for record in await store.messages("s0", after=2)] == [3]
        assert not store.stats()["retries"]  # the commit itself still waits for its answer
    finally:
        postgres_server.resume()
    await until(lambda: store.failing is None and not store.stats()["rows"])
    assert [record.seq for record in await store.messages("s0")] == [1, 2, 3]
    assert [record.seq for record in await store.messages("s1")] == [1]
    found = await store.find("s0")
    assert found is not None
    assert found.last_seq == 3
