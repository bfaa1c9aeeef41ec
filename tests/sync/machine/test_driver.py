"""The driver on virtual time, with exact instants."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from sync.errors import SyncFailed, SyncRefused
from sync.machine.driver import SyncDriver, SyncView
from sync.machine.state import LOST_REASON, Impossible, SyncLimits

pytestmark = pytest.mark.virtual_time

LIMITS = SyncLimits(
    debounce=2.0,
    max_wait=10.0,
    attempts=3,
    attempt_base=1.0,
    attempt_cap=30.0,
    retry_base=4.0,
    retry_cap=16.0,
    waiters=3,
)
EPOCH = 1_000_000.0


class Longest(Random):
    """Jitter that is always all it may be."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Driving:
    """Runs what a driver gives away to be run: one task after the other."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def __call__(self, work: Coroutine[Any, Any, None]) -> None:
        assert all(task.done() for task in self.tasks), "one at a time"
        self.tasks.append(asyncio.create_task(work, name="sync"))

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled() or task.exception() is None


class Bench:
    """A driver whose attempts take `upload` and `commit` seconds, and fail as `faults` says, one after the other. Keeps
    when they began and ended, in seconds since its own beginning, and every view that was told."""

    def __init__(self, limits: SyncLimits = LIMITS) -> None:
        self.upload, self.commit = 0.5, 0.25
        self.faults: list[BaseException | None] = []
        self.began: list[float] = []
        self.ended: list[float] = []
        self.generation = 7
        self.views: list[SyncView] = []
        self.on_told: Callable[[SyncView], None] = lambda view: None
        self._start = asyncio.get_running_loop().time()
        self.driving = Driving()
        self.driver = SyncDriver(
            self.push,
            limits,
            rng=Longest(),
            utcnow=lambda: EPOCH + self.second,
            told=self._hear,
            drive=self.driving,
        )

    @property
    def second(self) -> float:
        return asyncio.get_running_loop().time() - self._start

    async def until(self, second: float) -> None:
        await asyncio.sleep(second - self.second)

    async def push(self, uploaded: Callable[[], None]) -> int:
        assert len(self.began) == len(self.ended), "two attempts at once"
        self.began.append(self.second)
        fault = self.faults.pop(0) if self.faults else None
        try:
            await asyncio.sleep(self.upload)
            if fault is not None:
                raise fault
            uploaded()
            await asyncio.sleep(self.commit)
            self.generation += 1
            return self.generation
        finally:
            self.ended.append(self.second)

    def _hear(self, view: SyncView) -> None:
        self.views.append(view)
        self.on_told(view)

    @property
    def states(self) -> list[str]:
        return [view.state for view in self.views]

    async def timed_flush(self) -> tuple[float, int]:
        generation = await self.driver.flush()
        return self.second, generation


@asynccontextmanager
async def running(limits: SyncLimits = LIMITS, *, restored: bool = True) -> AsyncIterator[Bench]:
    bench = Bench(limits)
    if restored:
        bench.driver.restored(7, failed=None)
    yield bench
    await bench.driving.end()


async def test_a_round_begins_debounce_seconds_after_the_last_request() -> None:
    async with running() as bench:
        for second in (1.0, 1.5, 3.25):
            await bench.until(second)
            bench.driver.request()
        await bench.until(60)
        assert bench.began == [5.25]
        assert bench.states == ["idle", "pending", "syncing", "flushing", "idle"]


async def test_a_round_begins_max_wait_seconds_after_the_first_of_requests_that_never_cease() -> None:
    async with running() as bench:
        while bench.second < 40:
            bench.driver.request()
            await bench.until(bench.second + 1)
        # The request of second 10 comes after the deadline of that instant, so it begins the second series.
        assert bench.began == [10.0, 20.0, 30.0]


async def test_a_force_skips_the_debounce_and_waits_for_its_generation() -> None:
    async with running() as bench:
        await bench.until(1)
        bench.driver.request()
        assert await bench.timed_flush() == (1.75, 8)
        await bench.until(60)
        assert bench.began == [1.0]
        assert await bench.timed_flush() == (60.75, 9)


async def test_a_request_during_a_round_makes_another_when_its_own_debounce_is_over() -> None:
    async with running() as bench:
        bench.upload = 4.0
        bench.driver.request()
        await bench.until(3)
        bench.driver.request()
        await bench.until(6.125)  # the commit has begun
        bench.driver.request()
        await bench.until(60)
        assert bench.began == [2.0, 8.125]
        bench.driver.request()
        await bench.until(63)
        bench.driver.request()  # its debounce is over before the round is
        await bench.until(90)
        assert bench.began[2:] == [62.0, 66.25]


@pytest.mark.parametrize("second", [0.25, 0.625], ids=["syncing", "flushing"])
async def test_a_force_during_a_round_makes_another_at_once_and_waits_for_that(second: float) -> None:
    async with running() as bench:
        first = asyncio.create_task(bench.timed_flush())
        await bench.until(second)
        assert bench.driver.view.state == ("syncing" if second < 0.5 else "flushing")
        assert await bench.timed_flush() == (1.5, 9)
        assert await first == (0.75, 8)
        assert bench.began == [0.0, 0.75]


async def test_forces_that_come_together_share_a_round() -> None:
    async with running() as bench:
        first = asyncio.create_task(bench.timed_flush())
        await bench.until(0.25)
        others = [asyncio.create_task(bench.timed_flush()) for _ in range(2)]
        assert await asyncio.gather(first, *others) == [(0.75, 8), (1.5, 9), (1.5, 9)]
        assert len(bench.began) == 2


async def test_attempts_of_a_round_rest_longer_and_longer_then_it_fails_and_is_tried_again_in_the_background() -> None:
    async with running() as bench:
        bench.faults = [SyncFailed(f"away {number}") for number in range(6)]
        with pytest.raises(SyncFailed, match="away 2") as failed:
            await bench.driver.flush()
        assert not failed.value.permanent
        assert bench.began == [0.0, 1.5, 4.0]  # 0.5 s each, rests of 1 and 2 s
        assert bench.second == 4.5
        view = bench.driver.view
        assert (view.state, view.last_error, view.failing, view.dirty, view.attempt) == (
            "failed",
            "away 2",
            True,
            True,
            3,
        )
        await bench.until(100)
        assert bench.began[3:] == [8.5, 17.0, 33.5, 50.0]  # rests of 4, 8 and twice 16 s, which is the cap
        view = bench.driver.view
        assert (view.state, view.last_error, view.failing, view.dirty, view.attempt) == ("idle", None, False, False, 0)
        assert [view.generation for view in bench.views if view.recovered] == [8]


async def test_what_fails_for_good_is_told_after_one_attempt() -> None:
    async with running() as bench:
        bench.faults = [SyncFailed("too_large", permanent=True)]
        with pytest.raises(SyncFailed, match="too_large") as failed:
            await bench.driver.flush()
        assert failed.value.permanent
        assert bench.began == [0.0]
        assert bench.driver.view.state == "failed"


async def test_a_force_skips_the_rest_between_attempts_and_the_wait_in_the_background() -> None:
    async with running() as bench:
        bench.faults = [SyncFailed("away"), SyncFailed("too_large", permanent=True)]
        first = asyncio.create_task(bench.driver.flush())
        await bench.until(1)
        assert bench.driver.view.state == "syncing"  # which it rests in
        with pytest.raises(SyncFailed, match="too_large"):
            await bench.driver.flush()
        with pytest.raises(SyncFailed, match="too_large"):
            await first
        await bench.until(2)
        assert await bench.timed_flush() == (2.75, 8)
        assert bench.began == [0.0, 1.0, 2.0]


async def test_a_request_after_a_failure_brings_the_next_attempt_nearer() -> None:
    async with running() as bench:
        bench.faults = [SyncFailed("too_large", permanent=True)]
        with pytest.raises(SyncFailed):
            await bench.driver.flush()
        bench.driver.request()
        assert bench.driver.view.state == "failed"
        await bench.until(60)
        assert bench.began == [0.0, 2.5]


async def test_nothing_is_pushed_before_the_restore() -> None:
    async with running(restored=False) as bench:
        bench.driver.request()
        with pytest.raises(SyncRefused, match="not restored"):
            await bench.driver.flush()
        await bench.until(3_600)
        assert bench.began == []
        bench.driver.restored(7, failed=None)
        await bench.until(3_700)
        assert bench.began == [3_602.0]


async def test_restoring_twice_is_a_bug() -> None:
    async with running() as bench:
        with pytest.raises(Impossible):
            bench.driver.restored(7, failed=None)


async def test_a_failure_from_before_the_restart_is_tried_again_and_its_end_is_told() -> None:
    async with running(restored=False) as bench:
        bench.driver.restored(7, failed="away", last_success=123.0)
        view = bench.driver.view
        assert (view.generation, view.last_success, view.last_error) == (7, 123.0, "away")
        assert view.failing
        assert view.dirty
        await bench.until(60)
        assert [(view.recovered, view.failing, view.last_success) for view in bench.views][-2:] == [
            (False, True, 123.0),
            (True, False, EPOCH + 2.75),
        ]
        assert not bench.driver.view.recovered


async def test_every_change_is_told_and_nothing_else() -> None:
    async with running() as bench:
        bench.faults = [SyncFailed("away")]
        for _ in range(100):
            bench.driver.request()
        await bench.until(60)
        assert [(view.state, view.attempt, view.last_error, view.dirty) for view in bench.views] == [
            ("idle", 0, None, False),
            ("pending", 0, None, True),
            ("syncing", 1, None, True),
            ("syncing", 1, "away", True),
            ("syncing", 2, "away", True),
            ("flushing", 2, "away", True),
            ("idle", 0, None, False),
        ]
        assert bench.views[-1].last_success == EPOCH + 4.25


async def test_who_is_told_may_ask_again() -> None:
    async with running() as bench:
        bench.on_told = lambda view: bench.driver.request() if view.generation == 8 else None
        assert await bench.driver.flush() == 8
        bench.on_told = lambda view: None
        assert bench.driver.view.state == "pending"


async def test_what_the_told_one_raises_is_logged_and_stops_nothing() -> None:
    async with running() as bench:

        def stumble(view: SyncView) -> None:
            raise ValueError("told")

        bench.on_told = stumble
        with capture_logs() as logs:
            assert await bench.driver.flush() == 8
        assert {entry["event"] for entry in logs} == {"sync.told_failed"}


async def test_a_lost_sandbox_takes_its_attempt_and_its_waiters_along_and_leaves_the_dirt() -> None:
    async with running() as bench:
        waiter = asyncio.create_task(bench.driver.flush())
        await bench.until(0.25)
        bench.driver.lost()
        with pytest.raises(SyncFailed, match=LOST_REASON):
            await waiter
        assert bench.ended == [0.25]
        assert (bench.driver.view.state, bench.driver.view.dirty) == ("unrestored", True)
        await bench.until(60)
        assert bench.began == [0.0]
        bench.driver.restored(7, failed=None)
        await bench.until(90)
        assert bench.began == [0.0, 62.0]
        assert (bench.driver.view.generation, bench.driver.view.dirty) == (8, False)


async def test_a_sandbox_that_is_lost_before_its_attempt_began_is_not_pushed() -> None:
    async with running() as bench:
        await bench.until(1)
        waiter = asyncio.create_task(bench.driver.flush())
        waiter.add_done_callback(lambda task: task.exception())
        bench.on_told = lambda view: bench.driver.lost() if view.state == "syncing" else None
        await bench.until(60)
        assert bench.began == []
        assert isinstance(waiter.exception(), SyncFailed)


async def test_an_attempt_that_ends_slowly_after_the_loss_counts_for_nothing_and_the_next_waits_for_its_end() -> None:
    limits, start = LIMITS, asyncio.get_running_loop().time()
    happened: list[tuple[str, float]] = []

    async def push(uploaded: Callable[[], None]) -> int:
        happened.append(("began", asyncio.get_running_loop().time() - start))
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            await asyncio.sleep(4)
        uploaded()
        happened.append(("ended", asyncio.get_running_loop().time() - start))
        return len(happened)

    driving = Driving()
    driver = SyncDriver(push, limits, rng=Longest(), utcnow=lambda: EPOCH, told=lambda view: None, drive=driving)
    driver.restored(0, failed=None)
    first = asyncio.create_task(driver.flush())
    await asyncio.sleep(0.5)
    driver.lost()
    driver.restored(0, failed=None)
    assert await driver.flush() == 4
    assert happened == [("began", 0.0), ("ended", 4.5), ("began", 4.5), ("ended", 5.5)]
    with pytest.raises(SyncFailed):
        await first
    await driving.end()


async def test_a_lull_is_when_no_attempt_is_under_way_also_between_two_of_a_round() -> None:
    async with running() as bench:
        await bench.driver.lull()
        bench.faults = [SyncFailed("once")]
        flushing = asyncio.ensure_future(bench.driver.flush())
        await asyncio.sleep(0)
        assert bench.began == [], "it is about to begin"
        await bench.driver.lull()
        assert (bench.second, bench.ended) == (0.5, [0.5])
        await bench.until(1.6)
        await bench.driver.lull()
        assert bench.ended[1:] == [bench.second]
        await flushing


async def test_a_cancelled_waiter_leaves_the_others_and_the_round_alone() -> None:
    async with running() as bench:
        tasks = [asyncio.create_task(bench.driver.flush()) for _ in range(3)]
        await bench.until(0.25)
        for task in tasks[:2]:
            task.cancel()
        assert await tasks[2] == 9
        assert all(task.cancelled() for task in tasks[:2])
        assert bench.began == [0.0, 0.75]


async def test_one_waiter_more_than_may_wait_is_refused_and_asks_for_nothing() -> None:
    async with running() as bench:
        tasks = [asyncio.create_task(bench.driver.flush()) for _ in range(3)]
        await bench.until(0.25)
        with pytest.raises(SyncRefused, match="3 others wait"):
            await bench.driver.flush()
        tasks[1].cancel()
        await asyncio.sleep(0)
        assert await bench.driver.flush() == 9
        assert await tasks[0] == 8


async def test_a_driver_that_is_cancelled_ends_the_attempt_first_and_refuses_who_waits() -> None:
    async with running() as bench:
        waiter = asyncio.create_task(bench.driver.flush())
        await bench.until(0.25)
    assert bench.ended == [0.25]
    with pytest.raises(SyncRefused, match="ended"):
        await waiter
    with pytest.raises(SyncRefused, match="ended"):
        await bench.driver.flush()
    bench.driver.request()
    await bench.until(60)
    assert bench.began == [0.0]


async def test_while_there_is_nothing_to_do_nothing_runs() -> None:
    """Most sessions are idle, and a task that waits was a tenth of what such a one takes."""
    async with running() as bench:
        assert bench.driving.tasks == []
        bench.driver.request()
        await bench.until(60)
        assert await bench.timed_flush() == (60.75, 9)
        bench.faults = [SyncFailed("away", permanent=True)]
        with pytest.raises(SyncFailed):
            await bench.driver.flush()
        await asyncio.sleep(0)
        assert [task.done() for task in bench.driving.tasks] == [True, True, False], "what failed is tried again"
        await bench.until(120)
        assert [task.done() for task in bench.driving.tasks] == [True, True, True]
        bench.driver.end()
        with pytest.raises(SyncRefused, match="ended"):
            await bench.driver.flush()
        assert len(bench.driving.tasks) == 3


async def test_a_driver_that_ends_in_the_middle_of_an_attempt_ends_its_task_and_tells_who_waits() -> None:
    async with running() as bench:
        waiter = asyncio.create_task(bench.driver.flush())
        await bench.until(0.25)
        bench.driver.end()
        with pytest.raises(SyncFailed, match=LOST_REASON):
            await waiter
        await asyncio.wait(bench.driving.tasks)
        assert bench.ended == [0.25]
        with pytest.raises(SyncRefused, match="ended"):
            await bench.driver.flush()


async def test_a_bug_in_an_attempt_is_logged_and_is_a_failed_attempt() -> None:
    async with running() as bench:
        bench.faults = [KeyError("oh")]
        with capture_logs() as logs:
            assert await bench.timed_flush() == (2.25, 8)
        assert [(entry["event"], entry.get("exc_info")) for entry in logs] == [("sync.push_crashed", True)]
        assert any("KeyError" in (view.last_error or "") for view in bench.views)


async def test_an_attempt_that_commits_twice_is_a_bug_of_its_own() -> None:
    async def push(uploaded: Callable[[], None]) -> int:
        uploaded()
        uploaded()
        return 8

    driving = Driving()
    driver = SyncDriver(push, LIMITS, rng=Longest(), utcnow=lambda: EPOCH, told=lambda view: None, drive=driving)
    driver.restored(7, failed=None)
    with pytest.raises(SyncFailed, match="Impossible"):
        await driver.flush()
    await driving.end()


async def test_an_attempt_that_cancels_itself_is_a_failed_attempt() -> None:
    async with running() as bench:
        bench.faults = [asyncio.CancelledError()]
        assert await bench.timed_flush() == (2.25, 8)
        assert "cancelled" in {view.last_error for view in bench.views}


async def test_a_round_that_finds_nothing_changed_answers_with_the_generation_there_is() -> None:
    async def push(uploaded: Callable[[], None]) -> int:
        return 7

    views: list[SyncView] = []
    driving = Driving()
    driver = SyncDriver(push, LIMITS, rng=Longest(), utcnow=lambda: EPOCH, told=views.append, drive=driving)
    driver.restored(7, failed=None)
    assert await driver.flush() == 7
    assert [view.state for view in views] == ["idle", "syncing", "idle"]
    assert driver.view.last_success == EPOCH
    await driving.end()


async def test_a_lasting_failure_is_logged_first_then_once_a_minute_then_its_end() -> None:
    async with running() as bench:
        bench.faults = [SyncFailed("away")] * 30
        with capture_logs() as logs:
            bench.driver.request()
            await bench.until(1_000)
        events = [entry["event"] for entry in logs]
        assert events[-1] == "sync.recovered"
        assert set(events[:-1]) == {"sync.failed"}
        assert 1_000 / 60 / 4 < len(events) - 1 < 1_000 / 60


async def test_every_transition_is_told_in_order_also_one_that_lasts_no_time() -> None:
    moves: list[tuple[str, int, int, str | None]] = []
    bench = Bench()
    driver = SyncDriver(
        bench.push,
        LIMITS,
        rng=Longest(),
        utcnow=lambda: EPOCH,
        told=lambda view: None,
        drive=bench.driving,
        moved=lambda made: moves.append((made.state, made.generation, made.attempt, made.reason)),
    )
    bench.faults = [SyncFailed("away")]
    driver.restored(7, failed=None)
    first = asyncio.create_task(driver.flush())
    await bench.until(2.0)  # it failed once, rested, and commits
    driver.request()
    await first
    await bench.until(60)
    await bench.driving.end()
    assert moves == [
        ("idle", 7, 0, None),
        ("syncing", 7, 1, None),
        ("syncing", 7, 1, "away"),
        ("syncing", 7, 2, "away"),
        ("flushing", 7, 2, "away"),
        ("idle", 8, 0, None),
        ("pending", 8, 0, None),
        ("syncing", 8, 1, None),
        ("flushing", 8, 1, None),
        ("idle", 9, 0, None),
    ]


async def test_an_owner_that_fails_at_a_transition_does_not_stop_the_sync() -> None:
    def fail(made: object) -> None:
        raise ZeroDivisionError

    bench = Bench()
    driver = SyncDriver(
        bench.push,
        LIMITS,
        rng=Longest(),
        utcnow=lambda: EPOCH,
        told=lambda view: None,
        drive=bench.driving,
        moved=fail,
    )
    with capture_logs() as logs:
        driver.restored(7, failed=None)
        assert await driver.flush() == 8
    await bench.driving.end()
    assert {entry["event"] for entry in logs} == {"sync.told_failed"}
