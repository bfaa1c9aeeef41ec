"""The one way into a session: in order, and counted."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gateway.limits.inbound_bytes import InboundBytes
from gateway.session.inbox import Inbox
from gateway.session.model.ports import SessionLimits

pytestmark = pytest.mark.virtual_time


class Asks:
    asking = 0


def inbox(**limits: Any) -> Inbox:
    return Inbox(replace(SessionLimits(), **limits), InboundBytes(1 << 20))


async def test_what_is_posted_is_dealt_with_in_order_by_one_task() -> None:
    box, seen, turns = inbox(), list[int](), 0
    waiting = asyncio.ensure_future(box.filled())
    for number in range(100):
        box.post(seen.append, number)
    await waiting
    while box.entries:
        box.take_turn()
        turns += 1
    assert seen == list(range(100))
    assert turns == 4, "others have a turn in between"


async def test_a_poster_waits_while_there_is_no_room() -> None:
    box, asks = inbox(inbox=3, inbox_bytes=100), Asks()
    box.count(asks)
    asks.asking = 2
    assert not box.crowded
    box.hear(60, lambda: None)
    in_numbers, asks.asking = box.crowded, 0
    box.hear(60, lambda: None)
    assert (in_numbers, box.crowded) == (True, True), "in numbers, and in bytes"
    waiting = asyncio.create_task(box.wait_for_room())
    await asyncio.sleep(1)
    assert not waiting.done()
    box.make_room()
    await asyncio.sleep(1)
    assert not waiting.done(), "there is none"
    box.take_turn()
    box.make_room()
    await waiting
    assert (box.room.held, box.crowded) == (0, False)


async def test_nobody_waits_for_a_session_that_has_ended() -> None:
    box, turned_away = inbox(inbox=1), list[tuple[Any, ...]]()
    box.hear(10, print, "never")
    crowd = asyncio.create_task(box.wait_for_room())
    box.post(print, "nor this")
    await asyncio.sleep(0)
    box.close(lambda handler, arguments: turned_away.append(arguments))
    await crowd
    box.post(print, "too late")
    box.hear(10, print, "unheard")
    assert (turned_away[-1], len(turned_away), box.room.held) == (("too late",), 3, 0)
