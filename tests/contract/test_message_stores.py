"""The MessageStore contract, once per adapter."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from persistence.http_sink.store import HttpStore
from persistence.memory import MemoryStore
from persistence.ports import MessageStore
from persistence.postgres.store import PostgresStore
from persistence.sqlite.store import SqliteStore
from sandbox.client.http_client import connect_tcp
from tests.contract.message_store import MessageStoreContract
from tests.contract.settling import Settling
from tests.support.faults import FlakyStore
from tests.support.sink import TOKEN, SinkProcess


class TestMemoryStore(MessageStoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[MessageStore]:
        async with MemoryStore() as store:
            yield store


class TestSqliteStore(MessageStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[MessageStore]:
        async with SqliteStore(tmp_path / "messages.db") as store:
            yield store


class TestPostgresStore(MessageStoreContract):
    @pytest.fixture
    async def store(self, postgres_url: str) -> AsyncIterator[MessageStore]:
        async with PostgresStore(postgres_url) as store:
            yield store


class TestFlakyStoreWithoutFaults(MessageStoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[MessageStore]:
        async with FlakyStore(MemoryStore()) as store:
            yield store


@pytest.fixture(scope="module")
async def sink() -> AsyncIterator[SinkProcess]:
    async with SinkProcess() as sink:
        yield sink


class TestHttpStore(MessageStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path, sink: SinkProcess) -> AsyncIterator[MessageStore]:
        await sink.forget()
        async with HttpStore(sink.url, TOKEN, tmp_path / "spool.db", connect_tcp, rng=Random(1)) as store:
            yield Settling(store)

    async def test_the_newest_10000_cids_are_loaded_oldest_first(self, store: MessageStore) -> None:
        assert isinstance(store, Settling)  # without it nobody waits until so many are posted: the index has them
        await super().test_the_newest_10000_cids_are_loaded_oldest_first(store.inner)
