"""The object store fails a third of all requests, then all of them, while files are edited without a pause. Nothing
is reported as kept that is not, nobody is thrown out, and everything is kept soon after."""

import asyncio
import json
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from websockets.asyncio.client import ClientConnection

from tests.campaign.size import seeded, sized
from tests.campaign.sync.arena import PATIENCE, Described, Kept, SyncArena, arena_on
from tests.campaign.sync.cupboards import Bucket
from tests.support.faulty_s3 import FaultyS3
from tests.support.launcher import Launcher
from tests.support.s3 import S3Server
from tests.support.trees import differences
from tests.support.waiting import until

BUSY, LOST = 0.25, 0.05  # together 30 %
AMPLIFICATION = 1.5
REQUESTS_A_ROUND = 6  # marks, pointer, a pack or two, manifest, pointer
# Changes are reported by hints, one a second; on a busy machine they come late.
HINT_SECONDS = 5.0


class Stratified(Random):
    """Of every twenty numbers it draws, one is in each twentieth: a share of them is that share, and not by luck."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._left: list[float] = []

    def random(self) -> float:
        if not self._left:
            self._left = [(place + 0.5) / 20 for place in range(20)]
            self.shuffle(self._left)
        return self._left.pop()

    def getrandbits(self, k: int, /) -> int:  # the source of `shuffle`: not our `random`
        return super().getrandbits(k)


@dataclass
class Watched:
    """One session under continuous edits, and all reports about it."""

    session: Kept
    written: list[float] = field(default_factory=list)  # when number n was in the file, from 1
    shown: list[tuple[float, Described]] = field(default_factory=list)  # when each was read
    answered: list[tuple[int, int]] = field(default_factory=list)  # the number that was there before, the generation
    frames: list[Described] = field(default_factory=list)

    async def edit(self) -> None:
        while True:
            session = self.session
            session.write(f"file{session.rng.randrange(30)}", session.rng.randbytes(session.rng.randrange(20_000)))
            session.write("next", b"%d" % (len(self.written) + 1))
            (session.home.workspace / "next").rename(session.home.workspace / "number")
            self.written.append(time.monotonic())
            await asyncio.sleep(0.03)

    async def look(self) -> None:
        while True:
            asked = time.monotonic()
            self.shown.append((asked, (await self.session.status())["sync"]))
            await asyncio.sleep(0.05)

    async def ask(self) -> None:
        """A client that reads the status now and then."""
        while True:
            before = len(self.written)
            answer = await self.session.ask("POST", "/sync", json={})
            assert answer is not None
            if answer.status_code == 200:
                self.answered.append((before, answer.json()["sync"]["generation"]))
            await asyncio.sleep(self.session.rng.uniform(0, 1))

    async def watch(self, socket: ClientConnection) -> None:
        async for frame in socket:
            self.frames.append(json.loads(frame))
        raise AssertionError("the socket was closed")

    def told(self, status: str) -> int:
        return sum(frame.get("status") == status for frame in self.frames if frame["type"] == "session_status")

    async def check(self, arena: SyncArena) -> None:
        """Everything reported as kept is in the reported generation."""
        claims = list(self.answered)
        for asked, sync in self.shown:
            if not sync["dirty"]:
                claims.append((sum(at < asked - HINT_SECONDS for at in self.written), sync["generation"]))
            elif sync["state"] == "idle":
                self.session.ledger.says(f"dirty and idle at once: {sync}")
        numbers = {0: 0}
        async with arena.gateway.http() as client:
            for generation in sorted({generation for _, generation in claims} - {0}):
                address = f"/files/{self.session.id}/number?generation={generation}"
                answer = await client.get(address)
                assert answer.status_code in (200, 404), answer.text
                numbers[generation] = int(answer.text) if answer.status_code == 200 else 0
        for number, generation in claims:
            if numbers[generation] < number:
                self.session.ledger.says(f"clean too early: {number} is not in {generation}: {numbers[generation]}")


async def _failures(arena: SyncArena) -> int:
    async with arena.gateway.http(arena.gateway.admin) as client:
        text = (await client.get("/metrics")).text
    return int(float(text.partition("\nholdfast_sync_failures_total ")[2].split()[0]))


async def _kept_soon(watched: list[Watched]) -> float:
    """The time until all edits are kept."""
    began = time.monotonic()
    for each in watched:
        await each.session.until(lambda told: not told["sync"]["dirty"], "clean")
    return time.monotonic() - began


async def _bad_days(arena: SyncArena, faults: FaultyS3, watched: list[Watched], requests: int) -> dict[str, object]:
    """A third of so many requests fails, then all of them until everybody is told; returns some figures."""
    before, harmed, failed = faults.requests, faults.harmed, await _failures(arena)
    faults.busy, faults.loses = BUSY, LOST
    await until(lambda: faults.requests - before >= requests, f"{requests} requests", 300)
    faults.heal()
    seen, harmed, failed = faults.requests - before, faults.harmed - harmed, await _failures(arena) - failed
    needed = seen - harmed - failed * REQUESTS_A_ROUND
    assert seen <= needed * AMPLIFICATION, f"seed={arena.seed}: {seen} requests for what takes {needed}"
    faults.busy = 1.0
    for each in watched:
        await each.session.until(lambda told: told["sync"]["state"] == "failed", "failed")
    await until(lambda: all(each.told("sync_failed") for each in watched), "all are told", within=PATIENCE)
    faults.heal()
    return {
        "requests": seen, "failed": f"{harmed / seen:.1%}", "amplification": f"{seen / needed:.2f}",
        "attempts given up": failed,
    }  # fmt: skip


@pytest.mark.soak
async def test_a_third_of_all_requests_fails_then_all_of_them(tmp_path: Path, s3_server: S3Server) -> None:
    seed, rng = seeded()
    async with (
        FaultyS3(s3_server.port, Stratified(seed)) as faults,
        Launcher() as launcher,
        arena_on(
            tmp_path, Bucket(s3_server, s3_server.make_place(), faults.port), seed, rng, launcher=launcher,
            SNAPSHOT_KEEP=10_000, SYNC_ATTEMPTS=2,
        ) as arena,
        AsyncExitStack() as sockets,
    ):  # fmt: skip
        watched = [Watched(await arena.create(f"s{number}")) for number in range(3)]
        chats = [await sockets.enter_async_context(arena.gateway.chat(each.session.id)) for each in watched]
        async with asyncio.TaskGroup() as everybody:
            watching = [everybody.create_task(each.watch(chat)) for each, chat in zip(watched, chats, strict=True)]
            watching += [everybody.create_task(each.look()) for each in watched]
            editing = [everybody.create_task(work) for each in watched for work in (each.edit(), each.ask())]
            figures = await _bad_days(arena, faults, watched, sized(700, 3000))
            for task in editing:
                task.cancel()
            converged = await _kept_soon(watched)
            await until(lambda: all(each.told("sync_recovered") for each in watched), "all are told", within=PATIENCE)
            assert not any(task.done() for task in watching), "somebody was thrown out"
            for task in watching:
                task.cancel()
        for each in watched:
            await each.session.sync()
            _, stored = await each.session.stored()
            assert not differences(stored, each.session.disk)
            await each.check(arena)
            assert each.answered, f"seed={seed}: nobody was answered"
        arena.acquit(
            "30 % of S3 requests fail",
            seconds=sized(15, 60),
            **figures,
            edits=sum(len(each.written) for each in watched),
            answers=sum(len(each.answered) for each in watched),
            looks=sum(len(each.shown) for each in watched),
            clean=sum(not sync["dirty"] for each in watched for _, sync in each.shown),
            converged=f"{converged:.1f} s",
        )
