"""A gateway whose Python was named by a relative path: sandboxes start elsewhere, and must find the same program."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Opens the fleet as the gateway does, and runs this Python in a sandbox.
STARTS_ONE = """
import asyncio, sys
from pathlib import Path
from sandbox.system.interpreter import PYTHON
from sandbox.providers.local.fleet import LocalFleet
from tests.sandbox.local import command, spec

async def main():
    fleet = LocalFleet(Path(sys.argv[1]), level=sys.argv[2])
    await fleet.open()
    try:
        print(sys.executable, fleet.level)
        await fleet.start(spec())
        print((await command(fleet, "s1", [PYTHON, "-c", "print('found')"])).stdout)
    finally:
        await fleet.sandbox("s1").stop()
        await fleet.close()

asyncio.run(main())
"""
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("level", ["contained", "trusted"])
@pytest.mark.parametrize("named", ["by a path", "by the search path"])
def test_a_relative_interpreter_starts_sandboxes(named: str, level: str, tmp_path: Path) -> None:
    """No sandbox has the directory that such a path begins at: the check for containers failed, or the command."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    if named == "by a path":
        here, python = tmp_path, os.path.relpath(sys.executable, tmp_path)
    else:
        bin_directory, python = os.path.split(sys.executable)
        here = Path(bin_directory).parent
        env["PATH"] = f"{Path(bin_directory).name}:{env['PATH']}"
    done = subprocess.run(
        [python, "-c", STARTS_ONE, str(tmp_path / "data"), level],
        cwd=here, env=env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    named_as, *rest = done.stdout.split()
    assert named_as != os.path.abspath(named_as), "Python made an absolute path of it: this shows nothing"
    assert rest == [level, "found"]
