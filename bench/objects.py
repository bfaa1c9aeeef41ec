"""The claim: `obstore`, on which the S3 adapter is built, moves small and medium objects in less time and with less CPU
than aioboto3.

Both move 16 objects at once, of the same sizes, to the same server (SeaweedFS, on the other core), in turns. Both sign
the payload's hash; ours also sends it as a checksum. The peer has its own environment below `.venv-peers`, made at the
first run, because aioboto3 pins its dependencies too strictly to share one.
"""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from bench.figures import Figure
from bench.peers import environment
from bench.processes import END_SECONDS, LOAD, REPOSITORY, UNDER_TEST, pin
from bench.rounds import OURS, Measure, take_turns
from tests.support.s3 import S3Place, S3Server

PEER = "aioboto3"
AT_ONCE = 16
REQUIREMENTS = (PEER, "uvloop")


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    size: int
    count: int


SMALL, MEDIUM = Load("4 KiB", 4 << 10, 400), Load("4 MiB", 4 << 20, 16)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one object: wall and CPU time, in milliseconds."""

    wall: float
    cpu: float


async def run(*, quick: bool) -> list[Figure]:
    python = await asyncio.to_thread(environment, PEER, *REQUIREMENTS) / "python"
    pin(0, UNDER_TEST)  # children inherit the core
    with S3Server() as server:
        pin(0, LOAD)
        place = server.make_bucket()
        with Peer(python, place) as peer:
            return await compare(place, peer, rounds=2 if quick else 6)


async def compare(place: S3Place, peer: "Peer", *, rounds: int) -> list[Figure]:
    async with place.objects() as store:
        steps: list[dict[str, Measure]] = []
        for load in (SMALL, MEDIUM):
            content = os.urandom(load.size)
            for doing, do in (
                ("put", lambda key, content=content: store.put(key, content)),
                ("get", lambda key: store.get(key)),
            ):
                ours, theirs = _ours(load, doing, do), _theirs(load, doing, peer)
                steps.append({OURS: ours, PEER: theirs})
                await ours()  # the objects to read must exist, and first calls are slower
                await theirs()
        found = await take_turns(rounds, steps, Random())
    return [found.figure(step, PEER, "ms", less_is_better=True) for step in sorted(found.steps())]


def _ours(load: Load, doing: str, do: Callable[[str], Awaitable[object]]) -> Measure:
    async def measure() -> Mapping[str, float]:
        return _values(load, doing, await timed(load, do))

    return measure


def _theirs(load: Load, doing: str, peer: "Peer") -> Measure:
    async def measure() -> Mapping[str, float]:
        return _values(load, doing, await asyncio.to_thread(peer.do, doing, load))

    return measure


def _values(load: Load, doing: str, cost: Cost) -> dict[str, float]:
    claim = f"{doing} of {load.name}, {AT_ONCE} at once"
    return {f"{claim}: time per object": cost.wall, f"{claim}: CPU per object": cost.cpu}


async def timed(load: Load, do: Callable[[str], Awaitable[object]]) -> Cost:
    """The cost of `count` objects, `AT_ONCE` at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with slots:
            await do(f"ours/{load.size}/{number}")

    began, cpu_began = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(one, range(load.count)))
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    return Cost(wall / load.count * 1000, cpu / load.count * 1000)


class Peer:
    """The same work by `bench/objects_peer.py` in its own environment. Requests go over a pipe."""

    def __init__(self, python: Path, place: S3Place) -> None:
        self._process = subprocess.Popen(
            [str(python), "-m", "bench.objects_peer", place.endpoint, place.bucket, str(AT_ONCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            env={"PATH": os.environ.get("PATH", ""), **place.environ},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def do(self, doing: str, load: Load) -> Cost:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([doing, load.size, load.count]).encode() + b"\n")
        self._process.stdin.flush()
        wall, cpu = json.loads(self._process.stdout.readline())
        return Cost(wall / load.count * 1000, cpu / load.count * 1000)
