"""Old records go, and never one that somebody waits for; the keeper lives through an outage and not through a bug."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.app import build_house
from gateway.config.loading import load_settings
from gateway.config.settings import resolve_secrets
from gateway.maintenance.retention import SESSIONS_AT_ONCE, Retention, RetentionPolicy, first_owed
from gateway.maintenance.scheduler import Chore, MaintenanceScheduler
from gateway.session.model.state import SessionState
from persistence.errors import StoreUnavailable
from persistence.memory import MemoryStore
from persistence.record import Record, Session, Status, Write
from tests.support.faults import Fault, FlakyStore
from tests.support.sessions import NEW_YEAR, World

pytestmark = pytest.mark.virtual_time

DAY = 86400.0
OLD, NEW = NEW_YEAR - 10 * DAY, NEW_YEAR - 1


def record(seq: int, *, at: float = OLD, status: str = Status.COMPLETE, type: str = "message") -> Record:
    return Record("s", seq, f"c{seq}", "user", type, b'{"content":"x"}', at, status)


def refused(seq: int, type: str) -> Record:
    """One that no store takes: a marker stands in its place."""
    return replace(record(seq, type=type, status=Status.STORED), role="user\0")


async def filled(records: list[Record], *, answered: int, delivered: int | None = None) -> MemoryStore:
    """A store with one session: its records as they came, its agent having answered up to `answered`."""
    store = MemoryStore()
    await store.create(Session("s", "ann", OLD))
    state = SessionState(answered=answered).to_json()
    for each in records:
        await store.commit([Write("s", append=each)])
    await store.commit([Write("s", state=state, delivered=delivered)])
    return store


async def kept(store: MemoryStore) -> list[int]:
    return [each.seq for each in await store.messages("s", limit=10_000)]


def retention(store: MemoryStore | FlakyStore, *, age: float | None = None, count: int | None = None) -> Retention:
    return Retention(store, RetentionPolicy(age, count), utcnow=lambda: NEW_YEAR)


async def test_what_is_old_goes_and_what_is_new_stays() -> None:
    store = await filled([record(seq, at=OLD if seq <= 7 else NEW) for seq in range(1, 11)], answered=10)
    await retention(store, age=DAY).run()
    assert await kept(store) == [8, 9, 10]
    found = await store.find("s")
    assert found is not None
    assert (found.first_seq, found.last_seq) == (8, 10)


async def test_all_but_the_newest_go() -> None:
    store = await filled([record(seq, at=NEW) for seq in range(1, 301)], answered=300)
    await retention(store, count=100).run()
    assert await kept(store) == list(range(201, 301))


@pytest.mark.parametrize("status", [Status.STORED, Status.DELIVERED])
async def test_a_message_without_its_answer_keeps_itself_and_all_that_follows(status: Status) -> None:
    waiting = record(5, status=Status.STORED)
    records = [record(seq) for seq in range(1, 5)] + [waiting] + [record(seq) for seq in range(6, 9)]
    store = await filled(records, answered=2, delivered=5 if status is Status.DELIVERED else 4)
    await retention(store, age=DAY).run()
    assert await kept(store) == [5, 6, 7, 8]


@pytest.mark.parametrize(("type", "first"), [("message", 3), ("note", 7)])
async def test_a_message_that_was_refused_when_the_agent_had_it_already_waits_for_its_answer(
    type: str, first: int
) -> None:
    """Its marker says that the agent has it: a restarted gateway would take the answer for the next message's."""
    records = [record(1), record(2), refused(3, type), *(record(seq, type="note") for seq in range(4, 7))]
    store = await filled(records, answered=1, delivered=3)
    await store.commit([Write("s", marks=((3, Status.DELIVERED),))])
    assert await kept(store) == [1, 2, 3, 4, 5, 6]
    await retention(store, age=DAY).run()
    assert await kept(store) == list(range(first, 7))


async def test_a_message_that_was_refused_and_never_reached_the_agent_needs_no_answer() -> None:
    store = await filled([record(1), refused(2, "message"), record(3)], answered=0)
    assert len(await store.dead_letters()) == 1
    await retention(store, age=DAY).run()
    assert await kept(store) == []


async def test_what_was_never_a_message_needs_no_answer() -> None:
    """A session that services write notes into has no answers at all: it would have been kept for ever."""
    store = await filled([record(seq, type="note") for seq in range(1, 9)], answered=0)
    await retention(store, age=DAY).run()
    assert await kept(store) == []


async def test_a_message_that_came_to_nothing_needs_no_answer_either() -> None:
    ends = [Status.EXPIRED, Status.INTERRUPTED, Status.COMPLETE]
    store = await filled([record(seq, status=ends[seq % 3]) for seq in range(1, 60)], answered=0)
    await retention(store, age=DAY).run()
    assert await kept(store) == []


async def test_thousands_go_in_steps_and_every_session_is_looked_at() -> None:
    store = MemoryStore()
    for n in range(250):
        await store.create(Session(f"s{n}", "ann", OLD))
        await store.commit([Write(f"s{n}", append=replace(record(1, type="note"), session_id=f"s{n}"))])
    for seq in range(2, 2502):
        await store.commit([Write("s7", append=replace(record(seq, type="note"), session_id="s7"))])
    steps: list[int] = []
    await Retention(store, RetentionPolicy(DAY, None), told=steps.append, utcnow=lambda: NEW_YEAR).run()
    assert sum(steps) == 250 + 2500
    assert max(steps) == 1000
    for n in range(250):
        assert await store.messages(f"s{n}") == []


class Purged(MemoryStore):
    """When the session `when` is trimmed, `gone` are purged; the first of them is made again at once."""

    when = ""
    gone: tuple[str, ...] = ()

    async def trim(self, session_id: str, **asked: Any) -> int:
        if session_id == self.when:
            for each in self.gone:
                await self.purge(each)
            await self.create(Session(self.gone[0], "eve", NEW_YEAR))
        return await super().trim(session_id, **asked)


async def test_a_session_that_is_purged_meanwhile_does_not_end_the_walk() -> None:
    store = Purged()
    count = 2 * SESSIONS_AT_ONCE + 10
    for n in range(count):
        await store.create(Session(f"s{n}", "ann", OLD))
        await store.commit([Write(f"s{n}", append=replace(record(1, type="note"), session_id=f"s{n}"))])
    last_of_page = count - SESSIONS_AT_ONCE  # the newest come first
    store.when, store.gone = f"s{count - 5}", (f"s{last_of_page + 1}", f"s{last_of_page}")
    await retention(store, age=DAY).run()
    for n in range(count):
        assert await store.messages(f"s{n}") == []


async def test_a_page_that_is_purged_as_a_whole_is_for_the_next_time() -> None:
    store = Purged()
    for n in range(SESSIONS_AT_ONCE + 1):
        await store.create(Session(f"s{n}", "ann", OLD))
        await store.commit([Write(f"s{n}", append=replace(record(1, type="note"), session_id=f"s{n}"))])
    store.when, store.gone = f"s{SESSIONS_AT_ONCE}", tuple(f"s{n}" for n in range(1, SESSIONS_AT_ONCE + 1))
    with pytest.raises(StoreUnavailable):
        await retention(store, age=DAY).run()
    store.when = ""
    await retention(store, age=DAY).run()
    assert await store.messages("s0") == []


async def test_a_store_that_is_away_is_asked_again_next_time() -> None:
    store = await filled([record(seq) for seq in range(1, 4)], answered=3)
    flaky = FlakyStore(store)
    flaky.outage = Fault.AWAY
    deaths: list[BaseException] = []
    chore = Chore("retention", retention(flaky, age=DAY).run, first=1, every=3600)
    async with MaintenanceScheduler([chore], on_death=deaths.append):
        await asyncio.sleep(2)
        assert await kept(store) == [1, 2, 3]
        flaky.outage = None
        await asyncio.sleep(3600)
        assert await kept(store) == []
    assert deaths == []


async def test_a_keeper_that_dies_ends_the_gateway() -> None:
    async def broken() -> None:
        raise RuntimeError("a bug")

    deaths: list[BaseException] = []
    async with MaintenanceScheduler([Chore("broken", broken, first=1, every=1)], on_death=deaths.append):
        await asyncio.sleep(5)
    assert [str(death) for death in deaths] == ["a bug"]


async def test_keepers_end_with_the_house_whatever_they_do() -> None:
    for work in (lambda: asyncio.sleep(1000), _away):
        async with MaintenanceScheduler([Chore("one", work, first=0, every=0.1)], on_death=lambda _: None):
            await asyncio.sleep(1)


async def _away() -> None:
    raise StoreUnavailable("not now")


async def test_a_session_goes_on_after_its_beginning_is_gone() -> None:
    async with World() as world:
        await world.create()
        tab = await world.welcomed()
        for n in range(3):
            tab.say(f"m{n}", f"c{n}")
            await tab.until("done", count=n + 1)
        later = Retention(world.kept, RetentionPolicy(DAY, None), utcnow=lambda: world.utcnow() + 2 * DAY)
        await later.run()
        before = await world.history()
        tab.say("and on", "c9")
        await tab.until("done", count=4)
        await world.restart()
        again = await world.welcomed()
        again.say("once more", "c10")
        await again.until("done")
        after = await world.history()
    assert [each["seq"] for each in before] == []
    seqs = [each["seq"] for each in after]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert seqs[0] > 1


@pytest.mark.parametrize(
    ("given", "trims"),
    [({}, False), ({"HOLDFAST_RETENTION_AGE": "30d"}, True), ({"HOLDFAST_RETENTION_COUNT": "100"}, True)],
)
async def test_a_gateway_keeps_everything_unless_it_is_told_otherwise(
    tmp_path: Path, given: dict[str, str], trims: bool
) -> None:
    chosen = load_settings({"HOLDFAST_DATA_DIR": str(tmp_path), **given})
    chores = build_house(chosen, resolve_secrets(chosen)).chores
    assert ("retention" in [chore.name for chore in chores]) is trims


@given(
    st.lists(st.sampled_from([Status.COMPLETE, Status.STORED, Status.EXPIRED]), max_size=12),
    st.integers(0, 12),
    st.integers(0, 12),
)
@settings(deadline=None)
def test_nothing_owed_ever_goes(statuses: list[Status], answered: int, delivered: int) -> None:
    """Whatever the conversation: after retention by age 0 everything before the first owed message is gone, and
    nothing from there on."""

    async def scene() -> None:
        records = [record(seq, status=status) for seq, status in enumerate(statuses, 1)]
        last = len(records)
        store = await filled(records, answered=min(answered, last), delivered=min(delivered, last))
        seen = await store.messages("s", limit=100)
        owed = first_owed([each for each in seen if each.seq > min(answered, last)])
        unsent = next((each.seq for each in seen if each.status == Status.STORED), None)
        first = min((seq for seq in (owed, unsent) if seq is not None), default=last + 1)
        await Retention(store, RetentionPolicy(DAY, None), utcnow=lambda: NEW_YEAR).run()
        assert await kept(store) == list(range(first, last + 1))

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("policy", "first", "last", "concerned"),
    [
        (RetentionPolicy(None, 100), 1, 100, False),
        (RetentionPolicy(None, 100), 1, 101, True),
        (RetentionPolicy(None, 100), 50, 149, False),
        (RetentionPolicy(DAY, None), 1, 1, True),
        (RetentionPolicy(20 * DAY, None), 1, 1, False),
        (RetentionPolicy(DAY, None), 5, 4, False),
    ],
)
def test_sessions_with_nothing_to_lose_are_passed_over(
    policy: RetentionPolicy, first: int, last: int, concerned: bool
) -> None:
    session = Session("s", "ann", OLD, first_seq=first, last_seq=last)
    assert policy.concerns(session, NEW_YEAR) == concerned
