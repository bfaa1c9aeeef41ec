"""Gates for long answers: so many at once for each user, the rest in order, and 429 in the end."""

import asyncio

import pytest
from starlette.requests import Request

from gateway.auth.tokens import Principal
from gateway.http.concurrency import ConcurrencyLimit
from gateway.protocol.errors import ApiError

pytestmark = pytest.mark.virtual_time


async def test_so_many_at_once_and_another_user_is_not_concerned() -> None:
    gates = ConcurrencyLimit(2, "readers", wait_seconds=10)
    await gates.enter_as("ada")
    leave = await gates.enter_as("ada")
    with pytest.raises(ApiError, match="this user has 2 readers open") as refused:
        await gates.enter_as("ada")
    assert (refused.value.status, refused.value.code) == (429, "too_many_readers")
    assert refused.value.headers == {"Retry-After": "5"}
    (await gates.enter_as("eva"))()
    leave()
    leave()  # once counts
    await gates.enter_as("ada")
    with pytest.raises(ApiError):
        await gates.enter_as("ada")


async def test_whoever_waits_comes_in_in_order() -> None:
    gates = ConcurrencyLimit(1, "readers", wait_seconds=60)
    leave = await gates.enter_as("ada")
    came: list[int] = []

    async def read(number: int) -> None:
        left = await gates.enter_as("ada")
        came.append(number)
        await asyncio.sleep(1)
        left()

    async with asyncio.TaskGroup() as readers:
        for number in range(5):
            readers.create_task(read(number))
        await asyncio.sleep(1)
        assert came == []
        leave()
    assert came == [0, 1, 2, 3, 4]
    assert len(gates) == 0, "nothing is remembered of who has left"


async def test_too_many_that_wait_are_refused_at_once() -> None:
    gates = ConcurrencyLimit(1, "readers", waiting=2)
    leave = await gates.enter_as("ada")
    waiting = [asyncio.create_task(gates.enter_as("ada")) for _ in range(2)]
    await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    with pytest.raises(ApiError):
        await gates.enter_as("ada")
    assert asyncio.get_running_loop().time() == began
    leave()
    (await waiting[0])()
    (await waiting[1])()
    assert len(gates) == 0


@pytest.mark.parametrize("order", ["given, then given up", "given up, then given", "given up", "too late"])
async def test_a_reader_that_gives_up_takes_no_place_with_it(order: str) -> None:
    """Also if the place is given in the very moment."""
    gates = ConcurrencyLimit(1, "readers")
    leave = await gates.enter_as("ada")
    waiting = asyncio.create_task(gates.enter_as("ada"))
    await asyncio.sleep(0)
    if order == "given, then given up":
        leave()
    if order != "too late":
        waiting.cancel()
    if order == "given up, then given":
        leave()
    await asyncio.wait([waiting])
    leave()
    assert len(gates) == 0
    (await gates.enter_as("ada"))()


def asked_by(user: str, shared: str = "") -> Request:
    return Request({"type": "http", "state": {"principal": Principal("user", user, session_id=shared)}})


async def test_all_guests_of_a_user_have_as_many_places_together_as_the_user_has() -> None:
    """Each shared session brought places of its own: a user got more of them by shares to themselves."""
    gates = ConcurrencyLimit(2, "readers", wait_seconds=10)
    for number in range(2):
        await gates.enter(asked_by("ada", f"s{number}"))
    with pytest.raises(ApiError, match="2 readers"):
        await gates.enter(asked_by("ada", "s2"))
    await gates.enter(asked_by("ada"))
    await gates.enter(asked_by("eva", "s3"))
