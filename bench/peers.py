"""Other people's programs that do not fit into our own environment. Each gets an environment below `.venv-peers`."""

import subprocess
import sys
from pathlib import Path

from bench.processes import REPOSITORY

PEERS = REPOSITORY / ".venv-peers"


def environment(name: str, *packages: str) -> Path:
    """The programs of an environment with `packages`, by default the package called `name`. The environment is made if
    it does not exist."""
    directory = PEERS / name
    made = directory / "made"
    if not made.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(directory)], check=True)
        pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, *(packages or (name,))], check=True)
        made.touch()
    return directory / "bin"
