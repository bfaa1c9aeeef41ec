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
# What waits, looks at a clock, draws lots, or reaches outside the process; each with all that is below it.
SHELLS = {
    "asyncio", "asyncpg", "boto3", "botocore", "concurrent", "contextvars", "ctypes", "fcntl", "ftplib", "gc",
    "getpass", "glob", "http", "httpx", "importlib", "io", "logging", "mmap", "multiprocessing", "os", "psutil",
    "pty", "queue", "random", "resource", "sched", "secrets", "select", "selectors", "shutil", "signal",
    "smtplib", "socket", "socketserver", "sqlite3", "ssl", "starlette", "structlog", "subprocess", "sys",
    "tempfile", "termios", "threading", "time", "tty", "urllib", "uuid", "uvicorn", "websockets",
}  # fmt: skip
# What is pure below them.
CORES = {
    "os.fsdecode", "os.fsencode", "os.stat_result", "random.Random", "signal.Signals", "starlette.requests",
    "urllib.parse", "websockets.client", "websockets.protocol", "websockets.speedups", "websockets.uri",
    "websockets.utils", "uuid.NAMESPACE_OID", "uuid.uuid5",
}  # fmt: skip
# Modules whose decisions are as pure as the rest, and what they import all the same.
EXCEPTIONS = {
    Path("gateway/auth/links.py"): {"secrets"},  # codes nobody guesses
    Path("gateway/auth/tickets.py"): {"secrets"},
    Path("gateway/limits/inbound_bytes.py"): {"asyncio"},  # waits on an event of its own
    Path("sandbox/client/handshake.py"): {"logging"},  # silences a library's logger
    Path("sandbox/protocol/chunk_frames.py"): {"threading"},  # compressors of each thread
    Path("sandbox/protocol/websocket_frames.py"): {"os"},  # masks nobody guesses
}


def impure(source: bytes) -> set[str]:
    """The first part of each module that it imports and that is no core."""
    return {name.partition(".")[0] for name in _imported(ast.parse(source)) if not _is_core(name)} & SHELLS


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_core(name: str) -> bool:
    return any(f"{name}.".startswith(f"{core}.") for core in CORES)


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
    assert impure((ROOT / module).read_bytes()) == EXCEPTIONS.get(module, set())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import asyncio.subprocess", "asyncio"),
        ("import urllib.request", "urllib"),
        ("from urllib import request", "urllib"),
        ("from urllib.request import urlopen", "urllib"),
        ("import os, re", "os"),
        ("from os import fsencode, urandom", "os"),
        ("import os.path", "os"),
        ("def wait() -> None:\n    import threading", "threading"),
        ("import random", "random"),
        ("import importlib", "importlib"),
        ("import urllib.parse", ""),
        ("from urllib import parse", ""),
        ("from urllib.parse import quote", ""),
        ("from os import fsencode", ""),
        ("from random import Random", ""),
        ("import gateway.protocol.text", ""),
        ("from osmosis import os", ""),
    ],
)
def test_an_import_is_judged_with_all_that_is_below_it(line: str, found: str) -> None:
    assert impure(line.encode()) == ({found} - {""})


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
