"""A session's workspace: proven before its agent may start, kept while it runs, quiet before it stops."""

import asyncio

import pytest

from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from gateway.session.workspace.keeping import WorkspaceLimits
from sandbox.ports.tree import TreeFailed
from sync.errors import SyncRefused
from sync.machine.state import SyncLimits
from sync.objects.memory import MemoryObjects
from sync.ports import Got, ObjectsUnavailable
from tests.support.sessions import Tab, World

pytestmark = pytest.mark.virtual_time

FILE = b"workspace/a.txt"


class AwayObjects(MemoryObjects):
    """An object store that can be away."""

    away = False

    async def get(self, key: str) -> Got | None:
        if self.away:
            raise ObjectsUnavailable(f"{key}: nobody answers")
        return await super().get(key)

    async def put(self, key: str, content: bytes) -> str:
        if self.away:
            raise ObjectsUnavailable(f"{key}: nobody answers")
        return await super().put(key, content)


class Town(World):
    """A world whose object store can be away."""

    objects: AwayObjects

    def __init__(self) -> None:
        super().__init__()
        self.objects = AwayObjects()

    async def talk(self, text: str = "hello", session_id: str = "s") -> Tab:
        """A tab that has had an answer: the sandbox runs and its agent is let go."""
        tab = await self.welcomed(session_id)
        tab.say(text)
        await tab.until("done")
        return tab

    async def begun(self) -> tuple[SessionActor, Tab]:
        actor = await self.create()
        return actor, await self.talk()

    def steps(self) -> list[str]:
        return self.sandbox().roots.steps


async def test_a_new_session_has_nothing_to_restore_and_its_agent_starts() -> None:
    async with Town() as town:
        _, tab = await town.begun()
        assert [frame["status"] for frame in tab.seen("session_status")][:2] == ["restore_skipped", "running"]
        assert town.steps()[:2] == ["survey", "release"]


async def test_a_finished_answer_is_followed_by_a_sync_when_the_debounce_is_over() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"1"
        began = asyncio.get_running_loop().time()
        await town.until(lambda: actor.describe()["sync"]["generation"] == 1, "the first generation")
        assert 1.9 <= asyncio.get_running_loop().time() - began <= 2.2
        town.sandbox().files[FILE] = b"2"
        await asyncio.sleep(60)
        assert actor.describe()["sync"]["generation"] == 1, "nobody asked"
        actor.workspace.request()
        await town.until(lambda: actor.describe()["sync"]["generation"] == 2, "the second")


async def test_sync_by_request_answers_with_a_generation_that_holds_what_was_written_before() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"before"
        described = await actor.sync(wait=True)
        assert (described["sync"]["state"], described["sync"]["dirty"]) == ("idle", False)
        _, tree = await town.vault().tree("ann", "s", described["sync"]["generation"])
        assert tree.entries[FILE].size == 6
        assert (await actor.sync(wait=True))["sync"]["generation"] == described["sync"]["generation"]


async def test_the_last_viewer_to_leave_makes_it_sync_at_once() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        other = await town.welcomed()
        town.sandbox().files[FILE] = b"1"
        tab.leave()
        await asyncio.sleep(0.5)
        assert actor.describe()["sync"]["generation"] == 0
        other.leave()
        await town.until(lambda: actor.describe()["sync"]["generation"] == 1, "a sync", within=0.5)


@pytest.mark.parametrize("how", ["sleep", "pause"])
async def test_programs_end_before_the_last_generation_and_the_sandbox_after_it(how: str) -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"last words"
        await getattr(actor, how)()
        assert town.steps().index("quiet") < town.steps().index("scan")
        assert not town.sandbox().alive
        sync = actor.describe()["sync"]
        assert (sync["generation"], sync["dirty"], actor.conversation.state.clean) == (1, False, True)


@pytest.mark.parametrize("how", ["sleep", "pause"])
async def test_a_workspace_that_cannot_be_kept_keeps_its_sandbox(how: str) -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        town.sandbox().files[FILE] = b"1"
        town.objects.away = True
        with pytest.raises(ApiError, match="the sandbox stays") as refused:
            await getattr(actor, how)()
        assert (refused.value.status, refused.value.code) == (503, "sync_failed")
        described = actor.describe()
        assert (described["status"], described["sync"]["state"], described["sync"]["dirty"]) == (
            "running",
            "failed",
            True,
        )
        await tab.until("session_status", status="sync_failed")
        assert town.sandbox().alive
        await asyncio.sleep(3 * 3600)
        assert town.sandbox().alive, "the reaper does not stop it either"
        tab.say("are you there?")
        await tab.until("done", count=2)
        town.objects.away = False
        await tab.until("session_status", status="sync_recovered", generation=1)
        await tab.until("session_status", status="sleeping")
        assert actor.describe()["sync"]["generation"] == 1


async def test_after_a_clean_sleep_the_same_disk_is_kept_and_another_is_restored() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        town.sandbox().files[FILE] = b"mine"
        await actor.sleep()
        await actor.wake()
        assert [frame["status"] for frame in tab.seen("session_status")].count("restore_skipped") == 2
        await actor.sleep()
        town.sandbox().files[FILE] = b"somebody was here"
        await actor.wake()
        await tab.until("session_status", status="restored", generation=1, aside=True)
        assert town.sandbox().files == {FILE: b"mine"}
        assert town.sandbox().roots.asides == [{FILE: b"somebody was here"}]


async def test_after_a_crash_what_is_on_the_disk_stays_and_becomes_the_next_generation() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        town.sandbox().files[FILE] = b"1"
        await actor.sync(wait=True)
        town.sandbox().files[FILE] = b"2"
        town.sandbox().crash()
        await town.talk("again")
        assert town.sandbox().files[FILE] == b"2"
        await town.until(lambda: actor.describe()["sync"]["generation"] == 2, "the second generation")
        assert not tab.seen("session_status", status="restored")


async def test_after_a_crash_that_lost_the_files_the_newest_generation_is_restored() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        town.sandbox().files.update({b"workspace/%d" % n: b"%d" % n for n in range(10)})
        await actor.sync(wait=True)
        kept = dict(town.sandbox().files)
        for path in list(kept)[:7]:
            del town.sandbox().files[path]
        remains = dict(town.sandbox().files)
        town.sandbox().crash()
        await tab.until("session_status", status="restored", aside=True)
        assert town.sandbox().files == kept
        assert town.sandbox().roots.asides == [remains]


async def test_what_cannot_be_restored_is_unrestored_never_synced_and_may_be_tried_again() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        town.sandbox().files[FILE] = b"mine"
        await actor.sleep()
        town.sandbox().files.clear()
        before = dict(town.objects._kept)
        town.sandbox().roots.failures["put"] = [TreeFailed("failed", "no room")] * 3
        described = await actor.wake()
        assert (described["status"], described["sync"]["state"]) == ("unrestored", "unrestored")
        assert "no room" in described["reason"]
        await tab.until("session_status", status="restore_failed")
        assert not town.sandbox().alive
        for wait in (True, False):
            with pytest.raises(ApiError, match="not restored") as refused:
                await actor.sync(wait=wait)
            assert refused.value.code == "unrestored"
        actor.workspace.request()
        tab.leave()
        await asyncio.sleep(60)
        assert town.objects._kept == before
        town.sandbox().roots.failures.clear()
        assert (await actor.wake())["status"] == "running"
        assert town.sandbox().files == {FILE: b"mine"}


async def test_a_message_is_held_while_nothing_can_be_restored_and_tries_again() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        town.sandbox().files[FILE] = b"mine"
        await actor.sleep()
        town.sandbox().files.clear()
        town.sandbox().roots.failures["plan"] = [TreeFailed("failed", "not yet")]
        tab.say("wake up")
        await tab.until("session_status", status="unrestored")
        await tab.until("done", count=2)
        assert town.sandbox().files == {FILE: b"mine"}


async def test_resume_with_empty_begins_anew_and_the_old_generations_stay() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        with pytest.raises(ApiError, match="empty is for a session"):
            await actor.resume(None, empty=True)
        town.sandbox().files.update({b"workspace/%d" % n: b"%d" % n for n in range(4)})
        await actor.sleep()
        kept = dict(town.sandbox().files)
        town.sandbox().files.popitem()
        town.sandbox().roots.failures["finish"] = [TreeFailed("failed", "never")] * 9
        assert (await actor.wake())["status"] == "unrestored"
        assert (await actor.resume(None, empty=True))["status"] == "running"
        assert town.sandbox().files == {}
        await town.until(lambda: actor.describe()["sync"]["generation"] == 2, "an empty generation")
        pointer = await town.vault().pointer("ann", "s")
        assert [generation.files for generation in pointer.generations] == [len(kept), 0]
        assert pointer.generations[0].pinned


async def test_resume_with_keep_goes_on_with_the_disk_where_the_store_has_nothing() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        with pytest.raises(ApiError, match="keeps the files on the disk"):
            await actor.resume(None, keep=True)
        town.sandbox().files[FILE] = b"mine"
        await actor.sleep()
        await town.vault().forget("ann", "s")
        described = await actor.wake()
        assert described["status"] == "unrestored"
        assert "{keep:true}" in described["reason"], "and not by itself"
        assert (await actor.resume(None, keep=True))["status"] == "running"
        assert town.sandbox().files == {FILE: b"mine"}
        await tab.until("session_status", status="restore_skipped", reason="kept what was on the disk")
        await town.until(lambda: actor.describe()["sync"]["generation"] == 2, "what was on the disk is kept")
        assert [each.files for each in (await town.vault().pointer("ann", "s")).generations] == [1]


async def test_resume_with_keep_takes_nothing_over_what_the_store_has_nor_an_empty_disk() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"mine"
        await actor.sleep()
        pointer = await town.vault().pointer("ann", "s")
        await town.vault().forget("ann", "s")
        town.sandbox().files.clear()
        assert (await actor.wake())["status"] == "unrestored"
        described = await actor.resume(None, keep=True)
        assert (described["status"], "has no files to keep" in described["reason"]) == ("unrestored", True)
        town.sandbox().files[FILE] = b"another"
        town.objects.away = True
        assert (await actor.resume(None, keep=True))["status"] == "unrestored", "what cannot be asked may have it"
        town.objects.away = False
        await town.vault().shelf("ann").swap(pointer, None)  # somebody brought the store back
        described = await actor.resume(None, keep=True)
        assert (described["status"], "has generation 1" in described["reason"]) == ("unrestored", True)
        assert (await actor.resume(None))["status"] == "running"
        assert town.sandbox().files == {FILE: b"mine"}


async def begun_empty(town: Town) -> SessionActor:
    """A session of four files that could not be restored, and begins empty."""
    actor, _ = await town.begun()
    town.sandbox().files.update({b"workspace/%d" % n: b"%d" % n for n in range(4)})
    await actor.sleep()
    town.sandbox().files.popitem()
    town.sandbox().roots.failures["finish"] = [TreeFailed("failed", "never")] * 9
    assert (await actor.wake())["status"] == "unrestored"
    assert (await actor.resume(None, empty=True))["status"] == "running"
    town.sandbox().roots.failures.clear()
    return actor


@pytest.mark.parametrize("then", ["nothing", "a crash", "another gateway"])
async def test_what_a_session_was_begun_without_stays_whatever_comes(then: str) -> None:
    """The agent is quick: before the first sync it has half as many files as there were, so that none seem lost."""
    async with Town() as town:
        actor = await begun_empty(town)
        town.sandbox().files.update({b"workspace/new%d" % n: b"%d" % n for n in range(2)})
        if then == "a crash":
            town.sandbox().crash()
        elif then == "another gateway":
            await asyncio.sleep(0.5)
            await town.kill()
            await town.open()
            await town.talk("again")
            actor = await town.actor()
        await asyncio.sleep(30)
        for number in range(12):
            town.sandbox().files[b"workspace/new"] = b"%d" % number
            await actor.sync(wait=True)
        generations = (await town.vault().pointer("ann", "s")).generations
        assert [each.number for each in generations if each.pinned] == [1]
        assert generations[0].pinned == "generation 2 was begun without it"
        await town.vault().release("ann", "s", 1)
        assert not any(each.pinned for each in (await town.vault().pointer("ann", "s")).generations)


async def test_a_restore_without_progress_is_given_up() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        town.sandbox().files.update({b"workspace/%d" % n: bytes([n]) * 400_000 for n in range(9)})
        await actor.sleep()
        town.sandbox().files.clear()
        town.sandbox().roots.step_seconds = 20
        began = asyncio.get_running_loop().time()
        assert (await actor.wake())["status"] == "running", "slow is not stuck"
        assert asyncio.get_running_loop().time() - began > 120
        town.sandbox().roots.step_seconds = 0
        await actor.sleep()
        town.sandbox().files.clear()
        town.sandbox().roots.step_seconds = 61
        described = await actor.wake()
        assert (described["status"], "HOLDFAST_RESTORE_TIMEOUT" in described["reason"]) == ("unrestored", True)
        await tab.until("session_status", status="restore_failed")


async def test_a_store_that_is_away_stops_no_wake_for_which_the_disk_will_do() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"mine"
        await actor.sleep()
        town.objects.away = True
        assert (await actor.wake())["status"] == "running"
        town.objects.away = False
        await actor.sleep()
        town.objects.away = True
        town.sandbox().files.clear()
        assert (await actor.wake())["status"] == "unrestored"
        town.objects.away = False
        assert (await actor.wake())["status"] == "running"
        assert town.sandbox().files == {FILE: b"mine"}


async def test_snapshots_that_have_vanished_are_not_taken_for_a_new_session() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"mine"
        await actor.sleep()
        await town.vault().forget("ann", "s")
        described = await actor.wake()
        assert (described["status"], "check HOLDFAST_OBJECTS" in described["reason"]) == ("unrestored", True)
        assert town.sandbox().files == {FILE: b"mine"}


async def test_a_damaged_generation_gives_way_to_the_one_before_and_that_is_told() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        town.sandbox().files[FILE] = b"first"
        await actor.sync(wait=True)
        packs = {key for key in town.objects._kept if "/packs/" in key}
        town.sandbox().files[FILE] = b"second"
        await actor.sleep()
        for key in {key for key in town.objects._kept if "/packs/" in key} - packs:
            await town.objects.delete(key)
        town.sandbox().files.clear()
        await actor.wake()
        told = await tab.until("session_status", status="restored", generation=1)
        assert "generation 2 is damaged" in told["degraded"]
        assert "generation 2 is damaged" in actor.describe()["sync"]["degraded"]
        assert town.sandbox().files == {FILE: b"first"}


async def test_a_failed_sync_is_remembered_and_made_good_by_the_next_gateway() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"1"
        town.objects.away = True
        with pytest.raises(ApiError, match="could not be stored"):
            await actor.sync(wait=True)
        await town.until(lambda: actor.conversation.state.sync_error != "", "a note of it")
        await asyncio.sleep(1)
        await town.restart()
        town.objects.away = False
        tab = await town.welcomed()
        await tab.until("session_status", status="sync_recovered", generation=1)


async def test_a_failed_sync_is_made_good_also_if_its_sandbox_is_gone() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"1"
        town.objects.away = True
        with pytest.raises(ApiError, match="could not be stored"):
            await actor.sync(wait=True)
        await town.until(lambda: actor.conversation.state.sync_error != "", "a note of it")
        await asyncio.sleep(1)
        await town.kill()
        await town.fleet.sandbox("s").stop()
        town.objects.away = False
        await town.open()
        again = await town.actor()
        await town.until(lambda: again.describe()["sync"]["generation"] == 1, "a generation")
        await town.until(lambda: not town.sandbox().alive, "the end of the visit")
        described = again.describe()
        assert (described["sync"]["state"], described["sync"]["dirty"]) == ("idle", False)
        assert town.sandbox().agent is None


async def test_a_gateway_that_died_while_it_restored_leaves_a_sandbox_that_begins_anew() -> None:
    async with Town() as town:
        actor, tab = await town.begun()
        town.sandbox().files[FILE] = b"mine"
        await actor.sleep()
        town.sandbox().files.clear()
        town.sandbox().roots.step_seconds = 10
        tab.say("wake up")
        await tab.until("session_status", status="restore_started")
        await town.restart()
        town.sandbox().roots.step_seconds = 0
        again = await town.welcomed()
        await again.until("done")
        assert town.sandbox().files == {FILE: b"mine"}


async def test_leaving_keeps_what_is_not_kept_yet() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"1"
        actor.workspace.request()
        await town.leave()
        newest = await town.vault().newest("ann", "s")
        assert newest is not None
        assert newest.files == 1
        await town.open()
        await town.until(lambda: len(town.sessions.loaded) == 1, "the session")
        assert (await town.actor()).describe()["sync"]["generation"] == 1


async def test_a_workspace_is_replaced_in_place_only_while_paused_and_what_was_there_is_pinned() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"first"
        await actor.sync(wait=True)
        with pytest.raises(ApiError, match="paused"):
            await actor.put_back(1)
        town.sandbox().files[FILE] = b"second"
        await actor.pause()
        assert (await actor.put_back(1))["sync"]["generation"] == 3
        await actor.resume(None)
        assert town.sandbox().files == {FILE: b"first"}
        pointer = await town.vault().pointer("ann", "s")
        assert [bool(generation.pinned) for generation in pointer.generations] == [False, True, False]


async def test_a_branch_begins_where_its_origin_was_and_leaves_it_as_it_is() -> None:
    async with Town() as town:
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"first"
        await actor.sync(wait=True)
        town.sandbox().files[FILE] = b"second"
        await actor.sync(wait=True)
        branch = await town.branch(number=1)
        assert branch.id.startswith("s-branch-")
        tab = await town.welcomed(branch.id)
        tab.say("hello")
        await tab.until("done")
        assert town.sandbox(branch.id).files == {FILE: b"first"}
        assert town.sandbox().files == {FILE: b"second"}
        await actor.destroy(purge=False)
        assert [each.number for each in (await town.vault().pointer("ann", branch.id)).generations] == [1]
        assert await town.vault().newest("ann", "s") is None


async def test_deleting_a_session_while_the_store_is_away_can_be_repeated() -> None:
    class Stuck(AwayObjects):
        async def delete(self, key: str) -> None:
            if self.away:
                raise ObjectsUnavailable(f"{key}: nobody answers")
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
        await actor.destroy(purge=False)
        assert await town.vault().newest("ann", "s") is None
        assert actor.describe()["sync"]["generation"] == 0


async def test_attempts_and_their_end_are_shown() -> None:
    async with Town() as town:
        town.workspaces = WorkspaceLimits(sync=SyncLimits(attempts=2))
        await town.restart()
        actor, _ = await town.begun()
        town.sandbox().roots.failures["scan"] = [TreeFailed("failed", "once"), TreeFailed("too_large", "far too large")]
        with pytest.raises(ApiError, match="far too large"):
            await actor.sync(wait=True)
        sync = actor.describe()["sync"]
        assert (sync["state"], sync["lastError"]) == ("failed", "far too large")


async def test_of_a_session_that_ended_here_nothing_is_kept_and_who_asks_does_not_wait() -> None:
    async with Town() as world:
        actor, _ = await world.begun()
        await asyncio.sleep(60)  # its sync has nothing to do, and no task
        world.registry.forget(actor)
        await world.until(lambda: actor.ended, "its end")
        with pytest.raises(SyncRefused, match="another gateway"):
            await actor.workspace.flush()
