"""The spool before a real server that is stopped, and one that is frozen."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random

import pytest

from persistence.backlog import QueueLimits
from persistence.heard import NobodyListens
from persistence.queue import PersistenceQueue
from persistence.record import Outcome, Session, Spooled, Stored
from persistence.spool import Spool
from persistence.stores.postgres import PostgresStore
from persistence.stores.spooled import SpooledStore
from tests.support.postgres import PostgresServer
from tests.support.records import said

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


async def until(state: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not state():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("ends", [("stop", "start"), ("pause", "resume")], ids="-".join)
async def test_people_go_on_while_the_server_is_gone_and_everything_is_stored(
    store: SpooledStore, postgres_server: PostgresServer, ends: tuple[str, str]
) -> None:
    leave, come_back = (getattr(postgres_server, name) for name in ends)
    store.heard = ear = Ear()
    first: dict[str, list[Outcome]] = {name: [] for name in SESSIONS}
    async with PersistenceQueue(store, QueueLimits(), Random(1)) as queue:

        async def talk(rounds: range) -> None:
            for seq in rounds:
                for name in SESSIONS:
                    assert queue.put(said(name, seq), first[name].append)
                await until(lambda seq=seq: all(len(told) == seq for told in first.values()))  # type: ignore[misc]

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
