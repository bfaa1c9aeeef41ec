"""The hold on a sandbox's programs while its last generation is made: none may run, and none may start.

A caller that takes the hold and does not stop the sandbox ends the hold. It is asked of the bridge until the bridge
confirms: a lost request must not leave a running sandbox in which no program can start. The hold ends with the sandbox:
the next one is held for another reason, and not by this class.
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

ANSWER_SECONDS = 5.0  # for a bridge to release, while a request waits
ASK_BASE, ASK_CAP = 0.2, 10.0  # seconds between two attempts


class Freeze:
    __slots__ = ("_asking", "_rng", "_sandbox", "_tasks", "_wanted")

    def __init__(self, sandbox: Sandbox, tasks: Tasks, rng: Random) -> None:
        self._sandbox = sandbox
        self._tasks = tasks
        self._rng = rng
        self._wanted: asyncio.Event | None = None  # a release is wanted; set when it is done
        self._asking: asyncio.Task[Any] | None = None

    async def take(self) -> None:
        """End every program; none starts until `let_go`. Raises TreeFailed; then the hold may be in place all the
        same."""
        asking = self._asking
        self.forget()
        if asking is not None:  # its release must not arrive after this hold
            await asyncio.wait({asking})
        await self._sandbox.tree().quiet()

    async def let_go(self) -> None:
        """Let programs start again. Return when they can, or after a while; then the retries go on."""
        answered = self.let_go_soon()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await answered.wait()

    def let_go_soon(self) -> asyncio.Event:
        """The same without waiting; the returned event is set when they can, or when the sandbox is gone."""
        self.forget()
        wanted = self._wanted = asyncio.Event()
        self._tasks.spawn(self._ask(wanted), f"let go {self._sandbox.session_id}")
        return wanted

    def forget(self) -> None:
        """The sandbox has ended, or is to be held again: release nothing from here on."""
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
        """True if the bridge has released its programs, or does not exist any more."""
        try:
            await self._sandbox.tree().release()
        except TreeFailed as error:
            if first:
                log.warning("sandbox.not_let_go", session_id=self._sandbox.session_id, cause=str(error))
            return error.code == "absent"
        return True
