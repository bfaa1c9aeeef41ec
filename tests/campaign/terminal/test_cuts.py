"""Connections of browsers, links between gateway and bridge, and the gateway itself are cut at random while a
terminal floods, and while somebody edits.

Every viewer ends up with exactly the program's output, or it was told of the gap and got a picture of the screen that
a terminal which saw everything would show.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.campaign.places import TRUSTED, Place
from tests.campaign.size import seeded, sized, when_large
from tests.campaign.terminal.arena import PATIENCE, TerminalArena, differences, terminal_arena, went_through
from tests.campaign.terminal.flood import RECORD_BYTES, stream
from tests.campaign.terminal.screens import Dump, drawn, unlike
from tests.campaign.terminal.watcher import Watcher
from tests.support.waiting import until

PACES = {"fast": 0.0, "quick": 0.0, "slow": 0.002, "crawling": 0.02}
SEEN_RECORDS = 2000  # more than a terminal remembers
MOST_GLIMPSES = 40  # of one viewer, that are compared
WAITING_BURSTS = 2


def _last_of_it(end: int) -> bytes:
    """The last bytes of a terminal that has read everything up to `end`, from the start of a record on."""
    return stream(max(end // RECORD_BYTES - SEEN_RECORDS, 0) * RECORD_BYTES, end)


async def check_glimpses(watcher: Watcher) -> list[str]:
    """Every picture, with the output behind it, is the screen of a terminal that saw everything."""
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


async def flood_with_cuts(tmp_path: Path, place: Place, *, cuts: int, size: int, name: str) -> None:
    seed, rng = seeded()
    burst = size // RECORD_BYTES // cuts
    async with terminal_arena(tmp_path, seed, rng, place=place) as arena:
        fifo = arena.fifo("allowance")
        await arena.run("flood", "flood.py", arena.inside(fifo.path))
        watchers = [
            Watcher(name, lambda **at: arena.address("flood", role="view", **at), pace) for name, pace in PACES.items()
        ]

        async def all_are(there: Callable[[], bool], what: str) -> None:
            """Or one of them has a problem: then waiting is in vain."""
            await until(lambda: there() or any(watcher.problems for watcher in watchers), what, within=PATIENCE)

        async with asyncio.TaskGroup() as looking:
            tasks = [looking.create_task(watcher.run()) for watcher in watchers]
            await all_are(lambda: all(watcher.counts["greeted"] for watcher in watchers), "greeted")
            for number in range(1, cuts + 1):
                fifo.tell(burst)
                ahead = max(number - WAITING_BURSTS, 0) * burst * RECORD_BYTES
                await all_are(lambda: max(each.offset for each in watchers) >= ahead, f"one at {ahead}")  # noqa: B023
                await asyncio.sleep(rng.uniform(0, 0.05))
                await arena.fault()
            total = cuts * burst * RECORD_BYTES
            for watcher in watchers:
                watcher.pace = 0
            await all_are(lambda: all(each.offset == total for each in watchers), f"all at {total}")
            for task in tasks:
                task.cancel()
        problems = [problem for watcher in watchers for problem in watcher.problems]
        for watcher in watchers:
            problems += await check_glimpses(watcher)
        (wanted,) = await drawn([_last_of_it(total)])
        problems += unlike(await _late_comer(arena, total), wanted)
        counts: Counter[str] = sum((watcher.counts for watcher in watchers), Counter())
        arena.acquit(
            name,
            problems,
            MB=total >> 20,
            viewers=len(watchers),
            **{what: counts[what] for what in ("resumed", "gaps", "resets")},
            seen=f"{counts['bytes'] >> 20} MB",
        )
        missed = [what for what in when_large("resumed", "resets") if not counts[what]]
        assert missed == [], f"never: {missed}"


@pytest.mark.soak
async def test_a_flood_reaches_every_viewer_byte_for_byte_or_with_a_reset_at_the_gap(tmp_path: Path) -> None:
    await flood_with_cuts(
        tmp_path, TRUSTED, cuts=sized(16, 200), size=sized(16 << 20, 200 << 20), name="terminal cuts, flood"
    )


VIM = ("vim", "-N", "-u", "NONE", "-i", "NONE", "-n", "--cmd", "set number ruler showcmd")
WRITTEN = re.compile(r"[a-z0-9 \n]*")


def _edit(rng: Random, number: int) -> str:
    """Something that is typed at vim as one message, and leaves it in normal mode."""
    word = f"w{number} " * rng.randint(1, 12)
    return rng.choice(
        [f"i{word}\x1b", f"o{word}\x1b", f"Go{word}\x1b", f"ggO{word}\x1b", "dd", "yyp", "u", "\x12", "G", "gg", "\x06",
         "\x02", "zz", "5x", "J", ":set nu!\r", "/w1\r", "\x0c"]
    )  # fmt: skip


@pytest.mark.soak
async def test_the_screens_of_an_editor_are_the_same_for_who_was_cut_off_and_who_comes_new(tmp_path: Path) -> None:
    seed, rng = seeded()
    cuts = sized(12, 200)
    file = tmp_path / "written.txt"
    async with terminal_arena(tmp_path, seed, rng) as arena:
        await arena.run("editor", *VIM, str(file))
        async with arena.xterm("editor") as typist, arena.xterm("editor", role="view") as watcher:
            await typist.shows("All")
            await watcher.shows("All")
            for number in range(cuts):
                for _ in range(rng.randint(1, 4)):
                    await typist.type(_edit(rng, number))
                    await asyncio.sleep(rng.uniform(0, 0.03))
                await arena.fault()
            await arena.settled("editor", [typist, watcher])
            problems: list[str] = []
            async with arena.xterm("editor", role="view", direct=True) as late:
                await arena.settled("editor", [typist, watcher, late])
                for name, xterm in (("typist", typist), ("watcher", watcher)):
                    found = differences(xterm.seen["dump"], late.seen["dump"])
                    problems += [f"the {name} sees another screen: {each}" for each in found[:5]]
            await typist.type("\x1b:w\r")
            await typist.shows("written.txt")
            await until(file.exists, "the file is written", within=PATIENCE)
            if not WRITTEN.fullmatch(text := file.read_text()):
                problems.append(f"something else was typed: {WRITTEN.sub('', text)[:100]!r}")
            arena.acquit("terminal cuts, editor", problems, viewers=2, **went_through([typist, watcher]))
