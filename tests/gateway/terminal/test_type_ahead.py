"""What is typed while there is no program to type to: what waits, for whom, and what is dropped."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from gateway.limits.inbound_bytes import InboundBytes
from gateway.terminal.type_ahead import FULL, GONE, MAX_BYTES, MAX_MESSAGES, NOT_STARTED, TypeAhead, is_typing


def ahead_of(program: str | None) -> TypeAhead:
    return TypeAhead(program, InboundBytes(1 << 24))


def test_what_is_typed_at_rest_goes_in_order_and_once_to_whichever_program_comes() -> None:
    ahead = ahead_of(None)
    assert ahead.at_rest(wanted=False) is None
    for key in (b"l", b"s", b"\r"):
        assert ahead.keep([key]) is None
    assert ahead.found("one") == ([b"l", b"s", b"\r"], None)
    assert ahead.found("two") == ([], None)


def test_what_is_typed_for_a_program_goes_to_that_program() -> None:
    ahead = ahead_of("one")
    ahead.keep([b"\x1b[5;7R", b"y"])
    assert ahead.found("one") == ([b"\x1b[5;7R", b"y"], None), "its questions are answered, too"


def test_what_is_typed_for_a_program_goes_to_no_other() -> None:
    ahead = ahead_of("one")
    ahead.keep([b"y"])
    assert ahead.found("two") == ([], GONE)
    ahead.keep([b"z"])
    assert ahead.found("two") == ([b"z"], None)


def test_what_is_typed_after_the_programs_end_was_told_goes_to_the_next() -> None:
    ahead = ahead_of("one")
    assert ahead.ended() is None
    ahead.keep([b"again"])
    assert ahead.ended() is None
    assert ahead.sandbox_lost() is None
    assert ahead.found("two") == ([b"again"], None)


def test_what_waits_for_a_program_is_dropped_at_its_end() -> None:
    ahead = ahead_of("one")
    ahead.keep([b"y"])
    assert ahead.ended() == GONE
    assert ahead.found("two") == ([], None)


def test_a_sandbox_that_dies_takes_along_what_was_typed_for_it_until_there_is_another_program() -> None:
    ahead = ahead_of("one")
    ahead.keep([b"y"])
    assert ahead.sandbox_lost() == GONE
    assert ahead.sandbox_lost() is None
    assert ahead.keep([b"\x1b[I"]) is None, "nobody typed that"
    assert ahead.keep([b"e"]) == GONE
    assert ahead.keep([b"s"]) is None, "it was told"
    assert ahead.found("two") == ([], None)
    ahead.keep([b"ls"])
    assert ahead.found("two") == ([b"ls"], None)


def test_a_session_that_comes_to_rest_drops_what_was_typed_for_its_program_and_takes_what_is_typed_then() -> None:
    ahead = ahead_of("one")
    ahead.keep([b"y"])
    assert ahead.at_rest(wanted=True) == GONE
    ahead.keep([b"ls"])
    assert ahead.found("two") == ([b"ls"], None)


def test_what_waits_for_a_start_is_dropped_when_that_was_asked_for_in_vain() -> None:
    ahead = ahead_of(None)
    ahead.keep([b"ls"])
    assert ahead.at_rest(wanted=False) is None, "nobody has asked yet"
    ahead.asked = True
    assert ahead.at_rest(wanted=True) is None, "the answer is not there yet"
    assert ahead.at_rest(wanted=False) == NOT_STARTED
    assert not ahead
    assert not ahead.asked


def test_nothing_is_told_where_nothing_waits() -> None:
    ahead = ahead_of("one")
    assert ahead.at_rest(wanted=False) is None
    ahead.asked = True
    assert ahead.at_rest(wanted=False) is None
    assert ahead_of("one").found("two") == ([], None)


def test_what_does_not_fit_is_refused_once_and_so_is_all_behind_it() -> None:
    ahead = ahead_of(None)
    assert ahead.keep([b"x" * (MAX_BYTES - 1)]) is None
    assert ahead.keep([b"y", b"rm -r /tmp/x", b"\r"]) == FULL
    assert ahead.keep([b"\r"]) is None
    assert ahead.found("one") == ([b"x" * (MAX_BYTES - 1), b"y"], None)
    assert ahead.keep([b"\r"]) is None
    assert len(ahead) == 1, "there is room again"


def test_a_first_message_is_taken_whatever_its_size() -> None:
    ahead = ahead_of(None)
    assert ahead.keep([b"x" * (1 << 20)]) is None
    assert ahead.keep([b"y"]) == FULL
    assert ahead.found("one") == ([b"x" * (1 << 20)], None)


def test_what_all_viewers_of_a_user_hold_is_bounded_but_for_what_each_may() -> None:
    room = InboundBytes(2 << 20)
    viewers = [TypeAhead(None, room) for _ in range(4)]
    assert [each.keep([b"x" * (1 << 20)]) for each in viewers] == [None, None, FULL, FULL]
    small = TypeAhead(None, room)
    assert small.keep([b"y" * MAX_BYTES]) is None
    assert room.held == (2 << 20) + MAX_BYTES
    assert small.keep([b"z"]) == FULL
    assert viewers[0].found("one")[0] != []
    for each in (*viewers, small):
        each.drop()
    assert room.held == 0
    assert viewers[2].keep([b"x" * (1 << 20)]) is None, "there is room again"


def test_messages_are_bounded_in_number() -> None:
    ahead = ahead_of(None)
    assert ahead.keep([b"x"] * MAX_MESSAGES) is None
    assert ahead.keep([b"x"]) == FULL
    assert len(ahead) == MAX_MESSAGES


@pytest.mark.parametrize("said", [b"", b"\x1b[I", b"\x1b[?1;2c", b"\x1b[5;7R", b"\x1b[<35;10;10M"], ids=repr)
def test_what_no_person_types_is_for_no_program_to_come(said: bytes) -> None:
    assert not is_typing(said)
    ahead = ahead_of(None)
    ahead.keep([b"l", said, b"s"])
    assert ahead.found("one") == ([b"l", b"s"], None)


class Typing(RuleBasedStateMachine):
    """Every message is numbered and knows which program was on the screen: it reaches that one or none, in order, and
    at most once."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = ahead_of(None)
        self.program: str | None = None
        self.dead = False
        self.number = 0
        self.programs = 0
        self.meant: dict[bytes, str | None] = {}
        self.last = -1

    @rule(size=st.integers(1, 40_000), times=st.integers(1, 3))
    def type(self, size: int, times: int) -> None:
        for _ in range(times):
            payload = b"%d," % self.number + b"x" * size
            self.number += 1
            self.meant[payload] = "nobody" if self.dead else self.program
            self.ahead.keep([payload])

    @rule(same=st.booleans())
    def find(self, same: bool) -> None:
        if not same or self.program is None or self.dead:
            self.programs += 1
            found = f"p{self.programs}"
        else:
            found = self.program
        for payload in self.ahead.found(found)[0]:
            assert self.meant[payload] in (None, found)
            number = int(payload.partition(b",")[0])
            assert number > self.last
            self.last = number
        self.program, self.dead = found, False

    @rule()
    def lose_the_sandbox(self) -> None:
        self.ahead.sandbox_lost()
        self.dead = self.program is not None

    @rule(asked=st.booleans(), wanted=st.booleans())
    def rest(self, asked: bool, wanted: bool) -> None:
        self.ahead.asked = asked
        self.ahead.at_rest(wanted=wanted)
        self.program, self.dead = None, False

    @rule()
    def end(self) -> None:
        self.ahead.ended()
        self.program, self.dead = None, False


TestTyping = Typing.TestCase
