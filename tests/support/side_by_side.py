"""`make test` runs the tests with this: in a few processes, five side by side, because they wait more than they work.
The output of each comes when it has ended, so that they do not mix.

The files of a process are fixed. Hypothesis takes constants from the modules that a process has imported: with one
queue of files for all processes its examples would differ from run to run.

Coverage is of the pure modules' own test files alone: tracing more than doubles the cost of a test, and the floor
needs nothing else.
"""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.support.coverage_floor import ROOT, own_tests, pure_modules

AT_ONCE = 5
FAULTS = ("tests/campaign/page", "tests/campaign/sync", "tests/campaign/terminal")
PAGE = ("tests/e2e/console", "tests/web")
CONTAINERS = ("tests/sandbox/providers/container", "tests/campaign/containers")
FOLDERS = ("tests/campaign", "tests/e2e", "tests/gateway", "tests/sandbox")


def groups() -> dict[str, list[str]]:
    """The files of each process: every test file is in one of them. The longest come first; none is much longer than
    the others, because at the end it would be alone on the machine."""
    pure = [str(own_tests(module)) for module in pure_modules()]
    outer = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests/e2e").glob("test_*.py"))
    early = [path for path in outer if path < "tests/e2e/test_i"]
    return {
        "end to end, a to h": _pytest(early),
        "end to end, i to z": _pytest([path for path in outer if path not in early]),
        "the sandbox": _pytest(("tests/sandbox",), but=(*CONTAINERS, *pure)),
        "sandboxes in containers": _pytest(CONTAINERS, but=pure),
        "the campaign": _pytest(("tests/campaign",), but=(*FAULTS, *CONTAINERS)),
        "the page": _pytest(PAGE),
        "the gateway": _pytest(("tests/gateway",), but=pure),
        "all else": _pytest((), but=(*FOLDERS, *PAGE, *pure)),
        "faults of workspaces and terminals": _pytest(FAULTS),
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
