"""What becomes of a loaded session that nobody uses: it sleeps, its files are rescued, or it is unloaded. Pure.

A session that failed is put to sleep like one that runs, as long as its bridge is linked; it keeps its status. A
session is unloaded only if nothing of it would be missed: it is loaded again when somebody asks for it.
"""

from dataclasses import dataclass
from enum import Enum, auto

from gateway.session.model.state import SessionStatus

RESCUE_SECONDS = 60.0
UNLOAD_SECONDS = 300.0


class IdleStep(Enum):
    SLEEP = auto()
    RESCUE = auto()  # keep what its last sandbox left on the disk
    UNLOAD = auto()


@dataclass(frozen=True, slots=True)
class Idleness:
    """A loaded session as the reaper sees it."""

    status: SessionStatus
    seconds: float  # that nobody did anything
    sleep_after: float
    linked: bool  # there is a link to its bridge
    busy: bool  # something is being done to its sandbox
    bound: bool  # its sandbox may not be stopped for being idle
    in_use: bool  # somebody watches it, it waits for its turn to start, or its workspace is being synced
    wants_rescue: bool


def awaited(silent: float, patience: float, answering: bool) -> bool:
    """Whether an agent that has said nothing for `silent` seconds is waited for. Some agents never say that they are
    done, and some questions are never answered: after a long silence nobody waits any more."""
    return answering and silent <= patience


def tired(idle: Idleness) -> bool:
    """Whether its sandbox is to be stopped, when nothing else is being done to it."""
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
