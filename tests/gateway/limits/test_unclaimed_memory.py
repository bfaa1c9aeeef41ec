"""Strangers share one reserve: nobody takes what is not there, and everything comes back."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.unclaimed_memory import BorrowedBytes, UnclaimedMemory

OWN, SIZE, PEERS = 10, 100, 3
Step = tuple[int, int, int]


def test_what_is_small_borrows_nothing() -> None:
    reserve = UnclaimedMemory(SIZE)
    held = BorrowedBytes(reserve, OWN)
    assert held.set(4, unfinished=6)
    assert (held.total, reserve.left) == (4, SIZE)


def test_what_is_too_much_changes_nothing() -> None:
    reserve = UnclaimedMemory(SIZE)
    first, second = BorrowedBytes(reserve, OWN), BorrowedBytes(reserve, OWN)
    assert first.set(90)
    assert not second.set(5, unfinished=26)
    assert (second.total, reserve.left) == (0, 20)
    assert second.set(30)
    assert first.set(0)
    assert reserve.left == 80


@given(st.lists(st.tuples(st.integers(0, PEERS - 1), st.integers(0, 150), st.integers(0, 50))))
def test_the_reserve_is_what_is_not_borrowed_and_never_below_nothing(steps: list[Step]) -> None:
    reserve = UnclaimedMemory(SIZE)
    peers = [BorrowedBytes(reserve, OWN) for _ in range(PEERS)]
    model = [0] * PEERS
    for number, total, unfinished in steps:
        wanted = max(0, total + unfinished - OWN)
        fits = sum(model) - model[number] + wanted <= SIZE
        assert peers[number].set(total, unfinished) is fits
        if fits:
            model[number] = wanted
        assert reserve.left == SIZE - sum(model) >= 0
    for peer in peers:
        assert peer.set(0)
    assert reserve.left == SIZE
