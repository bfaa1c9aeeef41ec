"""Which containers are left over. Pure.

Nobody can use a container that has ended, that was made and never started, or that runs without a note in this data
directory: the note has its token. One that the engine calls ended while its first process runs on is not left over:
an engine that lost its containerd reports so. Containers of another data directory are another gateway's. If that is
gone, they end by themselves, and their remains go after an hour.
"""

from collections.abc import Mapping
from typing import Any

from sandbox.providers.container.document import home_of, label

GRACE_SECONDS = 120.0  # for a container that is made and removed within one step of a start
ELSEWHERE_SECONDS = 3600.0

_RUNS = ("running", "paused")
_ENDED = ("exited", "stopped", "dead")


def why_left_over(found: Mapping[str, Any], home: str, *, named: bool, alive: bool, now: float) -> str | None:
    """Why a listed container is left over; None if it is not. `named`: a note of the data directory `home` names it;
    `alive`: the first process in that note lives. Nobody may be starting its session."""
    state = found.get("State")
    if home_of(found) != home:
        late = state not in _RUNS and _age(found, now) > ELSEWHERE_SECONDS
        return "it has ended, and belongs to another data directory" if late else None
    if not label(found, "session"):  # made to read its image's files
        return "no session needs it any more" if _age(found, now) > GRACE_SECONDS else None
    if state in _ENDED:
        return None if named and alive else "it has ended"
    if state in _RUNS:
        return None if named else "nothing in the data directory names it"
    return "its start was cut short" if state == "created" else None


def _age(found: Mapping[str, Any], now: float) -> float:
    created = found.get("Created")
    return now - created if isinstance(created, int | float) else 0.0
