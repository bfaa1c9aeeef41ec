"""How large a program runs, and from which seed."""

import os
import secrets
import sys
from random import Random

SOAK = os.environ.get("HOLDFAST_TEST_SOAK") == "1"
TAKEN: list[int] = []  # seeds of the test that runs


def sized(small: int, full: int) -> int:
    return full if SOAK else small


def when_large(*states: str) -> tuple[str, ...]:
    """States that a run at full size must reach; a small one may be over before it comes to them."""
    return states if SOAK else ()


def seeded() -> tuple[int, Random]:
    """The seed given by HOLDFAST_TEST_SEED, or a new one, and its random source. A failing test shows it."""
    seed = int(os.environ.get("HOLDFAST_TEST_SEED") or secrets.randbits(32))
    TAKEN.append(seed)
    return seed, Random(seed)


def report(line: str) -> None:
    """A program's one line: `pytest -s` shows it, a failing test too."""
    sys.stdout.write(line + "\n")
