"""How long a tunnel may be silent, on virtual time."""

import asyncio
from typing import Any

import pytest

from gateway.egress.forwarder import IDLE_SECONDS, both_ways
from gateway.egress.stream import ByteStream
from gateway.egress.turn_share import TurnShare

pytestmark = pytest.mark.virtual_time


class Wire(asyncio.Transport):
    """The network's end of a stream: keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def can_write_eof(self) -> bool:
        return False


def stream() -> tuple[ByteStream, Wire]:
    made, wire = ByteStream(), Wire()
    made.connection_made(wire)
    return made, wire


@pytest.mark.parametrize("busy", ["down", "up"])
async def test_a_tunnel_that_is_busy_one_way_stays_open_the_other_way(busy: str) -> None:
    (near, to_sandbox), (far, to_host) = stream(), stream()
    source, other = (far, near) if busy == "down" else (near, far)
    passing = asyncio.create_task(both_ways(near, far, TurnShare()))
    for _ in range(10):
        await asyncio.sleep(IDLE_SECONDS / 2)
        source.data_received(b"x")
    other.data_received(b"go on")
    await asyncio.sleep(1)
    assert {to_sandbox.written, to_host.written} == {b"x" * 10, b"go on"}
    assert not passing.done()
    began = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        await passing
    assert asyncio.get_running_loop().time() - began == pytest.approx(IDLE_SECONDS, abs=2)
