"""A user's room for messages: the bound holds, whoever asked first comes first, and nobody waits for ever."""

import asyncio
from collections import deque

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.limits.inbound_bytes import LARGE, Claim, InboundBytes, UsersInboundBytes

LIMIT = 4 * LARGE


class Sockets(RuleBasedStateMachine):
    """Sockets that ask for room, get it, and give it back; beside them short messages, which only count."""

    def __init__(self) -> None:
        super().__init__()
        self.room = InboundBytes(LIMIT)
        self.waiting: deque[tuple[Claim, int]] = deque()
        self.granted: dict[Claim, int] = {}
        self.short = 0

    def _got(self, claim: Claim) -> None:
        first, size = self.waiting.popleft()
        assert first is claim, "in the order they asked"
        self.granted[claim] = size

    @rule(size=st.integers(LARGE + 1, LIMIT))
    def ask(self, size: int) -> None:
        claim = Claim(self.room)
        self.waiting.append((claim, size))
        if claim.reach(size, lambda: self._got(claim)):
            self._got(claim)
        assert not claim.reach(size, lambda: None) or claim in self.granted, "asking again changes nothing"

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(list(self.granted)))
        del self.granted[claim]
        claim.drop()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(list(self.waiting)))
        self.waiting.remove(gone)
        gone[0].drop()

    @rule(size=st.integers(1, LARGE))
    def arrive(self, size: int) -> None:
        self.short += size
        self.room.add(size)

    @precondition(lambda self: self.short)
    @rule()
    def deal_with_all(self) -> None:
        size, self.short = self.short, 0
        self.room.remove(size)

    @invariant()
    def all_is_counted_once(self) -> None:
        assert self.room.held == self.short + sum(self.granted.values())
        assert sum(self.granted.values()) <= LIMIT

    @invariant()
    def the_first_waits_only_for_room(self) -> None:
        if self.waiting:
            assert self.room.held + self.waiting[0][1] > LIMIT
            assert self.room.held


TestSockets = Sockets.TestCase


def test_a_short_message_needs_no_leave() -> None:
    room = InboundBytes(LIMIT)
    room.add(2 * LIMIT)
    claim = Claim(room)
    assert claim.reach(LARGE, lambda: None)
    claim.drop()
    assert (room.held, room.full) == (2 * LIMIT, True)


def test_a_message_above_the_bound_comes_alone() -> None:
    room = InboundBytes(LIMIT)
    assert Claim(room).reach(2 * LIMIT, lambda: None)
    assert not Claim(room).reach(LARGE + 1, lambda: None)


def test_who_asks_for_a_longer_message_gives_back_what_the_shorter_one_had() -> None:
    room, granted = InboundBytes(LIMIT), list[str]()
    claim, other = Claim(room), Claim(room)
    assert claim.reach(2 * LARGE, lambda: None)
    assert claim.reach(4 * LARGE, lambda: None)
    assert room.held == 4 * LARGE
    assert not other.reach(2 * LARGE, lambda: granted.append("other"))
    claim.drop()
    assert (room.held, granted) == (2 * LARGE, ["other"])
    assert claim.reach(2 * LARGE, lambda: None)
    assert not claim.reach(3 * LARGE, lambda: granted.append("claim"))
    other.drop()
    assert (room.held, granted) == (3 * LARGE, ["other", "claim"])
    claim.drop()
    assert room.held == 0


def test_users_have_rooms_of_their_own_and_those_in_use_are_remembered() -> None:
    rooms = UsersInboundBytes()
    room = rooms.of("ada")
    assert rooms.of("ada") is room
    assert rooms.of("eva") is not room
    del room
    assert len(rooms) == 0


async def test_space_is_waited_for() -> None:
    room = InboundBytes(LIMIT)
    await room.space()
    room.add(LIMIT)
    waiting = asyncio.create_task(room.space())
    await asyncio.sleep(0)
    assert not waiting.done()
    room.remove(1)
    await waiting
    assert room.held == LIMIT - 1
