"""Runs the tests in a few processes, four side by side, because they wait more than they work; `make test` does. What
each says comes when it has ended, so that they do not mix.

The files lie in one queue, and each process takes the next one when it has done with its last: all of them end at about
the same time, whatever a file costs. What costs most is taken early.

Coverage is of the pure modules' own test files alone: tracing more than doubles what a test costs, and the floor asks
for nothing else. They have a process of their own.
"""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import chain, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.coverage_floor import ROOT, own_tests, pure_modules

AT_ONCE = 4
LONG = ("tests/campaign", "tests/e2e", "tests/web")  # the others come between them, and last


def groups(queue: Path) -> dict[str, list[str]]:
    """What each process runs. Those of the queue, which is written here, run every test file that is not a pure
    module's own. The last one begins when the pure modules are done."""
    pure = [str(own_tests(module)) for module in pure_modules()]
    queue.write_text("".join(f"{file}\n" for file in _in_order(set(files_of_tests()) - set(pure))))
    take = ["-m", "pytest", "-p", "tests.support.queued_files", f"--queue={queue}"]
    return {
        "the pure modules": ["-m", "coverage", "run", "-m", "pytest", *pure],
        **{f"all else, {number} of {AT_ONCE}": take for number in range(1, AT_ONCE + 1)},
    }


def files_of_tests() -> list[str]:
    found = (path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py"))
    return sorted(str(path) for path in found if "node_modules" not in path.parts)


def _in_order(files: set[str]) -> list[str]:
    long = sorted(file for file in files if file.startswith(LONG))
    return [file for file in chain(*zip_longest(long, sorted(files.difference(long)))) if file]


def main() -> int:
    with TemporaryDirectory(prefix="holdfast-tests-") as scratch, ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(_run, words): name for name, words in groups(Path(scratch, "queue")).items()}
        try:
            for ended in as_completed(running):
                sys.stdout.write(f"{running[ended]}:\n{ended.result().stdout}")
                sys.stdout.flush()
        finally:
            pool.shutdown(cancel_futures=True)
    return int(any(ended.result().returncode != 0 for ended in running))


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
