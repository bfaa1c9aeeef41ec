"""What to do with a loaded session that nobody uses: let it sleep, rescue its files, or unload it. Pure.

A session that failed is put to sleep like one that runs, as long as its bridge is linked; it keeps its status. A
session is unloaded only if memory holds no fact that the store lacks: the next request loads it again.
"""

from dataclasses import dataclass
from enum import Enum, auto

from gateway.session.model.state import SessionStatus

RESCUE_SECONDS = 60.0
UNLOAD_SECONDS = 300.0


class IdleStep(Enum):
    SLEEP = auto()
    RESCUE = auto()  # store the files that its last sandbox left on the disk
    UNLOAD = auto()


@dataclass(frozen=True, slots=True)
class Idleness:
    """A loaded session as the reaper sees it."""

    status: SessionStatus
    seconds: float  # since the last activity
    sleep_after: float
    linked: bool  # there is a link to its bridge
    busy: bool  # an operation on its sandbox is under way
    bound: bool  # its sandbox may not be stopped for being idle
    in_use: bool  # it has viewers, waits for its turn to start, or its workspace is being synced
    wants_rescue: bool


def awaited(silent: float, patience: float, answering: bool) -> bool:
    """True while an agent that has been silent for `silent` seconds still counts as busy. Some agents never report that
    they are done, and some questions are never answered: a silence longer than `patience` ends the wait."""
    return answering and silent <= patience


def tired(idle: Idleness) -> bool:
    """True if its sandbox is to be stopped once no other operation on it is under way."""
    awake = idle.status in (SessionStatus.RUNNING, SessionStatus.ERROR)
    return awake and not idle.bound and idle.seconds > idle.sleep_after


def next_step(idle: Idleness) -> IdleStep | None:
    if tired(idle) and not idle.busy and (idle.linked or idle.status is SessionStatus.RUNNING):
        return IdleStep.SLEEP
    if idle.linked:
        return None
    if idle.wants_rescue:
        return IdleStep.RESCUE if idle.seconds > RESCUE_SECONDS else None
    at_rest = idle.status not in (SessionStatus.RUNNING, SessionStatus.STARTING)
    missed = idle.busy or idle.in_use
    return IdleStep.UNLOAD if at_rest and not missed and idle.seconds > UNLOAD_SECONDS else None
