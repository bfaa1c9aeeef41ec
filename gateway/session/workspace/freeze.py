"""The hold on a sandbox's programs while its last generation is made: none may run, and none may start.

Whoever takes the hold and does not stop the sandbox ends the hold. The bridge is asked to until it answers: a lost
request must not leave a running sandbox in which nothing can start. The hold ends with the sandbox: the next one is
held for another reason, and not by this class.
"""

import asyncio
import contextlib
import itertools
from random import Random
from typing import Any

import structlog

from gateway.session.model.ports import Tasks
from persistence.backoff import delay
from sandbox.ports.sandbox import Sandbox
from sandbox.ports.tree import TreeFailed

log = structlog.get_logger()

ANSWER_SECONDS = 5.0  # for a bridge to let go while somebody waits for it
ASK_BASE, ASK_CAP = 0.2, 10.0  # seconds between two attempts


class Freeze:
    __slots__ = ("_asking", "_rng", "_sandbox", "_tasks", "_wanted")

    def __init__(self, sandbox: Sandbox, tasks: Tasks, rng: Random) -> None:
        self._sandbox = sandbox
        self._tasks = tasks
        self._rng = rng
        self._wanted: asyncio.Event | None = None  # it is to be let go; set when it is
        self._asking: asyncio.Task[Any] | None = None

    async def take(self) -> None:
        """End every program; none starts until it is let go. Raises TreeFailed; then it may be held all the same."""
        asking = self._asking
        self.forget()
        if asking is not None:  # what it has asked for must not come after what we ask for
            await asyncio.wait({asking})
        await self._sandbox.tree().quiet()

    async def let_go(self) -> None:
        """Programs may start again. Returns when they can, or after a while; then it is asked for still."""
        answered = self.let_go_soon()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await answered.wait()

    def let_go_soon(self) -> asyncio.Event:
        """The same; what is returned is set when they can, or there is no sandbox any more."""
        self.forget()
        wanted = self._wanted = asyncio.Event()
        self._tasks.spawn(self._ask(wanted), f"let go {self._sandbox.session_id}")
        return wanted

    def forget(self) -> None:
        """The sandbox has ended, or is to be held again: nothing is let go from here on."""
        self._wanted = None
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    async def _ask(self, wanted: asyncio.Event) -> None:
        if self._wanted is not wanted:
            return
        self._asking = asyncio.current_task()
        try:
            for attempt in itertools.count():
                if await self._is_let_go(first=attempt == 0):
                    self._asking = None
                    return
                await asyncio.sleep(delay(attempt, base=ASK_BASE, cap=ASK_CAP, rng=self._rng))
        finally:
            wanted.set()

    async def _is_let_go(self, *, first: bool) -> bool:
        """Whether it is, or nothing is left of it."""
        try:
            await self._sandbox.tree().release()
        except TreeFailed as error:
            if first:
                log.warning("sandbox.not_let_go", session_id=self._sandbox.session_id, cause=str(error))
            return error.code == "absent"
        return True
