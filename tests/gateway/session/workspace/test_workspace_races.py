"""What can go wrong between a session, its sandbox and its snapshots: each of these once lost something, or hung."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.limits.start_queue import StartLimits
from gateway.protocol.errors import ApiError
from gateway.session import upkeep
from gateway.session.actor import SessionActor
from gateway.telemetry.telemetry import REDACTOR
from persistence.errors import StoreUnavailable
from persistence.record import Session
from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.link import Link, LinkEvents
from sandbox.ports.progress import OnProgress
from sandbox.ports.tree import TreeFailed
from sandbox.protocol.values import Position
from sync.ports import ObjectsUnavailable
from tests.gateway.session.workspace.test_workspace import FILE, AwayObjects, Town
from tests.support.faults import Fault
from tests.support.sessions import Tab

pytestmark = pytest.mark.virtual_time


def say_hello_late(town: Town, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a link says nothing for a while."""
    connect = town.fleet.connect

    async def late(session_id: str, events: LinkEvents, after: Position | None) -> Link:
        link = await connect(session_id, events, after)
        link.pause_reading()
        asyncio.get_running_loop().call_later(seconds, link.resume_reading)
        return link

    monkeypatch.setattr(town.fleet, "connect", late)


async def failed_and_alone(town: Town) -> None:
    """A session whose sync has failed; its gateway is killed, and its sandbox as well."""
    actor, _ = await town.begun()
    town.sandbox().files[FILE] = b"1"
    town.objects.away = True
    with pytest.raises(ApiError, match="could not be stored"):
        await actor.sync(wait=True)
    await town.until(lambda: actor.conversation.state.sync_error != "", "a note of it")
    await asyncio.sleep(1)
    await town.kill()
    await town.fleet.sandbox("s").stop()


async def test_no_agent_starts_between_the_last_scan_and_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wake, and a sleep before its hello has come: the agent would have begun to write while the last generation was
    made, and the next wake would have put its work aside."""
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"1"
        await actor.sleep()
        before = len(town.sandbox().processes)
        say_hello_late(town, 0.3, monkeypatch)
        town.sandbox().roots.step_seconds = 0.2
        waking = asyncio.ensure_future(actor.wake())
        await asyncio.sleep(0)
        await asyncio.gather(waking, actor.sleep())
        await asyncio.sleep(60)
        assert len(town.sandbox().processes) == before
        assert (actor.describe()["status"], town.sandbox().alive) == ("sleeping", False)


async def test_an_archived_session_is_not_rescued() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"1"
        town.objects.away = True
        with pytest.raises(ApiError, match="could not be stored"):
            await actor.sync(wait=True)
        town.objects.away = False
        described = await actor.destroy(purge=False)
        assert (described["sync"]["state"], described["sync"]["dirty"]) == ("idle", False)
        await asyncio.sleep(1)
        await town.restart()
        starts = town.fleet.starts
        await asyncio.sleep(600)
        assert await town.vault().newest("ann", "s") is None
        assert town.fleet.starts == starts


class LateCreate(AwayObjects):
    """A write that was sent cannot be called back."""

    seconds = 0.0
    sent: asyncio.Future[str] | None = None

    async def create(self, key: str, content: bytes) -> str:
        async def later() -> str:
            await asyncio.sleep(self.seconds)
            return await super(LateCreate, self).create(key, content)

        self.sent = asyncio.ensure_future(later())
        return await asyncio.shield(self.sent)


async def test_a_session_deleted_while_its_first_generation_is_written_stays_deleted() -> None:
    async with Town() as town:
        town.objects = objects = LateCreate()
        await town.restart()
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"secret"
        objects.seconds = 1.0
        syncing = asyncio.ensure_future(actor.sync(wait=True))
        await town.until(lambda: objects.sent is not None, "the pointer on its way")
        await actor.destroy(purge=True)
        await asyncio.gather(syncing, return_exceptions=True)
        await asyncio.sleep(10)
        await town.create()
        await town.talk()
        assert town.sandbox().files == {}


async def test_one_users_bridges_that_never_answer_do_not_hold_up_another_user() -> None:
    async with Town() as town:
        for number in range(9):
            await town.create(f"s{number}")
            await town.talk("x", f"s{number}")
        await town.create("other", user="bob")
        await town.talk("x", "other")
        await asyncio.sleep(10)
        for number in range(9):
            town.sandbox(f"s{number}").roots.step_seconds = 1e9
            (await town.actor(f"s{number}")).workspace.request()
        await asyncio.sleep(5)
        town.sandbox("other").files[FILE] = b"1"
        async with asyncio.timeout(60):
            assert (await (await town.actor("other")).sync(wait=True))["sync"]["generation"] == 2


async def test_a_sandbox_that_never_gets_quiet_can_be_deleted_and_is_stopped_by_one_task_at_a_time() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        await asyncio.sleep(10)
        town.sandbox().roots.step_seconds = 1200
        await asyncio.sleep(3600)
        assert sum(task.get_name().startswith("Keep s") for task in asyncio.all_tasks()) <= 1
        async with asyncio.timeout(3600):
            await actor.destroy(purge=False)


@pytest.mark.parametrize("what", ["sync", "wake"])
async def test_a_lost_link_is_no_reason_to_end_what_runs(what: str) -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        await asyncio.sleep(5)
        agent = town.sandbox().agent
        assert agent is not None
        town.sandbox().lose_link()
        for _ in range(3):
            await asyncio.sleep(0)
        await (actor.sync(wait=True) if what == "sync" else actor.wake())
        await asyncio.sleep(5)
        assert agent.alive
        assert town.fleet.starts == 1


async def test_a_sync_while_the_gateway_leaves_ends_nothing() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        await asyncio.sleep(5)
        agent = town.sandbox().agent
        assert agent is not None
        leaving = asyncio.ensure_future(town.sessions.drain.run())
        await asyncio.sleep(0.1)
        await actor.sync(wait=True)
        await leaving
        assert agent.alive


async def test_a_pause_without_a_link_keeps_what_was_written() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        await asyncio.sleep(5)
        town.sandbox().files[FILE] = b"new"
        town.sandbox().lose_link()
        described = await actor.pause()
        assert (described["status"], described["sync"]["dirty"]) == ("paused", False)
        _, tree = await town.vault().tree("ann", "s", None)
        assert tree.entries[FILE].size == 3


async def test_a_rescue_outlives_the_reaper_and_an_outage() -> None:
    async with Town() as town:
        await failed_and_alone(town)
        await asyncio.sleep(900)
        town.fleet.start_seconds = 10
        await town.open()
        await asyncio.sleep(3600)
        town.objects.away = False
        await asyncio.sleep(900)
        assert await town.vault().newest("ann", "s") is not None
        assert not town.sandbox().alive


async def test_what_a_crash_left_is_kept_although_nobody_comes_back() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        await asyncio.sleep(10)
        town.sandbox().files[FILE] = b"2"
        town.fleet.start_problem = "not today"
        town.sandbox().crash()
        tab.leave()
        await town.until(lambda: actor.describe()["status"] == "error", "an error")
        town.fleet.start_problem = None
        await asyncio.sleep(1000)
        _, tree = await town.vault().tree("ann", "s", None)
        assert FILE in tree.entries
        assert actor.conversation.state.clean


async def test_rescues_come_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Town() as town:
        for number in range(20):
            await town.create(f"s{number}")
            await town.talk("x", f"s{number}")
        await asyncio.sleep(1)
        await town.kill()
        for number in range(20):
            await town.fleet.sandbox(f"s{number}").stop()
        start, now, most = town.fleet.start, 0, 0

        async def counted(spec: SandboxSpec, progress: OnProgress) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            try:
                await asyncio.sleep(2)
                await start(spec, progress)
            finally:
                now -= 1

        monkeypatch.setattr(town.fleet, "start", counted)
        town.starts = StartLimits(at_once=4, at_once_per_user=2)
        await town.open()
        await asyncio.sleep(600)
        assert most == 2
        for number in range(20):
            assert (await town.actor(f"s{number}")).conversation.state.clean


async def one_of_two_died(town: Town) -> tuple[SessionActor, SessionActor]:
    """While no gateway was there; the one that comes back gives each user one place. The dead one, the one alive."""
    for session_id in ("a1", "a2"):
        await town.create(session_id)
        await town.talk("x", session_id)
    await asyncio.sleep(1)
    await town.kill()
    await town.fleet.sandbox("a1").stop()
    town.starts = StartLimits(running_per_user=1)
    await town.open()
    return await town.actor("a1"), await town.actor("a2")


async def test_what_a_dead_sandbox_left_is_looked_at_where_there_is_a_place_for_one() -> None:
    """Each of these syncs starts a sandbox: a user with many dead ones started as many at once."""
    async with Town() as town:
        dead, alive = await one_of_two_died(town)
        await town.until(lambda: town.sessions.stats()["sandboxes_running"] == 1)
        for wait in (True, False):
            with pytest.raises(ApiError, match="HOLDFAST_MAX_RUNNING_PER_USER") as refused:
                await dead.sync(wait=wait)
            assert refused.value.status == 429
        await alive.sync(wait=True)
        await alive.sleep()
        assert (await town.actor("a1")).conversation.state.unkept
        await dead.sync(wait=True)
        assert not dead.conversation.state.unkept
        assert town.sessions.stats()["sandboxes_running"] == 0


async def test_a_sync_of_a_session_that_has_its_users_last_place_waits_for_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was about to start, and so not there to be synced: the sync waited for a place beside its own, for ever."""
    async with Town() as town:
        await town.kill()
        town.starts = StartLimits(running_per_user=1)
        await town.open()
        start = town.fleet.start

        async def slow(spec: SandboxSpec, progress: OnProgress) -> None:
            await asyncio.sleep(1)
            await start(spec, progress)

        monkeypatch.setattr(town.fleet, "start", slow)
        actor = await town.create()
        for _ in range(2):  # new, and dead
            await town.until(lambda: actor.describe()["status"] == "starting" and actor.conversation.state.unkept)
            assert "s" not in await town.fleet.running()
            async with asyncio.timeout(60):
                await actor.sync(wait=True)
            assert actor.describe()["status"] == "running"
            await town.fleet.sandbox("s").stop()
            town.sandbox().lose_link()
            await town.until(lambda: actor.describe()["status"] != "running")


async def test_a_look_at_what_a_dead_sandbox_left_waits_no_longer_when_its_session_starts() -> None:
    """Its session has the place that both waited for."""
    async with Town() as town:
        dead, alive = await one_of_two_died(town)
        await town.until(lambda: dead.describe()["status"] == "sleeping" and dead.conversation.state.unkept)
        await town.until(lambda: alive.describe()["status"] == "running")
        upkeep.rescue(dead)
        await town.until(lambda: town.sessions.stats()["starts_waiting"] == 1, "the look waits for a place")
        assert dead.describe()["status"] == "sleeping"
        tab = await town.welcomed("a1")
        tab.say("wake up")
        await tab.until("session_status", status="queued")
        assert town.sessions.stats()["starts_waiting"] == 1, "the start waits in its place"
        await alive.sleep()
        await tab.until("done", within=60)
        assert dead.describe()["status"] == "running"
        assert town.sessions.stats()["sandboxes_running"] == 1


async def test_a_branchs_secrets_stay_out_of_logs_when_its_origin_is_gone() -> None:
    async with Town() as town:
        actor = await town.create(env={"KEY": "canary-secret-1"})
        await town.talk()
        await actor.sync(wait=True)
        branch = await town.branch()
        await actor.destroy(purge=False)
        await town.talk("x", branch.id)
        assert "canary" not in REDACTOR.clean("canary-secret-1")
        await branch.destroy(purge=False)


async def test_a_wake_ends_when_the_session_moves() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        await actor.sleep()
        await asyncio.sleep(1)
        await town.steal()
        with pytest.raises(ApiError) as refused:
            async with asyncio.timeout(60):
                await actor.wake()
        assert refused.value.code == "session_failed"
        assert actor.ended


async def test_a_gateway_that_lost_a_session_puts_nothing_back() -> None:
    """Its put_back was refused, and had replaced the workspace of the new owner all the same."""
    async with Town() as town:
        actor, _ = await town.begun()
        for content in (b"one", b"two, longer"):
            town.sandbox().files[FILE] = content
            await actor.sync(wait=True)
        await actor.pause()
        before = await town.vault().pointer("ann", "s")
        await town.steal()
        with pytest.raises(ApiError) as refused:
            await actor.put_back(1)
        assert refused.value.code == "session_failed"
        assert await town.vault().pointer("ann", "s") == before


async def test_nothing_is_put_back_while_the_store_is_away() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        for content in (b"one", b"two, longer"):
            town.sandbox().files[FILE] = content
            await actor.sync(wait=True)
        await actor.pause()
        before = await town.vault().pointer("ann", "s")
        town.store.outage = Fault.AWAY
        with pytest.raises(ApiError) as refused:
            await actor.put_back(1)
        assert refused.value.code == "storage_unavailable"
        assert await town.vault().pointer("ann", "s") == before
        town.store.outage = None
        assert (await actor.put_back(1))["sync"]["generation"] == before.newest.number + 1


async def test_what_was_begun_empty_is_not_replaced_after_a_crash() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files.update({b"workspace/%d" % n: b"%d" % n for n in range(4)})
        await actor.sleep()
        town.sandbox().files.popitem()
        town.sandbox().roots.failures["finish"] = [TreeFailed("failed", "never")]
        assert (await actor.wake())["status"] == "unrestored"
        assert (await actor.resume(None, empty=True))["status"] == "running"
        town.sandbox().files[b"workspace/fresh"] = b"mine"
        town.sandbox().crash()
        await asyncio.sleep(30)
        assert town.sandbox().files == {b"workspace/fresh": b"mine"}


async def test_work_on_an_older_generation_is_not_replaced_after_a_crash() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"first"
        await actor.sync(wait=True)
        packs = {key for key in town.objects._kept if "/packs/" in key}
        town.sandbox().files.update({b"workspace/%d" % n: b"x%d" % n for n in range(10)})
        await actor.sleep()
        for key in {key for key in town.objects._kept if "/packs/" in key} - packs:
            await town.objects.delete(key)
        town.sandbox().files.clear()
        await actor.wake()
        town.sandbox().files[b"workspace/new"] = b"work"
        town.sandbox().crash()
        await asyncio.sleep(30)
        assert town.sandbox().files == {FILE: b"first", b"workspace/new": b"work"}
        sync = actor.describe()["sync"]
        assert (sync["generation"], sync["degraded"]) == (3, None)


async def test_without_waiting_a_sync_is_made_all_the_same() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        await asyncio.sleep(30)
        town.sandbox().files[FILE] = b"1"
        await actor.sync(wait=False)
        await town.until(lambda: actor.describe()["sync"]["generation"] == 2, "a generation", within=1)


async def test_what_a_half_deleted_session_had_is_gone_when_it_is_created_again() -> None:
    class Stuck(AwayObjects):
        async def delete(self, key: str) -> None:
            if self.away:
                raise ObjectsUnavailable(key)
            await super().delete(key)

    async with Town() as town:
        town.objects = Stuck()
        await town.restart()
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"1"
        await actor.sync(wait=True)
        town.objects.away = True
        with pytest.raises(ObjectsUnavailable):
            await actor.destroy(purge=False)
        town.objects.away = False
        await town.create()
        await town.talk("again")
        assert town.sandbox().files == {}


@pytest.mark.parametrize("step", [20.0, 30.0, 59.999, 60.0, 60.001])
async def test_progress_at_the_last_moment_is_no_crash(step: float) -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files.update({b"workspace/%d" % n: bytes([n]) * 3_000_000 for n in range(9)})
        await actor.sleep()
        town.sandbox().files.clear()
        town.sandbox().roots.step_seconds = step
        assert (await actor.wake())["status"] in ("running", "unrestored")


async def test_a_pointer_that_cannot_be_read_makes_room_for_a_session_that_begins_empty() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"1"
        await actor.sleep()
        (key,) = (key for key in town.objects._kept if key.endswith("/pointer"))
        await town.objects.put(key, b"garbage")
        assert (await actor.wake())["status"] == "unrestored"
        assert (await actor.resume(None, empty=True))["status"] == "running"
        await asyncio.sleep(30)
        assert actor.describe()["sync"]["state"] == "idle"
        assert "remove it" in (await town.vault().collect()).problem


async def test_numbers_go_on_when_a_pointer_was_put_aside_and_a_delete_removes_that_too() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        await town.create("s2")
        await town.talk("x", "s2")
        for each in ("s", "s2"):
            for number in range(5):
                town.sandbox(each).files[FILE] = b"%d" % number
                await (await town.actor(each)).sync(wait=True)
            await (await town.actor(each)).sleep()
        for key in [key for key in town.objects._kept if key.endswith("/pointer")]:
            await town.objects.put(key, b"garbage")
        for each in ("s", "s2"):
            again = await town.actor(each)
            assert (await again.wake())["status"] == "unrestored"
            assert (await again.resume(None, empty=True))["status"] == "running"
            town.sandbox(each).files[FILE] = b"anew"
            assert (await again.sync(wait=True))["sync"]["generation"] == 6
        await actor.destroy(purge=False)
        left = [key.split("/sessions/")[1] for key in sorted(town.objects._kept) if "/sessions/" in key]
        assert [key.rpartition("-")[0] or key for key in left] == ["s2/damaged", "s2/pointer"]
        assert "s2/damaged-" in (await town.vault().collect()).problem


async def test_a_branch_whose_creation_was_answered_too_late_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"1"
        await actor.sync(wait=True)
        create, lost = town.kept.create, [1]

        async def answered_late(session: Session) -> Any:
            made = await create(session)
            if lost:
                lost.pop()
                raise StoreUnavailable("the answer was lost")
            return made

        monkeypatch.setattr(town.kept, "create", answered_late)
        branch = await town.branch()
        await town.talk("x", branch.id)
        assert town.sandbox(branch.id).files == {FILE: b"1"}


async def test_a_disk_that_the_bridge_could_not_note_is_not_taken_for_clean() -> None:
    """A full disk: the generation is stored, and the bridge cannot write down that this is what it has."""
    async with Town() as town:
        actor, tab = await town.begun()
        town.sandbox().files[FILE] = b"mine"
        town.sandbox().roots.failures["remember"] = [TreeFailed("failed", "no space left on device")]
        await actor.pause()
        assert (actor.describe()["sync"]["generation"], actor.conversation.state.clean) == (1, False)
        town.sandbox().roots.failures["plan"] = [TreeFailed("failed", "no space left on device")]
        assert (await actor.resume(None))["status"] == "running"
        assert town.sandbox().files == {FILE: b"mine"}
        assert not tab.seen("session_status", status="restored")


async def test_a_problem_heard_while_it_stops_does_not_wake_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        await actor.sleep()
        say_hello_late(town, 0.3, monkeypatch)
        town.sandbox().roots.step_seconds = 0.2
        town.sandbox().agent_problem = "no such program"
        waking = asyncio.ensure_future(actor.wake())
        await asyncio.sleep(0)
        await asyncio.gather(waking, actor.sleep())
        starts = town.fleet.starts
        await asyncio.sleep(60)
        assert (actor.describe()["status"], town.fleet.starts) == ("sleeping", starts)


@pytest.mark.parametrize("how", ["sleep", "pause"])
async def test_a_late_hint_of_what_was_kept_does_not_end_as_a_failed_sync(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint comes when the last generation is made, or after it: a sync for its sake met a sandbox that was being
    stopped, and what had been kept was said not to be."""
    async with Town() as town:
        actor, _ = await town.begun()
        put, stop = town.objects.put, town.fleet.stop

        async def hinted_put(key: str, content: bytes) -> str:
            actor.workspace.request()
            return await put(key, content)

        async def slow_stop(session_id: str) -> None:
            actor.workspace.request()
            await stop(session_id)
            await asyncio.sleep(60)

        monkeypatch.setattr(town.objects, "put", hinted_put)
        monkeypatch.setattr(town.fleet, "stop", slow_stop)
        town.sandbox().files[FILE] = b"1"
        told = await getattr(actor, how)()
        assert (told["sync"]["state"], told["sync"]["lastError"], told["sync"]["dirty"]) == ("idle", None, False)
        assert told["sync"]["generation"] == 1


@pytest.mark.parametrize("moments", [range(10), range(10, 20), range(20, 30)])
async def test_a_delete_at_any_moment_of_a_sync_leaves_nothing(moments: Sequence[int]) -> None:
    for moment in moments:
        async with Town() as town:
            actor, _ = await town.begun()
            town.sandbox().roots.step_seconds = 0.1
            town.sandbox().files[FILE] = b"2"
            syncing = asyncio.ensure_future(actor.sync(wait=True))
            await asyncio.sleep(moment * 0.05)
            await actor.destroy(purge=False)
            await asyncio.gather(syncing, return_exceptions=True)
            await asyncio.sleep(20)
            assert await town.vault().newest("ann", "s") is None
            described = actor.describe()
            assert (described["status"], described["sync"]["state"]) == ("archived", "idle")


async def answers(tab: Tab) -> None:
    """An agent runs, or can be started."""
    before = len(tab.seen("done"))
    tab.say("are you there?")
    async with asyncio.timeout(120):
        await tab.until("done", count=before + 1)


class SlowObjects(AwayObjects):
    """What is put takes its time."""

    seconds = 0.0

    async def put(self, key: str, content: bytes) -> str:
        await asyncio.sleep(self.seconds)
        return await super().put(key, content)


async def test_a_word_that_is_lost_leaves_no_sandbox_held() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        roots = town.sandbox().roots
        roots.failures["scan"] = [TreeFailed("failed", "not now")] * 3
        roots.failures["release"] = [TreeFailed("failed", "lost")] * 3
        with pytest.raises(ApiError, match="not now"):
            await actor.pause()
        await answers(tab)
        assert (actor.describe()["status"], roots.held, town.fleet.starts) == ("running", False, 1)


async def test_a_sandbox_that_cannot_be_let_go_is_begun_anew_when_its_link_is_found_again() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        roots = town.sandbox().roots
        roots.failures["scan"] = [TreeFailed("failed", "not now")] * 3
        roots.failures["release"] = [TreeFailed("failed", "never")] * 1000
        with pytest.raises(ApiError, match="not now"):
            await actor.pause()
        town.sandbox().files[FILE] = b"still there"
        town.sandbox().lose_link("cut")
        await town.until(lambda: town.fleet.starts == 2 or not town.sandbox().alive, "its end", within=60)
        roots.failures.clear()
        await answers(tab)
        assert (town.fleet.starts, town.sandbox().files) == (2, {FILE: b"still there"})


async def test_what_lets_go_of_one_sandbox_does_not_let_go_of_the_next() -> None:
    """The next one is held until its workspace is proven."""
    async with Town() as town:
        actor, _ = await town.begun()
        roots = town.sandbox().roots
        town.sandbox().files[FILE] = b"mine"
        await actor.sync(wait=True)
        roots.failures["scan"] = [TreeFailed("failed", "not now")] * 3
        roots.failures["release"] = [TreeFailed("failed", "never")] * 1000
        with pytest.raises(ApiError, match="not now"):
            await actor.pause()
        town.sandbox().crash()
        roots.failures = {"survey": [TreeFailed("failed", "not yet")] * 1000}
        await town.until(lambda: actor.describe()["status"] == "unrestored", "its failure")
        town.sandbox().boot(town.sandbox().spec)
        await asyncio.sleep(60)
        assert roots.held


async def test_a_pause_that_is_given_up_leaves_no_sandbox_held() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        roots = town.sandbox().roots
        roots.step_seconds = 1
        pausing = asyncio.ensure_future(actor.pause())
        await town.until(lambda: roots.held, "the hold")
        pausing.cancel()
        await asyncio.gather(pausing, return_exceptions=True)
        roots.step_seconds = 0
        await answers(tab)
        assert (actor.describe()["status"], roots.held) == ("running", False)


async def test_a_last_sync_that_takes_too_long_leaves_no_sandbox_held() -> None:
    async with Town() as town:
        town.objects = objects = SlowObjects()
        await town.restart()
        actor, tab = await town.begun()
        town.sandbox().files[FILE] = b"new"
        objects.seconds = 300
        with pytest.raises(ApiError, match="longer than 120 s"):
            await actor.pause()
        assert not town.sandbox().roots.held
        await answers(tab)


async def test_a_pause_waits_for_a_long_sync_and_then_pauses() -> None:
    async with Town() as town:
        town.objects = objects = SlowObjects()
        await town.restart()
        actor, _ = await town.begun()
        agent = town.sandbox().agent
        assert agent is not None
        town.sandbox().files[FILE] = b"new"
        objects.seconds = 45
        await town.until(lambda: actor.describe()["sync"]["state"] == "syncing", "a sync")
        pausing = asyncio.ensure_future(actor.pause())
        await asyncio.sleep(60)
        assert agent.alive, "nothing is stopped before its turn has come"
        described = await pausing
        assert (described["status"], described["sync"]["dirty"], agent.alive) == ("paused", False, False)


async def test_a_pause_that_cannot_wait_for_a_sync_has_stopped_nothing() -> None:
    async with Town() as town:
        town.objects = objects = SlowObjects()
        await town.restart()
        actor, tab = await town.begun()
        agent = town.sandbox().agent
        assert agent is not None
        town.sandbox().files[FILE] = b"new"
        objects.seconds = 600
        await town.until(lambda: actor.describe()["sync"]["state"] == "syncing", "a sync")
        with pytest.raises(ApiError, match="try again when it is over") as refused:
            await actor.pause()
        assert (refused.value.code, agent.alive, "quiet" in town.steps()) == ("sync_failed", True, False)
        await answers(tab)
        assert town.sandbox().agent is agent


async def test_a_sandbox_that_still_waits_for_its_workspace_is_never_said_to_run() -> None:
    """Its gateway died at the restore. The next one said `running`, to whoever woke it as well, until it found out."""
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"mine"
        await actor.sleep()
        roots = town.sandbox().roots
        town.sandbox().files.clear()
        roots.failures["plan"] = [TreeFailed("failed", "never")] * 3
        roots.step_seconds = 1
        waking = asyncio.ensure_future(actor.wake())
        await town.until(lambda: town.fleet.starts == 2, "the start")
        await asyncio.sleep(0.5)
        await town.kill()
        await asyncio.gather(waking, return_exceptions=True)
        assert (town.sandbox().alive, roots.held) == (True, True)
        await town.open()
        actor, seen = await town.actor(), set[str]()
        waking = asyncio.ensure_future(actor.wake())
        while not waking.done():
            seen.add(actor.describe()["status"])
            await asyncio.sleep(0.05)
        assert waking.result()["status"] == "unrestored"
        assert "running" not in seen
        assert town.sandbox().files == {}


@pytest.mark.parametrize("by", ["name", "create"])
async def test_whoever_wants_a_sandbox_that_turns_out_to_be_held_gets_one(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"mine"
        await actor.sleep()
        town.sandbox().files.clear()
        town.sandbox().roots.step_seconds = 1
        waking = asyncio.ensure_future(actor.wake())
        await town.until(lambda: town.fleet.starts == 2, "the start")
        await town.kill()
        await asyncio.gather(waking, return_exceptions=True)
        say_hello_late(town, 0.5, monkeypatch)
        await town.open()
        actor = await town.actor()
        await town.until(lambda: actor.delivery.link is not None, "a link")
        if by == "name":
            assert (await actor.wake())["status"] == "running"
        else:
            actor.life.want_agent()
        await town.until(lambda: actor.output.agent_alive, "an agent")
        assert (actor.describe()["status"], town.sandbox().files) == ("running", {FILE: b"mine"})


async def test_a_bridge_that_holds_an_agent_that_was_let_go_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"mine"
        await actor.sleep()
        roots = town.sandbox().roots
        connect = town.fleet.connect

        async def once_held(session_id: str, events: LinkEvents, after: Position | None) -> Link:
            roots.held = True
            monkeypatch.undo()
            return await connect(session_id, events, after)

        monkeypatch.setattr(town.fleet, "connect", once_held)
        await actor.wake()
        await town.until(lambda: actor.output.agent_alive, "an agent", within=60)
        assert (actor.describe()["status"], town.fleet.starts) == ("running", 3)
        assert town.sandbox().files == {FILE: b"mine"}
