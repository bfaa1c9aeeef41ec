"""The MessageStore contract with the spool in its file: the remote store answers, or is always away at first."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from persistence.memory import MemoryStore
from persistence.ports import MessageStore
from persistence.record import Session
from persistence.spool.spool import Spool
from persistence.spool.store import SpooledStore
from tests.contract.message_store import Ear, MessageStoreContract
from tests.contract.spooling import DecidingStore, FinalOutcomes, Impatient
from tests.support.records import said


class TestDirect(MessageStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[MessageStore]:
        async with SpooledStore(MemoryStore(), Spool(tmp_path / "spool.db"), Random(1)) as store:
            yield store
            assert store.stats()["spooled"] == 0


class SpooledContract(MessageStoreContract):
    async def test_who_listens_hears_which_conversations_grew(self, store: MessageStore) -> None:
        """What is accepted can be read at once, so it is heard of before it is known whether it will be refused."""
        heard = Ear()
        store.heard = heard
        for session_id in "stu":
            await store.create(Session(session_id, "ann", 1.0))
        await store.commit([said("s", 1), said("s", 2), said("t", 1), said("u", 9)])
        assert {"s", "t"} <= heard.sessions


class TestAlwaysAwayAtFirst(SpooledContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[MessageStore]:
        remote = DecidingStore(away=True)
        async with FinalOutcomes(remote, Spool(tmp_path / "spool.db"), Impatient()) as store:
            yield store
            if remote.decided:
                assert store.spooled_outcomes > 0
        assert all(not task.get_name().startswith("spool") for task in asyncio.all_tasks())
