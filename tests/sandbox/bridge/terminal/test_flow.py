"""Who sets the pace: viewers that read, that do not, that are cut off, and programs that write without end."""

import asyncio
import os
import random
import sys
from pathlib import Path
from typing import Any

from sandbox.protocol.terminal import Reset
from sandbox.protocol.values import Position
from tests.support.bridge import BridgeProcess, running_bridge
from tests.support.terminal import TerminalViewer, viewing
from tests.support.waiting import until

RING = 256 * 1024
# Bytes whose place can be told from what they are: `n` is the number of lines before this one.
COUNTS = """
import os, sys, tty
tty.setraw(1)
lines = int(sys.argv[1])
for start in range(0, lines, 500):
    block = b"".join(b"%015d\\n" % n for n in range(start, min(start + 500, lines)))
    while block:
        block = block[os.write(1, block):]
    with open("progress", "w") as file:
        file.write(str(start))
sys.stdin.read()
"""


def counts(lines: int) -> list[str]:
    return [sys.executable, "-c", COUNTS, str(lines)]


def expected(offset: int, count: int) -> bytes:
    first, last = offset // 16, (offset + count) // 16 + 1
    text = b"".join(b"%015d\n" % n for n in range(first, last))
    return text[offset - first * 16 :][:count]


def check(viewer: TerminalViewer) -> None:
    """Whatever it was sent is what the program wrote there."""
    for part in viewer.parts:
        assert part.output == expected(part.offset, len(part.output))


def progress(bridge: BridgeProcess) -> str:
    path = bridge.workspace / "progress"
    return path.read_text() if path.exists() else ""


async def stands_still(bridge: BridgeProcess) -> str:
    """Wait until the program has made no progress for a while, and say where it stands."""
    seen, same = progress(bridge), 0
    async with asyncio.timeout(30):
        while same < 20:
            await asyncio.sleep(0.02)
            now = progress(bridge)
            seen, same = now, same + 1 if now == seen and now else 0
    return seen


async def describe(bridge: BridgeProcess, name: str = "main") -> dict[str, Any]:
    async with bridge.client() as client:
        listed = (await client.get("/terminals")).json()["terminals"]
        found: dict[str, Any] = next(each for each in listed if each["name"] == name)
        return found


async def test_a_viewer_cut_off_again_and_again_misses_no_byte_of_a_flood(tmp_path: Path) -> None:
    lines = 300_000
    chance = random.Random(5)
    with running_bridge(tmp_path, ["cat"], shell=counts(lines), limits={"terminal_ring_bytes": RING}) as bridge:
        seen, after, cuts = bytearray(), Position("", 0), 0
        while len(seen) < lines * 16:
            async with viewing(bridge, after=after if seen else None) as viewer:
                assert viewer.hello.picture is False
                assert viewer.hello.offset == len(seen)
                wanted = chance.randrange(0, 400_000)
                await viewer.until(lambda v=viewer, n=wanted: len(v.output) >= n or v.parts[-1].end >= lines * 16)  # type: ignore[misc]
                # What arrived is cut anywhere: the rest was sent, and is sent again.
                keep = chance.randrange(max(len(viewer.output) - RING // 4, 0), len(viewer.output) + 1)
                seen += viewer.output[:keep]
                after = Position(viewer.hello.epoch, len(seen))
                assert not viewer.heard(Reset)
                cuts += 1
        assert seen == expected(0, lines * 16)
        assert cuts > 10


async def test_a_frozen_viewer_holds_up_nobody_and_finds_its_way_back(tmp_path: Path) -> None:
    lines = 400_000
    with running_bridge(tmp_path, ["cat"], shell=counts(lines), limits={"terminal_ring_bytes": RING}) as bridge:
        async with viewing(bridge) as frozen, viewing(bridge) as reads, viewing(bridge, role="view") as reads_too:
            frozen.freeze()
            for viewer in (reads, reads_too):
                await viewer.until(lambda v=viewer: v.parts[-1].end == lines * 16)  # type: ignore[misc]
                assert not viewer.heard(Reset)
                check(viewer)
            frozen.thaw()
            await frozen.until(lambda: frozen.parts[-1].end == lines * 16)
            assert frozen.heard(Reset) == [Reset.of(reads.hello.epoch, lines * 16, reads.hello.size)]
            check(frozen)


async def test_when_nobody_reads_the_program_waits_and_then_goes_on(tmp_path: Path) -> None:
    lines = 400_000
    with running_bridge(tmp_path, ["cat"], shell=counts(lines), limits={"terminal_ring_bytes": RING}) as bridge:
        async with viewing(bridge) as one, viewing(bridge, role="view") as other:
            one.freeze()
            other.freeze()
            stood = await stands_still(bridge)
            assert int(stood) < lines - 1000
            other.thaw()
            await other.until(lambda: other.parts[-1].end == lines * 16)
            assert not other.heard(Reset)
            check(other)


async def test_after_the_last_one_left_the_program_is_held_and_then_goes_on(tmp_path: Path) -> None:
    lines = 400_000
    limits = {"terminal_ring_bytes": RING, "terminal_hold_seconds": 3}
    with running_bridge(tmp_path, ["cat"], shell=counts(lines), limits=limits) as bridge:
        async with viewing(bridge) as viewer:
            await viewer.until(lambda: len(viewer.output) > 2 * RING)
        left = viewer.position
        stood = await stands_still(bridge)
        assert int(stood) < lines - 1000
        async with viewing(bridge, after=left) as again:
            assert (again.hello.offset, again.hello.picture) == (left.offset, False)
            await again.until(lambda: len(again.output) > 10_000)
            check(again)
        # Nobody comes back this time: it is overwritten, and whoever comes late gets a picture.
        await until(lambda: progress(bridge) == str(lines - 500))
        async with viewing(bridge, after=left) as late:
            assert late.hello.picture


async def test_a_flood_that_nobody_sees_costs_no_memory(tmp_path: Path) -> None:
    def resident(bridge: BridgeProcess) -> int:
        assert bridge.process is not None
        return int(Path(f"/proc/{bridge.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    limits = {"terminal_ring_bytes": 2 << 20, "terminal_hold_seconds": 0}
    flood = 40_000_000  # much more than is allowed to stay
    shell = ["sh", "-c", f"read x; head -c {flood} /dev/zero; exec sleep 1000"]
    with running_bridge(tmp_path, ["cat"], shell=shell, limits=limits) as bridge:
        async with viewing(bridge) as viewer:
            before = resident(bridge)
            viewer.type(b"\n")

        written = 0

        async def more() -> int:
            offset: int = (await describe(bridge))["offset"]
            return offset if offset > written else 0

        while written < flood:  # a busy machine may take minutes, as long as the flood goes on
            written = await until(more, "more of the flood")
        assert resident(bridge) - before < 16 << 20
        found = await describe(bridge)
        assert found["base"] == found["offset"] - (2 << 20)
