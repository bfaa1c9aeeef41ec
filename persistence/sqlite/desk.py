"""One thread with one SQLite connection: it runs requests in order, and finishes what it began even if the caller has
gone.

A bare queue leads to the thread, and the answer comes back by `call_soon_threadsafe`. An executor did the same; but a
message goes to the writer and back twice, and an executor's futures with their locks took a third more CPU for each
way and half of its time while little is going on.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import msgspec

from persistence.errors import StoreFull, StoreUnavailable

T = TypeVar("T")
Ask = Callable[[sqlite3.Connection], T]


class _Errand(msgspec.Struct):
    do: Callable[[], Any]
    answer: "asyncio.Future[Any] | None"  # None: nobody waits


class Desk:
    """Bound: each caller waits for its answer, so the queue has at most one request of each."""

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._name = name
        self._connect = connect
        self._errands: SimpleQueue[_Errand | None] | None = None
        self._db: sqlite3.Connection | None = None  # touched on the thread only

    async def open(self) -> None:
        self._errands = errands = SimpleQueue[_Errand | None]()
        # A daemon: a process that ends without closing its store must not wait for this thread for ever.
        Thread(target=_work, args=(errands,), name=self._name, daemon=True).start()
        await _ask(errands, self._sit_down)

    async def close(self) -> None:
        errands, self._errands = self._errands, None
        if errands is not None:
            closing = _ask(errands, self._stand_up)
            errands.put(None)
            await asyncio.shield(closing)  # a cancel must not leave the file open

    async def run(self, what: str, ask: Ask[T]) -> T:
        """Raises StoreUnavailable, named after `what`, and the errors of `ask`."""
        if self._errands is None:
            raise StoreUnavailable(f"{what}: the store is not open")
        return await _ask(self._errands, partial(self._answer, what, ask))

    def later(self, do: Callable[[sqlite3.Connection], None]) -> None:
        """Run it after the present requests, or never if the desk closes first. Called on the desk's own thread."""
        if (errands := self._errands) is not None:
            errands.put(_Errand(partial(self._answer, "later", do), None))

    def _sit_down(self) -> None:
        self._db = self._connect()

    def _stand_up(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _answer(self, what: str, ask: Ask[T]) -> T:
        if self._db is None:
            raise StoreUnavailable(f"{what}: the store is not open")
        try:
            return ask(self._db)
        except sqlite3.Error as error:
            kind = StoreFull if is_full(error) else StoreUnavailable
            raise kind(f"{what}: {error}") from error


def _ask(errands: "SimpleQueue[_Errand | None]", do: Callable[[], T]) -> "asyncio.Future[T]":
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    errands.put(_Errand(do, answer))
    return answer


def _work(errands: "SimpleQueue[_Errand | None]") -> None:
    while (errand := errands.get()) is not None:
        _perform(errand)
        del errand  # its data are not kept until the next one comes


def _perform(errand: _Errand) -> None:
    answer = errand.answer
    if answer is not None and answer.cancelled():  # before it began
        return
    try:
        result = errand.do()
    except BaseException as error:
        _send_back(answer, None, error)
        del errand, answer  # the error refers to this frame: with them it would hold itself, and the data
    else:
        _send_back(answer, result, None)


def _send_back(answer: "asyncio.Future[Any] | None", result: Any, error: BaseException | None) -> None:
    if answer is not None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            answer.get_loop().call_soon_threadsafe(_tell, answer, result, error)


def _tell(answer: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if answer.done():  # the caller has gone
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


def primary_code(error: sqlite3.Error) -> int:
    return _code(error) & 0xFF


def is_full(error: sqlite3.Error) -> bool:
    return primary_code(error) == sqlite3.SQLITE_FULL or _code(error) == sqlite3.SQLITE_IOERR_SHMSIZE


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", -1)
