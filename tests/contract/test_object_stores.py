"""The ObjectStore contract, once per adapter, and through the wrapper that every one of them gets."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from sync.objects.files import FileObjects
from sync.objects.memory import MemoryObjects
from sync.objects.retrying import RequestLimits, RetryingObjects
from sync.ports import ObjectStore
from tests.contract.object_store import ObjectStoreContract
from tests.support.faulty_s3 import FaultyS3
from tests.support.s3 import S3Place, S3Server


class TestMemoryObjects(ObjectStoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[ObjectStore]:
        async with MemoryObjects() as store:
            yield store


class TestFileObjects(ObjectStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[ObjectStore]:
        async with FileObjects(tmp_path / "new" / "objects") as store:
            yield store


class TestS3Objects(ObjectStoreContract):
    racers = 4  # the server lets each loser come again once a second; the probe's tests let 20 race

    @pytest.fixture
    async def store(self, s3_place: S3Place) -> AsyncIterator[ObjectStore]:
        async with s3_place.objects() as store:
            yield store


class TestRetryingObjectsWithoutFaults(ObjectStoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[ObjectStore]:
        async with RetryingObjects(MemoryObjects(), RequestLimits(), Random(1)) as store:
            yield store
            assert store.retries == 0


class TestRetryingObjectsOnABadDay(ObjectStoreContract):
    """A third of all requests goes wrong, a few of them after the deed. Nobody notices."""

    racers = 4

    @pytest.fixture
    async def store(self, s3_server: S3Server) -> AsyncIterator[ObjectStore]:
        async with FaultyS3(s3_server.port, Random(7)) as faults:
            faults.busy, faults.loses = 0.2, 0.1
            inner = s3_server.make_place().at(faults.port).objects()
            limits = RequestLimits(attempts=30, base_seconds=0.001, cap_seconds=0.05)
            async with RetryingObjects(inner, limits, Random(7)) as store:
                yield store
