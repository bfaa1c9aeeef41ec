"""The room against a small model: all that was written, and what each viewer has put together of it."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sandbox.protocol.terminal import Exit, Greeting, Open, Reset, Resized, Role, Size, TerminalTrouble
from sandbox.protocol.values import Position, SizePolicy
from sandbox.terminal.room import ECHO_SECONDS, TROUBLES_KEPT, Bytes, Paint, Room, Say, Seat

RING, READ, HOLD = 32, 8, 10.0
SIZE = Size(80, 24)

sizes = st.none() | st.builds(Size, st.integers(1, 4), st.integers(1, 4))


def make_room(policy: SizePolicy = "active") -> Room:
    room = Room(RING, hold_seconds=HOLD, read_bytes=READ, policy=policy, size=SIZE)
    room.begin("e0")
    return room


@dataclass(eq=False)
class Person:
    """A viewer of the model: what it has put together since it was last told to begin."""

    seat: Seat
    epoch: str = ""
    start: int = 0
    output: bytes = b""
    size: Size | None = None
    exit: Exit | None = None
    typed_at: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.output)


@dataclass
class Departed:
    """Where somebody was when it left, and what it may have received."""

    position: Position
    received: int
    at: float


class RoomMachine(RuleBasedStateMachine):
    @initialize(policy=st.sampled_from(["active", "smallest", "fixed"]))
    def open(self, policy: SizePolicy) -> None:
        self.policy = policy
        self.room = make_room(policy)
        self.now = 0.0
        self.runs = 0
        self.epoch = "e0"
        self.written = b""
        self.exit: Exit | None = None
        self.people: list[Person] = []
        self.typing = 0
        self.last_left: Departed | None = None

    # What happens

    @precondition(lambda self: self.exit is None and self.room.reads(self.now))
    @rule(count=st.integers(1, READ))
    def write(self, count: int) -> None:
        payload = bytes((len(self.written) + n) % 251 for n in range(count))
        before = {person: person.seat.full for person in self.people}
        if any(not full for full in before.values()):
            self.last_left = None  # somebody reads on, and nobody waits for who left
        live = self.room.wrote(payload)
        self.written += payload
        for person in self.people:
            assert (person.seat in live) == (
                not before[person]
            )  # who is not full gets it as it is, who is full does not
            if person.seat in live:
                person.output += payload

    @rule(
        role=st.sampled_from(["drive", "drive", "view"]),
        size=sizes,
        back=st.integers(-2, RING + 4),
        fresh=st.booleans(),
    )
    def join(self, role: Role, size: Size | None, back: int, fresh: bool) -> None:
        offset = len(self.written) - back
        after = None if fresh or offset < 0 else Position(self.epoch, offset)
        seat = self.room.join(Open.of(size, role, after))
        person = Person(seat)
        self.people.append(person)
        if role == "drive":
            self.last_left = None
        self.pump(person, steps=1)
        kept = after is not None and max(len(self.written) - RING, 0) <= offset <= len(self.written)
        assert person.epoch == self.epoch
        assert person.start == (offset if kept else len(self.written))
        self.pump_all()

    @rule(size=sizes)
    def join_from_another_epoch(self, size: Size | None) -> None:
        person = Person(self.room.join(Open.of(size, "drive", Position("other", 0))))
        step = self.room.step(person.seat, READ, self.now)
        assert isinstance(step, Paint)
        assert isinstance(step.message, Greeting)
        person.epoch, person.start, person.size = self.epoch, len(self.written), step.message.size
        self.people.append(person)
        self.last_left = None
        self.pump_all()

    @precondition(lambda self: self.people)
    @rule(index=st.integers(0, 9), received=st.integers(0, RING // 2))
    def leave(self, index: int, received: int) -> None:
        person = self.people.pop(index % len(self.people))
        self.room.leave(person.seat, self.now)
        if person.seat.role == "view":
            self.pump_all()
            return
        at = max(person.end - received, person.start)
        kept = person.epoch == self.epoch and person.end >= self.room.ring.base and at >= self.room.ring.base
        self.last_left = Departed(Position(person.epoch, at), received, self.now) if kept else None
        self.pump_all()

    @precondition(lambda self: self.people)
    @rule(index=st.integers(0, 9))
    def fill(self, index: int) -> None:
        self.people[index % len(self.people)].seat.full = True

    @precondition(lambda self: self.people)
    @rule(index=st.integers(0, 9), steps=st.integers(0, 4))
    def drain(self, index: int, steps: int) -> None:
        person = self.people[index % len(self.people)]
        person.seat.full = False
        self.pump(person, steps)
        if steps < 4:
            person.seat.full = self.owes(person)
        else:
            self.pump(person)

    @precondition(lambda self: self.people)
    @rule(index=st.integers(0, 9))
    def type(self, index: int) -> None:
        person = self.people[index % len(self.people)]
        assert self.room.takes(person.seat, b"x", self.now) == (person.seat.role == "drive")
        if person.seat.role == "drive":
            self.typing += 1
            person.typed_at = self.typing
        self.pump_all()

    @precondition(lambda self: self.people)
    @rule(index=st.integers(0, 9), size=st.builds(Size, st.integers(1, 4), st.integers(1, 4)))
    def resize(self, index: int, size: Size) -> None:
        self.room.wants(self.people[index % len(self.people)].seat, size)
        self.pump_all()

    @rule(size=st.builds(Size, st.integers(5, 9), st.integers(5, 9)))
    def set_size(self, size: Size) -> None:
        self.room.set_size(size)
        assert self.room.size == size
        self.pump_all()

    @precondition(lambda self: self.exit is None)
    @rule(code=st.integers(0, 3))
    def end(self, code: int) -> None:
        self.exit = Exit(code, None)
        self.room.ended(self.exit)
        self.pump_all()

    @precondition(lambda self: self.exit is not None)
    @rule()
    def restart(self) -> None:
        self.runs += 1
        self.epoch, self.written, self.exit, self.last_left = f"e{self.runs}", b"", None, None
        self.room.begin(self.epoch)
        self.pump_all()

    @rule(seconds=st.sampled_from([0.1, 1.0, HOLD]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    # What the shell does

    def pump_all(self) -> None:
        for person in self.people:
            self.pump(person)

    def owes(self, person: Person) -> bool:
        return (person.epoch, person.end, person.size, person.exit) != (
            self.epoch,
            len(self.written),
            self.room.size,
            self.exit,
        )

    def pump(self, person: Person, steps: int = 1000) -> None:
        while steps and not person.seat.full and (step := self.room.step(person.seat, 5, self.now)) is not None:
            steps -= 1
            match step:
                case Bytes(payload):
                    assert 0 < len(payload) <= 5
                    person.output += payload
                case Paint(Greeting() | Reset() as message) | Say(Greeting() as message):
                    person.epoch, person.start, person.output = message.epoch, message.offset, b""
                    person.size, person.exit = message.size, None
                    assert isinstance(step, Say) or message.offset == len(self.written)  # a picture is of now
                    if isinstance(message, Greeting):
                        assert message.picture == isinstance(step, Paint)
                        assert message.replayed == len(self.written) - message.offset
                case Say(Resized() as resized):
                    person.size = resized.size
                case Say(Exit() as exit):
                    assert person.end == len(self.written)
                    assert person.exit is None
                    person.exit = exit

    # What is always so

    @invariant()
    def everybody_has_what_was_written_without_a_hole(self) -> None:
        for person in self.people:
            if person.epoch == self.epoch:
                assert person.output == self.written[person.start : person.end]

    @invariant()
    def who_is_not_full_has_everything(self) -> None:
        for person in self.people:
            assert person.seat.full or not self.owes(person)

    @invariant()
    def the_fastest_sets_the_pace(self) -> None:
        if any(not person.seat.full for person in self.people):
            assert self.room.reads(self.now)
            assert self.room.deadline(self.now) is None
        elif self.driven:
            assert not self.room.reads(self.now)
            assert self.room.deadline(self.now) is None

    @property
    def driven(self) -> bool:
        return any(person.seat.role == "drive" for person in self.people)

    @invariant()
    def what_the_last_one_may_want_is_held_and_no_longer_than_so(self) -> None:
        if self.driven:
            return
        deadline = self.room.deadline(self.now)
        assert (deadline is None) == self.room.reads(self.now)
        assert deadline is None or self.now < deadline <= self.now + HOLD
        if self.last_left is not None and self.now < self.last_left.at + HOLD:
            assert self.room.ring.since(self.last_left.position.offset, 1) is not None

    @invariant()
    def the_size_is_whose_it_should_be(self) -> None:
        drivers = [person for person in self.people if person.seat.role == "drive"]
        active = max(drivers, key=lambda person: (person.typed_at, -person.seat.number), default=None)
        assert self.room.active is (active.seat if active else None)


TestRoom = RoomMachine.TestCase
TestRoom.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


# One thing at a time


def told(room: Room, seat: Seat, now: float = 0.0) -> list[object]:
    """Everything this seat is owed."""
    steps: list[object] = []
    while (step := room.step(seat, 1000, now)) is not None:
        steps.append(step.payload if isinstance(step, Bytes) else step.message)
    return steps


def came(room: Room, role: Role = "drive", size: Size | None = None, after: Position | None = None) -> Seat:
    seat = room.join(Open.of(size, role, after))
    told(room, seat)
    return seat


def test_who_comes_first_to_a_silent_terminal_has_nothing_to_clear() -> None:
    room = make_room()
    assert room.step(room.join(Open.of(None, "drive", None)), 10, 0) == Say(
        Greeting.of("e0", 0, SIZE, 0, picture=False)
    )
    lost = room.join(Open.of(None, "drive", Position("older", 7)))
    assert room.step(lost, 10, 0) == Paint(Greeting.of("e0", 0, SIZE, 0, picture=True))


def test_the_size_is_that_of_who_typed_last() -> None:
    room = make_room("active")
    first, second = came(room, size=Size(10, 10)), came(room, size=Size(20, 20))
    came(room, "view", Size(1, 1))
    assert room.size == Size(10, 10)
    assert room.takes(second, b"x", 0)
    assert room.size == Size(20, 20)
    room.wants(first, Size(11, 11))
    assert room.size == Size(20, 20)
    room.leave(second, 0)
    assert room.size == Size(11, 11)


def test_the_size_is_the_smallest_of_those_who_drive() -> None:
    room = make_room("smallest")
    came(room, "view", Size(1, 1))
    came(room, size=None)
    assert room.size == SIZE
    tall = came(room, size=Size(10, 50))
    came(room, size=Size(40, 20))
    assert room.size == Size(10, 20)
    room.leave(tall, 0)
    assert room.size == Size(40, 20)


def test_a_fixed_size_is_changed_from_outside_only() -> None:
    room = make_room("fixed")
    seat = came(room, size=Size(10, 10))
    room.wants(seat, Size(12, 12))
    assert room.takes(seat, b"x", 0)
    assert room.size == SIZE
    room.set_size(Size(30, 30))
    assert told(room, seat) == [Resized(30, 30)]


def test_a_size_set_from_outside_stays_until_somebody_wants_another() -> None:
    room = make_room()
    seat = came(room, size=Size(10, 10))
    room.set_size(Size(30, 30))
    assert room.takes(seat, b"x", 0)
    assert room.size == Size(30, 30)
    room.wants(seat, Size(12, 12))
    assert room.size == Size(12, 12)


def test_answers_are_taken_from_the_active_one_and_make_nobody_active() -> None:
    room = make_room()
    first, second, viewer = came(room), came(room), came(room, "view")
    answer = b"\x1b[?1;2c"
    assert [room.takes(seat, answer, 0) for seat in (first, second, viewer)] == [True, False, False]
    assert room.takes(second, b"x", 0)
    assert [room.takes(seat, answer, 0) for seat in (first, second, viewer)] == [False, True, False]
    assert room.active is second


ANSWER = b"\x1b[?1;2c"


def test_who_takes_over_does_not_answer_what_the_one_before_has_answered() -> None:
    """Both were asked at once, and answer at once. The first was listened to; then the second typed, or the first was
    cut off, before the second's answer had come: the program heard it twice."""
    room = make_room()
    first, second, third = came(room), came(room), came(room)
    room.takes(first, b"x", 1)
    room.takes(second, b"y", 2)
    room.takes(first, b"x", 3)
    room.wrote(b"what are you?\x1b[c")
    assert room.takes(first, ANSWER, 4)
    assert room.takes(second, b"y", 4)
    assert not room.takes(second, ANSWER, 4)
    room.leave(second, 5)
    assert not room.takes(first, ANSWER, 5)
    assert room.takes(first, ANSWER, 5 + ECHO_SECONDS)
    room.leave(first, 7)
    assert not room.takes(third, ANSWER, 7)
    room.leave(third, 7)


def test_who_takes_over_while_nothing_was_asked_is_listened_to() -> None:
    room = make_room()
    first, second = came(room), came(room)
    room.wrote(b"$ ")
    room.takes(first, b"x", 1)
    room.takes(second, b"y", 1)
    assert room.takes(second, ANSWER, 1)
    room.leave(second, 2)
    assert room.takes(first, ANSWER, 2)


def test_an_answer_starts_no_program() -> None:
    room = make_room()
    seat = came(room)
    room.ended(Exit(0, None))
    assert not room.takes(seat, b"\x1b[I", 0)
    assert room.takes(seat, b"x", 0)


@pytest.mark.parametrize("question", [b"\x1b[c", b""])
def test_answers_to_old_questions_are_dropped(question: bytes) -> None:
    room = make_room()
    room.wrote(b"old" + question)
    seat = room.join(Open.of(None, "drive", Position("e0", 0)))
    assert room.takes(seat, b"\x1b[?1;2c", 0) == (not question)
    told(room, seat, now=5)
    assert room.takes(seat, b"\x1b[?1;2c", 5) == (not question)
    assert room.takes(seat, b"\x1b[?1;2c", 5 + ECHO_SECONDS)


def test_answers_count_again_after_a_reset_took_the_place_of_old_questions() -> None:
    room = make_room()
    room.wrote(b"\x1b[c")
    seat = room.join(Open.of(None, "drive", Position("e0", 0)))
    room.step(seat, 10, 0)
    seat.full = True
    room.wrote(bytes(RING))
    seat.full = False
    assert told(room, seat, now=3)[0] == Reset.of("e0", RING + 3, SIZE)
    assert not room.takes(seat, b"\x1b[I", 3)
    assert room.takes(seat, b"\x1b[I", 3 + ECHO_SECONDS)


def test_a_trouble_waits_until_it_can_be_told_and_is_told_once() -> None:
    room = make_room()
    seat = came(room)
    seat.full = True
    for number in range(TROUBLES_KEPT + 2):
        room.tell(seat, TerminalTrouble(f"kind_{'abcdefgh'[number]}", "first"))
        room.tell(seat, TerminalTrouble("kind_a", "second"))
    seat.full = False
    assert [message.code for message in told(room, seat) if isinstance(message, TerminalTrouble)] == [
        f"kind_{letter}" for letter in "abcdefgh"[:TROUBLES_KEPT]
    ]
    assert told(room, seat) == []


def test_what_was_sent_and_did_not_arrive_is_held_for_the_one_who_left() -> None:
    room = make_room()
    seat = came(room)
    for _ in range(20):
        room.wrote(bytes(READ))
    cursor = seat.cursor
    room.leave(seat, 0)
    while room.reads(HOLD - 1):
        room.wrote(bytes(READ))
    assert room.ring.end > cursor
    resumed = room.join(Open.of(None, "drive", Position("e0", cursor - RING // 2)))
    assert isinstance(room.step(resumed, 10, HOLD - 1), Say)


def test_when_all_are_cut_off_at_once_the_slowest_counts() -> None:
    room = make_room()
    slow, fast = came(room), came(room)
    slow.full = True
    for _ in range(3):
        room.wrote(bytes(READ))
    room.leave(slow, 0)
    room.leave(fast, 1)
    while room.reads(2):
        room.wrote(bytes(READ))
    assert room.ring.since(0, 1) is not None
    assert room.deadline(2) == 1 + HOLD
    assert room.reads(1 + HOLD)


def test_who_was_lost_anyway_holds_nothing() -> None:
    room = make_room()
    slow, fast = came(room), came(room)
    slow.full = True
    for _ in range(20):
        room.wrote(bytes(READ))
    room.leave(fast, 0)
    held = room.deadline(0), room.ring.end
    room.leave(slow, 0)
    assert (room.deadline(0), room.ring.end) == held
    assert room.reads(0)


def test_nobody_waits_for_those_who_only_view() -> None:
    room = make_room()
    first, second = came(room, "view"), came(room, "view")
    first.full = second.full = True
    for _ in range(20):
        assert room.reads(0)
        assert room.deadline(0) is None
        room.wrote(bytes(READ))
    first.full = False
    assert told(room, first) == [Reset.of("e0", 20 * READ, SIZE)]
    driver = came(room)
    first.full = driver.full = True
    assert not room.reads(0), "who drives is waited for"
    first.full = False
    assert room.reads(0), "who views may set the pace"


def test_who_only_views_holds_nothing_by_coming_and_going() -> None:
    room = make_room()
    for now in range(20):
        viewer = came(room, "view")
        viewer.full = True
        assert room.reads(now)
        room.leave(viewer, now)
        assert room.reads(now)
        room.wrote(bytes(READ))


def test_a_viewer_that_takes_nothing_does_not_end_what_is_held_for_a_driver() -> None:
    room = make_room()
    driver = came(room)
    room.leave(driver, 0)
    viewer = came(room, "view")
    viewer.full = True
    while room.reads(1):
        room.wrote(bytes(READ))
    assert room.deadline(1) == HOLD
    assert room.ring.since(0, 1) is not None
    viewer.full = False
    told(room, viewer, 1)
    while room.ring.since(0, 1) is not None:
        assert room.reads(1)
        room.wrote(bytes(READ))
    viewer.full = True
    assert room.reads(1), "what it was held for is gone"
