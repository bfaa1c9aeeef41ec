"""The ring and the backlog against models of a few lines."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sandbox.protocol.agent_stream import FRAME_COST, RUNS_KEPT, BeginEpoch, Cursor, FrameBacklog, Frames, Ring, Step
from sandbox.protocol.values import AgentExit, Position

LINES = st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"-"))
LIMIT, PINNED = 10 * FRAME_COST, 30 * FRAME_COST


def cost(lines: list[bytes]) -> int:
    return sum(len(line) + FRAME_COST for line in lines)


class RingMachine(RuleBasedStateMachine):
    """The model keeps every frame ever appended; the ring must be a suffix of it, as long as its bounds allow."""

    @initialize(base=st.integers(0, 5))
    def begin(self, base: int) -> None:
        self.ring = Ring(limit=LIMIT, pinned_limit=PINNED)
        self.ring.begin("e", base)
        self.first, self.model, self.weights = base, list[bytes](), list[int]()

    @rule(epoch=st.sampled_from(["e", "f"]), base=st.integers(0, 5))
    def begin_again(self, epoch: str, base: int) -> None:
        self.ring.begin(epoch, base)
        assert self.ring.epoch == epoch
        self.first, self.model, self.weights = base, [], []

    @rule(line=LINES, weight=st.integers(0, 40))
    def append(self, line: bytes, weight: int = 0) -> None:
        self.model.append(line)
        self.weights.append(FRAME_COST + max(weight, len(line)))
        assert self.ring.append(line, weight) == self.first + len(self.model)

    @rule(lines=st.lists(LINES, min_size=20, max_size=90))
    def append_many(self, lines: list[bytes]) -> None:
        for line in lines:
            self.append(line)

    @rule(back=st.integers(-1, 30))
    def pin(self, back: int) -> None:
        offset = self.ring.end - back
        kept = self.ring.base <= offset
        self.ring.pin(offset)
        assert self.ring.pinned == (offset if kept else None)

    @rule()
    def unpin(self) -> None:
        self.ring.pin(None)
        assert self.ring.pinned is None

    @rule(offset=st.integers(-1, 120))
    def resume(self, offset: int) -> None:
        got = self.ring.since(offset)
        assert (got is None) == (not self.ring.base <= offset <= self.ring.end)
        assert got is None or got == list(enumerate(self.model, self.first + 1))[offset - self.first :]

    @invariant()
    def holds_its_bounds(self) -> None:
        assert self.ring.end == self.first + len(self.model)
        assert self.ring.size == sum(self.weights[self.ring.base - self.first :])
        pin = self.ring.pinned
        if pin is None:
            assert self.ring.size <= LIMIT
        else:
            assert self.ring.base <= pin  # the unfinished answer is there from its start
            assert self.ring.size <= PINNED
        # Nothing is forgotten without need: the frame before would not have fitted.
        if self.ring.base > self.first and self.ring.size + FRAME_COST + 40 <= LIMIT:
            raise AssertionError("evicted too much")


class BacklogMachine(RuleBasedStateMachine):
    """The model keeps every line of every process. A link walks the backlog and comes back now and then; what it is
    told must be the model, whole and in order."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = FrameBacklog(limit=40 * FRAME_COST)
        self.lines: dict[str, list[bytes]] = {}
        self.exits: dict[str, AgentExit] = {}
        self.confirmed = Position("", 0)
        self.cursor = self.backlog.cursor(None)
        self.epoch: str | None = None
        self.offset = 0

    @property
    def running(self) -> bool:
        return bool(self.lines) and list(self.lines)[-1] not in self.exits

    @precondition(lambda self: not self.running and len(self.lines) < 12)
    @rule()
    def begin(self) -> None:
        epoch = f"e{len(self.lines)}"
        self.backlog.begin(epoch)
        self.lines[epoch] = []

    @precondition(lambda self: self.running)
    @rule(lines=st.lists(LINES, min_size=1, max_size=8))
    def append(self, lines: list[bytes]) -> None:
        epoch = list(self.lines)[-1]
        for line in lines:
            self.lines[epoch].append(line)
            assert self.backlog.append(line) == len(self.lines[epoch])

    @precondition(lambda self: self.running)
    @rule()
    def finish(self) -> None:
        epoch = list(self.lines)[-1]
        self.exits[epoch] = AgentExit(epoch, len(self.lines[epoch]), 0, 0, None, "")
        self.backlog.finish(self.exits[epoch])

    @precondition(lambda self: self.epoch is not None)
    @rule(back=st.integers(0, 5))
    def confirm(self, back: int) -> None:
        """A gateway confirms only what it was told."""
        assert self.epoch is not None
        offset = max(0, self.offset - back)
        self.backlog.confirm(Position(self.epoch, offset))
        if (self._index(self.epoch), offset) > (self._index(self.confirmed.epoch), self.confirmed.offset):
            self.confirmed = Position(self.epoch, offset)

    @rule(limit=st.integers(1, 200))
    def step(self, limit: int) -> None:
        step = self.backlog.step(self.cursor, limit)
        if step is None:
            assert not self.lines or self.epoch == list(self.lines)[-1]
            assert self.epoch is None or self.offset == len(self.lines[self.epoch])
        else:
            self._hear(step, limit)

    @rule(known=st.booleans())
    def reattach(self, known: bool) -> None:
        after = Position(self.epoch, self.offset) if known and self.epoch else None
        self.cursor = self.backlog.cursor(after)
        steps = walk(self.backlog, self.backlog.cursor(after))
        if not known:
            self.epoch, self.offset = None, 0
        heard = [step for step in steps if isinstance(step, Frames)]
        missing = sum(len(lines) for lines in self.lines.values()) - self._passed(after or self.confirmed)
        assert sum(len(step.lines) for step in heard) == missing
        if steps:
            assert isinstance(steps[0], BeginEpoch)

    def _passed(self, position: Position) -> int:
        """How many frames lie up to `position`, counting what is confirmed anyway."""
        places = [(self._index(at.epoch), at.offset) for at in (position, self.confirmed)]
        index, offset = max(places)
        return sum(len(lines) for lines in list(self.lines.values())[: max(index, 0)]) + (offset if index >= 0 else 0)

    def _index(self, epoch: str) -> int:
        return list(self.lines).index(epoch) if epoch in self.lines else -1

    def _hear(self, step: Step, limit: int) -> None:
        if isinstance(step, BeginEpoch):
            if step.epoch == self.epoch:
                assert step.base >= self.offset
            self.epoch, self.offset = step.epoch, step.base
            return
        assert self.epoch is not None
        if isinstance(step, Frames):
            assert step.first == self.offset + 1
            assert list(step.lines) == self.lines[self.epoch][self.offset : self.offset + len(step.lines)]
            assert len(step.lines) == 1 or sum(map(len, step.lines)) + len(step.lines) - 1 <= limit
            self.offset += len(step.lines)
        else:
            assert step == self.exits[self.epoch]
            assert self.offset == step.offset

    @invariant()
    def counts_what_is_unconfirmed(self) -> None:
        index = self._index(self.confirmed.epoch)
        left = [line for lines in list(self.lines.values())[max(index, 0) :] for line in lines]
        unconfirmed = left[self.confirmed.offset :] if index >= 0 else left
        assert self.backlog.size == cost(unconfirmed)
        assert self.backlog.full == (self.backlog.size >= 40 * FRAME_COST)


TestRing = RingMachine.TestCase
TestRing.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestBacklog = BacklogMachine.TestCase
TestBacklog.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def walk(backlog: FrameBacklog, cursor: Cursor) -> list[Step]:
    steps = []
    while step := backlog.step(cursor, 1000):
        steps.append(step)
    return steps


def ended(backlog: FrameBacklog, epoch: str, *lines: bytes) -> AgentExit:
    backlog.begin(epoch)
    for line in lines:
        backlog.append(line)
    exit = AgentExit(epoch, len(lines), 0, 1, None, "")
    backlog.finish(exit)
    return exit


def test_a_replay_tells_every_unconfirmed_process_oldest_first() -> None:
    backlog = FrameBacklog()
    first = ended(backlog, "a", b"1", b"2")
    backlog.begin("b")
    backlog.append(b"3")
    expected = [BeginEpoch("a", 0), Frames(1, [b"1", b"2"]), first, BeginEpoch("b", 0), Frames(1, [b"3"])]
    assert walk(backlog, backlog.cursor(None)) == expected
    assert walk(backlog, backlog.cursor(Position("never", 3))) == expected
    assert walk(backlog, backlog.cursor(Position("a", 1))) == [BeginEpoch("a", 1), Frames(2, [b"2"]), *expected[2:]]
    assert walk(backlog, backlog.cursor(Position("a", 9))) == expected  # a position that never was is not believed
    assert walk(backlog, backlog.cursor(Position("b", 1))) == [BeginEpoch("b", 1)]


def test_the_exit_of_the_newest_process_is_told_again_even_when_all_is_confirmed() -> None:
    backlog = FrameBacklog()
    exit = ended(backlog, "a", b"1")
    backlog.confirm(Position("a", 1))
    assert backlog.size == 0
    assert walk(backlog, backlog.cursor(Position("a", 1))) == [BeginEpoch("a", 1), exit]


def test_a_confirmation_may_pass_a_link_that_lags() -> None:
    backlog = FrameBacklog()
    backlog.begin("a")
    for line in (b"1", b"2", b"3"):
        backlog.append(line)
    cursor = backlog.cursor(None)
    assert backlog.step(cursor, 1000) == BeginEpoch("a", 0)
    backlog.confirm(Position("a", 2))
    assert walk(backlog, cursor) == [BeginEpoch("a", 2), Frames(3, [b"3"])]


def test_a_link_whose_process_was_confirmed_away_goes_on_with_the_next() -> None:
    backlog = FrameBacklog()
    ended(backlog, "a", b"1")
    cursor = backlog.cursor(None)
    assert backlog.step(cursor, 1000) == BeginEpoch("a", 0)
    backlog.begin("b")
    backlog.append(b"2")
    backlog.confirm(Position("b", 7))  # beyond the end counts as the end
    assert walk(backlog, cursor) == [BeginEpoch("b", 1)]
    assert backlog.size == 0


def test_processes_that_said_nothing_are_kept_in_bounded_number() -> None:
    backlog = FrameBacklog()
    talked = ended(backlog, "talked", b"1")
    for n in range(RUNS_KEPT + 20):
        ended(backlog, f"e{n}")
    steps = walk(backlog, backlog.cursor(None))
    assert len([step for step in steps if isinstance(step, BeginEpoch)]) == RUNS_KEPT + 2
    assert steps[:3] == [BeginEpoch("talked", 0), Frames(1, [b"1"]), talked]
    assert isinstance(steps[-1], AgentExit)
    assert steps[-1].epoch == f"e{RUNS_KEPT + 19}"


def test_only_one_process_runs_at_a_time() -> None:
    backlog = FrameBacklog()
    with pytest.raises(ValueError, match="no process"):
        backlog.append(b"")
    backlog.begin("a")
    with pytest.raises(ValueError, match="not ended"):
        backlog.begin("b")
    backlog.finish(AgentExit("a", 0, 0, 0, None, ""))
    with pytest.raises(ValueError, match="no process"):
        backlog.finish(AgentExit("a", 0, 0, 0, None, ""))
    assert backlog.newest is not None


def test_an_empty_backlog_tells_nothing_until_a_process_begins() -> None:
    backlog = FrameBacklog()
    assert backlog.newest is None
    cursor = backlog.cursor(Position("x", 1))
    assert backlog.step(cursor, 10) is None
    backlog.confirm(Position("x", 1))
    backlog.begin("a")
    assert walk(backlog, cursor) == [BeginEpoch("a", 0)]


def test_a_pin_that_outgrows_its_bound_is_given_up_and_the_ring_shrinks() -> None:
    ring = Ring(limit=LIMIT, pinned_limit=PINNED)
    ring.begin("e")
    ring.pin(0)
    for _ in range(30):
        ring.append(b"")
    assert (ring.pinned, ring.base, ring.size) == (0, 0, PINNED)
    ring.append(b"")
    assert (ring.pinned, ring.end) == (None, 31)
    assert ring.size == LIMIT
    assert ring.since(0) is None


def test_a_ring_gives_what_came_after_an_offset_as_long_as_it_has_it() -> None:
    ring = Ring(limit=LIMIT, pinned_limit=PINNED)
    ring.begin("e", 3)
    for line in (b"a", b"b"):
        ring.append(line)
    assert ring.since(3) == [(4, b"a"), (5, b"b")]
    assert ring.since(4) == [(5, b"b")]
    assert ring.since(5) == []
    assert ring.since(2) is None, "gone, or never there"
    assert ring.since(6) is None, "not there yet"
