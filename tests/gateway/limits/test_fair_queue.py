"""The fair queue and its slots: so many at once, so many for one user, and the users in turn."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.limits.fair_queue import FairQueue
from gateway.session.workspace.fair_semaphore import FairSemaphore

USERS = st.sampled_from("abc")


class FairQueueMachine(RuleBasedStateMachine):
    """Against lists that are searched. `passed` counts, for each user who waits and may begin, whom others were."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[tuple[str, int]] = FairQueue(4, 2)
        self.asked = 0
        self.waiting: list[tuple[str, int]] = []
        self.under_way: list[tuple[str, int]] = []
        self.passed: dict[str, Counter[str]] = {}

    def may(self, user: str) -> bool:
        return sum(other == user for other, _ in self.under_way) < 2

    @rule(user=USERS)
    def ask(self, user: str) -> None:
        self.asked += 1
        self.waiting.append((user, self.asked))
        self.queue.ask((user, self.asked), user)
        self.begin()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(key)
        self.queue.leave(key)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def over(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.under_way))
        self.under_way.remove(key)
        self.queue.over(key)
        self.begin()

    def begin(self) -> None:
        while (begun := self.queue.next()) is not None:
            key, user = begun
            assert user == key[0]
            assert self.may(user)
            assert key == next(other for other in self.waiting if other[0] == user)
            for other in {other for other, _ in self.waiting} - {user}:
                if self.may(other):
                    self.passed.setdefault(other, Counter())[user] += 1
                    assert self.passed[other][user] <= 1, f"{user} twice before {other}"
            self.passed.pop(user, None)
            self.waiting.remove(key)
            self.under_way.append(key)
        self.passed = {user: passed for user, passed in self.passed.items() if any(u == user for u, _ in self.waiting)}

    @invariant()
    def nobody_waits_who_may_go(self) -> None:
        assert len(self.under_way) <= 4
        assert len(self.under_way) == 4 or not any(self.may(user) for user, _ in self.waiting)


TestFairQueue = FairQueueMachine.TestCase


@given(st.lists(USERS, max_size=20))
def test_one_at_a_time_the_users_take_turns(asked: list[str]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue(1, 1)
    for number, user in enumerate(asked):
        queue.ask((user, number), user)
    order = []
    while (begun := queue.next()) is not None:
        assert queue.next() is None
        order.append(begun[0])
        queue.over(begun[0])
    ranks = Counter[str]()
    by_turn = []
    for number, user in enumerate(asked):
        by_turn.append((ranks[user], asked.index(user), number))
        ranks[user] += 1
    assert [number for _, number in order] == [number for _, _, number in sorted(by_turn)]


async def test_a_slot_comes_in_turn_and_is_given_back_by_whoever_is_cancelled() -> None:
    slots, went = FairSemaphore(1), list[str]()
    held = asyncio.Event()

    async def go(user: str, *, hold: bool = False) -> None:
        async with slots.of(user):
            went.append(user)
            if hold:
                await held.wait()

    first = asyncio.create_task(go("a", hold=True))
    await asyncio.sleep(0)
    others = [asyncio.create_task(go(user)) for user in ("a", "a", "b")]
    await asyncio.sleep(0)
    others[0].cancel()  # while it waits
    await asyncio.sleep(0)
    held.set()
    await first
    others[2].cancel()  # b's turn has come in the same moment
    results = await asyncio.gather(*others, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [True, False, True]
    assert went == ["a", "a"]


@pytest.mark.parametrize("most", [1, 2, 8])
async def test_one_user_has_half_of_them(most: int) -> None:
    slots, most_of_one = FairSemaphore(most), max(1, most // 2)
    under_way, peak, may_end = Counter[str](), Counter[str](), asyncio.Event()

    async def go(user: str) -> None:
        async with slots.of(user):
            under_way[user] += 1
            peak[user] = max(peak[user], under_way[user])
            await may_end.wait()
            under_way[user] -= 1

    tasks = [asyncio.create_task(go(user)) for user in ["a"] * 20 + ["b"]]
    for _ in range(5):
        await asyncio.sleep(0)
    assert under_way == Counter({"a": most_of_one, "b": 1 if most > 1 else 0})
    may_end.set()
    await asyncio.gather(*tasks)
    assert peak["a"] == most_of_one
