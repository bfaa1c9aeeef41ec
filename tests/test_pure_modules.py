"""A module says that it is pure in one way, keeps to it, and has a test file of its name."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from coverage import Coverage

from tests.support.coverage_floor import PACKAGES, ROOT, docstring, own_tests, pure_modules, shortfalls
from tests.support.side_by_side import groups

PURE = pure_modules()
# What waits, looks at a clock, or reaches outside the process.
SHELLS = {"asyncio", "http.client", "shutil", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "time"}

WAITS = Path("gateway/limits/inbound_bytes.py")  # on an event of its own; what it decides is as pure as the rest


def imported(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_modules_that_say_so_are_found(tmp_path: Path) -> None:
    for package in PACKAGES:
        (tmp_path / package).mkdir()
    for name, said in {
        "one": "Counts. Pure.",
        "two": "Counts. Pure: no clock.\n\nMore.",
        "three": "Counts.\nPure.",
        "four": "Counts. `Sum` is pure.",
        "five": "Impure. ImPure.",
    }.items():
        (tmp_path / "sync" / f"{name}.py").write_text(f'"""{said}"""\n')
    (tmp_path / "sync" / "none.py").write_text("# Pure.\n")
    assert {path.stem for path in pure_modules(tmp_path)} == {"one", "two", "three"}
    assert len(PURE) > 100


def test_there_is_one_way_to_say_so() -> None:
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    odd = [str(path) for path in modules if re.search(r"\bPure\b(?![.:])", docstring(path))]
    assert odd == [], "write `Pure.` or `Pure: why`"


@pytest.mark.parametrize("module", PURE, ids=str)
def test_a_pure_module_waits_for_nothing(module: Path) -> None:
    assert SHELLS & set(imported(ROOT / module)) == ({"asyncio"} if module == WAITS else set())


@pytest.mark.parametrize("module", PURE, ids=str)
def test_a_pure_module_has_a_test_file_of_its_name(module: Path) -> None:
    """At the same place below tests/: whoever has the module open knows where its tests are."""
    assert (ROOT / own_tests(module)).exists(), f"there is no {own_tests(module)}"


def test_a_module_that_its_own_tests_leave_short_is_named_with_the_file_to_extend(tmp_path: Path) -> None:
    data, tests = tmp_path / "data", "tests/sync/objects/test_object_keys.py"
    ended = subprocess.run(
        [sys.executable, "-m", "coverage", "run", f"--data-file={data}", "-m", "pytest", tests, "-k", "the_limits"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    measured = Coverage(data_file=str(data), config_file=str(ROOT / "pyproject.toml"))
    measured.load()
    (found,) = [line for line in shortfalls(measured) if line.startswith("sync/objects/object_keys.py: ")]
    assert re.fullmatch(rf".*: lines not run: [0-9, -]+; branches .*: extend {tests}", found), found


def test_every_test_file_runs_once_and_the_pure_modules_own_ones_alone_under_coverage() -> None:
    files = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py") if "node_modules" not in path.parts}
    runs = Counter[Path]()
    for words in groups().values():
        but = [Path(word.removeprefix("--ignore=")) for word in words if word.startswith("--ignore=")]
        below = [Path(word) for word in words if word.startswith("tests/")] or [Path("tests")]
        taken = {file for file in files if _below(file, below) and not _below(file, but)}
        runs.update(taken)
        if "coverage" in words:
            assert taken == set(map(own_tests, PURE))
    assert {file for file in files if runs[file] != 1} == set()


def _below(file: Path, places: Sequence[Path]) -> bool:
    return any(file == place or place in file.parents for place in places)
