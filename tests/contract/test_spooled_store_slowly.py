"""The MessageStore contract with a spool before a remote store that is always too slow, on virtual time."""

from collections.abc import AsyncIterator
from random import Random

import pytest

from persistence.ports import MessageStore
from tests.contract.spooling import DecidingStore, FinalOutcomes
from tests.contract.test_spooled_store import SpooledContract
from tests.support.memory_spool import MemorySpool

pytestmark = pytest.mark.virtual_time


class TestAlwaysTooSlow(SpooledContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[MessageStore]:
        remote = DecidingStore(seconds=2.0)
        async with FinalOutcomes(remote, MemorySpool(), Random(1)) as store:
            yield store
            if remote.decided:
                assert store.spooled_outcomes > 0


class TestTooSlowToSayThatItIsAway(SpooledContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[MessageStore]:
        async with FinalOutcomes(DecidingStore(0.5, away=True), MemorySpool(), Random(1)) as store:
            yield store
