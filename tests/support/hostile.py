"""Shared by the tests with hostile clients: connections to a door, and a watch on its memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import httpx

from tests.support.front_door import SECRETS, Door, token
from tests.support.raw_client import RawClient

MIB = 1 << 20
TEXT, BINARY, PING, PONG, CLOSE = 1, 2, 9, 10, 8
AUTH = f"Authorization: Bearer {token()}"
RELAY = f"X-Relay-Secret: {SECRETS['HOLDFAST_RELAY_SECRET']}"
IMPATIENT = {  # they count also while the test may not run, and hold for the well-behaved connections of a test
    "head_seconds": 3.0,
    "body_seconds": 3.0,
    "auth_seconds": 3.0,
    "ping_after": 1.0,
    "dead_after": 6.0,
    "stall_seconds": 3.0,
    "close_seconds": 3.0,
    "sweep_seconds": 0.1,
}


def warm_up(door: Door) -> None:
    with httpx.Client(base_url=door.address) as client:
        for _ in range(50):
            assert client.get("/health").status_code == 200
        name, _, value = AUTH.partition(": ")
        with client.stream("GET", "/files/s/big", headers={name: value}) as answer:  # loads what streams need
            assert next(answer.iter_bytes())


@asynccontextmanager
async def raw(door: Door) -> AsyncIterator[RawClient]:
    async with asyncio.timeout(60), await RawClient.connect(door.host, door.port) as client:
        yield client


@asynccontextmanager
async def opened(door: Door, path: str = "/ws/v2?sessionId=s", *headers: str) -> AsyncIterator[RawClient]:
    async with raw(door) as client:
        yield await client.open(path, AUTH, *headers)


async def assert_healthy(door: Door) -> None:
    async with httpx.AsyncClient(base_url=door.address, timeout=20) as client:
        assert (await client.get("/health")).status_code == 200


class Resident(Protocol):
    @property
    def rss(self) -> int: ...


class Memory:
    """The server's growth while a block runs, sampled."""

    def __init__(self, door: Resident) -> None:
        self.door = door
        self.before = self.peak = door.rss

    @property
    def growth(self) -> int:
        return self.peak - self.before

    async def watch(self) -> None:
        while True:
            self.peak = max(self.peak, self.door.rss)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def memory(door: Resident, bound: int) -> AsyncIterator[Memory]:
    seen = Memory(door)
    watching = asyncio.create_task(seen.watch())
    try:
        yield seen
        await asyncio.sleep(0)
        seen.peak = max(seen.peak, door.rss)
    finally:
        watching.cancel()
    assert seen.growth <= bound, f"grew by {seen.growth / MIB:.1f} MiB"


async def send_until_refused(client: RawClient, data: bytes, times: int) -> int:
    """How many of `times` sends went through before the server had enough."""
    for sent in range(times):
        try:
            await client.send(data)
        except OSError:
            return sent
        if client.reader.at_eof():
            return sent
    return times
