"""The start-up check: passes what keeps its promises, catches what does not, and leaves nothing behind."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from sync.objects.files import FileObjects
from sync.objects.memory import MemoryObjects
from sync.objects.probe import PromiseBroken, probe
from sync.objects.retrying import RequestLimits, RetryingObjects
from sync.ports import Conflict, Found, Got, ObjectsRefused, ObjectStore, ObjectsUnavailable
from tests.contract.object_store import found_in
from tests.support.faulty_s3 import FaultyS3
from tests.support.s3 import CarelessS3Server, S3Place, S3Server


async def test_stores_that_keep_their_promises_pass_and_nothing_stays(tmp_path: Path, s3_place: S3Place) -> None:
    stores: list[ObjectStore] = [MemoryObjects(), FileObjects(tmp_path), s3_place.objects()]
    for plain in stores:
        async with RetryingObjects(plain, RequestLimits(), Random(1)) as store:
            await probe(store)
            assert await found_in(store, "") == {}


async def test_a_server_that_ignores_conditions_is_refused_with_words_for_the_operator() -> None:
    with CarelessS3Server() as server:
        async with RetryingObjects(server.make_bucket().objects(), RequestLimits(), Random(1)) as store:
            with pytest.raises(ObjectsRefused, match=r"in place of an existing one.*HOLDFAST_OBJECTS_UNCHECKED=true"):
                await probe(store)


class Racy(MemoryObjects):
    """Looks, and writes later."""

    async def create(self, key: str, content: bytes) -> str:
        if await self.get(key) is not None:
            raise Conflict(key)
        await asyncio.sleep(0)
        return await self.put(key, content)


class RacyReplace(MemoryObjects):
    async def replace(self, key: str, content: bytes, etag: str) -> str:
        there = await self.get(key)
        if there is None or there.etag != etag:
            raise Conflict(key)
        await asyncio.sleep(0)
        return await self.put(key, content)


class IgnoresEtags(MemoryObjects):
    async def replace(self, key: str, content: bytes, etag: str) -> str:
        return await self.put(key, content)


class Resurrects(MemoryObjects):
    async def replace(self, key: str, content: bytes, etag: str) -> str:
        if await self.get(key) is None:
            return await self.put(key, content)
        return await super().replace(key, content, etag)


class Forgetful(MemoryObjects):
    async def get(self, key: str) -> Got | None:
        return None


class Sluggish(MemoryObjects):
    """Reads what was there before it was replaced."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[str, Got | None] = {}

    async def replace(self, key: str, content: bytes, etag: str) -> str:
        before = await MemoryObjects.get(self, key)
        now = await super().replace(key, content, etag)
        self._before[key] = before
        return now

    async def get(self, key: str) -> Got | None:
        return self._before.get(key) or await super().get(key)


class Rangeless(MemoryObjects):
    async def get_range(self, key: str, start: int, length: int) -> bytes | None:
        got = await self.get(key)
        return None if got is None else got.content


class Immortal(MemoryObjects):
    async def delete(self, key: str) -> None:
        return None


class Stubborn(MemoryObjects):
    async def replace(self, key: str, content: bytes, etag: str) -> str:
        raise Conflict("whatever you say")


class SameEtag(MemoryObjects):
    def _write(self, key: str, content: bytes) -> str:
        super()._write(key, content)
        self._kept[key] = Got(content, "always")
        return "always"


class Blind(MemoryObjects):
    async def list(self, prefix: str):  # type: ignore[no-untyped-def]
        for found in list[Found]():
            yield found


BROKEN = [
    (IgnoresEtags, "replaced that had changed"),
    (Resurrects, "a deleted object was replaced"),
    (Forgetful, "does not return the bytes"),
    (Sluggish, "still returns the replaced content"),
    (Rangeless, "range"),
    (Immortal, "still returns a deleted object"),
    (Stubborn, "although its condition held"),
    (SameEtag, "old etag"),
    (Blind, "listing"),
]
RACY = [
    (Racy, "20 writers raced to create one object, and 20"),
    (RacyReplace, "5 writers raced to replace one object, and 5"),
]


@pytest.mark.parametrize(("kind", "says"), RACY + BROKEN)
async def test_each_broken_promise_is_caught(kind: type[MemoryObjects], says: str) -> None:
    with pytest.raises(PromiseBroken, match=says):
        await probe(kind())


async def test_a_store_that_cannot_be_asked_is_no_broken_promise(s3_server: S3Server) -> None:
    place = s3_server.make_place()
    async with FaultyS3(s3_server.port, Random(1)) as faults:
        faults.busy = 1.0
        with pytest.raises(ObjectsUnavailable):
            await probe(place.at(faults.port).objects())
    with pytest.raises(ObjectsRefused, match="answered 404 NoSuchBucket") as caught:
        await probe(S3Place(s3_server.endpoint, "no-such-bucket").objects())
    assert not isinstance(caught.value, PromiseBroken)
