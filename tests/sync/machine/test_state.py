"""The core of the sync driver: every transition, every instant, and a model that knows only what was promised."""

from collections.abc import Callable
from copy import copy, deepcopy
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sync.machine.state import (
    LOST_REASON,
    TABLE,
    Begin,
    Effect,
    Event,
    Fail,
    Impossible,
    Refuse,
    RememberFailure,
    Resolve,
    State,
    Step,
    Stop,
    SyncLimits,
    SyncState,
    TellRecovered,
    Transition,
)

LIMITS = SyncLimits(
    debounce=2.0, max_wait=10.0, attempts=3, attempt_base=1.0, attempt_cap=30.0, retry_base=5.0, retry_cap=300.0
)


class Longest(Random):
    """Jitter that is always all it may be."""

    def uniform(self, a: float, b: float) -> float:
        assert a == 0
        return b


class Sync(SyncState):
    """Says events shortly, and keeps the time."""

    def __init__(self) -> None:
        super().__init__(LIMITS, Longest())
        self.now = 100.0

    def __call__(self, event: Event, *, at: float | None = None, generation: int = 0, reason: str = "") -> list[Effect]:
        self.now = self.now if at is None else at
        return list(self.on(event, now=self.now, generation=generation, reason=reason))

    def restore(self, generation: int = 7, failed: str = "") -> "Sync":
        self(Event.RESTORED, generation=generation, reason=failed)
        return self


def unrestored() -> Sync:
    return Sync()


def idle() -> Sync:
    return Sync().restore()


def pending() -> Sync:
    sync = idle()
    sync(Event.REQUEST)
    return sync


def syncing() -> Sync:
    sync = idle()
    sync(Event.FORCE)
    return sync


def resting() -> Sync:
    sync = syncing()
    sync(Event.FAILED_ONCE, reason="away")
    return sync


def flushing() -> Sync:
    sync = syncing()
    sync(Event.UPLOADED)
    return sync


def failed() -> Sync:
    sync = syncing()
    sync(Event.FAILED_FOR_GOOD, reason="too_large")
    return sync


IN: dict[State, Callable[[], Sync]] = {
    State.UNRESTORED: unrestored,
    State.IDLE: idle,
    State.PENDING: pending,
    State.SYNCING: syncing,
    State.RESTING: resting,
    State.FLUSHING: flushing,
    State.FAILED: failed,
}

# Where each event leads from each state when nothing else is owed, and with which effects. "-": it cannot be.
MATRIX = """
event            unrestored         idle           pending          syncing               resting          flushing              failed
restored         idle               -              -                -                     -                -                     -
request          unrestored         pending        pending          syncing               resting          flushing              failed
force            unrestored:Refuse  syncing:Begin  syncing:Begin    syncing               syncing:Begin    flushing              syncing:Begin
due              -                  -              syncing:Begin    -                     syncing:Begin    -                     syncing:Begin
uploaded         -                  -              -                flushing              -                -                     -
committed        -                  -              -                idle:Resolve          -                idle:Resolve          -
failed_once      -                  -              -                resting               -                resting               -
failed_for_good  -                  -              -                failed:Fail+Remember  -                failed:Fail+Remember  -
lost             unrestored         unrestored     unrestored:Fail  unrestored:Stop+Fail  unrestored:Fail  unrestored:Stop+Fail  unrestored:Fail
"""  # noqa: E501
EFFECTS = {
    "Refuse": Refuse,
    "Begin": Begin,
    "Resolve": Resolve,
    "Fail": Fail,
    "Remember": RememberFailure,
    "Stop": Stop,
}


def cells() -> list[tuple[State, Event, str]]:
    head, *rows = [line.split() for line in MATRIX.strip().splitlines()]
    return [(State(name), Event(row[0]), cell) for row in rows for name, cell in zip(head[1:], row[1:], strict=True)]


def test_the_matrix_has_every_state_every_event_and_no_other_transition_than_the_table() -> None:
    assert {(state, event) for state, event, _ in cells()} == {(state, event) for state in State for event in Event}
    assert {(state, event) for state, event, cell in cells() if cell != "-"} == set(TABLE)
    assert {step for _, step in TABLE.values()} == set(Step)


@pytest.mark.parametrize(("state", "event", "cell"), cells())
def test_every_event_in_every_state(state: State, event: Event, cell: str) -> None:
    sync = IN[state]()
    assert sync.state is state
    if cell == "-":
        before = deepcopy(vars(sync) | {"_rng": None})
        with pytest.raises(Impossible):
            sync(event, generation=8, reason="no")
        assert vars(sync) | {"_rng": None} == before
        return
    target, _, owed = cell.partition(":")
    effects = sync(event, generation=8, reason="no" if event in (Event.FAILED_ONCE, Event.FAILED_FOR_GOOD) else "")
    assert (sync.state, [type(effect) for effect in effects]) == (
        target,
        [EFFECTS[name] for name in owed.split("+") if owed],
    )


def test_resting_is_shown_as_syncing_and_every_other_state_as_itself() -> None:
    assert {state: state.shown for state in State if state.shown is not state} == {State.RESTING: State.SYNCING}


def test_a_request_waits_until_debounce_after_the_last_and_max_wait_after_the_first() -> None:
    sync = idle()
    assert sync.deadline is None
    due: list[float | None] = []
    for at in (100.0, 101.5, 103.0, 104.5, 106.0, 107.5, 109.0):
        sync(Event.REQUEST, at=at)
        due.append(sync.deadline)
    assert due == [102.0, 103.5, 105.0, 106.5, 108.0, 109.5, 110.0]


def test_requests_during_an_attempt_are_debounced_from_when_they_were_made() -> None:
    sync = syncing()
    sync(Event.REQUEST, at=101.0)
    sync(Event.UPLOADED)
    sync(Event.REQUEST, at=103.0)
    assert (sync.state, sync.deadline) == (State.FLUSHING, None)
    assert sync(Event.COMMITTED, at=104.0, generation=8) == [Resolve(1, 8)]
    assert (sync.state, sync.deadline, sync.dirty) == (State.PENDING, 105.0, True)
    sync(Event.REQUEST, at=104.5)
    assert sync.deadline == 106.5
    assert sync(Event.DUE, at=106.5) == [Begin(1)]
    assert sync(Event.COMMITTED, generation=9) == [Resolve(4, 9)]
    assert (sync.state, sync.dirty) == (State.IDLE, False)


@pytest.mark.parametrize("make", [syncing, flushing])
def test_a_force_during_an_attempt_begins_another_at_once_and_is_answered_by_that(make: Callable[[], Sync]) -> None:
    sync = make()
    assert sync(Event.FORCE) == []
    assert sync.asked == 2
    assert sync(Event.REQUEST) == []
    assert sync(Event.COMMITTED, generation=8) == [Resolve(1, 8), Begin(1)]
    assert sync(Event.COMMITTED, generation=9) == [Resolve(3, 9)]
    assert sync.state is State.IDLE


def test_a_round_is_so_many_attempts_with_growing_rests_between_them_then_it_has_failed() -> None:
    sync = syncing()
    assert sync(Event.FAILED_ONCE, reason="one") == []
    assert (sync.deadline, sync.last_error, sync.failing) == (101.0, "one", False)
    assert sync(Event.DUE, at=101.0) == [Begin(2)]
    sync(Event.UPLOADED)
    assert sync(Event.FAILED_ONCE, at=105.0, reason="two") == []
    assert sync.deadline == 107.0
    assert sync(Event.DUE, at=107.0) == [Begin(3)]
    assert sync(Event.FAILED_ONCE, at=110.0, reason="three") == [Fail(1, "three"), RememberFailure("three")]
    assert (sync.state, sync.deadline, sync.attempt) == (State.FAILED, 115.0, 3)
    assert (sync.last_error, sync.failing, sync.dirty) == ("three", True, True)


def test_what_is_sure_to_fail_again_is_not_tried_three_times_in_a_row() -> None:
    sync = syncing()
    assert sync(Event.FAILED_FOR_GOOD, reason="too_large") == [
        Fail(1, "too_large", permanent=True),
        RememberFailure("too_large"),
    ]
    assert (sync.state, sync.attempt) == (State.FAILED, 1)


def test_in_the_background_it_is_one_attempt_at_a_time_with_backoff_up_to_the_cap() -> None:
    sync = failed()
    pauses = []
    for _ in range(9):
        assert sync.deadline is not None
        pauses.append(sync.deadline - sync.now)
        assert sync(Event.DUE, at=sync.deadline) == [Begin(1)]
        assert sync(Event.FAILED_ONCE, reason="away")[1:] == [RememberFailure("away")]
    assert pauses == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]
    sync(Event.FORCE)
    assert sync(Event.COMMITTED, generation=8) == [Resolve(2, 8), TellRecovered()]
    sync(Event.FORCE)
    sync(Event.FAILED_FOR_GOOD, reason="too_large")
    assert sync.deadline == sync.now + 5.0


def test_a_request_brings_the_next_attempt_nearer_and_never_farther() -> None:
    sync = failed()
    assert sync.deadline == 105.0
    sync(Event.REQUEST, at=101.0)
    assert (sync.state, sync.deadline) == (State.FAILED, 103.0)
    sync(Event.REQUEST, at=102.5)
    assert sync.deadline == 104.5
    sync(Event.REQUEST, at=104.0)
    assert sync.deadline == 105.0
    assert sync(Event.DUE, at=105.0) == [Begin(1)]
    sync(Event.FAILED_ONCE, at=106.0, reason="away")
    assert sync.deadline == 116.0


def test_a_force_after_a_failure_is_a_whole_round() -> None:
    sync = failed()
    assert sync(Event.FORCE) == [Begin(1)]
    for attempt in (2, 3):
        sync(Event.FAILED_ONCE, reason="away")
        assert sync(Event.DUE) == [Begin(attempt)]
    assert sync(Event.FAILED_ONCE, reason="away") == [Fail(2, "away"), RememberFailure("away")]


def test_a_force_during_an_attempt_that_fails_skips_the_rest() -> None:
    sync = syncing()
    sync(Event.FORCE)
    assert sync(Event.FAILED_ONCE, reason="away") == [Begin(2)]
    assert sync(Event.COMMITTED, generation=8) == [Resolve(2, 8)]


def test_who_asked_during_the_first_attempt_is_answered_by_the_second() -> None:
    sync = syncing()
    sync(Event.REQUEST)
    sync(Event.FAILED_ONCE, reason="away")
    sync(Event.REQUEST)
    sync(Event.DUE, at=101.0)
    assert sync(Event.COMMITTED, generation=8) == [Resolve(3, 8)]
    assert (sync.state, sync.dirty) == (State.IDLE, False)


@pytest.mark.parametrize("event", [Event.FAILED_ONCE, Event.FAILED_FOR_GOOD])
def test_who_forced_during_the_attempt_that_gives_up_gets_a_round_of_their_own(event: Event) -> None:
    sync = failed()
    sync(Event.DUE)
    sync(Event.FORCE)
    permanent = event is Event.FAILED_FOR_GOOD
    assert sync(event, reason="no") == [Fail(1, "no", permanent), RememberFailure("no"), Begin(1)]
    assert (sync.state, sync.failing) == (State.SYNCING, True)
    assert sync(Event.FAILED_ONCE, reason="away") == []
    assert sync.state is State.RESTING


def test_what_was_requested_during_the_attempt_that_gives_up_stays_asked_for() -> None:
    sync = syncing()
    sync(Event.REQUEST, at=100.5)
    sync(Event.FAILED_FOR_GOOD, at=101.0, reason="too_large")
    assert (sync.state, sync.deadline) == (State.FAILED, 102.5)


def test_success_after_a_failure_is_told_once() -> None:
    sync = failed()
    sync(Event.FORCE)
    sync(Event.FAILED_ONCE, reason="away")
    sync(Event.DUE)
    assert sync(Event.COMMITTED, generation=8) == [Resolve(2, 8), TellRecovered()]
    assert (sync.last_error, sync.failing, sync.attempt, sync.generation) == (None, False, 0, 8)
    sync(Event.FORCE)
    assert sync(Event.COMMITTED, generation=8) == [Resolve(3, 8)]


def test_success_after_a_retry_is_no_recovery() -> None:
    sync = resting()
    sync(Event.DUE)
    assert sync(Event.COMMITTED, generation=8) == [Resolve(1, 8)]


def test_a_failure_known_from_before_is_tried_again_after_the_restore() -> None:
    sync = Sync().restore(7, failed="away")
    assert (sync.state, sync.deadline, sync.dirty) == (State.PENDING, 102.0, True)
    assert (sync.failing, sync.last_error, sync.generation) == (True, "away", 7)
    assert sync(Event.DUE, at=102.0) == [Begin(1)]
    assert sync(Event.COMMITTED, generation=8) == [Resolve(1, 8), TellRecovered()]


@pytest.mark.parametrize("make", [pending, syncing, resting, flushing, failed])
def test_what_a_lost_sandbox_had_not_synced_is_asked_for_again(make: Callable[[], Sync]) -> None:
    sync = make()
    failing = sync.failing
    assert sync(Event.LOST)[-1] == Fail(1, LOST_REASON)
    assert (sync.state, sync.deadline, sync.dirty, sync.attempt) == (State.UNRESTORED, None, True, 0)
    assert sync(Event.FORCE) == [Refuse()]
    assert sync(Event.LOST) == []
    assert sync(Event.RESTORED, at=200.0, generation=7) == []
    assert (sync.state, sync.deadline) == (State.PENDING, 202.0)
    assert sync(Event.DUE, at=202.0) == [Begin(1)]
    assert sync(Event.COMMITTED, generation=8)[0] == Resolve(1, 8)
    assert failing is (make is failed)


def test_a_force_that_was_owed_is_not_owed_by_the_next_sandbox() -> None:
    sync = syncing()
    sync(Event.FORCE)
    sync(Event.LOST)
    assert sync(Event.RESTORED, generation=7) == []
    assert sync.state is State.PENDING


def test_a_request_before_the_restore_is_kept_until_after_it() -> None:
    sync = unrestored()
    assert sync(Event.REQUEST, at=50.0) == []
    assert (sync.state, sync.deadline, sync.dirty) == (State.UNRESTORED, None, True)
    sync(Event.RESTORED, at=100.0)
    assert (sync.state, sync.deadline) == (State.PENDING, 102.0)


def test_a_refused_force_leaves_no_trace() -> None:
    sync = unrestored()
    sync(Event.FORCE)
    assert not sync.dirty
    assert sync(Event.RESTORED) == []
    assert sync.state is State.IDLE


def standing(sync: SyncState) -> list[object]:
    return [getattr(sync, name) for name in SyncState.__slots__ if name != "moves"]


class SyncMachine(RuleBasedStateMachine):
    """The model writes files, which are numbers, and knows what an attempt saw when it began. It does not know states:
    only what was written, asked, seen, stored and told."""

    def __init__(self) -> None:
        super().__init__()
        self.sync = SyncState(LIMITS, Random(5))
        self.now = 0.0
        self.restored = False
        self.written = 0  # files, by number
        self.to_keep = 0  # the last one that anybody asked to be kept
        self.seen: int | None = None  # what the attempt under way has seen, if there is one
        self.committing = False
        self.stored = {0: 0}  # the last file in each generation
        self.generation = 0
        self.waiting: dict[int, int] = {}  # ticket -> the last file when it was asked for
        self.attempts_left = 0  # of the round under way; 0: there is none
        self.gave_up = False  # and no success since
        self.in_background = False  # the same, in this sandbox
        self.requests: list[float] = []  # since the last attempt began
        self.forced = False

    def say(self, event: Event, *, generation: int = 0, reason: str = "") -> list[Effect]:
        effects = list(self.sync.on(event, now=self.now, generation=generation, reason=reason))
        for effect in effects:
            match effect:
                case Begin():
                    assert self.restored, "pushed from unrestored"
                    assert self.seen is None, "two attempts at once"
                    if not self.attempts_left:
                        self.attempts_left = 1 if self.in_background and not self.forced else LIMITS.attempts
                    self.seen, self.requests, self.forced = self.written, [], False
                case Stop():
                    assert self.seen is not None
                    self.seen = None
                case Resolve(upto, told):
                    for ticket in [ticket for ticket in self.waiting if ticket <= upto]:
                        assert self.stored[told] >= self.waiting.pop(ticket), "a generation without what was asked for"
                        assert self.sync.synced >= ticket
                case Fail(upto, _, _):
                    self.waiting = {ticket: asked for ticket, asked in self.waiting.items() if ticket > upto}
        return effects

    @rule()
    def write(self) -> None:
        self.written += 1

    @rule()
    def request(self) -> None:
        self.to_keep = self.written
        self.requests.append(self.now)
        again, before = copy(self.sync), self.sync.deadline
        short = again.asked_again(self.now)
        assert short or standing(again) == standing(self.sync)
        assert self.say(Event.REQUEST) == []
        if short:  # the same, and nothing that anybody must hear of
            assert standing(again) == standing(self.sync)
            assert self.sync.moves == ()
            assert before is not None
            assert self.sync.deadline is not None
            assert self.sync.deadline >= before

    @rule()
    def force(self) -> None:
        under_way = self.seen is not None
        ticket = self.sync.asked + 1
        if self.restored:
            self.waiting[ticket] = self.to_keep = self.written
            self.forced = True
        effects = self.say(Event.FORCE)
        assert self.sync.asked == ticket - (not self.restored)
        if not self.restored:
            assert effects == [Refuse()]
        else:
            assert [type(effect) for effect in effects] == ([] if under_way else [Begin])

    @rule(seconds=st.sampled_from([0.25, 1.0, 1.75, 4.0]))
    def pass_time(self, seconds: float) -> None:
        deadline = self.sync.deadline
        self.now = self.now + seconds if deadline is None else max(self.now, min(self.now + seconds, deadline))

    @precondition(lambda self: self.sync.deadline is not None)
    @rule()
    def pass_the_deadline(self) -> None:
        assert self.sync.deadline is not None
        self.now = max(self.now, self.sync.deadline)
        assert [type(effect) for effect in self.say(Event.DUE)] == [Begin]

    @precondition(lambda self: self.seen is not None and not self.committing)
    @rule()
    def begin_to_commit(self) -> None:
        assert self.say(Event.UPLOADED) == []
        self.committing = True

    @precondition(lambda self: self.seen is not None)
    @rule()
    def commit(self) -> None:
        assert self.seen is not None
        if self.stored[self.generation] != self.seen:
            self.generation += 1
            self.stored[self.generation] = self.seen
        forced, recovered = self.forced, self.gave_up
        self.seen, self.attempts_left = None, 0
        self.committing = self.gave_up = self.in_background = False
        effects = self.say(Event.COMMITTED, generation=self.generation)
        assert (TellRecovered() in effects) == recovered
        assert any(isinstance(effect, Begin) for effect in effects) == forced

    @precondition(lambda self: self.seen is not None)
    @rule(permanent=st.booleans(), reply_lost=st.booleans())
    def fail(self, permanent: bool, reply_lost: bool) -> None:
        assert self.seen is not None
        if reply_lost and self.committing:
            self.generation += 1
            self.stored[self.generation] = self.seen
        before = {ticket for ticket in self.waiting if ticket <= self.sync.scanned}
        self.seen, self.committing = None, False
        gives_up = permanent or self.attempts_left == 1
        self.attempts_left = 0 if gives_up else self.attempts_left - 1
        self.gave_up |= gives_up
        self.in_background |= gives_up
        forced = self.forced
        effects = self.say(Event.FAILED_FOR_GOOD if permanent else Event.FAILED_ONCE, reason="no")
        assert (RememberFailure("no") in effects) == gives_up
        assert not (gives_up and before & set(self.waiting)), "a waiter that was not told"
        assert any(isinstance(effect, Begin) for effect in effects) == forced

    @rule()
    def lose(self) -> None:
        self.restored = self.committing = self.forced = self.in_background = False
        self.attempts_left = 0
        self.say(Event.LOST)
        assert not self.waiting

    @precondition(lambda self: not self.restored)
    @rule()
    def restore(self) -> None:
        self.restored = True
        dirty = self.sync.dirty
        self.requests = [self.now] if dirty else []
        assert self.say(Event.RESTORED, generation=self.generation) == []

    @invariant()
    def numbers_are_in_order(self) -> None:
        assert self.sync.synced <= self.sync.scanned <= self.sync.asked
        assert all(self.sync.synced < ticket <= self.sync.asked for ticket in self.waiting)

    @invariant()
    def clean_means_kept(self) -> None:
        if not self.sync.dirty:
            assert self.stored[self.sync.generation] >= self.to_keep

    @invariant()
    def nothing_is_owed_for_ever(self) -> None:
        """What is asked for and not kept is under way, or has a time, or waits for the restore."""
        if self.restored:
            assert self.sync.dirty == (self.seen is not None or self.sync.deadline is not None)
        else:
            assert self.seen is None
            assert self.sync.deadline is None

    @invariant()
    def requests_wait_no_longer_than_they_may(self) -> None:
        if self.restored and self.seen is None and self.requests:
            assert self.sync.deadline is not None
            if self.sync.state is not State.RESTING:  # its next attempt is for them, and may be later
                assert self.sync.deadline <= min(
                    self.requests[-1] + LIMITS.debounce, self.requests[0] + LIMITS.max_wait
                )

    @invariant()
    def a_failure_is_remembered(self) -> None:
        assert self.sync.failing == self.gave_up


TestSyncMachine = SyncMachine.TestCase
TestSyncMachine.settings = settings(max_examples=200, stateful_step_count=50)


def test_every_move_is_told_also_the_two_that_one_event_makes() -> None:
    def moves(sync: Sync, event: Event, generation: int = 0, reason: str = "") -> list[Transition]:
        sync(event, generation=generation, reason=reason)
        return list(sync.moves)

    sync = flushing()
    assert moves(sync, Event.FORCE) == []  # it is put again when the attempt is over
    committed = [Transition(State.IDLE, 8, 0, None), Transition(State.SYNCING, 8, 1, None)]
    assert moves(sync, Event.COMMITTED, 8) == committed
    # It rests, which is our own affair.
    assert moves(sync, Event.FAILED_ONCE, reason="away") == [Transition(State.SYNCING, 8, 1, "away")]
    assert moves(sync, Event.FORCE) == [Transition(State.SYNCING, 8, 2, "away")]
    assert moves(sync, Event.UPLOADED) == [Transition(State.FLUSHING, 8, 2, "away")]
    assert moves(sync, Event.REQUEST) == []
    committed = [Transition(State.IDLE, 9, 0, None), Transition(State.PENDING, 9, 0, None)]
    assert moves(sync, Event.COMMITTED, 9) == committed
