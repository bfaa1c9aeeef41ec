"""The MessageStore contract, once per adapter."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from persistence.ports import MessageStore
from persistence.stores.memory import MemoryStore
from persistence.stores.sqlite import SqliteStore
from tests.contract.message_store import MessageStoreContract
from tests.support.faults import FlakyStore


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


class TestFlakyStoreWithoutFaults(MessageStoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[MessageStore]:
        async with FlakyStore(MemoryStore()) as store:
            yield store
