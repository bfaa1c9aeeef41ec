"""Whole lives of a spooled store on virtual time: outages, lost replies, slow and busy stores, full disks, crashes.

Each life has some users who write through the queue, some who read, a remote store that misbehaves, and a crash at any
moment. The next life has only what was durable. Every write carries its number in the session's state, so the test can
check what was kept: a prefix of what was sent, at least up to the last confirmed write, and nothing else.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from msgspec.structs import replace

from persistence.errors import StoreBusy, StoreUnavailable
from persistence.listener import NobodyListens
from persistence.memory import MemoryStore
from persistence.queue.backlog import QueueLimits
from persistence.queue.queue import PersistenceQueue
from persistence.record import Dead, Duplicate, Outcome, Record, Session, Spooled, Status, Stored, Write
from persistence.spool.store import SpooledStore
from tests.support.faults import FlakyStore
from tests.support.memory_spool import Disk, MemorySpool
from tests.support.virtual_time import VirtualTimeLoop

SESSIONS = ("a", "b", "c", "d")
RUNS = 1_000 if os.environ.get("HOLDFAST_TEST_SOAK") else 60
MARKED: dict[str, type] = {"duplicate": Duplicate, "rejected": Dead}  # what a marker of that type was told as
EVERYTHING = 10**9

FAULTS = ("ok", "slow", "away", "lost reply", "slow and lost", "busy", "hangs")


class Moody(FlakyStore):
    """Misbehaves by `mood`, the weights of FAULTS. Notices if it is given two batches at once."""

    def __init__(self, inner: MemoryStore, rng: Random) -> None:
        super().__init__(inner)
        self.mood: Sequence[float] = (1, 0, 0, 0, 0, 0, 0)
        self.seen: dict[str, int] = dict.fromkeys(FAULTS, 0)
        self._rng = rng
        self._has_batch = False

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        assert not self._has_batch, "two batches at once"
        self._has_batch = True
        try:
            (fault,) = self._rng.choices(FAULTS, self.mood)
            self.seen[fault] += 1
            return await self._misbehave(fault, writes)
        finally:
            self._has_batch = False

    async def _misbehave(self, fault: str, writes: Sequence[Write]) -> list[Outcome]:
        if fault == "hangs":
            await asyncio.sleep(self._rng.uniform(5, 40))
        if fault.startswith("slow"):
            await asyncio.sleep(self._rng.uniform(0, 1))
        if fault in ("away", "hangs"):
            raise StoreUnavailable(fault)
        if fault == "busy" and writes:
            raise StoreBusy(fault, frozenset({self._rng.choice(writes).session_id}))
        outcomes = await self.inner.commit(writes)
        if fault.endswith("lost") or fault.startswith("lost"):
            raise StoreUnavailable(fault)
        return outcomes


@dataclass
class Conversation:
    """What one session's writer has sent and been told."""

    sent: list[Write] = field(default_factory=list)  # in all lives, but what is known not to have been kept
    told: int = 0  # how many of them were told Stored or Spooled
    last_told: int = 0  # the last seq that was told
    last_seq: int = 0
    fence: int = 0
    unsettled: list[int] = field(default_factory=list)  # seqs told Spooled in this life, in order


class World(NobodyListens):
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = Disk()
        self.kept = MemoryStore()
        self.plain = MemoryStore()
        self.remote = Moody(self.kept, self.rng)
        self.problems: list[BaseException] = []
        self.talks = {name: Conversation() for name in SESSIONS}
        self.counts: dict[str, int] = dict.fromkeys(("spooled", "stored", "settled", "crashes", "full", "reads"), 0)

    async def run(self) -> dict[str, int]:
        for store in (self.kept, self.plain):
            for name in SESSIONS:
                await store.create(Session(name, "ann", 1.0))
        for _ in range(self.rng.randint(1, 4)):
            await self.live()
        await self.check_what_was_kept()
        if self.problems:
            raise self.problems[0]
        return self.counts | self.remote.seen

    async def live(self) -> None:
        others = asyncio.all_tasks()
        self.store = SpooledStore(self.remote, MemorySpool(self.disk, self.rng), self.rng)
        self.store.heard = self
        limits = QueueLimits(batch_writes=self.rng.choice((3, 2_000)), flush_seconds=5.0)
        store, queue = self.store, PersistenceQueue(self.store, limits, self.rng)
        self.queue = queue
        await store.__aenter__()
        await queue.__aenter__()
        weather = asyncio.create_task(self.weather())
        await self.load_all()
        tasks = [asyncio.create_task(work(name)) for name in SESSIONS for work in (self.talk, self.read)]
        await asyncio.sleep(self.rng.uniform(0, 90))
        if self.rng.random() < 0.6:
            self.counts["crashes"] += 1
            doomed = asyncio.all_tasks() - others
            for task in doomed:
                task.cancel()
            results = await asyncio.gather(*doomed, return_exceptions=True)
            self.note(results)
            self.remote.mood = (1, 0, 0, 0, 0, 0, 0)
            self.disk.full = False
            return
        for task in (weather, *tasks):
            task.cancel()
        self.note(await asyncio.gather(weather, *tasks, return_exceptions=True))
        await self.calm_down()
        await queue.__aexit__(None, None, None)
        await store.__aexit__(None, None, None)
        assert asyncio.all_tasks() == others

    def note(self, results: Sequence[object]) -> None:
        """Keep what went wrong: the store and the queue survive a listener that raises."""
        ends = (asyncio.CancelledError, type(None))
        self.problems += [r for r in results if isinstance(r, BaseException) and not isinstance(r, ends)]

    async def weather(self) -> None:
        """Everything changes now and then."""
        while True:
            await asyncio.sleep(self.rng.uniform(0, 8))
            self.remote.mood = [self.rng.choice((0, 0, 1, 5)) for _ in FAULTS]
            if not sum(self.remote.mood):
                self.remote.mood = (1, 0, 0, 0, 0, 0, 0)
            self.disk.full = self.rng.random() < 0.1

    async def calm_down(self) -> None:
        """In fair weather everything is stored within a time, and everybody has been told."""
        self.remote.mood, self.disk.full = (1, 0, 0, 0, 0, 0, 0), False
        async with asyncio.timeout(120):
            while self.queue.depth or self.store.stats()["rows"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert self.store.failing is None
        for talk in self.talks.values():
            assert talk.unsettled == []
            assert talk.told == len(talk.sent)

    async def load_all(self) -> None:
        for name, talk in self.talks.items():
            while True:
                try:
                    loaded = await self.store.load(name)
                    break
                except StoreUnavailable:
                    await asyncio.sleep(1)
            assert loaded is not None
            assert not self.store.behind(name)
            kept = int(loaded.session.state or b"0") if loaded.session.state != b"{}" else 0
            assert talk.told <= kept <= len(talk.sent), (talk.told, kept, len(talk.sent))
            del talk.sent[kept:]
            talk.told, talk.unsettled = kept, []
            talk.last_told = talk.last_seq = loaded.session.last_seq
            talk.fence = loaded.fence

    async def talk(self, name: str) -> None:
        talk = self.talks[name]
        while True:
            await asyncio.sleep(self.rng.choice((0, 0, 0.01, 1.0, 4.0)))
            write = self.some_write(name, talk)
            if self.queue.put(write, lambda outcome, write=write: self.told(name, write, outcome)):  # type: ignore[misc]
                talk.sent.append(write)
                talk.last_seq += write.append is not None

    def some_write(self, name: str, talk: Conversation) -> Write:
        rng, number = self.rng, b"%d" % (len(talk.sent) + 1)
        record = None
        if rng.random() < 0.7:
            seq = talk.last_seq + 1
            cid = rng.choice((f"c{seq}", f"c{seq}", f"c{seq}", "again", f"\ud800{seq}"))
            record = Record(name, seq, cid, "user", "message", b"%d" % rng.getrandbits(30), 1.0, Status.STORED)
        last = talk.last_seq + (record is not None)
        marks = ((rng.randint(1, last), rng.choice(("expired", "open"))),) if last and rng.random() < 0.2 else ()
        delivered = rng.randint(0, last) if rng.random() < 0.3 else None
        checkpoint = rng.choice((None, b"", b"part" + number))
        return Write(name, record, marks, delivered, number, checkpoint, rng.choice((None, number)), talk.fence)

    def told(self, name: str, write: Write, outcome: Outcome) -> None:
        try:
            self._told(name, write, outcome)
        except BaseException as problem:
            self.note([problem])

    def _told(self, name: str, write: Write, outcome: Outcome) -> None:
        talk = self.talks[name]
        assert isinstance(outcome, Stored | Spooled | Duplicate | Dead), outcome
        assert write is talk.sent[talk.told], "told in another order"
        talk.told += 1
        if write.append is not None:
            talk.last_told = write.append.seq
            if isinstance(outcome, Spooled):
                talk.unsettled.append(write.append.seq)
        self.counts["spooled" if isinstance(outcome, Spooled) else "stored"] += 1

    def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        try:
            self._settled(session_id, seq, outcome)
        except BaseException as problem:
            self.note([problem])

    def _settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        talk = self.talks[session_id]
        assert isinstance(outcome, Stored | Duplicate | Dead), outcome
        assert talk.unsettled.pop(0) == seq
        record = self.kept._kept[session_id].records[seq]  # it is there when it is told
        assert type(outcome) is MARKED.get(record.type, Stored)
        self.counts["settled"] += 1

    async def read(self, name: str) -> None:
        """There is never a hole, and what was told is there."""
        talk = self.talks[name]
        while True:
            await asyncio.sleep(self.rng.uniform(0, 3))
            self.counts["full"] += self.disk.full
            told, after = talk.last_told, self.rng.randint(0, talk.last_told)
            seqs = [record.seq for record in await self.store.messages(name, after=after, limit=EVERYTHING)]
            assert seqs == list(range(after + 1, after + 1 + len(seqs)))
            assert not seqs or seqs[-1] >= told
            assert seqs or told == after
            newest = await self.store.messages(name, before=told + 1, limit=3)
            assert [record.seq for record in newest] == list(range(max(1, told - 2), told + 1))
            found = await self.store.find(name)
            assert found is not None
            assert found.last_seq >= told
            self.counts["reads"] += 1

    async def check_what_was_kept(self) -> None:
        """The remote store has what a plain store would have."""
        self.store = SpooledStore(self.remote, MemorySpool(self.disk, self.rng), self.rng)
        async with self.store:
            await self.load_all()
        assert self.disk.rows == {}
        assert self.disk.lost == {}
        for name, talk in self.talks.items():
            for write in talk.sent:
                await self.plain.commit([replace(write, fence=None)])
            ours, theirs = await self.kept.load(name), await self.plain.load(name)
            assert ours is not None
            assert theirs is not None
            assert replace(ours, fence=0) == replace(theirs, fence=0)
            wanted = await self.plain.messages(name, limit=EVERYTHING)
            assert await self.kept.messages(name, limit=EVERYTHING) == wanted
            assert [record.seq for record in wanted] == list(range(1, len(wanted) + 1))
            letters = [
                [kept.record for kept in await s.dead_letters(name, limit=EVERYTHING)] for s in (self.kept, self.plain)
            ]
            assert letters[0] == letters[1]


def play(seed: int) -> dict[str, int]:
    async def run() -> dict[str, int]:
        return await World(seed).run()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(run())


@pytest.mark.parametrize("tens", range(RUNS // 10))
def test_whatever_happens_every_write_ends_once_and_in_order(tens: int) -> None:
    reached: dict[str, int] = {}
    for seed in range(10 * tens, 10 * tens + 10):
        try:
            counts = play(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        reached = {name: reached.get(name, 0) + count for name, count in counts.items()}
    assert all(reached.values()), reached
