"""How commands speak: results to stdout, everything else to stderr."""

import sys


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    sys.stderr.write(f"holdfast: {text}\n")
    sys.stderr.flush()
