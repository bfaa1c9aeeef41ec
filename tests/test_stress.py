"""`make stress` on a few toy tests: what fails is listed by name and seed, and the seed is the one it failed with."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFTEST = """
from tests.support.failures import pytest_runtest_logfinish, pytest_runtest_logstart, pytest_runtest_makereport
"""
IN_BACKGROUND = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")  # a shell has what runs there ignore SIGINT
TOYS = {
    "passes": "def test_one(): seeded()",
    "fails": """
def test_one(): pass
def test_two():
    seed, _ = seeded()
    with open("seeds", "a") as seeds:
        seeds.write(f"{seed}\\n")
    assert False, "as it should"
""",
    "groups": """
import asyncio
async def fail():
    raise ValueError("deep inside")
async def work():
    async with asyncio.TaskGroup() as group:
        group.create_task(fail())
def test_one():
    asyncio.run(work())
""",
    "dies": "import os\ndef test_one(): os._exit(9)",
    "hangs": """
import time, pytest
@pytest.fixture
def place():
    yield
    open("left", "w").close()
def test_one(place): time.sleep(600)
""",
}


def stress(home: Path, toy: str, *words: str, busy: int = 0) -> tuple[int, str]:
    (home / "conftest.py").write_text(CONFTEST)
    (home / f"test_{toy}.py").write_text(f"from tests.campaign.size import seeded\n{TOYS[toy]}\n")
    ended = subprocess.run(
        [*IN_BACKGROUND, sys.executable, "-m", "tests.support.stress", f"--busy={busy}", *words, "--",
         "-c", "/dev/null", "--rootdir", str(home), str(home)],
        cwd=home, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return ended.returncode, ended.stdout + ended.stderr


def test_a_suite_that_passes_passes(tmp_path: Path) -> None:
    code, said = stress(tmp_path, "passes", "--runs", "2", "--seed", "7", busy=1)
    assert code == 0, said
    assert "run 1 of 2, seed 7, beside 1 busy loops" in said
    assert said.endswith("stress: 2 of 2 runs finished, 0 failed, 0 tests failed\n")


def test_what_fails_is_listed_by_name_and_seed(tmp_path: Path) -> None:
    code, said = stress(tmp_path, "fails", "--runs", "2")
    first, second = (tmp_path / "seeds").read_text().split()
    assert first != second, "each run has a seed of its own"
    assert code == 1, said
    assert "test_fails.py::test_two: failed 2 times\n" in said
    for number, seed in ((1, first), (2, second)):
        assert f"  run {number}, seed {seed}, in call: AssertionError: as it should\n" in said
    assert f"  again: HOLDFAST_TEST_SEED={first} python -m pytest --hypothesis-seed={first} 'test_fails.py" in said
    assert "test_one" not in said
    assert said.endswith("stress: 2 of 2 runs finished, 2 failed, 1 tests failed\n")


def test_of_a_group_of_errors_the_inner_one_is_listed(tmp_path: Path) -> None:
    code, said = stress(tmp_path, "groups", "--runs", "1")
    assert code == 1, said
    assert "in call: ValueError: deep inside\n" in said
    assert "async with asyncio.TaskGroup()" in said, "its whole report is shown"


def test_a_run_that_dies_has_failed_and_names_the_test_it_died_in(tmp_path: Path) -> None:
    code, said = stress(tmp_path, "dies", "--runs", "1")
    assert code == 1, said
    assert re.search(r"run 1, seed \d+: these tests: ended with 9 during test_dies.py::test_one", said), said


def test_the_time_is_bounded_and_what_was_under_way_is_named(tmp_path: Path) -> None:
    # Time enough for a run to come to its test where every core has ten others to serve.
    code, said = stress(tmp_path, "hangs", "--minutes", "0.4")
    assert code == 1, said
    assert re.search(r"run 1, seed \d+: these tests: out of time during test_hangs.py::test_one", said), said
    assert said.endswith("stress: 0 of 1 runs finished, 0 failed, 0 tests failed\n")
    assert (tmp_path / "left").exists(), "fixtures end what they have started"


def test_the_target_takes_its_bounds_from_variables() -> None:
    asked = subprocess.run(
        ["make", "--dry-run", "stress", "RUNS=7", "MINUTES=5", "TESTS=tests/x.py"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "tests.support.stress --runs 7 --minutes 5  -- tests/x.py" in asked.stdout, asked.stderr
