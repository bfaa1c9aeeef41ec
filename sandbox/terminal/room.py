"""One terminal and all its viewers. Pure: no I/O, and the time is an argument.

The program's output is numbered into a ring. A viewer has a *seat*: a cursor in that ring, and whether its connection
is *full*. A seat that is not full has everything so far, so the program's next output goes straight to all of those.
A full seat keeps its cursor; when its connection has drained, it gets the output since then, step by step, until it
is full again or has everything.

The program is read while at least one seat is not full: the fastest sets the pace. When all are full, and one of them
may drive, the program is not read and waits in its own write. A seat that only views never holds it. A seat that the
ring has left behind gets a picture of the screen and goes on from the newest byte. So does every seat when the
program is started again.

Without a driver the program is read, and the ring overwrites its oldest bytes. But a driver that was cut off comes
back in a moment and wants to go on where it was. So for `hold_seconds` after the last driver left, the ring keeps
what that one may still want: the bytes after its cursor, and half a ring before it, because sent bytes need not have
arrived. A viewer that reads on ends that hold.

Input comes from seats that may *drive*. The *active* seat typed last; before anybody has typed, and when those who
typed have left, it is the one who came first. A terminal's own replies are taken from the active seat only, with two
exceptions. A seat that resumes in front of old questions has its replies dropped until a second after it got the last
of them. And a seat that took over while questions were open has them dropped for a second, because the other may have
answered.

The size is the active seat's (`active`), the smallest of all that drive (`smallest`), or a set one (`fixed`). It
changes when the seats' sizes change, so a size that was set from outside stays until then.

What never happens: a byte is missing between two that a seat gets, without a reset between them; a seat waits for
another; the ring overwrites what it holds, except for a viewer that reads on; a seat that only views changes
anything, or holds the program.
"""

from dataclasses import dataclass, field

from sandbox.protocol.terminal import Exit, Greeting, Open, Reset, Resized, Role, Size, TerminalTrouble
from sandbox.protocol.values import SizePolicy
from sandbox.terminal.queries import has_question, is_answer
from sandbox.terminal.ring import ByteRing

ECHO_SECONDS = 1.0  # replies to old questions may come for so long after these were sent
LATELY_BYTES = 64 * 1024  # of output, whose questions may still be on their way to a viewer
TROUBLES_KEPT = 4  # of different kinds, for a full seat; further ones are dropped


@dataclass(frozen=True, slots=True)
class Say:
    message: Greeting | Exit | Resized | TerminalTrouble


@dataclass(frozen=True, slots=True)
class Paint:
    """To be followed by a picture of the screen as it is now."""

    message: Greeting | Reset


@dataclass(frozen=True, slots=True)
class Bytes:
    payload: bytes


Step = Say | Paint | Bytes


@dataclass(slots=True, eq=False)
class Seat:
    """One viewer's state."""

    role: Role
    number: int
    size: Size | None
    epoch: str
    cursor: int
    size_told: Size
    greeting: Say | Paint | None
    full: bool = False
    exit_told: bool = False
    turn: int = 0  # when it typed last, in the order of all typing; 0: never
    asked_until: int = 0  # bytes before this may have old questions in them
    deaf_until: float = float("-inf")  # answers before this are to old questions
    troubles: dict[str, TerminalTrouble] = field(default_factory=dict)


class Room:
    """`begin` starts it. The owner calls `step` for a seat after each event, until that is None or the seat is full,
    and checks `reads` after each event, and at `deadline`."""

    def __init__(
        self, ring_bytes: int, *, hold_seconds: float, read_bytes: int, policy: SizePolicy, size: Size
    ) -> None:
        """`read_bytes` is the most that one `wrote` brings."""
        self._ring_bytes = ring_bytes
        self._hold_seconds = hold_seconds
        self._read_bytes = read_bytes
        self._policy = policy
        self._wanted: Size | None = None
        self._turns = 0
        self._joined = 0
        self._held: tuple[int, float] | None = None  # bytes from here on are kept, until this time
        self.exit: Exit | None = None
        self.size = size
        self.epoch = ""
        self.ring = ByteRing(ring_bytes)
        self.seats: dict[Seat, None] = {}

    # The program

    def begin(self, epoch: str) -> None:
        """A program starts. The output of the one before is forgotten."""
        self.epoch = epoch
        self.ring = ByteRing(self._ring_bytes)
        self._held = self.exit = None

    def wrote(self, payload: bytes) -> list[Seat]:
        """The program's output. Returns the seats that get exactly this, now."""
        start = self.ring.end
        self.ring.append(payload)
        live = [seat for seat in self.seats if not seat.full and seat.cursor == start and seat.epoch == self.epoch]
        for seat in live:
            seat.cursor += len(payload)
        return live

    def ended(self, exit: Exit) -> None:
        """The program is gone, and all it wrote is here."""
        self.exit = exit

    def reads(self, now: float) -> bool:
        """Whether the program may be read."""
        if any(not seat.full for seat in self.seats):
            return True
        if self._driving():
            return False
        if self._held is None or now >= self._held[1] or self._held[0] < self.ring.base:
            return True
        return self.ring.end + self._read_bytes <= self._held[0] + self.ring.limit

    def deadline(self, now: float) -> float | None:
        """When `reads` may become true without an event, if it is false now."""
        return None if self._held is None or self._driving() or self.reads(now) else self._held[1]

    # Coming and going

    def join(self, wish: Open) -> Seat:
        """A viewer came. Its first step is the greeting."""
        ring, after = self.ring, wish.after
        self._joined += 1
        if wish.role == "drive":
            self._held = None  # a present driver sets the pace
        seat = Seat(wish.role, self._joined, wish.size, self.epoch, ring.end, self.size, None)
        self.seats[seat] = None
        self._settle()
        seat.size_told = self.size
        missed = ring.since(after.offset, ring.limit) if after is not None and after.epoch == self.epoch else None
        if after is not None and missed is not None:
            seat.cursor = after.offset
            if has_question(missed):
                seat.asked_until, seat.deaf_until = ring.end, float("inf")
        greeting = Greeting.of(
            self.epoch,
            seat.cursor,
            self.size,
            ring.end - seat.cursor,
            # A viewer from elsewhere must clear its screen, even if there is nothing to show.
            picture=missed is None and (after is not None or ring.end > 0),
        )
        seat.greeting = Paint(greeting) if greeting.picture else Say(greeting)
        return seat

    def leave(self, seat: Seat, now: float) -> None:
        was_active = seat is self.active
        del self.seats[seat]
        self._settle()
        if was_active and (heir := self.active) is not None:
            self._take_over(heir, now)
        if seat.role == "drive" and seat.epoch == self.epoch and seat.cursor >= self.ring.base:
            floor = max(seat.cursor - self.ring.limit // 2, 0)
            # Several are often cut off at once: then the one furthest behind counts.
            if self._held is not None and now < self._held[1] and self._held[0] >= self.ring.base:
                floor = min(floor, self._held[0])
            self._held = max(floor, self.ring.base), now + self._hold_seconds

    # What a seat gets

    def step(self, seat: Seat, most: int, now: float) -> Step | None:
        """The next thing to send to this seat, at most `most` bytes of output; None if it has everything."""
        if seat.greeting is not None:
            greeting, seat.greeting = seat.greeting, None
            return greeting
        payload = self.ring.since(seat.cursor, most) if seat.epoch == self.epoch else None
        if payload is None:
            seat.epoch, seat.cursor, seat.size_told, seat.exit_told = self.epoch, self.ring.end, self.size, False
            if seat.deaf_until == float("inf"):
                seat.deaf_until = now + ECHO_SECONDS
            return Paint(Reset.of(self.epoch, self.ring.end, self.size))
        if seat.size_told != self.size:
            seat.size_told = self.size
            return Say(Resized(self.size.cols, self.size.rows))
        if seat.troubles:
            return Say(seat.troubles.pop(next(iter(seat.troubles))))
        if payload:
            seat.cursor += len(payload)
            if seat.deaf_until == float("inf") and seat.cursor >= seat.asked_until:
                seat.deaf_until = now + ECHO_SECONDS
            return Bytes(payload)
        if self.exit is not None and not seat.exit_told:
            seat.exit_told = True
            return Say(self.exit)
        return None

    def tell(self, seat: Seat, trouble: TerminalTrouble) -> None:
        """A message for this seat. While it cannot be sent, one of each kind is kept."""
        if len(seat.troubles) < TROUBLES_KEPT:
            seat.troubles.setdefault(trouble.code, trouble)

    # Events of seats

    def takes(self, seat: Seat, payload: bytes, now: float) -> bool:
        """Whether this input is for the program. Who types becomes active."""
        if seat.role != "drive":
            return False
        if is_answer(payload):
            return seat is self.active and now >= seat.deaf_until and self.exit is None
        if seat is not self.active:
            self._take_over(seat, now)
        self._turns += 1
        seat.turn = self._turns
        self._settle()
        return True

    def _take_over(self, seat: Seat, now: float) -> None:
        """This seat becomes active. The seat before may have answered the program's latest questions."""
        lately = self.ring.since(max(self.ring.base, self.ring.end - LATELY_BYTES), LATELY_BYTES)
        if lately and has_question(lately):
            seat.deaf_until = max(seat.deaf_until, now + ECHO_SECONDS)

    def wants(self, seat: Seat, size: Size) -> None:
        """The size that this seat can show now."""
        seat.size = size
        self._settle()

    def set_size(self, size: Size) -> None:
        """The size is this until a seat that counts wants another."""
        self.size = size

    @property
    def active(self) -> Seat | None:
        return max(self._driving(), key=lambda seat: (seat.turn, -seat.number), default=None)

    def _driving(self) -> list[Seat]:
        return [seat for seat in self.seats if seat.role == "drive"]

    def _settle(self) -> None:
        wanted: Size | None = None
        if self._policy == "active":
            active = self.active
            wanted = None if active is None else active.size
        elif self._policy == "smallest":
            sizes = [seat.size for seat in self._driving() if seat.size is not None]
            if sizes:
                wanted = Size(min(size.cols for size in sizes), min(size.rows for size in sizes))
        if wanted is not None and wanted != self._wanted:
            self.size = self._wanted = wanted
