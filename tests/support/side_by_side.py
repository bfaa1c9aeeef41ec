"""Runs the tests in a few processes, three side by side, because they wait more than they work; `make test` does. What
each says comes when it has ended, so that they do not mix.

Coverage is of the pure modules' own test files alone: tracing more than doubles what a test costs, and the floor asks
for nothing else.
"""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.support.coverage_floor import own_tests, pure_modules

AT_ONCE = 3
CAMPAIGN, PAGE, OUTER = ("tests/campaign",), ("tests/e2e/console", "tests/web"), ("tests/gateway", "tests/e2e")


def groups() -> dict[str, list[str]]:
    """What each process runs: every test file is in one of them. The longest are the first."""
    pure = [str(own_tests(module)) for module in pure_modules()]
    return {
        "the gateway": _pytest(OUTER, but=(*PAGE, *pure)),
        "the campaign and the page": _pytest((*CAMPAIGN, *PAGE)),
        "all else": _pytest((), but=(*CAMPAIGN, *OUTER, *PAGE, *pure)),
        "the pure modules": ["-m", "coverage", "run", *_pytest(pure)],
    }


def _pytest(paths: Sequence[str], but: Sequence[str] = ()) -> list[str]:
    return ["-m", "pytest", *paths, *(f"--ignore={path}" for path in but)]


def main() -> int:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(_run, words): name for name, words in groups().items()}
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
