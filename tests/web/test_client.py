"""The TypeScript of web/: its types hold, and its own tests pass."""

import subprocess
import sys
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "web"


def npm(*arguments: str) -> None:
    """Run npm in web/; its output is the failure."""
    if not (WEB / "node_modules").exists():
        pytest.fail("web/node_modules is not there: `make page` installs it")
    command = ["-m", "tests.support.node", "npm", *arguments, "--prefix", str(WEB)]
    done = subprocess.run([sys.executable, *command], cwd=WEB.parent, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_the_types_hold() -> None:
    npm("run", "check", "--silent")


def test_its_own_tests_pass() -> None:
    npm("test", "--silent")
