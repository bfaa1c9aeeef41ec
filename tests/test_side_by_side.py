"""Processes that share a queue of test files: each file runs once, with its fixtures as in one process."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFTEST = """
import os, pytest

def note(line):
    with open("notes", "a") as notes:
        notes.write(f"{os.getpid()} {line}\\n")

@pytest.fixture(scope="session")
def server():
    note("server starts")
    yield
    note("server ends")

@pytest.fixture(scope="module")
def door(server, request):
    note(f"door of {request.path.stem} opens")
    yield
    note(f"door of {request.path.stem} closes")
"""
USES_BOTH = """
from conftest import note
def test_one(door): note("{name} one")
def test_two(door): note("{name} two")
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    below = tmp_path / "below"
    below.mkdir()
    (below / "__init__.py").touch()
    (below / "conftest.py").write_text("import pytest\n@pytest.fixture\ndef here(): return 'here'\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = below\n")  # so its fixtures are read at the start
    return tmp_path


def written(home: Path, **files: str) -> list[str]:
    for name, text in files.items():
        (home / f"test_{name}.py").write_text(text)
    return [f"test_{name}.py" for name in files]


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.queued_files", "--queue", str(home / "queue")]
    return subprocess.run(
        [*command, "-c", "pytest.ini", *words],
        cwd=home, env={"PYTHONPATH": f"{ROOT}:{home}", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip


def notes(home: Path) -> list[str]:
    return (home / "notes").read_text().splitlines()


def queue(home: Path, files: list[str]) -> None:
    (home / "queue").write_text("".join(f"{file}\n" for file in files))


def test_a_fixture_of_the_run_lives_to_its_end_and_one_of_a_file_to_the_files(home: Path) -> None:
    queue(home, written(home, a=USES_BOTH.format(name="a"), b=USES_BOTH.format(name="b")))
    done = run(home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    assert [line.split(" ", 1)[1] for line in notes(home)] == [
        "server starts",
        *("door of test_a opens", "a one", "a two", "door of test_a closes"),
        *("door of test_b opens", "b one", "b two", "door of test_b closes"),
        "server ends",
    ]


def test_a_folders_fixtures_are_there_for_all_its_files(home: Path) -> None:
    uses = "def test_one(here): assert here == 'here'"
    files = [f"below/{name}" for name in written(home / "below", c=uses, d=uses)]
    queue(home, [files[0], *written(home, between="def test_one(): pass"), files[1]])
    done = run(home)
    assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout + done.stderr


def test_each_file_runs_in_one_of_the_processes_and_who_comes_late_has_not_failed(home: Path) -> None:
    names = [f"f{number}" for number in range(30)]
    queue(home, written(home, **{name: USES_BOTH.format(name=name) for name in names}))
    with ThreadPoolExecutor(3) as pool:
        ended = list(pool.map(lambda _: run(home), range(3)))
    assert {done.returncode for done in ended} == {0}, [done.stdout for done in ended]
    ran = [line.split()[1:] for line in notes(home) if line.endswith(" one")]
    assert sorted(ran) == sorted([name, "one"] for name in names)
    assert run(home).returncode == 0


def test_a_failure_is_told_and_the_others_run(home: Path) -> None:
    fails, broken = "def test_one(): assert 1 == 2", "import nothing_of_that_name"
    queue(home, written(home, fails=fails, broken=broken, passes=USES_BOTH.format(name="passes")))
    done = run(home)
    assert done.returncode == 1, done.stdout
    assert "assert 1 == 2" in done.stdout
    assert "nothing_of_that_name" in done.stdout
    assert "1 failed, 2 passed, 1 error" in done.stdout


def test_told_to_stop_at_the_first_failure_it_leaves_the_rest_in_the_queue(home: Path) -> None:
    fails = "def test_one(): assert 1 == 2\ndef test_two(): pass"
    queue(home, written(home, fails=fails, passes="def test_one(): pass"))
    done = run(home, "-x")
    assert done.returncode == 1, done.stdout
    assert "1 failed in" in done.stdout
    assert (home / "queue").read_text() == "test_passes.py\n"
