"""A program sends its terminal queries while everything between it and its viewers is cut at random, and viewers come
back to old queries. Each gets at most one answer, and the program reads nothing but answers and typed input."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.campaign.size import seeded, sized
from tests.campaign.terminal.arena import PATIENCE, Fifo, TerminalArena, Xterm, terminal_arena, went_through
from tests.campaign.terminal.recorder import FIRST_MODE, MOST_QUESTIONS
from tests.campaign.terminal.verdict import Reading
from tests.support.waiting import until

CALM_QUESTIONS = 5
NAME = "main"
SHOWN = ("epoch", "offset", "counts", "heard")  # of a viewer, when something is wrong


class Inquiry:
    """Two viewers that may type and one that may not watch a program that sends queries. `typed` and `asked` are the
    events so far, `surely` the queries that must have an answer."""

    def __init__(self, arena: TerminalArena, fifo: Fifo, log: Path, xterms: list[Xterm]) -> None:
        self._arena = arena
        self._rng = arena.rng
        self._fifo = fifo
        self._log = log
        self._people = {"a": xterms[0], "b": xterms[1]}
        self._xterms = xterms
        self.typed: list[str] = []
        self.asked: list[int] = []
        self.surely: list[int] = []

    @property
    def reading(self) -> Reading:
        return Reading(self._log.read_bytes())

    async def type(self) -> None:
        person = self._rng.choice("ab")
        self.typed.append(f"{person}{len(self.typed)};")
        await self._people[person].type(self.typed[-1])

    async def ask(self) -> None:
        assert len(self.asked) < MOST_QUESTIONS, "no two questions may be alike"
        self.asked.append(len(self.asked))
        self._fifo.tell(self.asked[-1])

    def heard(self) -> bool:
        """Whether the newest query was answered."""
        return self.reading.modes[FIRST_MODE + self.asked[-1]] > 0

    async def ask_until_heard(self) -> None:
        """A terminal that came back to old questions is not listened to for a moment."""
        deadline = time.monotonic() + PATIENCE
        while True:
            await self.ask()
            await asyncio.sleep(0.4)
            if self.heard():
                return
            if time.monotonic() > deadline:
                looks = [{what: seen[what] for what in SHOWN} for seen in [await each.look() for each in self._xterms]]
                raise AssertionError(f"nobody answers; seed={self._arena.seed}\n{looks}\n{self._arena.log}")

    async def ask_calmly(self) -> None:
        """Nothing is broken: exactly one of them answers."""
        await self._arena.settled(NAME, self._xterms)
        await self.ask_until_heard()
        for _ in range(CALM_QUESTIONS):
            await self.ask()
            self.surely.append(self.asked[-1])
            await until(self.heard, "answered", within=PATIENCE)
        await self._arena.settled(NAME, self._xterms)

    async def sleep_and_wake(self) -> None:
        """One is away while the other answers, and comes back when that one has gone: old questions are all it sees."""
        sleeper, other = self._rng.sample(list(self._people.values()), 2)
        await sleeper.away()
        await self.ask_until_heard()
        await other.away()
        await sleeper.back()
        end = await self._arena.end_of(NAME)
        await sleeper.until(lambda seen: seen["offset"] >= end, f"at {end}")
        await other.back()

    async def round(self) -> None:
        for step in self._rng.sample((self.ask, self.ask, self.type, self.type), self._rng.randint(1, 4)):
            await step()
            await asyncio.sleep(self._rng.uniform(0, 0.03))
        match self._rng.randrange(4):
            case 0:
                await self.ask_until_heard()
            case 1:
                await self.sleep_and_wake()
        await self._arena.fault()


@pytest.mark.soak
async def test_no_terminal_answers_an_old_question_and_one_answers_a_new_one(tmp_path: Path) -> None:
    seed, rng = seeded()
    log = tmp_path / "read.log"
    async with terminal_arena(tmp_path, seed, rng) as arena:
        fifo = arena.fifo("questions")
        await arena.run(NAME, "recorder.py", str(fifo.path), str(log))
        async with arena.xterm(NAME) as first, arena.xterm(NAME) as second, arena.xterm(NAME, role="view") as third:
            xterms = [first, second, third]
            for xterm in xterms:
                await xterm.shows("recording")
            inquiry = Inquiry(arena, fifo, log, xterms)
            await inquiry.type()
            await until(log.exists, "read", within=PATIENCE)
            await inquiry.ask_calmly()
            for _ in range(sized(12, 200)):
                await inquiry.round()
            await inquiry.ask_calmly()
            reading = inquiry.reading
            arena.acquit(
                "terminal cuts, questions",
                reading.problems(inquiry.typed, inquiry.asked, inquiry.surely),
                asked=3 * len(inquiry.asked),
                answered=reading.answers,
                typed=len(inquiry.typed),
                read=len(reading.typed),
                **went_through(xterms),
            )
