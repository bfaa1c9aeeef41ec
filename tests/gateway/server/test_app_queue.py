"""What an app receives of its socket comes in order and is not lost; and while nothing waits, little is kept for it."""

import asyncio

import pytest

from gateway.server.app_queue import AppQueue, Writable


async def test_events_come_in_order_whether_the_app_waits_for_them_or_not() -> None:
    queue = AppQueue()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    for number in range(3):
        queue.put_nowait(number)
    assert [await waiting, await queue.get(), queue.get_nowait()] == [0, 1, 2]
    assert queue.empty()


async def test_an_event_that_came_for_an_app_that_was_cancelled_is_there_for_the_next_who_asks() -> None:
    queue = AppQueue()
    for already_called in (False, True):
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        if already_called:
            queue.put_nowait("second")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert await queue.get() == "second"
    again = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.put_nowait("third")
    assert await again == "third"


async def test_whoever_waits_to_write_goes_on_when_the_peer_reads_again_also_if_it_stops_at_once() -> None:
    writable = Writable()
    await writable.wait()
    writable.set()  # it was
    for _ in range(2):
        writable.clear()
        assert not writable.is_set()
    waiting = [asyncio.create_task(writable.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    writable.set()
    writable.clear()
    await asyncio.gather(*waiting)
    assert not writable.is_set()
