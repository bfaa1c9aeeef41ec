"""One viewer of a flood is frozen, nine read on. They miss nothing and wait for nobody, memory stays where it was,
and the frozen one is closed and comes back."""

import asyncio
import re
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.providers.local.layout import SandboxHome
from tests.campaign.size import seeded, sized
from tests.campaign.terminal.arena import PATIENCE, SESSION, Fifo, TerminalArena, terminal_arena
from tests.campaign.terminal.flood import RECORD_BYTES
from tests.campaign.terminal.test_cuts import check_glimpses
from tests.campaign.terminal.watcher import Watcher
from tests.support.waiting import until

READERS = 9
AHEAD_BYTES = 1 << 20  # of the slowest reader: half a ring, so that none of them loses the way
STEP_RECORDS = 2048
GROWN_MIB = 48  # of each: ten viewers' buffers, and a ring for each terminal
TOO_SLOW = 4408


@dataclass
class Memory:
    """A process's largest memory against its memory at first, in MiB."""

    pid: int
    first: float = 0.0
    most: float = 0.0

    def measure(self) -> None:
        kib = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        assert kib is not None
        now = int(kib[1]) / 1024
        self.first = self.first or now
        self.most = max(self.most, now)

    @property
    def grown(self) -> float:
        return self.most - self.first


async def _flood(fifo: Fifo, readers: list[Watcher], total: int, memories: list[Memory]) -> float:
    """Write `total` bytes, no faster than the slowest reader goes along; MB in a second."""
    began = time.monotonic()
    written = 0
    while (slowest := min(reader.offset for reader in readers)) < total:
        assert time.monotonic() < began + 5 * PATIENCE, f"stuck at {slowest}"
        if written < total and written - slowest < AHEAD_BYTES:
            fifo.tell(STEP_RECORDS)
            written += STEP_RECORDS * RECORD_BYTES
            for memory in memories:
                memory.measure()
        await asyncio.sleep(0.001)
    return total / (time.monotonic() - began) / 1e6


async def _too_slow(arena: TerminalArena) -> int:
    async with arena.gateway.http(arena.gateway.admin) as client:
        told = (await client.get("/metrics")).text
    found = re.search(r'holdfast_refusals_total\{[^}]*reason="too_slow"[^}]*\} ([\d.]+)', told)
    return int(float(found[1])) if found else 0


class Audience:
    """The viewers of one terminal: nine that read, and maybe one that is frozen until it is closed."""

    def __init__(self, arena: TerminalArena, name: str, *, with_frozen: bool) -> None:
        def address(**position: object) -> str:
            return arena.address(name, role="view", direct=True, **position)

        self._arena = arena
        self._name = name
        self.readers = [Watcher(f"reader {number}", address) for number in range(1, READERS + 1)]
        self.frozen = [Watcher("the frozen one", address, narrow=True)] if with_frozen else []

    async def watch(self, total: int, memories: list[Memory]) -> float:
        """From the first byte to the last; MB a second for each reader."""
        everybody = self.readers + self.frozen
        fifo = self._arena.fifo(self._name)
        await self._arena.run(self._name, "flood.py", str(fifo.path))
        async with asyncio.TaskGroup() as looking:
            tasks = [looking.create_task(watcher.run()) for watcher in everybody]
            await until(lambda: all(each.counts["greeted"] for each in everybody), "greeted", within=PATIENCE)
            for each in self.frozen:
                each.freeze()
            rate = await _flood(fifo, self.readers, total, memories)
            for each in self.frozen:
                await until(lambda: _too_slow(self._arena), "it is shown out", PATIENCE)
                each.thaw()
            await until(lambda: all(each.offset == total for each in everybody), f"at {total}", within=PATIENCE)
            for task in tasks:
                task.cancel()
        return rate

    async def problems(self, total: int) -> list[str]:
        found = [problem for each in self.readers + self.frozen for problem in each.problems]
        found += [f"{each.name} was given a picture" for each in self.readers if each.counts["resets"]]
        found += [f"{each.name} saw {each.counts['bytes']}" for each in self.readers if each.counts["bytes"] != total]
        for each in self.frozen:
            found += await check_glimpses(each)
            if each.codes[TOO_SLOW] != 1 or not each.counts["resets"]:
                found.append(f"{each.name} was closed with {each.codes}, then {each.counts}")
        return found


@pytest.mark.soak
async def test_nine_viewers_miss_nothing_and_wait_for_nobody_when_a_tenth_is_frozen(tmp_path: Path) -> None:
    seed, rng = seeded()
    total = sized(12, 200) << 20
    patches = ("impatient_with_slow_viewers",)
    async with terminal_arena(tmp_path, seed, rng, patches=patches, spawns_bridges=True) as arena:
        note = SandboxHome(arena.gateway.data_dir, SESSION).read_note()
        assert note is not None
        memories = [Memory(arena.gateway.pid), Memory(note.init_pid)]
        rates: dict[str, float] = {}
        problems: list[str] = []
        for name in ("before", "beside", "after")[: sized(2, 3)]:
            audience = Audience(arena, name, with_frozen=name == "beside")
            rates[name] = await audience.watch(total, memories)
            problems += await audience.problems(total)
        for what, memory in zip(("gateway", "bridge"), memories, strict=True):
            if memory.grown > GROWN_MIB:
                problems.append(f"the {what} grew by {memory.grown:.0f} MiB")
        beside = rates.pop("beside")
        arena.acquit(
            "terminal, one of ten frozen",
            problems,
            MB=total >> 20,
            readers=READERS,
            rate=f"{beside:.1f} MB/s each, {beside / statistics.mean(rates.values()):.2f} of that without it",
            gateway=f"+{memories[0].grown:.1f} MiB",
            bridge=f"+{memories[1].grown:.1f} MiB",
        )
