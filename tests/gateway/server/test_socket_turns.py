"""Sockets of one user take turns: in the order of waiting, no more than the allowance has, and none is left out."""

import asyncio
from typing import cast

import pytest

from gateway.config.loading import load_settings
from gateway.limits.allowance import TURN, WAITING_BYTES, Allowance, Throttled
from gateway.limits.rate import Budget
from gateway.server.app_queue import AppQueue, Writable
from gateway.server.front_door import FrontDoor
from gateway.server.message_socket import MessageSocket
from gateway.server.socket_turns import Clock, SocketTurns

pytestmark = pytest.mark.virtual_time


class Socket:
    def __init__(self, turns: SocketTurns, name: str, seen: list[str], *, weight: int = TURN, times: int = 1) -> None:
        self.turns, self.name, self.seen, self.weight, self.times = turns, name, seen, weight, times
        self.reading = True
        turns.join(self)

    def take_turn(self) -> None:
        self.seen.append(f"{self.turns.clock.turn} {self.name}")
        self.turns.allowance.left -= self.weight
        self.turns.allowance.frames += self.weight
        self.times -= 1
        if self.times:
            self.turns.wait(self, 1)

    def set_reading(self) -> None:
        self.reading = not self.turns.shut


def made(rate: float = 1e9) -> tuple[SocketTurns, list[str]]:
    loop, gone = asyncio.get_running_loop(), list[str]()
    allowance = Allowance(Budget(rate, 2 * rate, loop.time()), Budget(1e9, 1e9, loop.time()), Throttled())
    return SocketTurns(loop, Clock(loop), allowance, lambda: gone.append("forgotten")), gone


async def test_who_wants_more_is_served_in_order_a_turn_each() -> None:
    turns, _ = made()
    seen: list[str] = []
    for name in "abc":
        turns.wait(Socket(turns, name, seen, times=2), 1)
    await asyncio.sleep(1)
    assert [each.split()[1] for each in seen] == ["a", "b", "c", "a", "b", "c"]
    assert len({each.split()[0] for each in seen}) == 6, "each had a turn of its own"
    assert turns.allowance.waiting == 0


async def test_several_fit_a_turn_that_do_not_weigh_much() -> None:
    turns, _ = made()
    seen: list[str] = []
    for name in "abcd":
        turns.wait(Socket(turns, name, seen, weight=TURN // 2), 1)
    await asyncio.sleep(1)
    assert [each.split()[1] for each in seen] == ["a", "b", "c", "d"]
    assert len({each.split()[0] for each in seen}) == 2


async def test_who_has_overspent_goes_on_when_that_is_paid() -> None:
    turns, _ = made(rate=TURN)
    seen: list[str] = []
    turns.wait(Socket(turns, "a", seen, times=5), 1)
    await asyncio.sleep(0.5)
    first = len(seen)
    assert 2 <= first < 5
    await asyncio.sleep(10)
    assert len(seen) == 5


async def test_while_too_much_waits_nobody_is_read() -> None:
    turns, _ = made()
    seen: list[str] = []
    one, other = Socket(turns, "one", seen), Socket(turns, "other", seen)
    turns.wait(one, WAITING_BYTES + 1)
    assert (one.reading, other.reading) == (False, False)
    await asyncio.sleep(1)
    assert (one.reading, other.reading) == (True, True)


async def test_what_waits_for_something_else_counts_likewise() -> None:
    turns, _ = made()
    one, other = Socket(turns, "one", []), Socket(turns, "other", [])
    turns.hold(one, WAITING_BYTES)
    assert (one.reading, other.reading) == (True, True)
    turns.hold(one, WAITING_BYTES + 1)
    assert (one.reading, other.reading) == (False, False)
    turns.let_go(one)
    turns.let_go(one)
    assert (one.reading, other.reading) == (True, True)
    turns.hold(one, WAITING_BYTES + 1)
    turns.leave(one)
    assert (other.reading, turns.allowance.waiting) == (True, 0)


async def test_who_leaves_is_not_served_and_the_last_one_is_the_end() -> None:
    turns, gone = made()
    seen: list[str] = []
    one, other = Socket(turns, "one", seen), Socket(turns, "other", seen)
    turns.wait(one, WAITING_BYTES + 1)
    turns.wait(other, 1)
    turns.leave(one)
    assert other.reading
    assert not gone
    turns.leave(other)
    turns.leave(other)
    assert gone == ["forgotten"]
    await asyncio.sleep(1)
    assert seen == []


async def test_a_clock_that_nobody_needs_stands_still() -> None:
    turns, _ = made()
    turns.begin(0)
    await asyncio.sleep(1)
    assert turns.clock.turn == 0
    turns.clock.keep_ticking()
    await asyncio.sleep(1)
    assert turns.clock.turn == 1


async def test_who_is_known_and_then_refused_leaves_no_turns_behind() -> None:
    door = FrontDoor(load_settings({}))
    socket = MessageSocket(cast(asyncio.Transport, None), door, set(), AppQueue(), Writable())
    socket.charge_to("ada")
    assert not door._turns
