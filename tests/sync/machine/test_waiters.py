"""A file written before a sync was asked for is in the generation that whoever asked was given.

People write files (numbers, in a row), and ask, and sometimes lose patience; attempts are slow and fail in every way;
sandboxes end and come back. Everything that may happen in another order does, by the seed. An attempt sees what was on
the disk in the moment it began and nothing of what came later, which is the least that a scan may see.

Then the same with drivers that are wrong, each in one way: a test that cannot fail proves nothing.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from itertools import permutations
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from sync.errors import SyncFailed, SyncRefused
from sync.machine.driver import SyncDriver, SyncView
from sync.machine.state import LOST_REASON, Effect, Event, Fail, Resolve, State, SyncLimits, SyncState
from tests.support.shuffled_time import ShuffledTimeLoop

RUNS = 50_000 if os.environ.get("HOLDFAST_TEST_SOAK") else 1_000
MUTANT_RUNS = 200  # each of which is expected to be caught long before
LIMITS = SyncLimits(debounce=1.0, max_wait=3.0, attempt_base=0.5, retry_base=1.0, retry_cap=8.0, waiters=6)
PAUSES = (0.0, 0.0, 0.25, 0.5, 1.0, 2.0)  # coarse, so that much falls into one moment
CALM = 60.0
SHOWN = {state.shown for state in State}


class World:
    def __init__(
        self,
        seed: int,
        make_driver: type[SyncDriver] = SyncDriver,
        make_state: Callable[[SyncLimits, Random], SyncState] = SyncState,
    ) -> None:
        self.rng = Random(seed)
        self.written = 0  # how many files there are
        self.asks = [0]  # how many there were whenever somebody asked
        self.broken: list[str] = []  # promises
        self.generations = {0: 0}  # how many are in each
        self.newest = 0
        self.restored = False
        self.pushing = False
        self.failing = self.rng.choice((0.0, 0.2, 0.6))
        self.reached: Counter[str] = Counter()
        self.driving: asyncio.Task[None] | None = None
        self.driver = make_driver(self.push, LIMITS, rng=self.rng, utcnow=lambda: 0.0, told=self.hear, drive=self.drive)
        self.driver._state = make_state(LIMITS, self.rng)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as people:
            for _ in range(self.rng.randint(1, 4)):
                people.create_task(self.live())
            people.create_task(self.provide())
        self.failing = 0.0
        await asyncio.sleep(CALM)
        view = self.driver.view
        self.claim((view.state, view.dirty, view.failing) == (State.IDLE, False, False), "it comes to rest")
        self.claim(self.driving is None or self.driving.done(), "nothing runs while it rests")
        self.claim(self.generations[view.generation] >= max(self.asks), "all that was asked for is kept")

    def drive(self, work: Coroutine[Any, Any, None]) -> None:
        self.claim(self.driving is None or self.driving.done(), "one task at a time")
        self.driving = asyncio.create_task(work, name="sync")

    def claim(self, holds: bool, promise: str) -> None:
        """Kept rather than raised: the driver takes whatever an attempt raises for a failure."""
        if not holds:
            self.broken.append(promise)

    async def pause(self) -> None:
        await asyncio.sleep(self.rng.choice(PAUSES))

    async def live(self) -> None:
        for _ in range(self.rng.randint(3, 12)):
            await self.pause()
            self.written += 1
            deed = self.rng.choices((self.flush, self.request, self.flush_impatiently), (4, 3, 2))[0]
            await deed()

    async def request(self) -> None:
        self.asks.append(self.written)
        self.driver.request()

    async def flush(self) -> None:
        before = self.written
        self.asks.append(before)
        try:
            async with asyncio.timeout(CALM):
                generation = await self.driver.flush()
        except SyncFailed as failure:
            self.reached[failure.reason] += 1
        except SyncRefused:
            self.asks.remove(before)
            self.reached["refused"] += 1
        except TimeoutError:
            self.claim(False, "whoever waits is answered")
        else:
            self.reached["answered"] += 1
            self.reached["answered with more"] += self.generations[generation] > before
            self.claim(self.generations[generation] >= before, "what was there when it was asked for is in it")

    async def flush_impatiently(self) -> None:
        waiter = asyncio.create_task(self.flush())
        await self.pause()
        self.reached["impatient"] += waiter.cancel()
        await asyncio.wait([waiter])
        if not waiter.cancelled():
            waiter.result()

    async def provide(self) -> None:
        """Sandboxes come and go; the disk stays."""
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            self.lose()
            await self.pause()
            self.restored = True
            self.driver.restored(self.newest, failed=None)
            await asyncio.sleep(self.rng.uniform(0, 15))

    def lose(self) -> None:
        self.reached["lost during an attempt"] += self.pushing
        self.restored = False
        self.driver.lost()

    async def push(self, uploaded: Callable[[], None]) -> int:
        self.claim(not self.pushing, "one attempt at a time")
        self.pushing = True
        try:
            return await self.attempt(uploaded, seen=self.written)
        finally:
            await asyncio.sleep(0)
            self.pushing = False

    async def attempt(self, uploaded: Callable[[], None], seen: int) -> int:
        await self.step("away")
        if self.generations[self.newest] == seen and self.rng.random() < 0.5:
            self.reached["nothing changed"] += 1
            return self.newest
        await self.step("away")
        uploaded()
        await self.step("commit failed")
        self.newest += 1
        self.generations[self.newest] = seen
        await self.step("reply lost")
        return self.newest

    async def step(self, trouble: str) -> None:
        self.claim(self.restored, "nothing is pushed unless it is restored")
        await self.pause()
        self.claim(self.restored, "nothing is pushed unless it is restored")
        if self.rng.random() < self.failing / 2:
            kind = self.rng.choice(("once", "once", "for good", "bug"))
            self.reached[f"{trouble} {kind}"] += 1
            raise KeyError(trouble) if kind == "bug" else SyncFailed(trouble, permanent=kind == "for good")

    def hear(self, view: SyncView) -> None:
        self.reached[view.state] += 1
        self.reached["recovered"] += view.recovered
        if not view.dirty:
            self.claim(self.generations[view.generation] >= max(self.asks), "clean means kept")


def live_through(seed: int, make_world: Callable[[int], World] = World) -> World:
    world = make_world(seed)
    with capture_logs(), asyncio.Runner(loop_factory=lambda: ShuffledTimeLoop(seed)) as runner:
        runner.run(world.run())
    return world


@pytest.mark.soak
def test_whoever_asked_is_given_a_generation_with_what_was_there() -> None:
    reached: Counter[str] = Counter()
    for seed in range(RUNS):
        world = live_through(seed)
        assert world.broken == [], f"seed {seed}"
        reached += world.reached
    rare = {
        "answered", "answered with more", "refused", "impatient", "recovered", "nothing changed", LOST_REASON,
        "lost during an attempt", "away once", "commit failed for good", "reply lost once", "reply lost bug", *SHOWN,
    }  # fmt: skip
    assert not {name for name in rare if reached[name] < RUNS / 30}, reached


class AnswersWithTheRoundUnderWay(SyncState):
    """Takes the end of a round for an answer to all who wait."""

    def _succeed(self) -> list[Effect]:
        self.scanned = self.asked
        return super()._succeed()


class AnswersBeforeTheCommit(SyncState):
    def on(self, event: Event, *, now: float, generation: int = 0, reason: str = "") -> tuple[Effect, ...]:
        effects = super().on(event, now=now, generation=generation, reason=reason)
        return (*effects, Resolve(self.scanned, self.generation)) if event is Event.UPLOADED else effects


class ForgetsWhatIsAskedDuringARound(SyncState):
    def _succeed(self) -> list[Effect]:
        self._series, self._forced = None, False
        return super()._succeed()


class ForgetsTheDirtOfALostSandbox(SyncState):
    def _close(self) -> list[Effect]:
        effects = super()._close()
        self.synced = self.scanned = self.asked
        return effects


class LooksAgainOnlyOncePerRound(SyncState):
    """Takes those who ask during a rest for part of the attempt before it."""

    def _begin(self, before: State) -> list[Effect]:
        scanned, effects = self.scanned, super()._begin(before)
        self.scanned = scanned if before is State.RESTING else self.scanned
        return effects


class AnswersEverybody(SyncDriver):
    """Resolves waiters with a sync that began before they asked."""

    def _answer(self, upto: int, answer: Resolve | Fail | None) -> None:
        super()._answer(self._state.asked, answer)


class LetsTheAttemptGoOn(SyncDriver):
    """Does not end the attempt of a sandbox that is gone."""

    def lost(self) -> None:
        self._attempt = None
        super().lost()


IN_IT = "what was there when it was asked for is in it"


@pytest.mark.parametrize(
    ("driver", "state", "promise"),
    [
        (AnswersEverybody, SyncState, IN_IT),
        (SyncDriver, AnswersWithTheRoundUnderWay, IN_IT),
        (SyncDriver, AnswersBeforeTheCommit, IN_IT),
        (SyncDriver, ForgetsWhatIsAskedDuringARound, "whoever waits is answered"),
        (SyncDriver, ForgetsTheDirtOfALostSandbox, "all that was asked for is kept"),
        (SyncDriver, LooksAgainOnlyOncePerRound, "whoever waits is answered"),
        (LetsTheAttemptGoOn, SyncState, "nothing is pushed unless it is restored"),
    ],
)
def test_a_driver_that_is_wrong_is_caught(driver: type[SyncDriver], state: type[SyncState], promise: str) -> None:
    runs = (live_through(seed, lambda seed: World(seed, driver, state)) for seed in range(MUTANT_RUNS))
    assert any(promise in world.broken for world in runs)


def test_what_is_ready_runs_in_any_order() -> None:
    async def note(order: list[int], number: int) -> None:
        order.append(number)

    async def start_three(order: list[int]) -> None:
        await asyncio.gather(*(note(order, number) for number in range(3)))

    orders = set()
    for seed in range(60):
        order: list[int] = []
        with asyncio.Runner(loop_factory=lambda seed=seed: ShuffledTimeLoop(seed)) as runner:  # type: ignore[misc]
            runner.run(start_three(order))
        orders.add(tuple(order))
    assert orders == set(permutations(range(3)))


def test_a_seed_is_a_run() -> None:
    assert [live_through(seed).reached for seed in range(5)] == [live_through(seed).reached for seed in range(5)]
    assert live_through(1).reached != live_through(2).reached
