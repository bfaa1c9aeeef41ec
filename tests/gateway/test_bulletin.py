"""A user's own sessions, live: on virtual time, with sessions in memory and pages that read, or do not."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.arrears import MOST_WORDS
from gateway.bulletin import INTERVAL_SECONDS
from gateway.session.life import ASLEEP
from gateway.sockets.event_viewer import STUCK_SECONDS, EventViewer
from persistence.errors import StoreUnavailable
from sandbox.providers.scripted import silent
from sync.ports import ObjectsUnavailable
from tests.support.faults import Fault
from tests.support.sessions import RecordingOutlet, World

pytestmark = pytest.mark.virtual_time


class Page:
    """One page that watches, as its socket would have it."""

    def __init__(self, world: World, user: str) -> None:
        self.bulletin = world.registry.bulletin
        self.user = user
        self.outlet = RecordingOutlet()
        self.viewer = EventViewer(self.outlet)

    async def enter(self) -> None:
        self.bulletin.begin(self.user, self.viewer, await self.bulletin.join(self.user, self.viewer))

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
        for frame in self.frames:
            match frame["type"]:
                case "sandboxes":
                    shown = {each["id"]: each for each in frame["sandboxes"]}
                case "sandbox":
                    shown[frame["sandbox"]["id"]] = frame["sandbox"]
                case "gone":
                    shown.pop(frame["id"], None)
        return shown

    @property
    def closed_with(self) -> int | None:
        return self.outlet.closed_with[0] if self.outlet.closed_with else None


@asynccontextmanager
async def watching(world: World, user: str = "ann") -> AsyncIterator[Page]:
    page = Page(world, user)
    try:
        await page.enter()
        yield page
    finally:
        page.leave()


async def truth(world: World, user: str = "ann") -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in await world.registry.describe_all(user)}


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
    await world.until(lambda: len(world.provider.sandboxes) == 2)
    for name in ("a", "b"):
        await (await world.actor(name)).sleep()
    await asyncio.sleep(1)
    await world.restart()
    starts = world.provider.starts
    async with watching(world) as page:
        await asyncio.sleep(60)
        assert [frame["type"] for frame in page.frames] == ["sandboxes"]
        assert {name: each["title"] for name, each in page.sessions.items()} == {"a": "A", "b": "B"}
        assert {each["status"] for each in page.sessions.values()} == {"sleeping"}
        assert world.registry.stats()["sessions_loaded"] == 0
        assert world.provider.starts == starts


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
    await world.until(lambda: bool(world.provider.sandboxes))
    actor = await world.actor("s")
    await asyncio.sleep(30)
    before = len(actor.workspace.history)
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
        assert [str(moved.transition.state) for moved in actor.workspace.history[before:]] == [
            each["state"] for each in said
        ]


async def test_why_a_sync_failed_is_in_its_transitions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise ObjectsUnavailable("the store is away")

    await world.create("s")
    await world.until(lambda: bool(world.provider.sandboxes))
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
        assert world.registry.stats()["sessions_loaded"] == 0
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
    assert len(world.registry.bulletin) == 0
    assert not world.registry.bulletin._watches


async def test_what_happens_while_the_list_is_made_is_not_missed(world: World) -> None:
    """The store is asked, then a session is made, another is purged, a third changes: then its answer comes."""
    for name in ("old", "changes"):
        await world.create(name)
    await asyncio.sleep(30)
    page = Page(world, "ann")
    listed = await page.bulletin.join("ann", page.viewer)
    await world.create("new")
    tab = await world.welcomed("changes")
    await (await world.actor("old")).destroy(purge=True)
    await asyncio.sleep(5)
    assert page.frames == []
    page.bulletin.begin("ann", page.viewer, listed)
    await assert_up_to_date(world, page)
    assert set(page.sessions) == {"new", "changes"}
    assert page.frames[0]["type"] == "sandboxes"
    assert page.sessions["changes"]["viewers"] == 1
    tab.leave()
    page.leave()


async def test_a_second_page_gets_its_own_list_and_both_get_the_same_news(world: World) -> None:
    await world.create("s")
    async with watching(world) as first:
        await assert_up_to_date(world, first)
        tab = await world.welcomed("s")  # not told yet when the second page comes
        async with watching(world) as second:
            tab.leave()  # back to what the first was told last
            for page in (first, second):
                await assert_up_to_date(world, page)
                assert page.sessions["s"]["viewers"] == 0
        await world.welcomed("s")
        await assert_up_to_date(world, first)
    assert not world.registry.bulletin._watches


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


async def test_a_page_that_reads_slowly_is_not_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of ten megabytes over a slow line: what happens meanwhile waits for its end."""
    await world.create("s")
    await asyncio.sleep(30)
    unsent = 10 << 20
    monkeypatch.setattr(RecordingOutlet, "buffered", property(lambda outlet: unsent if outlet is page.outlet else 0))
    async with watching(world) as page:
        tab = await world.welcomed("s")
        for _ in range(100):
            await asyncio.sleep(10)
            unsent -= 100 << 10
        assert page.closed_with is None
        unsent = 0
        await assert_up_to_date(world, page)
        tab.leave()


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
    listed = await late.bulletin.join("ann", late.viewer)
    await world.leave()
    late.bulletin.begin("ann", late.viewer, listed)
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
    world.provider.script = silent
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
                (await world.actor(f"s{number}")).stirred()
            await asyncio.sleep(5)
            assert len(page.said("sandbox")) == 50
        del page
        assert measured() - before < 50 * 100
    finally:
        tracemalloc.stop()
    assert not world.registry.bulletin._watches


async def test_one_session_that_cannot_be_described_does_not_stop_the_news_of_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = await world.create("bad"), await world.create("good")
    await asyncio.sleep(30)
    describe = type(bad).describe
    async with watching(world) as page:
        monkeypatch.setattr(type(bad), "describe", lambda actor: 1 / 0 if actor is bad else describe(actor))
        bad.stirred()
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
        find = world.registry._store.find

        async def slow(session_id: str) -> Any:
            self.asked += 1
            found = await find(session_id)
            await self._open.wait()
            return found

        monkeypatch.setattr(world.registry._store, "find", slow)

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
