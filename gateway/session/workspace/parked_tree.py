"""A sandbox that falls silent in the middle of a scan must not delay other sessions.

A sync holds a slot, and there are only a few. A program inside a sandbox can stop its bridge at any moment. So a bridge
that shows no sign of life for SILENT_SECONDS loses the slot. The scan goes on all the same, for as long as its tree
allows: when the bridge speaks again, it waits for a slot like any other. Its data stay in memory meanwhile, so the
number of parked scans is bounded; one more fails, and is tried again later.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TypeVar

from gateway.session.workspace.fair_semaphore import Slot
from sandbox.ports.tree import ScannedTree, TreeFailed, TreeScan
from sandbox.protocol.entry import Frame
from sandbox.protocol.tree import Batch, ScanAsk, ScanDone

SILENT_SECONDS = 5.0  # a bridge shows that it lives each 2 s; older versions each 10 s

T = TypeVar("T")


class ParkedTree:
    """Scans of `tree` that hold `slot` only while its bridge lives."""

    def __init__(self, tree: ScannedTree, slot: Slot) -> None:
        self._tree = tree
        self._slot = slot

    @contextlib.asynccontextmanager
    async def scan(self, asked: ScanAsk) -> AsyncIterator["_Scan"]:
        async with self._tree.scan(asked) as scan:
            yield _Scan(scan, self._slot)


class _Scan:
    """Implements sandbox.ports.tree.TreeScan."""

    def __init__(self, scan: TreeScan, slot: Slot) -> None:
        self._scan = scan
        self._slot = slot

    @property
    def lived_at(self) -> float:
        return self._scan.lived_at

    async def next(self) -> Batch | ScanDone:
        return await self._heard(self._scan.next())

    async def fetch(self, wanted: Sequence[int]) -> AsyncIterator[Frame]:
        frames = aiter(self._scan.fetch(wanted))
        while (frame := await self._heard(anext(frames, None))) is not None:
            yield frame

    async def remember(self, token: str) -> None:
        await self._heard(self._scan.remember(token))

    async def _heard(self, answer: Awaitable[T]) -> T:
        """Wait for an answer. Raises TreeFailed if the bridge is silent, and too many are parked."""
        coming = asyncio.ensure_future(answer)
        coming.add_done_callback(_look_at)
        try:
            if not await self._comes(coming):
                if not self._slot.park():
                    raise TreeFailed("silent", f"the bridge said nothing for {SILENT_SECONDS:g} s")
                await asyncio.wait({coming})
                if coming.exception() is None:
                    await self._slot.take()
            return coming.result()
        finally:
            if not coming.done():
                coming.cancel()
                await asyncio.wait({coming})

    async def _comes(self, coming: "asyncio.Future[T]") -> bool:
        """Wait for an answer while the bridge lives; False if the bridge falls silent first."""
        now = asyncio.get_running_loop().time
        began = now()
        while not coming.done():
            left = max(began, self._scan.lived_at) + SILENT_SECONDS - now()
            if left <= 0:
                return False
            await asyncio.wait({coming}, timeout=left)
        return True


def _look_at(done: "asyncio.Future[T]") -> None:
    """Retrieve the error of an answer that is not awaited any more, so that asyncio does not log it."""
    if not done.cancelled():
        done.exception()
