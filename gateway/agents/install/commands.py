"""The programs that an installation runs: npm, and the fetcher of a Node.js. Their output goes to a private file."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

LOOK_SECONDS = 0.5
_WORDS = 1500


class InstallFailed(Exception):
    """The agent was not installed. The text says why, and what to do."""


def run(
    command: Sequence[str],
    place: Path,
    env: Mapping[str, str],
    *,
    grown: Callable[[int], None],
    keeps: Sequence[int] = (),
    seconds: float | None = None,
) -> str:
    """Run a command in `place` to its end and return its output; `grown` is called meanwhile with the bytes in `place`.
    The command inherits the descriptors `keeps`. Raises InstallFailed."""
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                command, cwd=place, env=dict(env), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                pass_fds=keeps, umask=0o022, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise InstallFailed(f"{command[0]} cannot be run: {error.strerror or error}") from error
        try:
            if not _ends(process, place, grown, seconds):
                raise InstallFailed(f"{Path(command[0]).name} did not end within {seconds:g} s")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also the processes that it started
            process.wait()
        said.seek(0)
        words = said.read().decode(errors="replace").strip()
    if process.returncode != 0:
        raise InstallFailed(f"{Path(command[0]).name} failed: {words[-_WORDS:] or f'exit code {process.returncode}'}")
    return words


def size(place: Path) -> int:
    """The bytes of all files below it, some of which may just come or go."""
    total = 0
    for directory, _, files in os.walk(place):
        for file in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(directory, file)).st_size
    return total


def fetcher() -> list[str]:
    """The beginning of a command that installs Python packages: this Python's pip, or uv. Raises InstallFailed."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode == 0:
        return [*pip, "install", "--quiet"]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    raise InstallFailed("a Node.js cannot be fetched: this Python has neither pip nor uv. Run `python -m ensurepip`")


def _ends(process: "subprocess.Popen[bytes]", place: Path, grown: Callable[[int], None], seconds: float | None) -> bool:
    """True if the process ends in that time."""
    began = time.monotonic()
    while seconds is None or time.monotonic() - began < seconds:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_SECONDS)
            return True
        grown(size(place))
    return False
