"""Programs of a bridge, and what is below them."""

import os
import subprocess
from pathlib import Path

import pytest

from sandbox.system import child
from sandbox.system.child import descendants, ends_first
from tests.support.waiting import until


def score(pid: int) -> str:
    return Path(f"/proc/{pid}/oom_score_adj").read_text().strip()


@pytest.mark.parametrize("listed", [True, False])
async def test_a_program_goes_before_the_bridge_with_all_that_it_had_started(
    listed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had time to start some before anybody could say so. Not every kernel lists the children of a process."""
    monkeypatch.setattr(child, "_LISTS_CHILDREN", child._LISTS_CHILDREN and listed)
    script = f"(sleep 600; :) & sleep 600 & wait; touch {tmp_path}/ended"
    with subprocess.Popen(["sh", "-c", script], start_new_session=True) as program:
        try:
            await until(lambda: len(list(descendants(program.pid))) == 3)
            below = list(descendants(program.pid))
            assert set(below) <= set(descendants())
            ends_first(program.pid)
            assert [score(pid) for pid in (program.pid, *below)] == ["1000"] * 4
            assert score(os.getpid()) != "1000"
        finally:
            os.killpg(program.pid, 9)
    ends_first(program.pid)  # gone: nothing happens
