"""What is special about Gemini CLI among the agents that speak ACP. Pure.

It keeps a conversation in a file that is called after the minute in which it was made, and erases one that it loads in
that minute: so the file gets a name of another minute before the start. It goes on in that file, and makes one more of
the old name, which is put aside.

While its model fails it tries again for minutes, up to ten times, and says nothing of it but in its log. With
GEMINI_DEBUG_LOG_FILE=/dev/stderr, as the catalogue has it, its log is what it writes to stderr.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sandbox.agents.core import HomeMove

NAMES = re.compile(r"[A-Za-z0-9_-]{8,128}")  # of conversations, which are in names of files
ATTEMPT = re.compile(rb"\[WARN\] (Attempt ([0-9]{1,3}) failed.{0,400})")
ATTEMPTS = 4  # of one request: the fourth comes 35 s after the first, and may be its last
FAILURES = 6  # of requests in a row, where it turns to another model and begins to count anew


def conversations(session: str) -> Sequence[str]:
    """Patterns of the files that may have this conversation."""
    return (f".gemini/tmp/*/chats/session-*{session[:8]}.jsonl",) if NAMES.fullmatch(session) else ()


def moves(session: str, found: Collection[str]) -> list[HomeMove]:
    """What to do with those that were found before it is loaded."""
    return [HomeMove(each, f"session-2000-01-01T00-00-{session[:8]}.jsonl") for each in found]


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The model failed, for the `attempt`th time with one request."""

    attempt: int
    told: str


def failure(line: bytes) -> FailedAttempt | None:
    """What a line of its log tells of its model; None if it tells nothing."""
    found = ATTEMPT.search(line)
    if found is None:
        return None
    told = re.split(rb"[.:]? (?:Retrying|Max attempts)", found[1])[0].decode(errors="replace")
    return FailedAttempt(int(found[2]), told)


def is_last(failure: FailedAttempt, in_a_row: int) -> bool:
    """Whether no more is to be waited for."""
    return failure.attempt >= ATTEMPTS or in_a_row >= FAILURES
