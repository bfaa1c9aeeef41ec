"""The queue's shell, on virtual time and a store that fails when told."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from random import Random

import pytest

from persistence import crash_points
from persistence.errors import StoreBroken, StoreFull
from persistence.memory import MemoryStore
from persistence.queue.backlog import QueueLimits
from persistence.queue.queue import PersistenceQueue
from persistence.record import Outcome, Record, Session, Spooled, Stored, Write
from tests.support.faults import Fault, FlakyStore
from tests.support.records import said

LIMITS = QueueLimits(max_writes=5, max_bytes=4_000, batch_writes=4, flush_seconds=2.0)

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def store() -> FlakyStore:
    inner = MemoryStore()
    for name in "abc":
        await inner.create(Session(name, "ann", 1.0))
    return FlakyStore(inner)


@pytest.fixture
async def queue(store: FlakyStore) -> AsyncIterator[PersistenceQueue]:
    async with PersistenceQueue(store, LIMITS, Random(1)) as queue:
        yield queue


async def seqs(store: FlakyStore, name: str) -> list[int]:
    return [record.seq for record in await store.inner.messages(name)]


async def test_a_write_is_durable_before_its_sender_is_told(queue: PersistenceQueue, store: FlakyStore) -> None:
    store.gate.clear()
    told: list[Outcome] = []
    assert queue.put(said("a", 1), told.append)
    await asyncio.sleep(5)
    assert told == []
    assert queue.depth == 1
    assert queue.oldest_age(asyncio.get_running_loop().time()) == pytest.approx(5)
    store.gate.set()
    assert await queue.flush(1) == 0
    assert told == [Stored(1)]
    assert await seqs(store, "a") == [1]
    assert queue.oldest_age(99.0) == 0


async def test_what_arrives_during_a_commit_is_the_next_batch(queue: PersistenceQueue, store: FlakyStore) -> None:
    told: list[tuple[str, Outcome]] = []

    def note(name: str, outcome: Outcome) -> None:
        told.append((name, outcome))

    store.gate.clear()
    queue.put(said("a", 1), partial(note, "a"))
    await asyncio.sleep(1)
    for name, seq in (("b", 1), ("a", 2), ("b", 2)):
        queue.put(said(name, seq), partial(note, name))
    store.gate.set()
    await queue.flush(1)
    assert queue.batch_sizes == {1: 1, 4: 1}
    assert (queue.commits, queue.committed_writes) == (2, 4)
    assert told == [("a", Stored(1)), ("b", Stored(1)), ("a", Stored(2)), ("b", Stored(2))]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (Stored, ["keep 1", "keep 2", "told 1", "keep 3", "told 2", "told 3"]),
        (Spooled, ["keep 1", "told 1", "keep 2", "told 2", "keep 3", "told 3"]),
    ],
    ids=["stored", "spooled"],
)
async def test_the_store_has_the_next_batch_while_the_last_is_told_unless_there_is_more_to_hear(
    stage: type[Stored] | type[Spooled], expected: list[str]
) -> None:
    happened: list[str] = []

    class Store(MemoryStore):
        async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
            happened.extend(f"keep {write.append.seq}" for write in writes if write.append)
            await super().commit(writes)
            return [stage(write.append.seq) for write in writes if write.append]

    store = Store()
    await store.create(Session("a", "ann", 1.0))
    async with PersistenceQueue(store, QueueLimits(batch_writes=1), Random(1)) as queue:
        for seq in (1, 2, 3):
            queue.put(said("a", seq), lambda outcome, seq=seq: happened.append(f"told {seq}"))  # type: ignore[misc]
    assert happened == expected


async def test_what_is_durable_is_told_although_the_next_batch_never_is(store: FlakyStore) -> None:
    told: list[Outcome] = []
    store.faults = {2: Fault.BROKEN}
    async with PersistenceQueue(store, QueueLimits(batch_writes=1), Random(1), on_death=lambda _: None) as queue:
        for seq in (1, 2, 3):
            queue.put(said("a", seq), told.append)
    assert told == [Stored(1)]
    assert await seqs(store, "a") == [1]


async def test_a_callback_may_put_again(queue: PersistenceQueue, store: FlakyStore) -> None:
    def answer(_: Outcome) -> None:
        assert queue.put(said("a", 2))

    queue.put(said("a", 1), answer)
    assert await queue.flush(1) == 0
    assert await seqs(store, "a") == [1, 2]


async def test_an_outage_of_an_hour_loses_nothing_and_keeps_the_order(
    queue: PersistenceQueue, store: FlakyStore
) -> None:
    store.outage = Fault.AWAY
    told: list[Outcome] = []
    for seq in (1, 2, 3):
        queue.put(said("a", seq), told.append)
    assert await queue.flush(3_600) == 3
    assert queue.failing == "storage_unavailable"
    assert queue.room(300) is None  # the line has room: an outage alone refuses nobody
    assert 3_600 / 10 < queue.retries < 3_600 / 2  # backed off to 10 s with full jitter, 5 s on average
    store.outage = None
    assert await queue.flush(11) == 0
    assert told == [Stored(1), Stored(2), Stored(3)]
    assert await seqs(store, "a") == [1, 2, 3]
    assert queue.failing is None


async def test_a_lost_reply_stores_nothing_twice(queue: PersistenceQueue, store: FlakyStore) -> None:
    store.faults = {1: Fault.LOST_REPLY, 2: Fault.LOST_REPLY}
    told: list[Outcome] = []
    queue.put(said("a", 1), told.append)
    queue.put(said("a", 2), told.append)
    assert await queue.flush(60) == 0
    assert told == [Stored(1), Stored(2)]
    assert await seqs(store, "a") == [1, 2]
    assert queue.retries == 2


async def test_a_full_line_refuses_appends_only(queue: PersistenceQueue, store: FlakyStore) -> None:
    store.outage = Fault.AWAY
    for seq in range(1, 6):
        assert queue.put(said("a", seq))
    assert queue.room(300) == "storage_unavailable"
    assert not queue.put(said("a", 6))
    assert queue.refused == 1
    assert queue.put(said("b", 1), refusable=False)
    assert queue.put(Write("c", state=b"1"))
    assert queue.depth == 7
    store.outage = None
    assert await queue.flush(60) == 0
    assert queue.room(300) is None
    assert queue.room(4_001) == "storage_unavailable"
    assert await seqs(store, "a") == [1, 2, 3, 4, 5]
    assert await seqs(store, "b") == [1]


async def test_a_full_disk_refuses_appends_until_there_is_room(queue: PersistenceQueue, store: FlakyStore) -> None:
    store.outage = Fault.FULL
    told: list[Outcome] = []
    queue.put(said("a", 1), told.append)
    await asyncio.sleep(30)
    assert queue.failing == queue.room(1) == "storage_full"
    assert not queue.put(said("a", 2))
    assert queue.put(said("b", 1), refusable=False)
    assert queue.put(Write("a", state=b"still taken"))
    store.outage = None
    assert await queue.flush(11) == 0
    assert told == [Stored(1)]
    assert queue.put(said("a", 2))
    assert queue.stats()["failing"] == 0


async def test_what_there_is_room_for_is_stored_although_not_all_of_it_fits() -> None:
    """A batch too large for the room that is left once kept all its senders waiting, also those who would have fit."""

    class Small(MemoryStore):
        room = 3

        async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
            if len(writes) > self.room:
                raise StoreFull("no room for all")
            self.room -= len(writes)
            return await super().commit(writes)

    store, told = Small(), list[Outcome]()
    await store.create(Session("a", "ann", 1.0))
    async with PersistenceQueue(store, QueueLimits(), Random(1)) as queue:
        for seq in range(1, 9):
            queue.put(said("a", seq), told.append)
        await asyncio.sleep(60)
        assert told == [Stored(1), Stored(2), Stored(3)]
        assert (queue.failing, queue.room(1)) == ("storage_full", "storage_full")
        store.room = 100
        assert await queue.flush(60) == 0
        assert (queue.failing, told) == (None, [Stored(seq) for seq in range(1, 9)])


async def test_an_answer_that_streams_into_an_outage_holds_one_checkpoint(
    queue: PersistenceQueue, store: FlakyStore
) -> None:
    store.outage = Fault.AWAY
    told: list[Outcome] = []
    queue.put(Write("a", checkpoint=b"0"), told.append)
    await asyncio.sleep(1)
    for number in range(1, 1_000):
        queue.put(Write("a", checkpoint=b"%d" % number), told.append)
    assert queue.depth == 2
    assert queue.coalesced == 998
    store.outage = None
    await queue.flush(11)
    assert told == [Stored(0)] * 1_000
    loaded = await store.inner.load("a")
    assert loaded is not None
    assert loaded.checkpoint == b"999"


@pytest.mark.parametrize(("fault", "error"), [(Fault.BROKEN, StoreBroken), (Fault.BUG, ZeroDivisionError)])
async def test_after_a_broken_commit_nobody_is_told_anything(
    store: FlakyStore, fault: Fault, error: type[Exception]
) -> None:
    deaths: list[BaseException] = []
    told: list[Outcome] = []
    store.faults = {2: fault}
    async with PersistenceQueue(store, LIMITS, Random(1), on_death=deaths.append) as queue:
        queue.put(said("a", 1), told.append)
        await queue.flush(1)
        queue.put(said("a", 2), told.append)
        assert await queue.flush(1) == 1
        assert [type(death) for death in deaths] == [error]
        assert not queue.alive
        assert not queue.put(said("a", 3), told.append, refusable=False)
        assert queue.room(1) == "storage_unavailable"
    assert told == [Stored(1)]
    assert len(deaths) == 1


async def test_an_owner_who_did_not_ask_to_be_told_of_a_death_meets_it_on_leaving(store: FlakyStore) -> None:
    store.outage = Fault.BROKEN
    with pytest.raises(StoreBroken):
        async with PersistenceQueue(store, LIMITS, Random(1)) as queue:
            queue.put(said("a", 1))


async def test_a_callback_that_raises_harms_nobody_else(queue: PersistenceQueue, store: FlakyStore) -> None:
    def careless(_: Outcome) -> None:
        raise ZeroDivisionError

    told: list[Outcome] = []
    queue.put(said("a", 1), careless)
    queue.put(said("b", 1), told.append)
    queue.put(said("a", 2), told.append)
    assert await queue.flush(1) == 0
    assert told == [Stored(1), Stored(2)]
    assert queue.alive


async def test_leaving_stores_what_waits(store: FlakyStore) -> None:
    async with PersistenceQueue(store, LIMITS, Random(1)) as queue:
        queue.put(said("a", 1))
        queue.put(said("b", 1))
    assert queue.depth == 0
    assert await seqs(store, "a") == await seqs(store, "b") == [1]
    assert not queue.put(said("a", 2))


async def test_leaving_during_an_outage_ends_by_its_deadline(store: FlakyStore) -> None:
    loop = asyncio.get_running_loop()
    store.outage = Fault.AWAY
    told: list[Outcome] = []
    async with PersistenceQueue(store, LIMITS, Random(1)) as queue:
        queue.put(said("a", 1), told.append)
        began = loop.time()
    assert loop.time() - began == pytest.approx(LIMITS.flush_seconds)
    assert queue.depth == 1
    assert told == []


async def test_leaving_ends_although_the_store_never_answers(store: FlakyStore) -> None:
    store.gate.clear()
    async with PersistenceQueue(store, LIMITS, Random(1)) as queue:
        queue.put(said("a", 1))
    assert queue.depth == 1


async def test_a_cancelled_owner_is_cancelled_and_the_queue_ends(store: FlakyStore) -> None:
    store.gate.clear()
    inside = asyncio.Event()
    queue = PersistenceQueue(store, LIMITS, Random(1))

    async def own() -> None:
        async with queue:
            queue.put(said("a", 1))
            inside.set()
            await asyncio.Event().wait()

    owner = asyncio.create_task(own())
    await inside.wait()
    owner.cancel()
    await asyncio.sleep(0)
    owner.cancel()  # also while it flushes
    with pytest.raises(asyncio.CancelledError):
        await owner
    assert not queue.alive
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "persistence-queue"] == []


async def test_each_batch_that_is_kept_is_measured(store: FlakyStore) -> None:
    seen: list[tuple[int, float]] = []
    poison = Record("a", 2, "\ud800", "user", "message", b"{}", 1.0)
    store.faults = {1: Fault.AWAY}
    async with PersistenceQueue(store, LIMITS, Random(1), on_commit=lambda *args: seen.append(args)) as queue:
        for write in (said("a", 1), Write("a", poison), said("b", 1)):
            queue.put(write)
        await queue.flush(9)
        assert queue.stats()["dead"] == 1
    assert seen == [(3, 0.0)]  # without what it took until the store was back


async def test_the_places_where_it_may_die_are_passed_in_order(
    queue: PersistenceQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[str] = []
    monkeypatch.setattr(crash_points, "reached", passed.append)
    queue.put(said("a", 1), lambda _: passed.append("told"))
    await queue.flush(1)
    assert passed == ["queue.taken", "queue.committed", "told", "queue.told"]


async def test_an_unused_queue_has_numbers_and_refuses(store: FlakyStore) -> None:
    queue = PersistenceQueue(store, LIMITS, Random(1))
    assert set(queue.stats().values()) == {0}
    assert not queue.put(said("a", 1))


# Held


@pytest.fixture
async def roomy(store: FlakyStore) -> AsyncIterator[PersistenceQueue]:
    """A queue of which a quarter is more than one write."""
    async with PersistenceQueue(store, QueueLimits(), Random(1)) as queue:
        yield queue


async def test_a_session_that_is_held_waits_and_the_others_do_not(roomy: PersistenceQueue, store: FlakyStore) -> None:
    told: list[tuple[str, Outcome]] = []
    roomy.hold("a", 30)
    for seq in (1, 2):
        roomy.put(said("a", seq), lambda outcome: told.append(("a", outcome)))
    roomy.put(said("b", 1), lambda outcome: told.append(("b", outcome)))
    await asyncio.sleep(29)
    assert told == [("b", Stored(1))]
    assert roomy.depth == 2
    await asyncio.sleep(2)
    assert told == [("b", Stored(1)), ("a", Stored(1)), ("a", Stored(2))]
    assert await seqs(store, "a") == [1, 2]
    roomy.put(said("a", 3))
    await asyncio.sleep(1)
    assert await seqs(store, "a") == [1, 2, 3]


async def test_a_hold_can_be_made_longer_and_ended_early(roomy: PersistenceQueue, store: FlakyStore) -> None:
    roomy.hold("a", 10)
    roomy.put(said("a", 1))
    await asyncio.sleep(9)
    roomy.hold("a", 10)
    await asyncio.sleep(9)
    assert await seqs(store, "a") == []
    roomy.release("a")
    roomy.release("b")
    await asyncio.sleep(1)
    assert await seqs(store, "a") == [1]


async def test_a_flush_waits_for_no_hold(roomy: PersistenceQueue, store: FlakyStore) -> None:
    roomy.hold("a", 60)
    roomy.put(said("a", 1))
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    assert await roomy.flush(5) == 0
    assert asyncio.get_running_loop().time() - began < 1
    assert await seqs(store, "a") == [1]


async def test_leaving_the_queue_stores_what_is_held(store: FlakyStore) -> None:
    async with PersistenceQueue(store, LIMITS, Random(1)) as queue:
        queue.hold("a", 60)
        queue.put(said("a", 1))
        await asyncio.sleep(1)
    assert await seqs(store, "a") == [1]


async def test_a_hold_of_a_session_that_writes_too_much_ends(queue: PersistenceQueue, store: FlakyStore) -> None:
    queue.hold("a", 60)
    for seq in (1, 2):
        queue.put(said("a", seq))
    await asyncio.sleep(1)
    assert await seqs(store, "a") == [1, 2]
    assert not queue.failing


async def test_a_queue_that_has_died_with_a_hold_keeps_no_flush_waiting(store: FlakyStore) -> None:
    store.outage = Fault.BROKEN
    loop = asyncio.get_running_loop()
    async with PersistenceQueue(store, QueueLimits(), Random(1), on_death=lambda _: None) as queue:
        for held in ("a", "over by itself"):
            queue.hold(held, 60)
        queue.hold("over by itself", 5)
        queue.put(said("a", 1))
        queue.put(said("b", 1))
        await asyncio.sleep(10)
        assert not queue.alive
        began = loop.time()
        assert await queue.flush(3_600) == 2
        assert loop.time() == began
