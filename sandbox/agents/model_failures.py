"""What agents say in their logs, and there alone, when their model fails. Pure.

Gemini CLI tries again for minutes, up to ten times, and opencode without end. Neither says so over ACP. With the
variables of ENV both write their logs to stderr.
"""

import re
from dataclasses import dataclass

ENV = {"GEMINI_DEBUG_LOG_FILE": "/dev/stderr", "OPENCODE_PRINT_LOGS": "1"}
ATTEMPTS = 4  # of one request; Gemini's fourth comes 35 s after its first
FAILURES = 6  # in a row, for agents that switch to another model and restart their count
GEMINI = re.compile(rb"\[WARN\] (Attempt ([0-9]{1,3}) failed.{0,400})")
GEMINIS_END = re.compile(rb"[.:]? (?:Retrying|Max attempts)")
OPENCODE = (b'message="stream error"', b" small=false ")  # small ones are those for titles
OPENCODES_WORDS = b'error.error="'
LONGEST = 400  # bytes of an error's text


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The model failed with one request. `attempt` is the agent's own count; None if it does not count."""

    attempt: int | None
    told: str


def failed_attempt(line: bytes) -> FailedAttempt | None:
    """The failed attempt that a log line reports. None if it reports none."""
    if found := GEMINI.search(line):
        return FailedAttempt(int(found[2]), GEMINIS_END.split(found[1])[0].decode(errors="replace"))
    if all(each in line for each in OPENCODE):
        told = line.partition(OPENCODES_WORDS)[2].partition(b'"')[0]
        return FailedAttempt(None, told[:LONGEST].decode(errors="replace"))
    return None


def is_last(failed: FailedAttempt, in_a_row: int) -> bool:
    """Whether to give up after this failed attempt."""
    return (failed.attempt or in_a_row) >= ATTEMPTS or in_a_row >= FAILURES
