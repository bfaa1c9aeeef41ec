"""Attempts, rests, the bound on requests and the retry budget, in virtual time on a store that fails as told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from random import Random
from typing import TypeVar

import pytest

from sync.objects.memory import MemoryObjects
from sync.objects.retrying import RequestLimits, RetryingObjects
from sync.ports import Conflict, Found, Got, ObjectsRefused, ObjectsUnavailable, TooManyRequests

pytestmark = pytest.mark.virtual_time

T = TypeVar("T")
# nothing happens; it happens and nobody hears of it; it is too much at once; all is well
FAIL, LOSE, THROTTLE, PASS = "fail", "lose", "throttle", "pass"


class Scripted(MemoryObjects):
    """Each call meets the next fate; when there is none left, `then`."""

    def __init__(self, *fates: str, then: str = PASS) -> None:
        super().__init__()
        self.fates = list(fates)
        self.then = then
        self.calls: list[str] = []
        self.times: list[float] = []
        self.at_once = self.most_at_once = 0
        self.seconds = 0.0

    async def _meet(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(name)
        self.times.append(asyncio.get_running_loop().time())
        fate = self.fates.pop(0) if self.fates else self.then
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.seconds)
            if fate == FAIL:
                raise ObjectsUnavailable("scripted")
            if fate == THROTTLE:
                raise TooManyRequests("scripted")
            result = await call()
            if fate == LOSE:
                raise ObjectsUnavailable("scripted")
            return result
        finally:
            self.at_once -= 1

    async def put(self, key: str, content: bytes) -> str:
        return await self._meet("put", lambda: MemoryObjects.put(self, key, content))

    async def create(self, key: str, content: bytes) -> str:
        return await self._meet("create", lambda: MemoryObjects.create(self, key, content))

    async def replace(self, key: str, content: bytes, etag: str) -> str:
        return await self._meet("replace", lambda: MemoryObjects.replace(self, key, content, etag))

    async def get(self, key: str) -> Got | None:
        return await self._meet("get", lambda: MemoryObjects.get(self, key))

    async def list(self, prefix: str) -> AsyncIterator[Found]:
        self.calls.append("list")
        fate = self.fates.pop(0) if self.fates else self.then
        told = 0
        async for found in super().list(prefix):
            if fate == FAIL and told == 2:
                raise ObjectsUnavailable("scripted")
            told += 1
            yield found


def retrying(inner: MemoryObjects, **limits: float) -> RetryingObjects:
    return RetryingObjects(inner, RequestLimits(**limits), Random(1))  # type: ignore[arg-type]


async def test_what_fails_is_done_again_until_it_is_done_and_all_of_it_is_counted() -> None:
    inner = Scripted(FAIL, LOSE, FAIL)
    store = retrying(inner)
    await store.put("k", b"four")
    assert inner.calls == ["put"] * 4
    assert (store.requests, store.retries, store.sent_bytes) == (4, 3, 16)
    assert await store.get("k") == await MemoryObjects.get(inner, "k")
    assert (store.requests, store.retries, store.sent_bytes) == (5, 3, 16)


async def test_after_the_last_attempt_the_failure_is_told() -> None:
    inner = Scripted(then=FAIL)
    with pytest.raises(ObjectsUnavailable):
        await retrying(inner, attempts=4).get("k")
    assert len(inner.calls) == 4


async def test_a_refusal_and_a_first_conflict_are_answers_not_failures() -> None:
    inner = Scripted()
    store = retrying(inner)
    with pytest.raises(ObjectsRefused):
        await store.put("../k", b"")
    await store.create("k", b"x")
    with pytest.raises(Conflict):
        await store.create("k", b"x")
    with pytest.raises(Conflict):
        await store.replace("k", b"y", "no such etag")
    assert store.retries == 0
    assert "get" not in inner.calls


async def test_the_rests_between_attempts_are_drawn_below_a_doubling_bound() -> None:
    bounds = (1, 2, 4, 4, 4, 4, 4)
    longest = [0.0] * len(bounds)
    for seed in range(200):
        inner = Scripted(then=FAIL)
        with pytest.raises(ObjectsUnavailable):
            await RetryingObjects(inner, RequestLimits(base_seconds=1, cap_seconds=4), Random(seed)).get("k")
        rests = [after - before for before, after in pairwise(inner.times)]
        assert all(rest <= bound for rest, bound in zip(rests, bounds, strict=True))
        longest = [max(pair) for pair in zip(longest, rests, strict=True)]
    assert all(rest > 0.9 * bound for rest, bound in zip(longest, bounds, strict=True))


async def test_no_more_requests_are_made_at_once_than_allowed_and_who_rests_takes_no_slot() -> None:
    inner = Scripted(*[FAIL] * 3)
    inner.seconds = 1.0
    store = retrying(inner, at_once=3, base_seconds=1000, cap_seconds=1000)
    async with asyncio.TaskGroup() as tasks:
        for number in range(12):
            tasks.create_task(store.put(f"k{number}", b""))
        await asyncio.sleep(3.5)
        # Three failed in the first second and rest for minutes; the others went on meanwhile.
        assert len(inner.calls) == 12
    assert inner.most_at_once == 3


async def test_in_an_outage_retries_stop_and_come_back_with_the_first_answers() -> None:
    inner = Scripted(then=FAIL)
    store = retrying(inner)
    for number in range(200):
        with pytest.raises(ObjectsUnavailable):
            await store.put(f"k{number}", b"")
    assert store.requests <= 200 + 20
    inner.then = PASS
    for number in range(4):
        await store.put(f"k{number}", b"")
    inner.fates = [FAIL]
    await store.put("k", b"")


@pytest.mark.parametrize("fates", [(LOSE,), (FAIL, LOSE), (LOSE, FAIL), (LOSE, LOSE, FAIL), (LOSE, PASS, FAIL)])
async def test_a_conditional_write_whose_answer_was_lost_is_found_to_be_ours(fates: tuple[str, ...]) -> None:
    for is_new in (True, False):
        inner = Scripted()
        store = retrying(inner)
        etag = "" if is_new else await store.put("k", b"before")
        inner.fates = list(fates)
        now = await (store.create("k", b"ours") if is_new else store.replace("k", b"ours", etag))
        got = await store.get("k")
        assert got == Got(b"ours", now)


async def test_a_conditional_write_whose_answer_was_lost_and_that_did_not_happen_is_done() -> None:
    inner = Scripted(FAIL, FAIL)
    store = retrying(inner)
    etag = await store.create("k", b"ours")
    inner.fates = [FAIL, FAIL]
    await store.replace("k", b"ours again", etag)
    assert "get" not in inner.calls


class Overtaken(Scripted):
    """Before the second attempt somebody else writes."""

    async def _meet(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        if self.calls and name in ("create", "replace") and self.calls[-1] == name:
            self._write("k", b"theirs")
        return await super()._meet(name, call)


@pytest.mark.parametrize("fate", [FAIL, LOSE])
async def test_somebody_elses_write_after_a_lost_answer_is_a_conflict(fate: str) -> None:
    for is_new in (True, False):
        inner = Overtaken()
        store = retrying(inner)
        etag = "" if is_new else await store.put("k", b"before")
        inner.fates = [fate]
        with pytest.raises(Conflict):
            await (store.create("k", b"ours") if is_new else store.replace("k", b"ours", etag))
        got = await store.get("k")
        assert got is not None
        assert got.content == b"theirs"


async def test_an_object_that_is_gone_after_a_lost_answer_is_a_conflict_for_who_would_replace_it() -> None:
    inner = Scripted()
    store = retrying(inner)
    etag = await store.put("k", b"before")
    await store.delete("k")
    inner.fates = [FAIL]
    with pytest.raises(Conflict):
        await store.replace("k", b"ours", etag)


async def test_a_conditional_write_that_never_gets_an_answer_is_unavailable_not_a_conflict() -> None:
    inner = Scripted(LOSE, then=FAIL)
    with pytest.raises(ObjectsUnavailable):
        await retrying(inner).create("k", b"ours")
    assert await MemoryObjects.get(inner, "k") is not None


async def test_a_listing_that_breaks_off_goes_on_and_tells_nothing_twice() -> None:
    inner = Scripted()
    store = retrying(inner)
    for number in range(5):
        await store.put(f"k{number}", b"")
    inner.fates = [FAIL, FAIL]
    told = [found.key async for found in store.list("")]
    assert sorted(told) == [f"k{number}" for number in range(5)]
    assert inner.calls.count("list") == 3
    inner.then = FAIL
    with pytest.raises(ObjectsUnavailable):
        assert [found async for found in store.list("")] == []


async def test_opening_and_closing_are_passed_on() -> None:
    class Doors(MemoryObjects):
        opened = closed = 0

        async def __aenter__(self) -> "Doors":
            self.opened += 1
            return self

        async def __aexit__(self, *error: object) -> None:
            self.closed += 1

    inner = Doors()
    async with retrying(inner):
        assert (inner.opened, inner.closed) == (1, 0)
    assert (inner.opened, inner.closed) == (1, 1)


async def test_a_store_that_has_had_enough_is_asked_again_after_a_second() -> None:
    """It was asked again four times within the second, in vain."""
    inner = Scripted(THROTTLE)
    store = retrying(inner)
    await store.create("k", b"x")
    first, second = inner.times
    assert 1.1 <= second - first <= 1.3
    assert store.retries == 1
