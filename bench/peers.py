"""Programs of others that would not live well in our own environment: each gets one below `.venv-peers`."""

import subprocess
import sys
from pathlib import Path

from bench.processes import REPOSITORY

PEERS = REPOSITORY / ".venv-peers"


def environment(name: str, *packages: str) -> Path:
    """The programs of an environment that has `packages` (one called `name`, if none is given); it is made if it is
    not there."""
    directory = PEERS / name
    made = directory / "made"
    if not made.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(directory)], check=True)
        pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, *(packages or (name,))], check=True)
        made.touch()
    return directory / "bin"
