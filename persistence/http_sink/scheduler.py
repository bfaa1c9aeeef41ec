"""Decides which session's record is posted next: the core of the HTTP sink. Pure.

A session with unposted records has a *lane*: the sink has everything up to `done`; everything up to `last` is in the
index and waits. A lane holds no records; they are read from the index at its turn, so an outage makes the file grow
and not the process. A lane without unposted records is dropped; the next record makes a new one.

A lane is in one of four places. *Ready*: in line for a turn. *Out*: in its turn; its records are posted one by one, a
page of them, then it goes to the end of the line. *Resting*: a post failed, and it waits until it is due. *Again*: it
is due; its next turn is one of a suspect, and suspects may use only a part of the turns. So sessions that hang take
nothing from the others, and the others cannot starve them.

What never happens: two turns of one session at once; a record posted before an earlier one of its session was taken
or became a dead letter; a record skipped.
"""

from collections import deque
from heapq import heappop, heappush
from random import Random

import msgspec

from persistence import backoff

TURNS = 32
SUSPECTS = 16


class Lane(msgspec.Struct, eq=False, gc=False):
    """One session's way to the sink. Only a Courier changes it."""

    session_id: str
    done: int
    last: int
    since: float  # when the oldest waiting record was created, or a little earlier
    failures: int = 0  # posts in a row
    suspect: bool = False  # whether its present turn counts as a suspect's
    gone: bool = False  # the session was purged: the result of its turn does not matter


class SinkScheduler:
    """Decides the next turn. `waiting` counts records, `troubled` counts lanes whose last post failed."""

    def __init__(self, rng: Random, *, turns: int = TURNS, suspects: int = SUSPECTS) -> None:
        self._rng = rng
        self._turns = turns
        self._suspects = suspects
        self._lanes: dict[str, Lane] = {}
        self._ready: deque[Lane] = deque()
        self._again: deque[Lane] = deque()
        self._resting: list[tuple[float, int, Lane]] = []  # (due, tie-breaker, lane), a heap
        self._rests = 0
        self._suspects_out = 0
        self.out = 0
        self.waiting = 0
        self.troubled = 0

    def found(self, session_id: str, *, done: int, last: int, since: float) -> None:
        """The index has records of the session from an earlier process. Call it before any `grew`."""
        self._open(Lane(session_id, done, last, since))

    def grew(self, session_id: str, seq: int, created_at: float) -> bool:
        """The record at `seq` is in the index. Return whether it will be posted, or has been."""
        lane = self._lanes.get(session_id)
        if lane is None:
            self._open(Lane(session_id, seq - 1, seq, created_at))
        elif seq > lane.last:
            self.waiting += seq - lane.last
            lane.last = seq
        return lane is None or seq > lane.done

    def _open(self, lane: Lane) -> None:
        self._lanes[lane.session_id] = lane
        self._ready.append(lane)
        self.waiting += lane.last - lane.done

    def next(self, now: float) -> Lane | None:
        """Begin the next turn: post the records after `done`, in order, then call `ended` or `failed`. None: no turn
        now."""
        while self._resting and self._resting[0][0] <= now:
            self._again.append(heappop(self._resting)[2])
        if self.out >= self._turns:
            return None
        lane = _first(self._again) if self._suspects_out < self._suspects else None
        if lane is not None:
            lane.suspect = True
            self._suspects_out += 1
        else:
            lane = _first(self._ready)
        if lane is not None:
            self.out += 1
        return lane

    @property
    def wake_at(self) -> float | None:
        """When to call `next` again, if no record comes and no turn ends before."""
        return self._resting[0][0] if self._resting else None

    def passed(self, lane: Lane, seq: int, created_at: float) -> None:
        """The sink has everything of the lane up to `seq`, or it became a dead letter."""
        if lane.gone:
            return
        self.waiting -= seq - lane.done
        lane.done, lane.since = seq, created_at
        self._calm(lane)

    def ended(self, lane: Lane) -> None:
        """The turn ended without a failure."""
        self._return(lane)
        if lane.gone:
            return
        if lane.done < lane.last:
            self._ready.append(lane)
        else:
            del self._lanes[lane.session_id]

    def failed(self, lane: Lane, now: float, *, at_least: float = 0.0) -> None:
        """The turn ended because a post failed: rest at least `at_least`, and a random time more, so that lanes with
        the same answer do not all come back at once."""
        self._return(lane)
        if lane.gone:
            return
        self.troubled += not lane.failures
        due = now + at_least + backoff.delay(lane.failures, self._rng)
        lane.failures += 1
        self._rests += 1
        heappush(self._resting, (due, self._rests, lane))

    def forget(self, session_id: str) -> None:
        """The session was purged."""
        lane = self._lanes.pop(session_id, None)
        if lane is not None:
            self.waiting -= lane.last - lane.done
            self._calm(lane)
            lane.gone = True

    def behind(self, session_id: str) -> bool:
        lane = self._lanes.get(session_id)
        return lane is not None and lane.done < lane.last

    def done(self, session_id: str) -> int | None:
        """The sink has the session's records up to here; None: it has all."""
        lane = self._lanes.get(session_id)
        return None if lane is None else lane.done

    def oldest_since(self) -> float | None:
        """Roughly when the oldest waiting record was created."""
        return min((lane.since for lane in self._lanes.values()), default=None)

    def _calm(self, lane: Lane) -> None:
        self.troubled -= lane.failures > 0
        lane.failures = 0

    def _return(self, lane: Lane) -> None:
        self.out -= 1
        self._suspects_out -= lane.suspect
        lane.suspect = False


def _first(line: deque[Lane]) -> Lane | None:
    """The first lane that is not gone; takes it out."""
    while line:
        lane = line.popleft()
        if not lane.gone:
            return lane
    return None
