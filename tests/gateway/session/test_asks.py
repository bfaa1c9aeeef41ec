"""Who asked is answered once, also when the session ends."""

import asyncio
from typing import Any

import pytest

from gateway.protocol.errors import ApiError
from gateway.session.asks import Asks

pytestmark = pytest.mark.virtual_time


async def test_who_asked_is_answered_once() -> None:
    asks = Asks()
    first, answered = asks.open("note")
    assert asks.note(first) == "note"
    asks.answer(first, 7)
    asks.refuse(first, OSError("too late"))
    asks.answer(first)
    assert await answered == 7
    asks.close(first)
    assert asks.note(first) is None
    asks.answer(first)
    asks.close(first)


async def test_what_is_asked_goes_with_its_number_and_the_answer_comes_back() -> None:
    asks, posted = Asks(), list[tuple[Any, ...]]()

    def post(handler: Any, *arguments: Any) -> None:
        posted.append(arguments)
        handler(*arguments)

    assert await asks.have(post, lambda ask, word: asks.answer(ask, word.upper()), "yes") == "YES"
    with pytest.raises(OSError, match="no"):
        await asks.have(post, lambda ask: asks.refuse(ask, OSError("no")))
    assert posted == [(1, "yes"), (2,)]


async def test_nobody_waits_for_a_session_that_has_ended() -> None:
    asks = Asks()
    (first, refused), (_, left) = asks.open(), asks.open()
    asks.refuse(first, OSError("injected"))
    asks.end()
    outcomes = await asyncio.gather(refused, left, return_exceptions=True)
    injected, failed = outcomes
    assert isinstance(injected, OSError)
    assert isinstance(failed, ApiError)
    assert failed.code == "session_failed"
    with pytest.raises(ApiError):
        asks.open()
