"""The thread with a connection: order, errors, askers who leave, closing."""

import asyncio
import gc
import sqlite3
import threading
import weakref
from collections.abc import AsyncIterator

import pytest

from persistence.errors import StoreUnavailable
from persistence.sqlite.desk import Desk
from tests.support.waiting import until


def connected() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk("desk", connected)
    await desk.open()
    yield desk
    await desk.close()


class Held:
    """An errand that goes on until it is let go."""

    def __init__(self) -> None:
        self._go = threading.Event()
        self.begun = threading.Event()
        self.ended = threading.Event()

    def __call__(self, db: sqlite3.Connection) -> str:
        self.begun.set()
        assert self._go.wait(30)
        self.ended.set()
        return "held"

    def let_go(self) -> None:
        self._go.set()


async def test_what_is_asked_is_done_in_order_on_one_thread_of_its_own(desk: Desk) -> None:
    done: list[tuple[int, int]] = []
    asks = [desk.run("n", lambda db, n=n: done.append((n, threading.get_ident()))) for n in range(50)]  # type: ignore[misc]
    await asyncio.gather(*asks)
    assert [n for n, _ in done] == list(range(50))
    (thread,) = {thread for _, thread in done}
    assert thread != threading.get_ident()


async def test_an_error_goes_to_who_asked_and_the_next_is_answered(desk: Desk) -> None:
    def wrong(db: sqlite3.Connection) -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await desk.run("wrong", wrong)
    with pytest.raises(StoreUnavailable, match="nowhere: no such table"):
        await desk.run("nowhere", lambda db: db.execute("SELECT * FROM nowhere"))
    assert await desk.run("one", lambda db: db.execute("SELECT 1").fetchone()) == (1,)


async def test_what_was_begun_is_finished_although_who_asked_has_gone(desk: Desk) -> None:
    held = Held()
    asking = asyncio.create_task(desk.run("held", held))
    await until(held.begun.is_set, "it has begun")
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    held.let_go()
    assert await desk.run("next", lambda db: held.ended.is_set()) is True


async def test_what_was_not_begun_when_who_asked_left_is_not_done(desk: Desk) -> None:
    held, done = Held(), list[str]()
    first = asyncio.create_task(desk.run("held", held))
    await until(held.begun.is_set, "it has begun")
    second = asyncio.create_task(desk.run("late", lambda db: done.append("late")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    held.let_go()
    assert await first == "held"
    await desk.run("next", lambda db: done.append("next"))
    assert done == ["next"]


async def test_later_comes_after_what_is_asked_already(desk: Desk) -> None:
    done: list[str] = []

    def one(db: sqlite3.Connection) -> None:
        done.append("one")
        desk.later(lambda db: done.append("later"))

    await asyncio.gather(desk.run("one", one), desk.run("two", lambda db: done.append("two")))
    await desk.run("three", lambda db: done.append("three"))
    assert done == ["one", "two", "later", "three"]


async def test_an_error_of_what_comes_later_stops_nothing(desk: Desk) -> None:
    def wrong(db: sqlite3.Connection) -> None:
        raise LookupError

    await desk.run("begin", lambda db: desk.later(wrong))
    assert await desk.run("next", lambda db: "answered") == "answered"


async def test_closing_finishes_what_was_asked_and_takes_nothing_more() -> None:
    desk, held = Desk("closing-desk", connected), Held()
    await desk.open()
    asking = asyncio.create_task(desk.run("held", held))
    await until(held.begun.is_set, "it has begun")
    closing = asyncio.create_task(desk.close())
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="late: the store is not open"):
        await desk.run("late", lambda db: None)
    desk.later(lambda db: None)
    held.let_go()
    assert await asking == "held"
    await closing
    await desk.close()
    await until(lambda: not _lives("closing-desk"), "the thread has ended")


async def test_a_cancel_does_not_leave_the_file_open() -> None:
    desk, held = Desk("cancelled-desk", connected), Held()
    await desk.open()
    kept: list[sqlite3.Connection] = []
    await desk.run("keep", kept.append)
    asking = asyncio.create_task(desk.run("held", held))
    await until(held.begun.is_set, "it has begun")
    closing = asyncio.create_task(desk.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    held.let_go()
    await asking
    await until(lambda: not _lives("cancelled-desk"), "the thread has ended")
    with pytest.raises(sqlite3.ProgrammingError):  # closed, or of another thread: SQLite says which
        kept[0].execute("SELECT 1")
    assert desk._db is None


async def test_who_cannot_connect_is_told_and_the_thread_ends() -> None:
    def refused() -> sqlite3.Connection:
        raise LookupError("no such file")

    desk = Desk("refused-desk", refused)
    with pytest.raises(LookupError, match="no such file"):
        await desk.open()
    await desk.close()
    await until(lambda: not _lives("refused-desk"), "the thread has ended")


def test_a_loop_that_is_gone_takes_no_answer_and_harms_nobody() -> None:
    desk, held = Desk("lonely-desk", connected), Held()

    async def ask_and_leave() -> None:
        await desk.open()
        asking = asyncio.create_task(desk.run("held", held))
        await until(held.begun.is_set, "it has begun")
        asking.cancel()

    async def come_back() -> str:
        try:
            return await desk.run("next", lambda db: "answered")
        finally:
            await desk.close()

    asyncio.run(ask_and_leave())
    held.let_go()
    assert held.ended.wait(30)
    assert asyncio.run(come_back()) == "answered"


def _lives(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


async def test_a_failed_errand_keeps_nothing_of_what_it_carried(desk: Desk) -> None:
    """Its error knew the frame that knew it: until a collection, all that was to be written stayed."""

    class Carried:
        def __call__(self, db: sqlite3.Connection) -> None:
            raise LookupError("no such thing")

    carried = Carried()
    gone = weakref.ref(carried)
    gc.disable()
    try:
        with pytest.raises(LookupError):
            await desk.run("wrong", carried)
        await desk.run("next", lambda db: None)
        del carried
        assert gone() is None
    finally:
        gc.enable()
