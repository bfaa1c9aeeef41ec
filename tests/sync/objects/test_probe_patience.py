"""The start-up check on stores that refuse or lose writes for a while, in virtual time: it takes what they can give."""

import asyncio
from random import Random

import pytest

from sync.objects.memory import MemoryObjects
from sync.objects.probe import PromiseBroken, probe
from sync.objects.retrying import RequestLimits, RetryingObjects
from sync.ports import ObjectsUnavailable, TooManyRequests
from tests.contract.object_store import found_in
from tests.sync.objects.test_probe import BROKEN

pytestmark = pytest.mark.virtual_time


def one_write_a_second(kind: type[MemoryObjects]) -> MemoryObjects:
    """Such a store, that takes one write a second to one key."""

    class Limited(kind):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.written: dict[str, float] = {}
            self.writes = self.too_soon = 0

        async def create(self, key: str, content: bytes) -> str:
            self._count(key)
            return await super().create(key, content)  # type: ignore[no-any-return]

        async def replace(self, key: str, content: bytes, etag: str) -> str:
            self._count(key)
            return await super().replace(key, content, etag)  # type: ignore[no-any-return]

        async def delete(self, key: str) -> None:
            self._count(key)
            await super().delete(key)

        def _count(self, key: str) -> None:
            now = asyncio.get_running_loop().time()
            self.writes += 1
            if now - self.written.get(key, -1.0) < 1.0:
                self.too_soon += 1
                raise TooManyRequests(key)
            self.written[key] = now

    return Limited()


async def test_a_store_that_takes_one_write_a_second_to_a_key_passes_and_refuses_few() -> None:
    inner = one_write_a_second(MemoryObjects)
    async with RetryingObjects(inner, RequestLimits(), Random(1)) as store:
        await probe(store, store.bare)
        assert await found_in(store, "") == {}
    hurried, racing, cleaning = 1, 2 + 2, 4
    assert 0 < inner.too_soon <= hurried + racing + cleaning  # type: ignore[attr-defined]


@pytest.mark.parametrize(("kind", "says"), BROKEN)
async def test_one_write_a_second_hides_no_broken_promise(kind: type[MemoryObjects], says: str) -> None:
    async with RetryingObjects(one_write_a_second(kind), RequestLimits(), Random(1)) as store:
        with pytest.raises(PromiseBroken, match=says):
            await probe(store, store.bare)


class Crowded(MemoryObjects):
    """Of those who write one key at once only the first is answered, as R2 may do it; a `deaf` one tells nobody."""

    def __init__(self, *, deaf: bool) -> None:
        super().__init__()
        self._deaf = deaf
        self._came = 0

    async def create(self, key: str, content: bytes) -> str:
        if "/created/" not in key:
            return await super().create(key, content)
        self._came += 1
        if self._came > 1:
            raise ObjectsUnavailable("429")
        etag = await super().create(key, content)
        if self._deaf:
            raise ObjectsUnavailable("the answer was lost")
        return etag


async def test_racers_without_an_answer_are_losers_if_somebody_won() -> None:
    await probe(Crowded(deaf=False))


class DeafOnce(MemoryObjects):
    """The first who wins a race is not told so."""

    def __init__(self) -> None:
        super().__init__()
        self.races: set[str] = set()

    async def create(self, key: str, content: bytes) -> str:
        etag = await super().create(key, content)
        if "/created/" in key:
            self.races.add(key)
            if len(self.races) == 1:
                raise ObjectsUnavailable("the answer was lost")
        return etag


async def test_a_race_without_a_known_winner_is_run_again() -> None:
    store = DeafOnce()
    await probe(store)
    assert len(store.races) == 2


async def test_a_race_without_a_known_winner_proves_nothing() -> None:
    with pytest.raises(ObjectsUnavailable):
        await probe(Crowded(deaf=True))
