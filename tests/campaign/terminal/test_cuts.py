"""Connections of browsers, links between gateway and bridge, and the gateway itself are cut at random while a terminal
floods, while somebody edits, and while a program asks its terminal questions.

What every viewer put together is what the program wrote, or it was told of the gap and got a picture of the screen
that a terminal which saw everything would show; and no terminal's answer to an old question reaches a program.
"""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.campaign.size import seeded, sized, when_large
from tests.campaign.stage import until
from tests.campaign.terminal.arena import PATIENCE, TerminalArena, terminal_arena
from tests.campaign.terminal.flood import RECORD_BYTES, stream
from tests.campaign.terminal.screens import Dump, drawn, unlike
from tests.campaign.terminal.watcher import Watcher

PACES = {"fast": 0.0, "quick": 0.0, "slow": 0.002, "crawling": 0.02}
SEEN_RECORDS = 2000  # more than a terminal remembers
MOST_GLIMPSES = 40  # of one viewer, that are compared
WAITING_BURSTS = 2


def _last_of_it(end: int) -> bytes:
    """What a terminal has read last when it has read everything up to `end`, from the start of a record on."""
    return stream(max(end // RECORD_BYTES - SEEN_RECORDS, 0) * RECORD_BYTES, end)


async def _check_glimpses(watcher: Watcher) -> list[str]:
    """Every picture, with what came behind it, is the screen of a terminal that saw everything."""
    problems: list[str] = []
    for glimpse in watcher.glimpses[-MOST_GLIMPSES:]:
        end = glimpse.offset + len(glimpse.followed)
        shown, wanted = await drawn([glimpse.picture + glimpse.followed, _last_of_it(end)])
        if found := unlike(shown, wanted):
            problems.append(f"{watcher.name} was shown another screen at {glimpse.offset}: {'; '.join(found[:4])}")
    return problems


async def _late_comer(arena: TerminalArena, total: int) -> Dump:
    async with arena.xterm("flood", role="view", direct=True) as late:
        seen = await late.until(lambda seen: seen["offset"] == total, f"at {total}")
        dump: Dump = seen["dump"]
        return dump


@pytest.mark.soak
async def test_a_flood_reaches_every_viewer_byte_for_byte_or_with_a_reset_at_the_gap(tmp_path: Path) -> None:
    seed, rng = seeded()
    cuts, records = sized(16, 200), sized(16 << 20, 200 << 20) // RECORD_BYTES
    burst = records // cuts
    async with terminal_arena(tmp_path, seed, rng) as arena:
        fifo = arena.fifo("allowance")
        await arena.run("flood", "flood.py", str(fifo.path))
        watchers = [
            Watcher(name, lambda **at: arena.address("flood", role="view", **at), pace) for name, pace in PACES.items()
        ]
        async with asyncio.TaskGroup() as looking:
            tasks = [looking.create_task(watcher.run()) for watcher in watchers]
            await until(lambda: all(watcher.counts["greeted"] for watcher in watchers), "greeted", within=PATIENCE)
            for number in range(1, cuts + 1):
                fifo.tell(burst)
                ahead = max(number - WAITING_BURSTS, 0) * burst * RECORD_BYTES
                await until(lambda: max(each.offset for each in watchers) >= ahead, f"at {ahead}", within=PATIENCE)  # noqa: B023
                await asyncio.sleep(rng.uniform(0, 0.05))
                await arena.fault()
            total = cuts * burst * RECORD_BYTES
            for watcher in watchers:
                watcher.pace = 0
            await until(lambda: all(each.offset == total for each in watchers), f"all at {total}", within=PATIENCE)
            for task in tasks:
                task.cancel()
        problems = [problem for watcher in watchers for problem in watcher.problems]
        for watcher in watchers:
            problems += await _check_glimpses(watcher)
        (wanted,) = await drawn([_last_of_it(total)])
        problems += unlike(await _late_comer(arena, total), wanted)
        counts: Counter[str] = sum((watcher.counts for watcher in watchers), Counter())
        arena.acquit(
            "terminal cuts, flood",
            problems,
            MB=total >> 20,
            viewers=len(watchers),
            **{what: counts[what] for what in ("resumed", "gaps", "resets")},
            seen=f"{counts['bytes'] >> 20} MB",
        )
        missed = [what for what in when_large("resumed", "resets") if not counts[what]]
        assert missed == [], f"never: {missed}"
