"""The watchdog names whoever blocks the loop, and ends a process whose loop is dead."""

import asyncio
import subprocess
import sys
import time

import pytest

from gateway.telemetry.watchdog import EXIT_CODE, Watchdog

BLOCKED = """
import asyncio, time
from gateway.telemetry.watchdog import Watchdog

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


BUSY = """
import asyncio, sys, time
from gateway.telemetry.watchdog import Watchdog

async def step():
    time.sleep(0.03)

async def main():
    async with Watchdog(told_after=0.2, dead_after=0.4) as watchdog:
        await asyncio.sleep(0.2)
        loop = asyncio.get_running_loop()
        for _ in range(40):  # one turn of more than two seconds, of many small steps
            loop.call_soon(time.sleep, 0.03)
            loop.call_soon(lambda: time.sleep(0.01))
            loop.create_task(step())
        await asyncio.sleep(0.1)
        assert watchdog.lags

if sys.argv[1] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_loop_with_much_to_do_is_told_of_and_not_taken_for_dead(loop: str) -> None:
    """A flood of legal frames once ended the process."""
    ended = subprocess.run([sys.executable, "-c", BUSY, loop], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr


async def test_a_loop_that_runs_is_left_alone() -> None:
    async with Watchdog(told_after=20.0, dead_after=60.0) as watchdog:
        await asyncio.sleep(0.5)
        assert watchdog.lags == 0


def test_a_dead_loop_ends_the_process_and_names_the_culprit() -> None:
    for run in ("asyncio.run(main())", "import uvloop; uvloop.run(main())"):
        _check_dead(BLOCKED.replace("asyncio.run(main())", run))


def _check_dead(program: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == EXIT_CODE
    assert "the_culprit" in ended.stdout + ended.stderr
