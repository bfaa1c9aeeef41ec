"""`python -m tests.support.real_agents`: install every agent in HOLDFAST_AGENTS_DIR, at every version that Holdfast
was tried with, the tried one last, so that it is the current one. Installed versions stay."""

import subprocess
import sys
from collections.abc import Iterator

from gateway.agents.catalogue import AGENTS


def versions() -> Iterator[str]:
    for agent in AGENTS:
        for version in reversed(agent.versions):
            yield f"{agent.name}@{version}"


def main() -> int:
    for each in versions():
        command = [sys.executable, "-m", "gateway", "agents", "install", each]
        if code := subprocess.run(command, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
