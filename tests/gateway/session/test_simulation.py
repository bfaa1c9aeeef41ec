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

SOAK = os.environ.get("HOLDFAST_TEST_SOAK") == "1"
SEEDS, STEPS = (10_000, 120) if SOAK else (200, 40)
ONE_SEED = os.environ.get("HOLDFAST_TEST_SEED")
BUGS = ("session.crashed", "queue.callback_failed", "registry.keeper_died", "queue.died")
# A campaign that never met one of these has proven nothing about it.
SOMETIMES = (
    *("buffer_full", "already_answered", "recovered:True", "recovered:False", "new epoch"),
    *("gateway killed", "bridge killed", "bridge forgets", "cut while taking", "link cut", "reply lost", "store away"),
    *("message delivered", "message interrupted", "message expired", "message cancelled", "message incomplete"),
    *("cancel not_pending", "cancel session_failed"),
    *("permission_request answered", "permission_request expired"),
    *("ack accepted", "ack stored", "rejected", "rejected rejected", "owner_moved", "store falls behind"),
)


def run(seed: int) -> Counter[str]:
    """One world; raises AssertionError with its story."""
    simulation = Simulation(seed)
    with capture_logs(processors=[structlog.processors.format_exc_info]) as logs:
        try:
            with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
                runner.run(simulation.run(STEPS))
            broken = ""
        except Exception:
            broken = traceback.format_exc(limit=-6)
    crashes = [str(entry.get("exception", entry)) for entry in logs if entry["event"] in BUGS]
    assert not broken, "\n".join([broken, *crashes, *simulation.trace])
    assert not crashes, "\n".join(crashes + simulation.trace)
    return simulation.reached


@pytest.mark.soak
def test_whatever_dies_nothing_is_lost_doubled_reordered_or_left_unsaid() -> None:
    reached: Counter[str] = Counter()
    seeds = [int(ONE_SEED)] if ONE_SEED else range(SEEDS)
    for seed in seeds:
        try:
            reached += run(seed)
        except AssertionError as error:
            soak = "HOLDFAST_TEST_SOAK=1 " if SOAK else ""
            replay = f"{soak}HOLDFAST_TEST_SEED={seed} python -m pytest tests/gateway/session/test_simulation.py"
            pytest.fail(f"{replay}\n{error}", pytrace=False)
    if not ONE_SEED:
        assert [name for name in SOMETIMES if not reached[name]] == []
