"""One timer for all: who asks is called once, within one and two times the wait."""

import asyncio

import pytest

from gateway.session.shared_timer import SharedTimer

pytestmark = pytest.mark.virtual_time


class Asker:
    def __init__(self, timer: SharedTimer) -> None:
        self.timer = timer
        self.called: list[float] = []

    def due(self) -> None:
        self.called.append(asyncio.get_running_loop().time())

    def ask(self) -> float:
        self.timer.ask(self.due)
        return asyncio.get_running_loop().time()


async def test_who_asks_is_called_within_one_and_two_times_the_wait() -> None:
    timer = SharedTimer(1.0)
    first, second, third = (Asker(timer) for _ in range(3))
    asked = [first.ask()]
    await asyncio.sleep(0.75)
    asked.append(second.ask())
    await asyncio.sleep(0.75)
    asked.append(third.ask())
    await asyncio.sleep(10)
    waits = [asker.called[0] - at for asker, at in zip((first, second, third), asked, strict=True)]
    assert all(1.0 <= wait <= 2.0 for wait in waits), waits
    assert [len(asker.called) for asker in (first, second, third)] == [1, 1, 1]


async def test_who_asks_again_before_that_is_called_once_and_afterwards_again() -> None:
    asker = Asker(SharedTimer(1.0))
    for _ in range(3):
        asker.ask()
        await asyncio.sleep(0.4)
    await asyncio.sleep(10)
    assert len(asker.called) == 1
    asker.ask()
    await asyncio.sleep(10)
    assert len(asker.called) == 2


async def test_what_is_called_may_ask_again() -> None:
    timer = SharedTimer(1.0)
    asker = Asker(timer)

    def once_more() -> None:
        asker.ask()

    timer.ask(once_more)
    await asyncio.sleep(10)
    assert len(asker.called) == 1


async def test_one_that_raises_keeps_no_other_waiting() -> None:
    loop, problems = asyncio.get_running_loop(), list[str]()
    loop.set_exception_handler(lambda _, context: problems.append(str(context["exception"])))
    timer = SharedTimer(1.0)
    asker = Asker(timer)

    def wrong() -> None:
        raise LookupError("a bug")

    timer.ask(wrong)
    asker.ask()
    await asyncio.sleep(10)
    loop.set_exception_handler(None)
    assert (problems, len(asker.called)) == (["a bug"], 1)
