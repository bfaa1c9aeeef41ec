"""Connections of browsers, links between gateway and bridge, and the gateway itself are cut at random while a terminal
floods, while somebody edits, and while a program asks its terminal questions.

What every viewer put together is what the program wrote, or it was told of the gap and got a picture of the screen
that a terminal which saw everything would show; and no terminal's answer to an old question reaches a program.
"""

import asyncio
import re
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.campaign.size import seeded, sized, when_large
from tests.campaign.stage import until
from tests.campaign.terminal.arena import PATIENCE, TerminalArena, Xterm, differences, terminal_arena
from tests.campaign.terminal.flood import RECORD_BYTES, stream
from tests.campaign.terminal.recorder import FIRST_MODE, MOST_QUESTIONS
from tests.campaign.terminal.screens import Dump, drawn, unlike
from tests.campaign.terminal.verdict import Reading
from tests.campaign.terminal.watcher import Watcher

PACES = {"fast": 0.0, "quick": 0.0, "slow": 0.002, "crawling": 0.02}
SEEN_RECORDS = 2000  # more than a terminal remembers
MOST_GLIMPSES = 40  # of one viewer, that are compared
WAITING_BURSTS = 2


def _last_of_it(end: int) -> bytes:
    """What a terminal has read last when it has read everything up to `end`, from the start of a record on."""
    return stream(max(end // RECORD_BYTES - SEEN_RECORDS, 0) * RECORD_BYTES, end)


async def check_glimpses(watcher: Watcher) -> list[str]:
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
            problems += await check_glimpses(watcher)
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


VIM = ("vim", "-N", "-u", "NONE", "-i", "NONE", "-n", "--cmd", "set number ruler showcmd")
WRITTEN = re.compile(r"[a-z0-9 \n]*")


def _edit(rng: Random, number: int) -> str:
    """Something that is typed at vim as one message, and leaves it in normal mode."""
    word = f"w{number} " * rng.randint(1, 12)
    return rng.choice(
        [f"i{word}\x1b", f"o{word}\x1b", f"Go{word}\x1b", f"ggO{word}\x1b", "dd", "yyp", "u", "\x12", "G", "gg", "\x06",
         "\x02", "zz", "5x", "J", ":set nu!\r", "/w1\r", "\x0c"]
    )  # fmt: skip


def _counts(xterms: list[Xterm]) -> dict[str, int]:
    """What they went through together, as of their newest looks."""
    counts: Counter[str] = sum((Counter(xterm.seen["counts"]) for xterm in xterms), Counter())
    return {what: counts[what] for what in ("connections", "resets")}


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
            arena.acquit("terminal cuts, editor", problems, viewers=2, **_counts([typist, watcher]))


@pytest.mark.soak
async def test_no_terminal_answers_an_old_question_and_one_answers_a_new_one(tmp_path: Path) -> None:
    seed, rng = seeded()
    cuts, calm = sized(12, 200), 5
    log = tmp_path / "read.log"
    async with terminal_arena(tmp_path, seed, rng) as arena:
        fifo = arena.fifo("questions")
        await arena.run("main", "recorder.py", str(fifo.path), str(log))
        async with (
            arena.xterm("main") as first,
            arena.xterm("main") as second,
            arena.xterm("main", role="view") as third,
        ):
            xterms = [first, second, third]
            for xterm in xterms:
                await xterm.shows("recording")
            typed: list[str] = []
            asked: list[int] = []
            surely: list[int] = []

            async def type_one() -> None:
                person, xterm = rng.choice((("a", first), ("b", second)))
                typed.append(f"{person}{len(typed)};")
                await xterm.type(typed[-1])

            async def ask() -> None:
                assert len(asked) < MOST_QUESTIONS, "no two questions may be alike"
                asked.append(len(asked))
                fifo.tell(asked[-1])

            def heard() -> bool:
                return Reading(log.read_bytes()).modes[FIRST_MODE + asked[-1]] > 0

            async def ask_until_heard() -> None:
                """A terminal that came back to old questions is not listened to for a moment."""
                deadline = time.monotonic() + PATIENCE
                while True:
                    await ask()
                    await asyncio.sleep(0.4)
                    if heard():
                        return
                    assert time.monotonic() < deadline, f"nobody answers; seed={seed}"

            async def ask_calmly() -> None:
                """Nothing is broken: exactly one of them answers."""
                await arena.settled("main", xterms)
                await ask_until_heard()
                for _ in range(calm):
                    await ask()
                    surely.append(asked[-1])
                    await until(heard, "answered", within=PATIENCE)
                await arena.settled("main", xterms)

            await type_one()
            await until(log.exists, "read", within=PATIENCE)
            await ask_calmly()
            for _ in range(cuts):
                for step in rng.sample((ask, ask, type_one, type_one), rng.randint(1, 4)):
                    await step()
                    await asyncio.sleep(rng.uniform(0, 0.03))
                if rng.random() < 0.5:  # so that what is old has been answered
                    await ask_until_heard()
                await arena.fault()
            await ask_calmly()
            reading = Reading(log.read_bytes())
            arena.acquit(
                "terminal cuts, questions",
                reading.problems(typed, asked, surely),
                asked=3 * len(asked),
                answered=reading.answers,
                typed=len(typed),
                read=len(reading.typed),
                **_counts(xterms),
                unsaid=sum(xterm.seen["counts"]["unsaid"] for xterm in xterms),
            )
