"""Runs the tests in a few processes side by side, because they wait more than they work; `make test` does. What each
says comes when it has ended, so that they do not mix. Coverage is of those that run our own code in their process."""

import subprocess
import sys
from tempfile import TemporaryFile
from typing import IO

CAMPAIGN, OUTER, COVERED = "tests/campaign", ("tests/gateway", "tests/e2e"), "-m coverage run --parallel-mode"
PAGE = ("tests/e2e/console", "tests/web")
GROUPS = {
    "the campaign and the page": ["-m", "pytest", CAMPAIGN, *PAGE],
    "the gateway": [*COVERED.split(), "-m", "pytest", *OUTER, *(f"--ignore={path}" for path in PAGE)],
    "all else": [*COVERED.split(), "-m", "pytest", *(f"--ignore={path}" for path in (CAMPAIGN, *OUTER, *PAGE))],
}


def main() -> int:
    started: list[tuple[str, subprocess.Popen[bytes], IO[bytes]]] = []
    try:
        for name, arguments in GROUPS.items():
            said: IO[bytes] = TemporaryFile()  # noqa: SIM115 - it lives as long as its process
            process = subprocess.Popen([sys.executable, *arguments], stdout=said, stderr=subprocess.STDOUT)
            started.append((name, process, said))
        for name, process, said in reversed(started):  # the longest at last
            process.wait()
            said.seek(0)
            sys.stdout.write(f"{name}:\n{said.read().decode(errors='replace')}")
            sys.stdout.flush()
    finally:
        for _, process, said in started:
            process.kill()
            said.close()
    return int(any(process.returncode != 0 for _, process, _ in started))


if __name__ == "__main__":
    sys.exit(main())
