"""A timer for peers hears what came in time, however late the loop is."""

import asyncio
import socket
import time

from gateway.server.peer_timer import PeerTimer


class _Peer(asyncio.Protocol):
    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def data_received(self, data: bytes) -> None:
        self._seen.append("heard")


async def test_what_came_while_the_loop_was_busy_is_heard_before_the_timer() -> None:
    loop, seen = asyncio.get_running_loop(), list[str]()
    ours, theirs = socket.socketpair()
    over = asyncio.Event()

    def due() -> None:
        seen.append("due")
        over.set()

    transport, _ = await loop.create_connection(lambda: _Peer(seen), sock=ours)
    with theirs:
        PeerTimer(loop, 0.05, due)
        theirs.send(b"x")
        time.sleep(0.2)  # the loop is busy until long after the time is over
        await over.wait()
    transport.close()
    assert seen == ["heard", "due"]


async def test_a_timer_that_is_cancelled_does_not_fire_however_far_it_has_come() -> None:
    loop, fired = asyncio.get_running_loop(), list[int]()
    for turns in range(4):
        timer = PeerTimer(loop, 0, lambda turns=turns: fired.append(turns))  # type: ignore[misc]
        for _ in range(turns):
            await asyncio.sleep(0)
        timer.cancel()
    await asyncio.sleep(0.05)
    assert len(fired) <= 1
