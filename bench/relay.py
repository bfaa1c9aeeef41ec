"""What a chat message through Holdfast costs, with it and its answer durably stored, beside what the usual relay pays
for only passing it on.

Both stand between the same browsers (bench/load.py) and the same stand-in (bench/standin.py), which answers each
message with chunk, chunk, done. One core for what is measured, the other for all else; rounds of the two alternate.
CPU is that of the whole process, SQLite's thread included. The usual relay is bench/peer.py; it stores nothing.
"""

import asyncio
import contextlib
import sqlite3
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import jwt

from bench.figures import Figure
from bench.load import Crowd, LoadFailed, Target, handshake, quantile, side_by_side
from bench.persistence import alone
from bench.processes import LOAD, UNDER_TEST, WIDE_LIMITS, Program, raise_descriptor_limit

PEER = "usual relay"
SECRET = "a-secret-that-guards-nothing-but-this-benchmark"
SESSIONS = 64
USERS = 128  # a user may have 100 connections
SETTLE_SECONDS = 2.0
COMMIT_SECONDS = 1.0  # for a look at what the disk takes at this hour


class Bench:
    """One run: a directory, a stand-in, and the figures so far."""

    def __init__(self, directory: Path, standin: Program, *, quick: bool) -> None:
        self._directory = directory
        self._standin = standin
        self._quick = quick
        self._homes = 0
        expires = time.time() + 3600
        self._tokens = [
            jwt.encode({"userId": f"u{n}", "email": f"u{n}@example.com", "exp": expires}, SECRET, algorithm="HS256")
            for n in range(USERS)
        ]

    @contextlib.contextmanager
    def gateway(self) -> Iterator[tuple[Program, Target]]:
        """A fresh Holdfast; at its end every record it acknowledged must be in its database."""
        self._homes += 1
        home = self._directory / f"holdfast-{self._homes}"
        env = {
            "HOLDFAST_DATA_DIR": str(home),
            "HOLDFAST_PORT": "0",
            "HOLDFAST_JWT_SECRET": SECRET,
            "HOLDFAST_CREATE_ON_ATTACH": "1",
            **WIDE_LIMITS,
        }
        log = self._directory / "gateway.log"
        with Program("gateway_under_test", self._standin.port, core=UNDER_TEST, log=log, env=env) as program:
            yield program, Target(program.port, self._ask_holdfast)

    def _ask_holdfast(self, number: int) -> bytes:
        return handshake(f"/ws/v2?sessionId=s{number}", self._tokens[number % USERS])

    @contextlib.contextmanager
    def peer(self) -> Iterator[tuple[Program, Target]]:
        log = self._directory / "peer.log"
        with Program("peer", self._standin.port, core=UNDER_TEST, log=log) as program:
            yield program, Target(program.port, lambda number: handshake("/ws/v2", None))

    def stored(self) -> int:
        """Records in the newest gateway's database."""
        path = self._directory / f"holdfast-{self._homes}" / "holdfast.db"
        with contextlib.closing(sqlite3.connect(path)) as database:
            (count,) = database.execute("SELECT count(*) FROM messages").fetchone()
        return int(count)

    # -- the three claims ---------------------------------------------------------------------------------------------

    async def throughput(self) -> list[Figure]:
        rounds, seconds = (1, 2.0) if self._quick else (3, 2.5)
        depths = (1, 4)
        found: dict[int, list[tuple[float, float]]] = {depth: [] for depth in depths}
        kept = 0
        with self.gateway() as (ours, our_port), self.peer() as (theirs, their_port):
            async with Crowd(our_port, SESSIONS) as our_crowd, Crowd(their_port, SESSIONS) as their_crowd:
                for _ in range(rounds):
                    for depth in depths:
                        answered, cost = await our_crowd.in_turns(depth, seconds, ours.cpu_seconds)
                        passed_on, their_cost = await their_crowd.in_turns(depth, seconds, theirs.cpu_seconds)
                        kept += answered
                        found[depth].append((answered / cost, passed_on / their_cost))
            if self.stored() < 2 * kept:
                raise LoadFailed(f"{kept} messages were answered, but only {self.stored()} records are stored")
        return [
            _median(f"messages per CPU-second, {SESSIONS} sessions, {depth} in flight each", "messages", found[depth])
            for depth in depths
        ]

    async def latency(self) -> list[Figure]:
        """The three take turns, so that whatever disturbs one disturbs all."""
        seconds, rate = (6.0 if self._quick else 15.0), 100.0
        direct = Target(self._standin.port, lambda number: handshake("/plain", None))
        with self.gateway() as (_, our_port), self.peer() as (_, their_port):
            async with (
                Crowd(direct, SESSIONS) as straight,
                Crowd(our_port, SESSIONS) as our_crowd,
                Crowd(their_port, SESSIONS) as their_crowd,
            ):
                took = await side_by_side((straight, our_crowd, their_crowd), rate, seconds)
        commits = (await alone(self._directory / "commits.db", COMMIT_SECONDS)).rate
        figures = []
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            floor, ours, theirs = (quantile(latencies, share) * 1e3 for latencies in took)
            note = f"from the message to its `done`; straight to the stand-in {floor:.2f} ms"
            if name == "p50":
                note += (
                    f"; ours has two commits in it, one after the other, and a bare one takes {1e3 / commits:.2f} ms"
                )
            claim = f"added latency {name}, {rate / 3:.0f} messages/s each"
            figures.append(Figure(claim, PEER, "ms", ours - floor, theirs - floor, less_is_better=True, note=note))
        return figures

    async def memory(self) -> list[Figure]:
        sessions = min(1000 if self._quick else 5000, (raise_descriptor_limit() - 200) // 2)
        cost = []
        for start in (self.gateway, self.peer):
            with start() as (program, target):
                async with Crowd(target, min(SESSIONS, sessions)):
                    await asyncio.sleep(SETTLE_SECONDS / 2)
                    empty = program.pss_kib()
                    async with Crowd(_from(target, SESSIONS), sessions):
                        await asyncio.sleep(SETTLE_SECONDS)
                        cost.append((program.pss_kib() - empty) / sessions)
        claim = f"memory per idle session, {sessions:,} sessions"
        note = "after one message and its answer each; PSS of the process"
        return [Figure(claim, PEER, "KiB", cost[0], cost[1], less_is_better=True, note=note)]


def _from(target: Target, first: int) -> Target:
    return Target(target.port, lambda number: target.request(first + number))


def _median(
    claim: str, unit: str, rounds: list[tuple[float, float]], *, less_is_better: bool = False, note: str = ""
) -> Figure:
    ours, theirs = (statistics.median(side) for side in zip(*rounds, strict=True))
    return Figure(claim, PEER, unit, ours, theirs, less_is_better, tuple(rounds), note)


async def run(*, quick: bool) -> list[Figure]:
    raise_descriptor_limit()
    with TemporaryDirectory(prefix="holdfast-bench-") as name:
        directory = Path(name)
        with Program("standin", core=LOAD, log=directory / "standin.log") as standin:
            bench = Bench(directory, standin, quick=quick)
            return [*await bench.throughput(), *await bench.latency(), *await bench.memory()]
