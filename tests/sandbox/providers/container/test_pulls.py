"""Images fetched once for all who wait, and given up when nothing moves. On virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from sandbox.ports.progress import ImagePull, ImagePulled, StartProgress
from sandbox.ports.sandbox import SandboxFailed, SandboxUnavailable
from sandbox.providers.container.engine import EngineRefused
from sandbox.providers.container.engine_answers import BadAnswer
from sandbox.providers.container.pulls import PULLS_AT_ONCE, ImagePulls, PullEnd

pytestmark = pytest.mark.virtual_time
SECONDS_A_STEP = 100.0


class SlowEngine:
    """An engine whose pulls take STEPS steps; `after` may raise after one of them."""

    STEPS = 5

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.under_way = self.most = self.given_up = 0
        self.after: Callable[[int], None] = lambda step: None
        self.further = True

    async def pull(self, image: str, *, login: str = "") -> AsyncGenerator[dict[str, Any], None]:
        self.asked.append((image, login))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            for step in range(1, self.STEPS + 1):
                await asyncio.sleep(SECONDS_A_STEP)
                self.after(step)
                current = step if self.further else 1
                yield {"id": "a", "status": "Downloading", "progressDetail": {"current": current, "total": self.STEPS}}
        except (asyncio.CancelledError, GeneratorExit):
            self.given_up += 1
            raise
        finally:
            self.under_way -= 1


class Waiter:
    def __init__(self, pulls: ImagePulls, image: str = "debian:12") -> None:
        self.heard: list[StartProgress] = []
        self.task = asyncio.create_task(pulls.pull(image, self.heard.append))

    async def fails(self) -> str:
        with pytest.raises(SandboxFailed) as failed:
            await self.task
        return str(failed.value)


async def moment() -> None:
    await asyncio.sleep(0.001)


async def test_one_pull_serves_all_who_wait_and_each_hears_how_far_it_is() -> None:
    engine, ends = SlowEngine(), list[PullEnd]()
    pulls = ImagePulls(engine, on_end=ends.append)
    first = Waiter(pulls)
    await asyncio.sleep(2.5 * SECONDS_A_STEP)
    second = Waiter(pulls)
    await asyncio.gather(first.task, second.task)
    assert engine.asked == [("debian:12", "")]
    views = [ImagePull("debian:12"), *(ImagePull("debian:12", 0, 1, step, 5) for step in range(1, 6))]
    assert first.heard == [*views, ImagePulled("debian:12")]
    assert second.heard == first.heard[2:]
    assert [(end.image, end.result, end.bytes, end.words) for end in ends] == [("debian:12", "ok", 5, "")]
    assert ends[0].seconds == pytest.approx(5 * SECONDS_A_STEP)
    await Waiter(pulls).task
    assert len(engine.asked) == 2


async def test_who_leaves_does_not_end_what_others_wait_for_and_the_last_does() -> None:
    engine, ends = SlowEngine(), list[PullEnd]()
    pulls = ImagePulls(engine, on_end=ends.append)
    first, second = Waiter(pulls), Waiter(pulls)
    await moment()
    first.task.cancel()
    await moment()
    assert engine.under_way == 1
    second.task.cancel()
    third = Waiter(pulls)
    await moment()
    assert engine.given_up == 1
    assert [end.result for end in ends] == ["cancelled"]
    await third.task
    assert len(engine.asked) == 2, "who comes after the last has left begins another"
    assert third.heard[-1] == ImagePulled("debian:12")


async def test_a_pull_may_take_as_long_as_it_moves_and_is_given_up_when_it_stands_still() -> None:
    engine, ends = SlowEngine(), list[PullEnd]()
    pulls = ImagePulls(engine, patience=1.5 * SECONDS_A_STEP, on_end=ends.append)
    await Waiter(pulls).task
    engine.further = False
    waiters = Waiter(pulls), Waiter(pulls)
    for waiter in waiters:
        assert "no progress for 150 s (HOLDFAST_DOCKER_PULL_TIMEOUT)" in await waiter.fails()
    assert engine.given_up == 1
    assert [end.result for end in ends] == ["ok", "timeout"]


def raises(error: Exception) -> Callable[[int], None]:
    def after(step: int) -> None:
        if step == 2:
            raise error

    return after


async def test_a_failure_is_told_to_all_who_wait_and_the_next_tries_again() -> None:
    engine, ends = SlowEngine(), list[PullEnd]()
    pulls = ImagePulls(engine, cpu="amd64", on_end=ends.append)
    engine.after = raises(EngineRefused(0, "write /x: no space left on device"))
    waiters = Waiter(pulls), Waiter(pulls)
    for waiter in waiters:
        assert "has no room" in await waiter.fails()
    engine.after = raises(BadAnswer("its answer is not an object"))
    assert "the container engine is odd: its answer is not an object" in await Waiter(pulls).fails()
    assert [(end.result, bool(end.words)) for end in ends] == [("no_space", True), ("failed", True)]
    engine.after = raises(SandboxUnavailable("away"))
    with pytest.raises(SandboxUnavailable, match="away"):
        await Waiter(pulls).task
    engine.after = lambda step: None
    await Waiter(pulls).task


async def test_only_a_few_are_fetched_at_once_and_waiting_is_not_standing_still() -> None:
    engine = SlowEngine()
    pulls = ImagePulls(engine, patience=2 * SECONDS_A_STEP, turn_seconds=10 * SECONDS_A_STEP)
    waiters = [Waiter(pulls, f"image:{number}") for number in range(PULLS_AT_ONCE + 2)]
    await asyncio.gather(*(waiter.task for waiter in waiters))
    assert engine.most == PULLS_AT_ONCE
    assert [image for image, _ in engine.asked] == [f"image:{number}" for number in range(PULLS_AT_ONCE + 2)]


async def test_pulls_that_take_very_long_keep_others_from_theirs_for_a_while_only() -> None:
    """A registry may send a byte now and then: that is progress."""
    engine = SlowEngine()
    engine.STEPS = 10_000
    pulls = ImagePulls(engine, patience=2 * SECONDS_A_STEP, turn_seconds=5 * SECONDS_A_STEP)
    slow = [Waiter(pulls, f"slow:{number}") for number in range(PULLS_AT_ONCE)]
    await moment()
    engine.STEPS = 2
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(Waiter(pulls, f"quick:{number}").task for number in range(PULLS_AT_ONCE)))
    assert asyncio.get_running_loop().time() - began < 10 * SECONDS_A_STEP
    assert engine.most == 2 * PULLS_AT_ONCE
    assert not any(waiter.task.done() for waiter in slow), "they go on"
    await pulls.close()
    await asyncio.wait({waiter.task for waiter in slow})
    waiters = [Waiter(pulls, f"last:{number}") for number in range(PULLS_AT_ONCE + 1)]
    await moment()
    assert engine.under_way == PULLS_AT_ONCE, "each gave its turn back once"
    await asyncio.gather(*(waiter.task for waiter in waiters))


async def test_at_the_end_nothing_is_under_way() -> None:
    engine = SlowEngine()
    pulls = ImagePulls(engine)
    waiter = Waiter(pulls)
    await moment()
    await pulls.close()
    assert engine.under_way == 0
    await asyncio.wait({waiter.task})
    await pulls.close()
