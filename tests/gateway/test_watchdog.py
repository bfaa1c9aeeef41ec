"""The watchdog names whoever blocks the loop, and ends a process whose loop is dead."""

import asyncio
import subprocess
import sys
import time

from gateway.watchdog import EXIT_CODE, Watchdog

BLOCKED = """
import asyncio, time
from gateway.watchdog import Watchdog

async def main():
    async with Watchdog(told_after=0.2, dead_after=0.4):
        await asyncio.sleep(0.2)
        the_culprit()

def the_culprit():
    time.sleep(60)

asyncio.run(main())
"""


async def test_a_block_is_told_once_and_the_loop_goes_on() -> None:
    async with Watchdog(told_after=0.2) as watchdog:
        while watchdog.lags == 0:
            time.sleep(1)  # blocks the loop, on purpose
            await asyncio.sleep(0)
        assert watchdog.lags == 1


async def test_a_loop_that_runs_is_left_alone() -> None:
    async with Watchdog(told_after=20.0, dead_after=60.0) as watchdog:
        await asyncio.sleep(0.5)
        assert watchdog.lags == 0


def test_a_dead_loop_ends_the_process_and_names_the_culprit() -> None:
    ended = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, timeout=60)
    assert ended.returncode == EXIT_CODE
    assert "the_culprit" in ended.stdout + ended.stderr
