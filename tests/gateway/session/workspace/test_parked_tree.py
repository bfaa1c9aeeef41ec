"""A scan that is given up: nobody need hear any more how it would have ended."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any, SupportsIndex

import pytest

from gateway.session.workspace.fair_semaphore import FairSemaphore
from gateway.session.workspace.parked_tree import ParkedTree
from sandbox.ports.tree import TreeFailed
from sandbox.protocol.tree import ScanAsk
from sandbox.providers.memory.tree import MemoryRoots, MemoryTree

pytestmark = pytest.mark.virtual_time


class Failing(list[TreeFailed]):
    """Something else happens in the moment of the failure."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__([TreeFailed("failed", "the bridge ended the connection")])
        self._meanwhile = meanwhile

    def pop(self, index: SupportsIndex = -1) -> TreeFailed:
        self._meanwhile()
        return super().pop(index)


async def test_a_scan_that_fails_when_it_is_given_up_leaves_no_exception_behind() -> None:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    roots = MemoryRoots()

    async def scan() -> None:
        async with (
            FairSemaphore(1).of("ada") as slot,
            ParkedTree(MemoryTree(lambda: roots), slot).scan(ScanAsk()) as it,
        ):
            await it.next()

    scanning = asyncio.create_task(scan())
    roots.failures["next"] = Failing(scanning.cancel)
    await asyncio.wait({scanning})
    assert scanning.cancelled()
    del scanning, roots.failures["next"]
    gc.collect()
    assert unheard == []
