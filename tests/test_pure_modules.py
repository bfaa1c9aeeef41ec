"""A module says that it is pure in one way, keeps to it, and has a test file of its name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.coverage_floor import PACKAGES, ROOT, docstring, pure_modules

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
    test = Path("tests", module.parent, f"test_{module.stem}.py")
    assert (ROOT / test).exists(), f"there is no {test}"
