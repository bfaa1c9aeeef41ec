"""A user's own sessions, live: on virtual time, with sessions in memory and pages that read, or do not."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.feed.feed import INTERVAL_SECONDS
from gateway.feed.viewer import HIGH_WATER, STUCK_SECONDS, EventViewer
from gateway.feed.viewer_backlog import MOST_SESSIONS, MOST_WORDS
from gateway.protocol.close_codes import CloseCode
from gateway.session.model.state import SessionSpec, SessionState
from gateway.session.sandbox.lifecycle.life import ASLEEP
from persistence.errors import StoreUnavailable
from persistence.record import Session
from sandbox.providers.memory.scripted import silent
from sync.ports import ObjectsUnavailable
from tests.support.faults import Fault
from tests.support.sessions import FULL, RecordingOutlet, World

pytestmark = pytest.mark.virtual_time


class Page:
    """One page that watches, as its socket would have it."""

    def __init__(self, world: World, user: str, outlet: RecordingOutlet | None = None) -> None:
        self.bulletin = world.sessions.feed
        self.user = user
        self.outlet = outlet or RecordingOutlet()
        self.viewer = EventViewer(self.outlet)

    async def enter(self) -> None:
        await self.bulletin.join(self.user, self.viewer)
        self.bulletin.begin(self.user, self.viewer)

    def leave(self) -> None:
        self.bulletin.leave(self.user, self.viewer)

    @property
    def frames(self) -> list[dict[str, Any]]:
        return self.outlet.frames

    def said(self, type: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame["type"] == type]

    @property
    def sessions(self) -> dict[str, dict[str, Any]]:
        """What it would show: the list, and every change applied in order."""
        shown: dict[str, dict[str, Any]] = {}
        whole = True
        for frame in self.frames:
            match frame["type"]:
                case "sandboxes":
                    shown = ({} if whole else shown) | {each["id"]: each for each in frame["sandboxes"]}
                    whole = not frame.get("more")
                case "sandbox":
                    shown[frame["sandbox"]["id"]] = frame["sandbox"]
                case "gone":
                    shown.pop(frame["id"], None)
        return shown

    @property
    def closed_with(self) -> int | None:
        return self.outlet.closed_with[0] if self.outlet.closed_with else None


class Line(RecordingOutlet):
    """A socket that takes what is read of it, and closes like a real one when it is sent more than it may hold."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = self.most = 0

    @property
    def buffered(self) -> int:
        return self.unread

    def send_text_prepared(self, frame: bytes) -> bool:
        if self.unread > FULL:
            self.close(CloseCode.TOO_SLOW, "")
            return False
        self.unread += len(frame)
        self.most = max(self.most, self.unread)
        return super().send_text_prepared(frame)

    async def read(self, bytes_per_second: float) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.unread = max(0, self.unread - int(bytes_per_second / 10))


async def keep_many(world: World, count: int, title: str = "x" * 200) -> None:
    """So many sessions that nobody has loaded."""
    spec, state = SessionSpec(title=title).to_json(), SessionState().to_json()
    for number in range(count):
        await world.kept.create(Session(f"kept-{number}", "ann", 1.0, spec, state))


class Listed:
    """How often the store was asked for a user's sessions. It `answers`, or they wait."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        self.answers = asyncio.Event()
        self.answers.set()
        sessions = world.gateway.store.sessions

        async def counted(user_id: str | None = None, *, after: str | None = None, limit: int | None = None) -> Any:
            self.times += after is None
            found = await sessions(user_id, after=after, limit=limit)
            await self.answers.wait()
            return found

        monkeypatch.setattr(world.gateway.store, "sessions", counted)


@asynccontextmanager
async def watching(world: World, user: str = "ann", outlet: RecordingOutlet | None = None) -> AsyncIterator[Page]:
    page = Page(world, user, outlet)
    try:
        await page.enter()
        yield page
    finally:
        page.leave()


async def truth(world: World, user: str = "ann") -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in await world.described(user)}


def boom() -> None:
    raise ZeroDivisionError


def without_activity(shown: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {**each, "lastActiveAt": None} for name, each in shown.items()}


async def assert_up_to_date(world: World, page: Page) -> None:
    await asyncio.sleep(1)
    assert without_activity(page.sessions) == without_activity(await truth(world))


async def test_the_list_comes_first_and_loads_and_wakes_nobody(world: World) -> None:
    for name in ("a", "b"):
        await world.create(name, title=name.upper())
    await world.until(lambda: len(world.fleet.sandboxes) == 2)
    for name in ("a", "b"):
        await (await world.actor(name)).sleep()
    await asyncio.sleep(1)
    await world.restart()
    starts = world.fleet.starts
    async with watching(world) as page:
        await asyncio.sleep(60)
        assert [frame["type"] for frame in page.frames] == ["sandboxes"]
        assert {name: each["title"] for name, each in page.sessions.items()} == {"a": "A", "b": "B"}
        assert {each["status"] for each in page.sessions.values()} == {"sleeping"}
        assert world.sessions.stats()["sessions_loaded"] == 0
        assert world.fleet.starts == starts


async def test_every_change_is_shown_until_the_page_shows_what_the_list_would(world: World) -> None:
    async with watching(world) as page:
        assert page.sessions == {}
        await world.create("s", title="mine")
        await assert_up_to_date(world, page)
        tab = await world.welcomed("s")
        await assert_up_to_date(world, page)
        assert page.sessions["s"]["viewers"] == 1
        tab.say("hello")
        await tab.until("done")
        await assert_up_to_date(world, page)
        assert page.sessions["s"]["lastSeq"] == 2
        assert page.sessions["s"]["status"] == "running"
        tab.leave()
        actor = await world.actor("s")
        await actor.sleep()
        await assert_up_to_date(world, page)
        assert page.sessions["s"]["sandboxStatus"] == "sleeping"
        assert page.sessions["s"]["sync"]["generation"] == 1
        await actor.destroy(purge=False)
        await assert_up_to_date(world, page)
        assert page.sessions["s"]["status"] == "archived"
        await actor.destroy(purge=True)
        await assert_up_to_date(world, page)
        assert page.sessions == {}
        await asyncio.sleep(60)
        assert [frame["id"] for frame in page.said("gone")] == ["s"]


async def test_a_user_hears_nothing_of_anothers_sessions(world: World) -> None:
    async with watching(world, "eve") as eves, watching(world) as anns:
        await world.create("s", user="ann", title="private")
        tab = await world.welcomed("s")
        tab.say("a private thought")
        await tab.until("done")
        await asyncio.sleep(1)
        await (await world.actor("s")).destroy(purge=True)
        await asyncio.sleep(5)
        assert [frame["type"] for frame in eves.frames] == ["sandboxes"]
        assert {"sandbox", "sync", "gone"} <= {frame["type"] for frame in anns.frames}


async def test_an_id_that_is_another_users_by_now_is_gone_for_the_first(world: World) -> None:
    async with watching(world) as anns, watching(world, "eve") as eves:
        await world.create("s", user="ann")
        await asyncio.sleep(1)
        await (await world.actor("s")).destroy(purge=True)
        await world.create("s", user="eve")
        await asyncio.sleep(1)
        assert anns.sessions == {}
        assert set(eves.sessions) == {"s"}


async def test_a_session_that_changes_all_the_time_is_told_a_few_times_a_second_and_in_the_end(world: World) -> None:
    await world.create("s")
    tab = await world.welcomed("s")
    await asyncio.sleep(30)
    async with watching(world) as page:
        began = asyncio.get_running_loop().time()
        for number in range(400):
            tab.say(f"m{number}")
            await asyncio.sleep(0.01)
        await tab.until("done", count=400)
        seconds = asyncio.get_running_loop().time() - began
        assert len(page.said("sandbox")) <= seconds / INTERVAL_SECONDS + 2
        await assert_up_to_date(world, page)
        assert page.sessions["s"]["lastSeq"] == 800


async def test_what_says_nothing_new_is_not_sent(world: World) -> None:
    await world.create("s")
    tab = await world.welcomed("s")
    await asyncio.sleep(30)
    async with watching(world) as page:
        tab.send("abort")
        await asyncio.sleep(1)
        seen = len(page.frames)
        for _ in range(20):
            tab.send("abort")  # there is nothing to abort: only somebody was active
            await asyncio.sleep(1)
        assert len(page.frames) == seen


async def test_each_transition_of_a_sync_is_sent_in_order_with_its_time(world: World) -> None:
    await world.create("s")
    await world.until(lambda: bool(world.fleet.sandboxes))
    actor = await world.actor("s")
    await asyncio.sleep(30)
    before = len(actor.workspace.sync.history)
    async with watching(world) as page:
        world.sandbox("s").write(b"workspace/a", b"1")
        await asyncio.sleep(30)
        said = page.said("sync")
        assert [(each["state"], each["generation"]) for each in said] == [
            ("pending", 0),
            ("syncing", 0),
            ("flushing", 0),
            ("idle", 1),
        ]
        assert [each["at"] for each in said] == sorted(each["at"] for each in said)
        assert said[1]["attempt"] == 1
        assert "attempt" not in said[0]
        assert [str(moved.transition.state) for moved in actor.workspace.sync.history[before:]] == [
            each["state"] for each in said
        ]


async def test_why_a_sync_failed_is_in_its_transitions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise ObjectsUnavailable("the store is away")

    await world.create("s")
    await world.until(lambda: bool(world.fleet.sandboxes))
    await asyncio.sleep(30)
    monkeypatch.setattr(world.objects, "put", away)
    async with watching(world) as page:
        world.sandbox("s").write(b"workspace/a", b"1")
        await world.until(lambda: any(each["state"] == "failed" for each in page.said("sync")))
        failed = page.said("sync")[-1]
        assert failed["attempt"] == 3
        assert "away" in failed["reason"]
        await assert_up_to_date(world, page)
        assert page.sessions["s"]["sync"]["state"] == "failed"


async def test_a_session_that_crashes_is_shown_as_the_store_knows_it(world: World) -> None:
    await world.create("s")
    await world.welcomed("s")
    await asyncio.sleep(30)
    async with watching(world) as page:
        (await world.actor("s")).post(boom)
        await asyncio.sleep(5)
        assert world.sessions.stats()["sessions_loaded"] == 0
        assert page.sessions["s"]["viewers"] == 0
        assert without_activity(page.sessions) == without_activity(await truth(world))


async def test_a_store_that_is_away_delays_what_only_it_knows_and_nothing_else(world: World) -> None:
    await world.create("crashes")
    await world.create("lives")
    await world.welcomed("crashes")
    tab = await world.welcomed("lives")
    await asyncio.sleep(30)
    async with watching(world) as page:
        world.store.outage = Fault.AWAY
        (await world.actor("crashes")).post(boom)
        await asyncio.sleep(5)
        tab.leave()
        await asyncio.sleep(1)
        assert page.sessions["lives"]["viewers"] == 0
        assert page.sessions["crashes"]["viewers"] == 1
        world.store.outage = None
        await asyncio.sleep(30)
        assert page.sessions["crashes"]["viewers"] == 0


async def test_a_list_that_cannot_be_made_is_refused_and_leaves_nothing_behind(world: World) -> None:
    page = Page(world, "ann")
    world.store.outage = Fault.AWAY
    with pytest.raises(StoreUnavailable):
        await page.enter()
    page.leave()
    assert len(world.sessions.feed) == 0
    assert not world.sessions.feed._watches


async def test_what_happens_while_the_list_is_made_is_not_missed(world: World) -> None:
    """The store is asked, then a session is made, another is purged, a third changes: then its answer comes."""
    for name in ("old", "changes"):
        await world.create(name)
    await asyncio.sleep(30)
    page = Page(world, "ann")
    await page.bulletin.join("ann", page.viewer)
    await world.create("new")
    tab = await world.welcomed("changes")
    await (await world.actor("old")).destroy(purge=True)
    await asyncio.sleep(5)
    assert page.frames == []
    page.bulletin.begin("ann", page.viewer)
    await assert_up_to_date(world, page)
    assert set(page.sessions) == {"new", "changes"}
    assert page.frames[0]["type"] == "sandboxes"
    assert page.sessions["changes"]["viewers"] == 1
    tab.leave()
    page.leave()


async def test_a_second_page_gets_its_own_list_and_both_get_the_same_news(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("s")
    listed = Listed(world, monkeypatch)
    async with watching(world) as first:
        await assert_up_to_date(world, first)
        tab = await world.welcomed("s")  # not told yet when the second page comes
        before = listed.times
        async with watching(world) as second:
            assert listed.times == before + 1  # the first page has all of its own
            tab.leave()  # back to what the first was told last
            for page in (first, second):
                await assert_up_to_date(world, page)
                assert page.sessions["s"]["viewers"] == 0
        await world.welcomed("s")
        await assert_up_to_date(world, first)
    assert not world.sessions.feed._watches


async def test_a_page_that_does_not_read_is_owed_each_session_once_and_every_transition(world: World) -> None:
    await world.create("s")
    tab = await world.welcomed("s")
    await asyncio.sleep(30)
    async with watching(world) as page, watching(world) as reads:
        page.outlet.full = True
        for number in range(50):
            tab.say(f"m{number}")
        await tab.until("done", count=50)
        world.sandbox("s").write(b"workspace/a", b"1")
        await asyncio.sleep(15)
        await (await world.actor("s")).destroy(purge=False)
        await world.create("t")
        await (await world.actor("t")).destroy(purge=True)
        assert [frame["type"] for frame in page.frames] == ["sandboxes"]
        page.outlet.full = False
        await assert_up_to_date(world, page)
        assert page.said("sync") == reads.said("sync")
        assert len(page.said("sandbox")) == 1
        assert len(reads.said("sandbox")) > 1
        assert page.closed_with is None


async def test_a_page_that_never_reads_is_closed_as_too_slow_and_gets_the_whole_list_when_it_comes_back(
    world: World,
) -> None:
    await world.create("s")
    await asyncio.sleep(30)
    async with watching(world) as page:
        page.outlet.full = True
        tab = await world.welcomed("s")
        await asyncio.sleep(STUCK_SECONDS + 2)
        assert page.closed_with == 4408
        assert tab.closed_with is None
    async with watching(world) as again:
        assert again.sessions["s"]["viewers"] == 1


async def test_a_page_that_reads_slowly_is_not_closed(world: World) -> None:
    """A list of some megabytes over a slow line: what happens meanwhile waits for its end."""
    await keep_many(world, 4_000)
    await world.create("s")
    await asyncio.sleep(30)
    async with watching(world, outlet=(line := Line())) as page, asyncio.TaskGroup() as reading:
        reader = reading.create_task(line.read(10 << 10))
        tab = await world.welcomed("s")
        world.sandbox("s").write(b"workspace/a", b"1")
        await asyncio.sleep(60)
        assert not page.said("sync")
        await world.until(lambda: len(page.said("sync")) == 4)
        await assert_up_to_date(world, page)
        assert page.closed_with is None
        assert line.most <= 2 * HIGH_WATER + 1024
        tab.leave()
        reader.cancel()


async def test_a_page_that_reads_is_not_closed_because_a_sync_moves_while_it_joins(world: World) -> None:
    """Its list was once written at once, and the next word found more unsent than a socket may hold."""
    await keep_many(world, 4_000)
    await world.create("s")
    await asyncio.sleep(30)
    page = Page(world, "ann", line := Line())
    await page.bulletin.join("ann", page.viewer)
    world.sandbox("s").write(b"workspace/a", b"1")
    await asyncio.sleep(10)
    page.bulletin.begin("ann", page.viewer)
    async with asyncio.TaskGroup() as reading:
        reader = reading.create_task(line.read(10 << 20))
        await asyncio.sleep(5)
        await assert_up_to_date(world, page)
        reader.cancel()
    assert page.closed_with is None
    assert [each["state"] for each in page.said("sync")] == ["pending", "syncing", "flushing", "idle"]
    page.leave()


async def test_a_page_that_reads_is_not_closed_because_much_was_purged_while_it_was_behind(world: World) -> None:
    long = "long" * 30
    async with watching(world, outlet=(line := Line())) as page, asyncio.TaskGroup() as reading:
        line.unread = 2 * HIGH_WATER
        for number in range(MOST_SESSIONS):
            page.bulletin.gone("ann", f"{long}{number}")
        reader = reading.create_task(line.read(1 << 20))
        await world.until(lambda: len(page.said("gone")) == MOST_SESSIONS)
        await world.create("s")
        await assert_up_to_date(world, page)
        assert page.closed_with is None
        assert line.most <= 2 * HIGH_WATER + 1024
        reader.cancel()


async def test_many_pages_that_do_not_read_hold_one_list_between_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep_many(world, 4_000)
    await world.create("s")
    await asyncio.sleep(30)
    listed = Listed(world, monkeypatch)
    pages = [Page(world, "ann", Line()) for _ in range(40)]
    tracemalloc.start()
    try:
        async with asyncio.TaskGroup() as entering:
            for page in pages[:20]:
                entering.create_task(page.enter())
        for page in pages[20:]:  # one after the other
            await page.enter()
            await asyncio.sleep(0.1)
        assert listed.times == 1
        for page in pages:  # what they were given is their sockets'
            page.outlet.frames.clear()
            page.outlet.texts.clear()
        assert tracemalloc.get_traced_memory()[0] < 8 << 20  # a list has 3 MB
    finally:
        tracemalloc.stop()
    await asyncio.sleep(STUCK_SECONDS + 2)
    assert {page.closed_with for page in pages} == {4408}
    async with watching(world) as page:  # their peers have not answered yet, and hold nothing any more
        assert listed.times == 2
        await assert_up_to_date(world, page)
    for page in pages:
        assert page.outlet.buffered <= 2 * HIGH_WATER + 1024
        page.leave()


async def test_whoever_is_given_a_list_that_was_made_for_another_is_told_what_changed_since(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep_many(world, 4_000)
    for name in ("purged", "changes", "there and back"):
        await world.create(name)
    await asyncio.sleep(30)
    listed = Listed(world, monkeypatch)
    stuck = Page(world, "ann", Line())
    await stuck.enter()
    async with watching(world) as reads:
        first = await world.welcomed("there and back")
        await world.welcomed("changes")
        await (await world.actor("purged")).destroy(purge=True)
        await world.create("new")
        await world.kept.purge("kept-7")
        world.sessions.feed.stir("ann", "kept-7")
        await asyncio.sleep(3)
        first.leave()
        async with watching(world) as late:
            assert listed.times == 1
            assert {each["id"] for each in late.said("gone")} == {"purged", "kept-7"}
            await assert_up_to_date(world, late)
            await assert_up_to_date(world, reads)
            assert len(late.sessions) == 4_002
            assert not late.said("sync")
    stuck.leave()


async def test_what_is_listed_and_then_is_again_as_it_was_told_before_is_told_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list has a session as it was for a moment only: those who were told nothing of that need not be told that it
    is over, but whoever is given the list."""
    await world.create("s")
    await asyncio.sleep(30)
    async with watching(world) as first:
        tab = await world.welcomed("s")
        tab.leave()
        await assert_up_to_date(world, first)  # told how it is without the tab
        listed = Listed(world, monkeypatch)
        tab = await world.welcomed("s")
        page = Page(world, "ann")
        await page.bulletin.join("ann", page.viewer)
        tab.leave()
        await asyncio.sleep(5)
        page.bulletin.begin("ann", page.viewer)
        assert listed.times == 1
        assert page.sessions["s"]["viewers"] == 1
        await assert_up_to_date(world, page)
        page.leave()


async def test_a_list_is_made_although_who_asked_for_it_first_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("s")
    await asyncio.sleep(30)
    listed = Listed(world, monkeypatch)
    listed.answers.clear()
    first, second = Page(world, "ann"), Page(world, "ann")
    entering = [asyncio.create_task(page.enter()) for page in (first, second)]
    await asyncio.sleep(1)
    entering[0].cancel()
    await asyncio.wait(entering[:1])
    first.leave()
    listed.answers.set()
    await entering[1]
    assert listed.times == 1
    assert set(second.sessions) == {"s"}
    second.leave()


async def test_a_list_that_nobody_waits_for_is_not_made_and_the_drain_refuses_who_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Listed(world, monkeypatch)
    listed.answers.clear()
    page = Page(world, "ann")
    entering = asyncio.create_task(page.enter())
    await asyncio.sleep(1)
    making = [task for task in asyncio.all_tasks() if task.get_name() == "list ann"]
    entering.cancel()
    await asyncio.wait([entering])
    page.leave()
    await asyncio.wait(making)
    assert [task.cancelled() for task in making] == [True]
    entering = asyncio.create_task(page.enter())
    await asyncio.sleep(1)
    world.sessions.feed.close()
    with pytest.raises(StoreUnavailable):
        await entering
    page.leave()


async def test_after_a_list_that_could_not_be_made_the_next_is(world: World) -> None:
    pages = [Page(world, "ann") for _ in range(3)]
    world.store.outage = Fault.AWAY
    refused = await asyncio.gather(*(page.enter() for page in pages), return_exceptions=True)
    assert [type(each) for each in refused] == [StoreUnavailable] * 3
    world.store.outage = None
    await pages[0].enter()
    assert pages[0].said("sandboxes") == [{"type": "sandboxes", "sandboxes": []}]
    for page in pages:
        page.leave()


async def test_others_have_their_turn_while_a_long_list_is_made(world: World) -> None:
    await keep_many(world, 2_000, title="")
    turns = 0

    async def work() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    working = asyncio.create_task(work())
    await world.described("ann")
    assert turns >= 2_000 / 200
    turns = 0
    async with watching(world):
        assert turns >= 2_000 / 200
    working.cancel()


async def test_a_page_that_is_owed_too_much_is_closed_as_too_slow(world: World) -> None:
    async with watching(world) as page:
        page.outlet.full = True
        for _ in range(MOST_WORDS + 1):
            page.viewer.tell_expiring("soon")
        assert page.closed_with == 4408


async def test_the_drain_says_goodbye_reads_no_further_and_closes_with_1012(world: World) -> None:
    await world.create("s")
    await asyncio.sleep(30)
    page, late = Page(world, "ann"), Page(world, "ann")
    await page.enter()
    await late.bulletin.join("ann", late.viewer)
    await world.leave()
    late.bulletin.begin("ann", late.viewer)
    for each in (page, late):
        assert each.said("going_away")[0]["retryAfter"] > 0
        assert each.closed_with == 1012
        assert not each.outlet.reading
        each.leave()
    assert page.bulletin._over
    await world.open()


async def test_a_page_that_has_left_is_told_nothing_more(world: World) -> None:
    async with watching(world) as page:
        pass
    page.leave()  # once more is no mistake
    seen = len(page.frames)
    await world.create("s")
    await asyncio.sleep(5)
    assert len(page.frames) == seen


async def test_sessions_cost_nothing_more_while_nobody_watches_and_little_after_somebody_did(world: World) -> None:
    world.fleet.script = silent
    for number in range(50):
        await world.create(f"s{number}")
    await asyncio.sleep(60)

    def measured() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = measured()
        async with watching(world) as page:
            for number in range(50):
                (await world.actor(f"s{number}")).host.stirred()
            await asyncio.sleep(5)
            assert len(page.said("sandbox")) == 50
        del page
        assert measured() - before < 50 * 100
    finally:
        tracemalloc.stop()
    assert not world.sessions.feed._watches


async def test_one_session_that_cannot_be_described_does_not_stop_the_news_of_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = await world.create("bad"), await world.create("good")
    await asyncio.sleep(30)
    describe = type(bad).describe
    async with watching(world) as page:
        monkeypatch.setattr(type(bad), "describe", lambda actor: 1 / 0 if actor is bad else describe(actor))
        bad.host.stirred()
        tab = await world.welcomed("good")
        await asyncio.sleep(1)
        assert page.sessions["good"]["viewers"] == 1
        monkeypatch.undo()
        tab.leave()
        assert good.describe()["status"] not in ASLEEP
        assert json.dumps(page.sessions)


class SlowStore:
    """A store that lets nobody look before `let_go`."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self._open = asyncio.Event()
        find = world.gateway.store.find

        async def slow(session_id: str) -> Any:
            self.asked += 1
            found = await find(session_id)
            await self._open.wait()
            return found

        monkeypatch.setattr(world.gateway.store, "find", slow)

    def let_go(self) -> None:
        self._open.set()


async def test_what_the_store_says_too_late_of_a_session_that_was_purged_is_not_shown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = await world.create("s")
    await asyncio.sleep(30)
    async with watching(world) as page:
        store = SlowStore(world, monkeypatch)
        actor.post(boom)
        await world.until(lambda: store.asked == 1)
        await (await world.actor("s")).destroy(purge=True)
        store.let_go()
        await asyncio.sleep(5)
        assert page.sessions == {}
        assert page.frames[-1] == {"type": "gone", "id": "s"}


async def test_what_the_store_says_of_a_session_that_was_loaded_meanwhile_is_not_shown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = await world.create("s")
    await asyncio.sleep(30)
    async with watching(world) as page:
        store = SlowStore(world, monkeypatch)
        actor.post(boom)
        await world.until(lambda: store.asked == 1)
        await world.welcomed("s")
        store.let_go()
        await assert_up_to_date(world, page)
        assert page.sessions["s"]["viewers"] == 1
        assert all(frame["sandbox"]["viewers"] == 1 for frame in page.said("sandbox"))


async def test_a_session_that_another_gateway_purged_is_gone(world: World) -> None:
    actor = await world.create("s")
    await asyncio.sleep(30)
    async with watching(world) as page:
        await world.kept.purge("s")
        actor.post(boom)
        await asyncio.sleep(5)
        assert page.sessions == {}
