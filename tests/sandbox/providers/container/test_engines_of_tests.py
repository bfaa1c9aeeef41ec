"""The engines that tests start for themselves leave nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.engine import DockerEngine, PodmanEngine, whats_missing
from tests.support.waiting import blocking_until


@pytest.mark.parametrize("kind", [DockerEngine, PodmanEngine])
def test_an_engine_whose_daemon_was_killed_leaves_nothing(kind: type[DockerEngine] | type[PodmanEngine]) -> None:
    if reason := whats_missing(*kind.programs):
        pytest.skip(reason)
    with kind() as engine:
        engine.client("run", "--detach", "--network", "none", engine.image, "sleep", "600")
        inside = engine.processes()
        assert len(inside) == 1
        assert engine.mounts()
        engine.kill()
        assert engine.processes() == inside, "containers outlive the daemon"
    assert not engine.directory.exists()
    blocking_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in inside))
    assert engine.processes() == set()
    assert str(engine.directory) not in Path("/proc/self/mountinfo").read_text()


def test_what_a_killed_test_run_left_is_removed_by_the_next() -> None:
    if reason := whats_missing(*DockerEngine.programs):
        pytest.skip(reason)
    script = (
        "import os\nfrom tests.support.engine import DockerEngine\nengine = DockerEngine().__enter__()\n"
        "engine.client('run', '--detach', '--network', 'none', engine.image, 'sleep', '600')\n"
        "print(engine.directory, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False)
    left = DockerEngine()
    left.directory = Path(killed.stdout.strip())
    inside = left.processes()
    assert len(inside) == 1
    with DockerEngine():
        assert not left.directory.exists()
        assert left.processes() == set()


def test_what_is_missing_is_told_in_one_line() -> None:
    assert "no-such-engine" in (whats_missing("no-such-engine") or "")
