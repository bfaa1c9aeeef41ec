"""The garbage collector's schedule: each generation is looked at, however calm the gateway is."""

import asyncio
import gc
from collections import Counter
from typing import Any
from weakref import ref

import pytest

from gateway.server.garbage import ALL_SECONDS, MIDDLE_SECONDS, YOUNG_SECONDS, collect_by_schedule

pytestmark = pytest.mark.virtual_time


class Ring:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


async def test_each_generation_has_its_time() -> None:
    looked: Counter[int] = Counter()

    def count(phase: str, info: dict[str, Any]) -> None:
        looked[info["generation"]] += phase == "start"

    old = Ring()
    gc.collect()  # by now it is no longer young
    was_on = gc.isenabled()
    gc.disable()  # what happens here is the schedule's
    gc.callbacks.append(count)
    schedule = asyncio.create_task(collect_by_schedule())
    try:
        young, old_one = ref(Ring()), ref(old)
        del old
        await asyncio.sleep(YOUNG_SECONDS + 0.5)
        assert young() is None
        assert old_one() is not None
        await asyncio.sleep(ALL_SECONDS)
        assert old_one() is None
    finally:
        schedule.cancel()
        gc.callbacks.remove(count)
        if was_on:
            gc.enable()
    middle = ALL_SECONDS // MIDDLE_SECONDS - 1
    assert looked == {0: ALL_SECONDS // YOUNG_SECONDS - middle, 1: middle, 2: 1}
