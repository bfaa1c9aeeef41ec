"""`python -m tests.support.coverage_floor`: the test files named after the pure modules must have covered every pure
module in full. `make test` runs those files, and no others, under coverage.

Shells are proven by their effects on sockets, processes and files, about which a percentage says little. A pure
module has no such excuse: each line and each way out of each line must have been taken. A module is pure if its
docstring says so, with the word `Pure` and a full stop or a colon after it.
"""

import ast
import re
import sys
from pathlib import Path

from coverage import Coverage
from coverage.exceptions import NoDataError

ROOT = Path(__file__).parents[2]
PACKAGES = ("gateway", "persistence", "sandbox", "sync")
SAYS_PURE = re.compile(r"(?<!\S)Pure[.:](?!\S)")


def pure_modules(root: Path = ROOT) -> list[Path]:
    """The pure modules below `root`, as paths from there."""
    found = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [path.relative_to(root) for path in found if SAYS_PURE.search(docstring(path))]


def own_tests(module: Path) -> Path:
    """The test file of the module's name, at the same place below tests/."""
    return Path("tests", module.parent, f"test_{module.stem}.py")


def docstring(module: Path) -> str:
    return ast.get_docstring(ast.parse(module.read_bytes())) or ""


def shortfalls(measured: Coverage) -> list[str]:
    """One line for each pure module that is not covered in full, or cannot be judged."""
    data = measured.get_data()
    if not data.measured_files():
        return ["no coverage data: run `make test` first"]
    if not data.has_arcs():
        return ["the data is about lines only: branch coverage must be on"]
    return [
        f"{module}: {problem}: extend {own_tests(module)}"
        for module in pure_modules()
        if (problem := _problem(measured, ROOT / module))
    ]


def _problem(measured: Coverage, module: Path) -> str | None:
    if str(module) not in measured.get_data().measured_files():
        return "no test imported it"
    _, _, _, missing, ranges = measured.analysis2(str(module))
    branches = measured.branch_stats(str(module)).items()
    partial = sorted(line for line, (ways, taken) in branches if taken < ways and line not in missing)
    said = [f"lines not run: {ranges}"] if missing else []
    said += [f"branches not taken from lines: {', '.join(map(str, partial))}"] if partial else []
    return "; ".join(said) or None


def main() -> None:
    measured = Coverage(config_file=str(ROOT / "pyproject.toml"))
    measured.load()
    try:
        found = shortfalls(measured)
    except NoDataError as error:
        found = [str(error)]
    if found:
        sys.exit("The pure modules must be covered in full by the tests of their names:\n  " + "\n  ".join(found))
    sys.stdout.write(f"{len(pure_modules())} pure modules: every line and branch covered\n")


if __name__ == "__main__":
    main()
