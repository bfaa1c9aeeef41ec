import asyncio

import pytest

from sync.snapshots.parallel import each


async def test_results_come_in_order_and_no_more_run_than_may() -> None:
    running = most = 0

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(10 - number):
            await asyncio.sleep(0)
        running -= 1
        return number * 2

    assert await each(work, range(10), at_once=3) == [number * 2 for number in range(10)]
    assert most == 3
    assert await each(work, [], at_once=3) == []


async def test_the_first_failure_ends_the_others_and_comes_out_as_it_is() -> None:
    cause = OSError("below")
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            if number == 1:
                raise ValueError("mine") from cause
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    with pytest.raises(ValueError, match="mine") as caught:
        await each(work, range(10), at_once=3)
    assert caught.value.__cause__ is cause
    assert sorted(ended) == [0, 1, 2]


async def test_a_cancel_goes_through_and_leaves_nobody_behind() -> None:
    begun, ended = asyncio.Event(), 0

    async def work(_: int) -> None:
        nonlocal ended
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended += 1

    task = asyncio.ensure_future(each(work, range(5), at_once=2))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == 2
