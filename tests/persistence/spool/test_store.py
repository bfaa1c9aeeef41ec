"""The spooled store's shell, case by case, on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from persistence.errors import StoreBroken, StoreBusy, StoreFull, StoreUnavailable
from persistence.listener import NobodyListens
from persistence.memory import MemoryStore
from persistence.queue.backlog import QueueLimits
from persistence.queue.queue import PersistenceQueue
from persistence.record import Duplicate, Fenced, Outcome, Rejected, Session, Spooled, Stored, Write
from persistence.spool.failover import patience
from persistence.spool.ports import SpoolRow
from persistence.spool.store import LOST_FROM, SpooledStore
from tests.support.faults import Fault, FlakyStore
from tests.support.memory_spool import Disk, MemorySpool
from tests.support.records import said
from tests.support.waiting import until

pytestmark = pytest.mark.virtual_time


class Remote(FlakyStore):
    """`busy` sessions are held by somebody else; each commit takes `seconds`."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.busy: set[str] = set()
        self.seconds = 0.0
        self.batches: list[list[Write]] = []

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        self.batches.append(list(writes))
        await asyncio.sleep(self.seconds)
        if held := self.busy & {write.session_id for write in writes}:
            raise StoreBusy("held", frozenset(held))
        return await super().commit(writes)


class Ear(NobodyListens):
    def __init__(self) -> None:
        self.told: list[tuple[str, int, Outcome]] = []

    def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        self.told.append((session_id, seq, outcome))


class House:
    """A spooled store over what outlives it."""

    def __init__(self) -> None:
        self.remote = Remote()
        self.disk = Disk()
        self.ear = Ear()
        self.deaths: list[BaseException] = []
        self.store = self.new()

    def new(self) -> SpooledStore:
        store = SpooledStore(self.remote, MemorySpool(self.disk), Random(1), on_death=self.deaths.append)
        store.heard = self.ear
        return store

    async def drained(self) -> None:
        await until(lambda: not self.store.stats()["rows"], "an empty spool")


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House()
    for name in "abc":
        await house.remote.inner.create(Session(name, "ann", 1.0))
    async with house.store:
        yield house
        house.remote.outage = None
        house.remote.gate.set()


async def seqs(house: House, name: str) -> list[int]:
    return [record.seq for record in await house.remote.inner.messages(name)]


async def test_an_outage_of_an_hour_is_accepted_and_stored_afterwards(house: House) -> None:
    house.remote.outage = Fault.AWAY
    for seq in range(1, 40):
        assert await house.store.commit([said("a", seq)]) == [Spooled(seq)]
        await asyncio.sleep(90)
    assert house.store.failing == "storage_unavailable"
    assert house.store.behind("a")
    assert not house.store.behind("b")
    assert house.ear.told == []
    assert house.store.stats()["rows"] == 39
    house.remote.outage = None
    await house.drained()
    assert house.ear.told == [("a", seq, Stored(seq)) for seq in range(1, 40)]
    assert await seqs(house, "a") == list(range(1, 40))
    assert await house.store.commit([said("a", 40)]) == [Stored(40)]
    assert house.store.stats()["failing"] == 0


async def test_a_slow_commit_is_accepted_in_time_and_not_done_twice(house: House) -> None:
    loop = asyncio.get_running_loop()
    house.remote.seconds = 3.0
    began = loop.time()
    assert await house.store.commit([said("a", 1)]) == [Spooled(1)]
    assert loop.time() - began < 0.2
    await house.drained()
    assert house.ear.told == [("a", 1, Stored(1))]
    assert len(house.remote.batches) == 1


async def test_under_load_a_store_that_does_well_again_is_used_directly(house: House) -> None:
    """Each batch comes as soon as the last was told: spooling must not feed itself."""
    house.remote.outage = Fault.AWAY
    for seq in range(1, 5_001):
        await house.store.commit([said("a", seq)])
    house.remote.outage, house.remote.seconds = None, 0.05
    outcomes: list[Outcome] = []
    for seq in range(5_001, 5_200):
        outcomes += await house.store.commit([said("a", seq)])
        await asyncio.sleep(0.1 if seq < 5_150 else 0)
    assert isinstance(outcomes[0], Spooled)
    assert all(isinstance(outcome, Stored) for outcome in outcomes[-50:])


async def test_one_session_that_is_held_delays_no_other(house: House) -> None:
    house.remote.busy = {"b"}
    assert await house.store.commit([said("a", 1), said("b", 1), said("c", 1)]) == [Spooled(1)] * 3
    assert await house.store.commit([said("a", 2), said("b", 2)]) == [Spooled(2)] * 2
    await asyncio.sleep(30)
    assert house.ear.told == [("a", 1, Stored(1)), ("c", 1, Stored(1)), ("a", 2, Stored(2))]
    with pytest.raises(StoreUnavailable):
        await house.store.load("b")
    assert house.store.failing is None
    house.remote.busy = set()
    await house.drained()
    assert house.ear.told[3:] == [("b", 1, Stored(1)), ("b", 2, Stored(2))]
    assert await house.store.commit([said("b", 3)]) == [Stored(3)]


async def test_what_an_earlier_process_accepted_is_stored_before_anything_new(house: House) -> None:
    house.remote.outage = Fault.AWAY
    await house.store.commit([said("a", 1), said("b", 1)])
    await house.store.__aexit__(None, None, None)
    house.store = house.new()
    await house.store.__aenter__()
    assert await house.store.commit([said("a", 2)]) == [Spooled(2)]
    house.remote.outage = None
    await house.drained()
    assert await seqs(house, "a") == [1, 2]
    assert house.ear.told == [("a", 2, Stored(2))]  # nobody waits to hear of the others


async def test_a_session_is_loaded_when_its_writes_are_stored_and_not_before(house: House) -> None:
    house.remote.seconds = 0.5
    fence = (await house.store.load("a") or pytest.fail("gone")).fence
    assert await house.store.commit([replace(said("a", 1), fence=fence)]) == [Spooled(1)]
    loaded = await house.store.load("a")
    assert loaded is not None
    assert loaded.session.last_seq == 1
    assert house.ear.told == [("a", 1, Stored(1))]
    house.remote.seconds, house.remote.outage = 0.0, Fault.AWAY
    await house.store.commit([replace(said("a", 2), fence=loaded.fence)])
    with pytest.raises(StoreUnavailable, match="behind"):
        await house.store.load("a")
    house.remote.gate.clear()
    await asyncio.sleep(20)
    with pytest.raises(StoreUnavailable, match="behind"):  # a store that does not answer counts as failing
        await house.store.load("a")


async def test_an_accepted_record_that_is_refused_is_among_the_dead_letters(house: House) -> None:
    fence = (await house.store.load("a") or pytest.fail("gone")).fence
    house.remote.outage = Fault.AWAY
    await house.store.commit([replace(said("a", 1), fence=fence), said("b", 7), Write("b", delivered=9)])
    await house.remote.inner.load("a")  # by another gateway
    house.remote.outage = None
    await house.drained()
    assert house.ear.told == [("a", 1, Fenced()), ("b", 7, Rejected("seq 7 does not follow 0"))]
    first, second = await house.store.dead_letters()
    assert [letter.record.id for letter in (first, second)] == ["a.1", "b.7"]
    assert await house.store.dead_letters("b") == [second]
    assert await house.store.dead_letters(after=first.number) == [second]
    assert await house.store.dead_letters(limit=1) == [first]
    assert house.store.stats()["lost"] == 2
    assert isinstance(await house.store.retry_dead_letter(second.number), Rejected)
    await house.remote.inner.commit([said("b", 1, "c7")])
    assert await house.store.retry_dead_letter(second.number) == Duplicate(1)
    assert await house.store.retry_dead_letter(second.number) is None
    assert await house.store.drop_dead_letter(first.number)
    assert await house.store.dead_letters() == []
    assert not await house.store.drop_dead_letter(LOST_FROM + 1)


async def test_a_record_that_was_stored_before_another_took_over_is_stored(house: House) -> None:
    fence = (await house.store.load("a") or pytest.fail("gone")).fence
    house.remote.faults = {house.remote.calls + 1: Fault.LOST_REPLY}
    assert await house.store.commit([replace(said("a", 1), fence=fence)]) == [Spooled(1)]
    await house.remote.inner.load("a")
    await house.drained()
    assert house.ear.told == [("a", 1, Stored(1))]
    assert await house.store.dead_letters() == []


async def test_a_purged_session_does_not_come_back_out_of_the_spool(house: House) -> None:
    house.remote.seconds = 0.5
    await house.store.commit([said("a", 1), said("b", 1)])
    house.remote.busy = {"a"}
    await house.store.commit([said("a", 2), said("b", 2)])
    await house.store.purge("a")
    assert house.disk.lost == {}
    house.remote.busy = set()
    await house.store.create(Session("a", "bob", 2.0))
    await house.drained()
    assert await seqs(house, "a") == []
    assert await seqs(house, "b") == [1, 2]
    house.remote.seconds, house.remote.outage = 0.0, Fault.AWAY
    await house.store.commit([said("a", 1)])
    with pytest.raises(StoreUnavailable):
        await house.store.purge("a")
    house.remote.outage = None
    await house.drained()
    assert await seqs(house, "a") == [1]  # nothing was forgotten


async def test_a_purge_that_fails_halfway_leaves_nobody_anything_to_read(house: House) -> None:
    """The purge once removed the session first: a user who then made the same id could read records still in the
    spool."""
    house.remote.outage = Fault.AWAY
    await house.store.commit([said("a", 1, content="for ann alone")])
    with pytest.raises(StoreUnavailable):  # nothing is forgotten for a store that cannot be asked
        await house.store.purge("a")
    assert house.store.behind("a")
    house.remote.outage = None
    house.disk.full = True
    with pytest.raises(StoreUnavailable):
        await house.store.purge("a")
    assert (await house.store.create(Session("a", "bob", 1.0))).user_id == "ann"
    house.disk.full = False
    await house.store.purge("a")
    assert (await house.store.create(Session("a", "bob", 1.0))).user_id == "bob"
    assert await house.store.messages("a") == []


async def test_records_whose_fate_is_unknown_are_not_trimmed_before_it_is_known(house: House) -> None:
    """They once were, and the store that had them no longer knew them when it was asked again."""
    house.remote.faults = {house.remote.calls + 1: Fault.LOST_REPLY}
    assert await house.store.commit([said("a", seq) for seq in (1, 2, 3)]) == [Spooled(seq) for seq in (1, 2, 3)]
    await house.remote.inner.commit([Write("a", delivered=3)])
    assert await house.store.trim("a", older_than=None, keep=0, below=9) == 0
    await house.drained()
    assert [outcome for *_, outcome in house.ear.told] == [Stored(1), Stored(2), Stored(3)]
    assert await house.store.trim("a", older_than=None, keep=0, below=9) == 3


async def test_accepted_is_heard_before_stored_also_while_earlier_senders_are_told() -> None:
    """The queue tells a batch while the store has the next, which may be accepted late and stored at the same time."""

    class SlowSpool(MemorySpool):
        async def append(self, writes: Sequence[Write]) -> list[SpoolRow]:
            await asyncio.sleep(0.01)
            return await super().append(writes)

    heard: list[tuple[int, str]] = []

    class Listener(NobodyListens):
        def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
            heard.append((seq, "settled"))

    def hear(seq: int, outcome: Outcome) -> None:
        heard.append((seq, "accepted" if isinstance(outcome, Spooled) else "stored"))

    remote = Remote()
    await remote.inner.create(Session("a", "ann", 1.0))
    async with SpooledStore(remote, SlowSpool(Disk()), Random(1)) as store:
        store.heard = Listener()
        async with PersistenceQueue(store, QueueLimits(batch_writes=1), Random(1)) as queue:
            remote.seconds = 0.05
            queue.put(said("a", 1), partial(hear, 1))
            await asyncio.sleep(0.01)
            queue.put(said("a", 2), partial(hear, 2))
            remote.seconds = patience(1) + 0.005  # it answers while its batch is being spooled
        await asyncio.sleep(1)
    assert heard == [(1, "stored"), (2, "accepted"), (2, "settled")]


async def test_readers_see_what_is_accepted(house: House) -> None:
    await house.store.commit([said("a", seq) for seq in (1, 2, 3)])
    house.remote.outage = Fault.AWAY
    await house.store.commit([said("a", 4, "x"), Write("a", marks=((1, "expired"),), delivered=3)])
    await house.store.commit([said("a", 5), Write("a", state=b"new", spec=b"spec"), said("b", 1)])
    with pytest.raises(StoreUnavailable):
        await house.store.messages("a")  # 1 to 3 are not here
    assert [record.seq for record in await house.store.messages("a", after=3)] == [4, 5]
    assert [record.seq for record in await house.store.messages("a", before=6, limit=2)] == [4, 5]
    assert [record.seq for record in await house.store.messages("b")] == [1]
    assert (await house.store.by_cid("a", "x") or pytest.fail("gone")).seq == 4
    with pytest.raises(StoreUnavailable):
        await house.store.by_cid("a", "c1")
    house.remote.outage = None
    house.remote.seconds = 9.0  # it can be read, and does not follow yet
    statuses = [record.status for record in await house.store.messages("a")]
    assert statuses == ["expired", "delivered", "delivered", "stored", "stored"]
    assert [record.seq for record in await house.store.messages("a", after=1, limit=3)] == [2, 3, 4]
    assert [record.seq for record in await house.store.messages("a", before=5, limit=2)] == [3, 4]
    assert (await house.store.by_cid("a", "c1") or pytest.fail("gone")).status == "expired"
    found = await house.store.find("a") or pytest.fail("gone")
    assert (found.last_seq, found.delivered, found.state, found.spec) == (5, 3, b"new", b"spec")
    assert [session.last_seq for session in await house.store.sessions()] == [0, 1, 5]
    assert sorted(await house.store.waiting()) == ["a", "b"]
    assert await house.store.find("nobody") is None


async def test_a_full_disk_under_a_slow_store_waits_for_the_store(house: House) -> None:
    house.disk.full = True
    house.remote.seconds = 2.0
    assert await house.store.commit([said("a", 1)]) == [Stored(1)]
    house.remote.outage = Fault.AWAY
    with pytest.raises(StoreFull):
        await house.store.commit([said("a", 2)])
    house.remote.seconds = 0.0
    with pytest.raises(StoreFull):
        await house.store.commit([said("a", 2)])
    house.disk.full, house.remote.outage = False, None
    assert await house.store.commit([said("a", 2)]) == [Stored(2)]


async def test_rows_that_cannot_be_removed_are_not_stored_again(house: House) -> None:
    house.remote.outage = Fault.AWAY
    await house.store.commit([said("a", 1), said("a", 2)])
    house.disk.full, house.remote.outage = True, None
    await asyncio.sleep(60)
    batches = len(house.remote.batches)
    assert house.ear.told == [("a", 1, Stored(1)), ("a", 2, Stored(2))]
    await asyncio.sleep(60)
    assert len(house.remote.batches) == batches
    house.disk.full = False
    await house.drained()
    assert len(house.ear.told) == 2


async def test_what_says_nothing_or_makes_no_sense_is_not_spooled(house: House) -> None:
    house.remote.outage = Fault.AWAY
    strange = [Write("a", said("b", 1).append), Write("\ud800", state=b"x"), Write("a", delivered=2**80)]
    outcomes = await house.store.commit([*strange, Write("a"), Write("a", fence=3)])
    assert [type(outcome) for outcome in outcomes] == [Rejected, Rejected, Rejected, Spooled, Spooled]
    assert house.disk.rows == {}


@pytest.mark.parametrize("fault", [Fault.BROKEN, Fault.BUG])
async def test_when_the_drainer_dies_nothing_is_taken_any_more(fault: Fault) -> None:
    house = House()
    async with house.store:
        house.remote.outage = Fault.AWAY
        await house.store.commit([said("a", 1)])
        house.remote.outage = fault
        await asyncio.sleep(5)
        assert len(house.deaths) == 1
        with pytest.raises(StoreBroken):
            await house.store.commit([said("a", 2)])
    assert list(house.disk.rows.values()) == [said("a", 1)]


async def test_a_spool_that_cannot_be_read_for_a_moment_is_read_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failed = MemorySpool.first, list[bool]()

    async def first(*args: Any, **asked: Any) -> list[SpoolRow]:
        if not failed:
            failed.append(True)
            raise StoreUnavailable("locked")
        return await real(*args, **asked)

    monkeypatch.setattr(MemorySpool, "first", first)
    house.remote.faults = {1: Fault.AWAY}
    await house.store.commit([said("a", 1)])
    await house.drained()
    assert (house.ear.told, failed) == ([("a", 1, Stored(1))], [True])


async def test_leaving_stores_what_the_store_takes_and_keeps_the_rest(house: House) -> None:
    loop = asyncio.get_running_loop()
    house.remote.seconds = 1.0
    await house.store.commit([said("a", 1)])
    await house.store.__aexit__(None, None, None)
    assert house.disk.rows == {}
    assert await seqs(house, "a") == [1]
    house.store = house.new()
    await house.store.__aenter__()
    house.remote.gate.clear()
    await house.store.commit([said("a", 2)])
    began = loop.time()
    await house.store.__aexit__(None, None, None)
    assert loop.time() - began < 6
    assert len(house.disk.rows) == 1
    with pytest.raises(StoreUnavailable):
        await house.store.commit([said("a", 3)])


async def test_a_cancelled_commit_leaves_no_batch_behind_a_later_one(house: House) -> None:
    house.remote.gate.clear()
    asking = asyncio.create_task(house.store.commit([said("a", 1), Write("a", state=b"old")]))
    await asyncio.sleep(0.05)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await house.store.commit([said("a", 1), Write("a", state=b"new")]) == [Spooled(1), Spooled(0)]
    house.remote.gate.set()
    await house.drained()
    assert (await house.store.find("a") or pytest.fail("gone")).state == b"new"
    assert len(house.remote.batches) == 2


async def test_the_queue_fails_only_when_even_the_spool_refuses(house: House) -> None:
    told: list[Outcome] = []
    async with PersistenceQueue(house.store, QueueLimits(), Random(1)) as queue:
        house.remote.outage = Fault.AWAY
        queue.put(said("a", 1), told.append)
        assert await queue.flush(5) == 0
        assert (queue.failing, house.store.failing, told) == (None, "storage_unavailable", [Spooled(1)])
        house.disk.full = True
        queue.put(said("a", 2), told.append)
        await asyncio.sleep(5)
        assert queue.failing == "storage_full"
        house.disk.full = False
        assert await queue.flush(11) == 0
    assert told == [Spooled(1), Spooled(2)]
