"""Numbered output of agent processes: which frames are kept, which may be dropped, and what a resume gets. Pure.

A frame is one line of agent output. Frames of one process (an *epoch*) are numbered 1, 2, 3, ... at the source and
keep their number for ever; a position is "after frame `offset` of `epoch`". Both ends keep frames, for different
reasons:

- The gateway's `Ring` holds the recent frames of one epoch so that viewers can come back. It drops the oldest to stay
  within its bound, but not the unfinished answer (everything after the *pin*), which it keeps up to a second bound. A
  resume that needs a dropped frame gets a gap, reported as such: never a stream with a hole in it.
- The bridge's `FrameBacklog` holds the frames that the gateway has not confirmed, over several epochs. It drops
  nothing by itself: when it is full, the agent is no longer read, so the agent waits and nothing is lost.

A `Cursor` walks the backlog for one link. Its steps go over the wire: a `BeginEpoch`, the frames after it, the
`AgentExit` that ends them. The backlog may be trimmed, extended and finished between any two steps.
"""

from collections.abc import Sequence

import msgspec

from sandbox.protocol.values import AgentExit, Position

FRAME_COST = 64  # a frame's cost beside its bytes, so that empty lines are bounded too
RUNS_KEPT = 32  # processes that ended without unconfirmed output; beyond, the oldest are forgotten

RING_BYTES = 256 * 1024
PINNED_BYTES = 4 * 1024 * 1024
BACKLOG_BYTES = 8 * 1024 * 1024


class Ring:
    """Recent frames of one epoch, bounded in bytes."""

    __slots__ = ("_base", "_extra", "_head", "_limit", "_lines", "_pin", "_pinned_limit", "_size", "epoch")

    def __init__(self, *, limit: int = RING_BYTES, pinned_limit: int = PINNED_BYTES) -> None:
        self._limit = limit
        self._pinned_limit = max(limit, pinned_limit)
        self.epoch: str | None = None
        self._reset(0)

    def _reset(self, base: int) -> None:
        self._base = base
        self._lines: list[bytes] = []
        self._head = 0  # lines before it are forgotten; the list is trimmed now and then, not at each eviction
        self._size = 0
        self._extra: dict[int, int] | None = None  # by offset: the weight of a frame beyond its bytes; few have one
        self._pin: int | None = None

    @property
    def base(self) -> int:
        """The oldest offset a resume may name."""
        return self._base

    @property
    def end(self) -> int:
        """The offset of the newest frame."""
        return self._base + len(self._lines) - self._head

    @property
    def size(self) -> int:
        return self._size

    @property
    def pinned(self) -> int | None:
        """Where the unfinished answer starts; None if there is none, or if it outgrew its bound."""
        return self._pin

    def begin(self, epoch: str, base: int = 0) -> None:
        """Forget everything; frames of `epoch` follow, the first is base + 1."""
        self.epoch = epoch
        self._reset(base)

    def append(self, line: bytes, weight: int = 0) -> int:
        """Keep one frame and return its offset. A frame that is shorter here than at its source counts with its
        `weight` there: the source keeps what the ring keeps, and must not fill up with frames that seem small here."""
        size = len(line)
        self._lines.append(line)
        self._size += size + FRAME_COST
        if weight > size:
            self._extra = self._extra or {}
            self._extra[self.end] = weight - size
            self._size += weight - size
        if self._size > self._limit:
            self._evict()
        return self._base + len(self._lines) - self._head

    def since(self, offset: int) -> list[tuple[int, bytes]] | None:
        """Return the frames after `offset` with their offsets, or None if some of them are gone or never were."""
        if not self._base <= offset <= self.end:
            return None
        first = self._head + offset - self._base
        return list(enumerate(self._lines[first:], offset + 1))

    def pin(self, offset: int | None) -> None:
        """Keep every frame after `offset` until the next pin (None: no pin) or until the second bound is met."""
        self._pin = None if offset is None or offset < self._base else offset
        self._evict()

    def _evict(self) -> None:
        while self._size > self._limit and self._head < len(self._lines):
            if self._pin is not None and self._base >= self._pin:
                if self._size <= self._pinned_limit:
                    break
                self._pin = None  # its start is about to go: the rest of it is kept like anything else
            self._size -= len(self._lines[self._head]) + FRAME_COST
            self._lines[self._head] = b""
            self._head += 1
            self._base += 1
            if self._extra:
                self._size -= self._extra.pop(self._base, 0)
        if self._head > 64 and self._head * 2 > len(self._lines):
            del self._lines[: self._head]
            self._head = 0


class BeginEpoch(msgspec.Struct, frozen=True, gc=False):
    """Frames of `epoch` follow; the first is base + 1."""

    epoch: str
    base: int


class Frames(msgspec.Struct, frozen=True):
    first: int
    lines: Sequence[bytes]


Step = BeginEpoch | Frames | AgentExit


class Run(msgspec.Struct):
    """The unconfirmed frames of one agent process. `base` is the last dropped offset."""

    epoch: str
    base: int = 0
    lines: list[bytes] = []
    exit: AgentExit | None = None

    @property
    def end(self) -> int:
        return self.base + len(self.lines)


class Cursor(msgspec.Struct, gc=False):
    """A link's progress: it has everything up to `offset` of `epoch`, and perhaps that epoch's exit."""

    epoch: str | None = None
    offset: int = 0
    announced: bool = False
    exited: bool = False


class FrameBacklog:
    """Unconfirmed frames of one or more agent processes, oldest first. The newest process is always known."""

    def __init__(self, limit: int = BACKLOG_BYTES) -> None:
        self._limit = limit
        self._runs: list[Run] = []
        self._size = 0

    @property
    def size(self) -> int:
        return self._size

    @property
    def full(self) -> bool:
        """Whether the agent should not be read now."""
        return self._size >= self._limit

    @property
    def newest(self) -> Run | None:
        return self._runs[-1] if self._runs else None

    def begin(self, epoch: str) -> None:
        """A new process; the one before must have ended."""
        if self._runs and self._runs[-1].exit is None:
            raise ValueError("the process before has not ended")
        self._runs.append(Run(epoch))
        idle = [run for run in self._runs[:-1] if not run.lines]
        for run in idle[: max(0, len(idle) - RUNS_KEPT)]:
            self._runs.remove(run)

    def append(self, line: bytes) -> int:
        """Keep one frame of the running process and return its offset."""
        run = self._running()
        run.lines.append(line)
        self._size += len(line) + FRAME_COST
        return run.end

    def finish(self, exit: AgentExit) -> None:
        """The running process ended; `exit` follows its last frame."""
        self._running().exit = exit

    def _running(self) -> Run:
        if not self._runs or self._runs[-1].exit is not None:
            raise ValueError("no process runs")
        return self._runs[-1]

    def confirm(self, position: Position) -> None:
        """Forget everything up to `position`: all processes before it, and its own frames. Unknown positions change
        nothing, and an offset beyond the end counts as the end."""
        index = self._find(position.epoch)
        if index is None:
            return
        for run in self._runs[:index]:
            self._trim(run, len(run.lines))
        del self._runs[:index]
        run = self._runs[0]
        self._trim(run, min(position.offset, run.end) - run.base)

    def _trim(self, run: Run, count: int) -> None:
        if count > 0:
            self._size -= sum(map(len, run.lines[:count])) + FRAME_COST * count
            del run.lines[:count]
            run.base += count

    def _find(self, epoch: str | None) -> int | None:
        return next((index for index, run in enumerate(self._runs) if run.epoch == epoch), None)

    def cursor(self, after: Position | None) -> Cursor:
        """Begin a walk after `after`; with all kept frames if that position is None or unknown here."""
        if after is not None:
            index = self._find(after.epoch)
            if index is not None and 0 <= after.offset <= self._runs[index].end:
                return Cursor(after.epoch, after.offset)
        return Cursor(self._runs[0].epoch if self._runs else None)

    def step(self, cursor: Cursor, limit: int) -> Step | None:
        """Return the link's next part and move `cursor` past it; None if there is none. Frames come in portions of at
        most `limit` bytes, newlines counted, but at least one frame."""
        index = self._find(cursor.epoch)
        if index is None:
            if not self._runs:
                return None
            index = 0
            self._enter(cursor, self._runs[0])
        run = self._runs[index]
        if cursor.exited:
            if index + 1 == len(self._runs):
                return None
            run = self._runs[index + 1]
            self._enter(cursor, run)
        if not cursor.announced or cursor.offset < run.base:
            cursor.offset = max(cursor.offset, run.base)
            cursor.announced = True
            return BeginEpoch(run.epoch, cursor.offset)
        if cursor.offset < run.end:
            lines = _portion(run.lines, cursor.offset - run.base, limit)
            first = cursor.offset + 1
            cursor.offset += len(lines)
            return Frames(first, lines)
        if run.exit is not None:
            cursor.exited = True
        return run.exit

    @staticmethod
    def _enter(cursor: Cursor, run: Run) -> None:
        cursor.epoch, cursor.offset, cursor.announced, cursor.exited = run.epoch, run.base, False, False


def _portion(lines: list[bytes], start: int, limit: int) -> list[bytes]:
    size, stop = 0, start
    while stop < len(lines) and (stop == start or size + len(lines[stop]) < limit):
        size += len(lines[stop]) + 1
        stop += 1
    return lines[start:stop]
