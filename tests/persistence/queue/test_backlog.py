"""The queue's core against a model: order kept, nothing lost, bounds held, merging never reorders."""

from functools import partial, reduce

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from persistence.queue.backlog import QueueLimits, WriteBacklog
from persistence.record import Outcome, Rejected, Spooled, Stored, Write
from tests.support.records import said

LIMITS = QueueLimits(max_writes=6, max_bytes=3_000, batch_writes=3, batch_bytes=1_200)
SESSIONS = st.sampled_from("abc")

Effect = tuple[tuple[int, ...], bytes | None, bytes | None, bytes | None, int, tuple[tuple[int, str], ...]]
NOTHING: Effect = ((), None, None, None, 0, ())


def effect(before: Effect, write: Write) -> Effect:
    """What a session looks like after one more write."""
    seqs, state, spec, checkpoint, delivered, marks = before
    return (
        (*seqs, write.append.seq) if write.append else seqs,
        state if write.state is None else write.state,
        spec if write.spec is None else write.spec,
        checkpoint if write.checkpoint is None else write.checkpoint,
        max(delivered, write.delivered or 0),
        tuple(sorted({**dict(marks), **dict(write.marks)}.items())),
    )


class BacklogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.backlog = WriteBacklog(LIMITS)
        self.taken: dict[str, list[Write]] = {name: [] for name in "abc"}  # every write the backlog took, in order
        self.stored: dict[str, Effect] = dict.fromkeys("abc", NOTHING)  # what the batches did
        self.told: dict[str, list[int]] = {name: [] for name in "abc"}
        self.in_flight: list[Write] = []
        self.unrefusable = 0
        self.clock = 0.0

    def offer(self, write: Write, *, refusable: bool) -> bool:
        self.clock += 1
        number = len(self.taken[write.session_id])

        def then(_: Outcome) -> None:
            self.told[write.session_id].append(number)

        took = self.backlog.offer(write, then, now=self.clock, refusable=refusable)
        if took:
            self.taken[write.session_id].append(write)
        return took

    @rule(name=SESSIONS, length=st.integers(0, 900), refusable=st.booleans())
    def append(self, name: str, length: int, refusable: bool) -> None:
        seq = sum(1 for write in self.taken[name] if write.append) + 1
        write = said(name, seq, content="x" * length)
        room = self.backlog.depth < LIMITS.max_writes and self.backlog.bytes + write.size <= LIMITS.max_bytes
        assert self.backlog.has_room(write.size) == room
        assert self.offer(write, refusable=refusable) == (room or not refusable)
        self.unrefusable += not refusable

    @rule(
        name=SESSIONS,
        state=st.none() | st.binary(max_size=3),
        spec=st.none() | st.binary(max_size=3),
        checkpoint=st.none() | st.binary(max_size=400),
        delivered=st.none() | st.integers(0, 9),
        marks=st.lists(st.tuples(st.integers(1, 4), st.sampled_from(("expired", "interrupted"))), max_size=2),
    )
    def change(
        self,
        name: str,
        state: bytes | None,
        spec: bytes | None,
        checkpoint: bytes | None,
        delivered: int | None,
        marks: list[tuple[int, str]],
    ) -> None:
        before = self.backlog.depth
        waits = any(w.session_id == name for w in self.waiting() + self.held())
        assert self.offer(
            Write(name, None, tuple(marks), delivered, state=state, spec=spec, checkpoint=checkpoint), refusable=True
        )
        assert self.backlog.depth == before + (not waits)  # one waiting write of the session is enough

    def waiting(self) -> list[Write]:
        """In the line."""
        return [entry.write for entry in self.backlog._waiting]

    def held(self) -> list[Write]:
        """Beside it."""
        return [entry.write for held in self.backlog._held.values() for entry in held]

    @rule(name=SESSIONS)
    def hold(self, name: str) -> None:
        self.backlog.hold(name)
        assert name in self.backlog.held

    @rule(name=SESSIONS)
    def release(self, name: str) -> None:
        self.backlog.release(name)
        assert name not in self.backlog.held

    @precondition(lambda self: not self.in_flight)
    @rule()
    def take(self) -> None:
        waited = bool(self.waiting())
        held = self.backlog.held
        self.in_flight = self.backlog.take()
        assert not {write.session_id for write in self.in_flight} & set(held)
        assert len(self.in_flight) <= LIMITS.batch_writes
        assert len(self.in_flight) <= 1 or sum(write.size for write in self.in_flight) <= LIMITS.batch_bytes
        assert bool(self.in_flight) == waited  # what is held stops nobody else

    @precondition(lambda self: self.in_flight)
    @rule()
    def settle(self) -> None:
        for write in self.in_flight:
            self.stored[write.session_id] = effect(self.stored[write.session_id], write)
        outcomes = [Stored(write.append.seq if write.append else 0) for write in self.in_flight]
        self.in_flight = []
        for then, outcome in self.backlog.settle(outcomes):
            then(outcome)
        for name in "abc":
            # What is stored is exactly what the writes that were told did, one after the other: none by halves.
            told = self.told[name]
            assert told == list(range(len(told)))
            assert self.stored[name] == reduce(effect, self.taken[name][: len(told)], NOTHING)

    @precondition(lambda self: self.in_flight)
    @rule()
    def find_no_room(self) -> None:
        line, held = self.in_flight + self.waiting(), self.held()
        self.in_flight = self.backlog.halve()
        assert self.in_flight
        back = [write for write in line if write not in self.in_flight + self.waiting()]
        assert [write for write in line if write not in back] == self.in_flight + self.waiting()
        assert {write.session_id for write in back} <= set(self.backlog.held)
        assert len(self.held()) == len(held) + len(back)

    @precondition(lambda self: self.in_flight)
    @rule()
    def take_too_early(self) -> None:
        with pytest.raises(RuntimeError):
            self.backlog.take()

    @invariant()
    def bounds_hold(self) -> None:
        unsettled = self.in_flight + self.waiting() + self.held()
        assert self.backlog.depth == len(unsettled) == sum(self.backlog.by_session().values())
        assert self.backlog.bytes == sum(write.size for write in unsettled)
        # Beyond the bound: only what may not be refused, and one change per session beside a batch in flight.
        assert self.backlog.depth <= LIMITS.max_writes + self.unrefusable + 6
        assert (self.backlog.oldest_since is None) == (not unsettled)

    def teardown(self) -> None:
        if self.in_flight:
            self.settle()
        for name in "abc":
            self.backlog.release(name)
        while self.backlog.depth:
            self.take()
            self.settle()
        for name in "abc":
            assert len(self.told[name]) == len(self.taken[name])
        assert self.backlog.bytes == 0
        assert self.backlog.take() == []


TestBacklog = BacklogMachine.TestCase


def test_a_batch_in_flight_is_never_changed() -> None:
    backlog = WriteBacklog(LIMITS)
    backlog.offer(said("a", 1), None, now=1.0, refusable=True)
    batch = backlog.take()
    backlog.offer(Write("a", state=b"later"), None, now=2.0, refusable=True)
    assert batch == [said("a", 1)]
    assert backlog.oldest_since == 1.0
    backlog.settle([Stored(1)])
    assert backlog.oldest_since == 2.0
    assert backlog.take() == [Write("a", state=b"later")]


def test_who_joined_a_rejected_write_is_told_so() -> None:
    backlog = WriteBacklog(LIMITS)
    told: list[tuple[str, Outcome]] = []
    backlog.offer(said("a", 9), lambda outcome: told.append(("append", outcome)), now=0.0, refusable=True)
    backlog.offer(Write("a", state=b"1"), lambda outcome: told.append(("state", outcome)), now=0.0, refusable=True)
    backlog.offer(Write("a", state=b"2"), None, now=0.0, refusable=True)
    assert backlog.take() == [Write("a", said("a", 9).append, state=b"2")]
    for then, outcome in backlog.settle([Rejected("no")]):
        then(outcome)
    assert told == [("append", Rejected("no")), ("state", Rejected("no"))]
    assert backlog.coalesced == 2


def test_who_joined_a_spooled_write_is_spooled_too() -> None:
    backlog = WriteBacklog(LIMITS)
    told: list[Outcome] = []
    backlog.offer(said("a", 1), told.append, now=0.0, refusable=True)
    backlog.offer(Write("a", state=b"1"), told.append, now=0.0, refusable=True)
    backlog.take()
    for then, outcome in backlog.settle([Spooled(1)]):
        then(outcome)
    assert told == [Spooled(1), Spooled(0)]


def test_writes_of_two_writers_are_not_joined() -> None:
    """The store refuses the older writer's, and must keep the newer's."""
    backlog = WriteBacklog(LIMITS)
    for fence in (1, 1, 2, None):
        backlog.offer(Write("a", state=b"%d" % (fence or 0), fence=fence), None, now=0.0, refusable=True)
    assert [write.fence for write in backlog.take()] == [1, 2, None]


def test_a_write_larger_than_a_batch_goes_alone() -> None:
    backlog = WriteBacklog(LIMITS)
    offer = partial(backlog.offer, then=None, now=0.0, refusable=False)
    for write in (said("a", 1, content="x" * 5_000), said("b", 1)):
        offer(write)
    assert [write.session_id for write in backlog.take()] == ["a"]


def test_what_is_held_waits_beside_the_line_and_is_released_in_front_of_it() -> None:
    backlog = WriteBacklog(LIMITS)
    offer = partial(backlog.offer, then=None, refusable=True)
    offer(said("a", 1), now=1.0)
    offer(said("b", 1), now=2.0)
    backlog.hold("a")
    backlog.hold("a")
    assert [write.session_id for write in backlog.take()] == ["b"]
    assert backlog.by_session() == {"a": 1, "b": 1}
    assert backlog.oldest_since == 1.0
    backlog.settle([Stored(1)])
    assert backlog.take() == []
    offer(said("c", 1), now=3.0)
    backlog.release("a")
    backlog.release("a")
    assert [write.session_id for write in backlog.take()] == ["a", "c"]


def test_what_comes_back_from_the_store_goes_before_what_was_held_meanwhile() -> None:
    backlog = WriteBacklog(LIMITS)
    offer = partial(backlog.offer, then=None, now=0.0, refusable=True)
    for seq in (1, 2, 3):
        offer(said("a", seq))
    backlog.take()
    backlog.hold("a")
    offer(said("a", 4))
    assert len(backlog.halve()) == 2
    backlog.settle([Stored(1), Stored(2)])
    assert backlog.take() == []
    backlog.release("a")
    assert [write.append and write.append.seq for write in backlog.take()] == [3, 4]


def test_no_more_than_a_quarter_of_the_queue_is_ever_held() -> None:
    limits = QueueLimits(max_writes=20, max_bytes=8_000, batch_writes=20)
    for length, most in ((0, 5), (700, 2)):
        backlog = WriteBacklog(limits)
        backlog.hold("a")
        for seq in range(1, most + 1):
            backlog.offer(said("a", seq, content="x" * length), None, now=0.0, refusable=True)
        assert backlog.take() == []
        backlog.offer(said("a", most + 1, content="x" * length), None, now=0.0, refusable=True)
        assert backlog.held == []
        assert len(backlog.take()) == most + 1
