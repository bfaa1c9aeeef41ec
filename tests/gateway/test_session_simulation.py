"""Many seeded worlds in which everything goes wrong. A failing seed says how to run it again."""

import asyncio
import os
import traceback
from collections import Counter

import pytest
import structlog
from structlog.testing import capture_logs

from tests.support.simulation import Simulation
from tests.support.virtual_time import VirtualTimeLoop

ONE_SEED = os.environ.get("HOLDFAST_TEST_SEED")
SEEDS = [int(ONE_SEED)] if ONE_SEED else range(int(os.environ.get("HOLDFAST_TEST_SEEDS", "200")))
STEPS = 60
BUGS = ("session.crashed", "queue.callback_failed", "registry.keeper_died", "queue.died")


def run(seed: int) -> Counter[str]:
    """One world; raises AssertionError with what happened."""
    simulation = Simulation(seed)
    with capture_logs(processors=[structlog.processors.format_exc_info]) as logs:
        try:
            with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
                runner.run(simulation.run(STEPS))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            story = traceback.format_exc(limit=-6)
            crashes = "\n".join(str(entry.get("exception", entry)) for entry in logs if entry["event"] in BUGS)
            raise AssertionError(f"{story}\n{crashes}\n" + "\n".join(simulation.trace)) from None
    for entry in logs:
        assert entry["event"] not in BUGS, str(entry.get("exception", entry))
    return simulation.reached


def test_whatever_dies_nothing_is_lost_doubled_reordered_or_left_unsaid() -> None:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        try:
            reached += run(seed)
        except AssertionError as error:
            pytest.fail(
                f"HOLDFAST_TEST_SEED={seed} python -m pytest tests/gateway/test_session_simulation.py\n{error}",
                pytrace=False,
            )
