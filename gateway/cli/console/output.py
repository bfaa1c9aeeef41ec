"""The output of commands: results to stdout, everything else to stderr."""

import os
import shlex
import shutil
import sys
from pathlib import Path


def say(text: str = "") -> None:
    """A line on stdout, in its encoding."""
    letters = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(letters, "replace").decode(letters) + "\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    sys.stderr.write(f"holdfast: {text}\n")
    sys.stderr.flush()


def agreed(question: str, verb: str) -> bool:
    """True if the person here says yes. Only a person can agree: without a terminal there is --yes."""
    if not sys.stdin.isatty():
        complain(f"to {verb} without being asked, add --yes")
        return False
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def as_typed(*words: str) -> str:
    """`holdfast WORDS` as it has to be typed here: a fresh clone has it in `.venv/bin`, and not on the path."""
    program = Path(sys.argv[0])
    name = ["holdfast"]
    if program.name == "__main__.py":
        name = [Path(sys.executable).name, "-m", "gateway"]
    elif program.name == "holdfast" and shutil.which("holdfast") is None:
        name = [os.path.relpath(program)]
    return shlex.join([*name, *words])
