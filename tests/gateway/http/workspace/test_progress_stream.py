"""Long work as lines of JSON: signs of life on time, one result or one error, and no work for nobody."""

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from gateway.http.workspace.progress_stream import NEWS_SECONDS, Tell, Told, Work, _lines
from sync.errors import Damaged
from sync.ports import ObjectsUnavailable

pytestmark = pytest.mark.virtual_time


class Heard(list[dict[str, Any]]):
    """Every line, and when it came."""

    def __init__(self) -> None:
        self.times: list[float] = []

    async def listen(self, work: Work, leaving: Callable[[], bool] = lambda: False, *, operator: bool = False) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async for line in _lines(work, leaving, operator=operator):
            assert line.endswith(b"\n")
            self.append(json.loads(line))
            self.times.append(round(loop.time() - began, 3))


async def test_silent_work_gives_a_sign_of_life_every_ten_seconds() -> None:
    async def work(_: Tell) -> Told:
        await asyncio.sleep(35)
        return {"done": True}

    heard = Heard()
    await heard.listen(work)
    assert (heard[0], heard[-1]) == ({"progress": {}}, {"result": {"done": True}})
    *signs, ended = heard.times
    assert (signs[0], ended, len(signs)) == (0.0, 35.0, 4)
    assert max(later - sooner for sooner, later in pairwise(signs)) < 10


async def test_news_is_told_soon_and_a_flood_of_it_is_not() -> None:
    async def work(tell: Tell) -> Told:
        for number in range(10_000):
            tell({"done": number})
            await asyncio.sleep(0.001)
        return {}

    heard = Heard()
    await heard.listen(work)
    told = [line["progress"]["done"] for line in heard[1:-1]]
    assert len(told) <= 10 / NEWS_SECONDS + 1
    assert told == sorted(told)
    assert len(set(told)) == len(told), "no news is told twice"


async def test_work_that_fails_ends_with_words_and_without_an_end() -> None:
    async def work(_: Tell) -> Told:
        raise Damaged("pack x is missing")

    heard = Heard()
    with pytest.raises(Damaged):
        await heard.listen(work)
    assert heard == [{"progress": {}}, {"error": "a snapshot is damaged: pack x is missing", "code": "damaged"}]


@pytest.mark.parametrize("operator", [False, True])
async def test_only_operators_hear_what_the_object_store_said(operator: bool) -> None:
    async def work(_: Tell) -> Told:
        raise ObjectsUnavailable("bucket b")

    heard = Heard()
    with pytest.raises(ObjectsUnavailable):
        await heard.listen(work, operator=operator)
    assert ("bucket b" in heard[-1]["error"]) == operator


async def test_a_gateway_that_leaves_does_not_wait_for_the_work() -> None:
    stopped = asyncio.Event()

    async def work(_: Tell) -> Told:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        return {}

    now = asyncio.get_running_loop().time
    leaves_at = now() + 5
    heard = Heard()
    with pytest.raises(ObjectsUnavailable):
        await heard.listen(work, lambda: now() >= leaves_at)
    assert heard.times[-1] < 6
    assert heard[-1]["code"] == "draining"
    assert stopped.is_set()


async def test_who_goes_away_ends_the_work() -> None:
    stopped = asyncio.Event()

    async def work(_: Tell) -> Told:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        return {}

    lines = _lines(work, lambda: False, operator=False)
    await anext(lines)
    reading = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(1)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert stopped.is_set()


async def test_work_that_fails_when_nobody_listens_any_more_is_nobodys_trouble() -> None:
    async def work(_: Tell) -> Told:
        try:
            await asyncio.sleep(3600)
        finally:
            raise Damaged("too late")

    lines = _lines(work, lambda: False, operator=False)
    await anext(lines)
    await asyncio.sleep(1)
    await lines.aclose()
