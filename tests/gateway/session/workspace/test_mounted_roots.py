"""Sandboxes whose programs have the roots mounted: after a restore a new one takes the place of the one that did it."""

import asyncio
from collections.abc import Callable

import pytest

from gateway.session.actor import SessionActor
from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.progress import OnProgress, unheard
from sandbox.providers.memory.fleet import MemoryFleet
from tests.gateway.session.workspace.test_workspace import FILE, Town
from tests.support.sessions import Tab

pytestmark = pytest.mark.virtual_time


class Mounted(Town):
    """A town whose sandboxes mount their roots."""

    async def begun(self) -> tuple[SessionActor, Tab]:
        self.fleet.mounts_roots = True
        return await super().begun()

    def before_start(self, number: int, does: Callable[[], None]) -> None:
        """`does` this when the fleet is asked for the start of that number from now on, the first being 1."""
        start, asked = MemoryFleet.start, 0

        async def started(spec: SandboxSpec, progress: OnProgress = unheard) -> None:
            nonlocal asked
            asked += 1
            if asked == number:
                does()
            await start(self.fleet, spec, progress)

        self.fleet.start = started  # type: ignore[method-assign]


def statuses(tab: Tab) -> list[str]:
    return [frame["status"] for frame in tab.seen("session_status")]


async def asleep(town: Mounted, content: bytes = b"mine") -> tuple[SessionActor, Tab]:
    """A session with one kept file, whose disk is lost while it sleeps."""
    actor, tab = await town.begun()
    town.sandbox().files[FILE] = content
    await actor.sleep()
    town.sandbox().files.clear()
    return actor, tab


async def test_a_start_without_a_restore_starts_one_sandbox() -> None:
    async with Mounted() as town:
        actor, _ = await town.begun()
        assert (town.fleet.starts, actor.describe()["incarnation"]) == (1, 1)
        town.sandbox().files[FILE] = b"mine"
        await actor.sleep()
        await actor.wake()
        assert (town.fleet.starts, actor.describe()["incarnation"]) == (2, 2)


async def test_a_restore_is_followed_by_a_new_sandbox_that_finds_it() -> None:
    async with Mounted() as town:
        actor, tab = await asleep(town)
        said, steps, handed = len(statuses(tab)), len(town.steps()), len(town.sandbox().handed)
        tab.say("wake up")
        await tab.until("done", count=2)
        assert (town.fleet.starts, actor.describe()["incarnation"]) == (3, 3)
        assert town.sandbox().files == {FILE: b"mine"}
        assert town.steps()[steps:][:6] == ["survey", "restore", "plan", "put", "finish", "survey"]
        told = [status for status in statuses(tab)[said:] if status not in ("queued", "restoring")]
        assert told == ["starting", "restore_started", "restored", "running"]
        assert len(town.sandbox().handed) == handed + 1
        town.sandbox().files[FILE] = b"and more"
        assert (await actor.sync(wait=True))["sync"]["generation"] == 2


async def test_what_a_crash_left_and_a_restore_replaced_is_beside_it() -> None:
    async with Mounted() as town:
        actor, tab = await town.begun()
        town.sandbox().files.update({b"workspace/%d" % n: b"%d" % n for n in range(10)})
        await actor.sync(wait=True)
        kept = dict(town.sandbox().files)
        for path in list(kept)[:7]:
            del town.sandbox().files[path]
        remains = dict(town.sandbox().files)
        town.sandbox().crash()
        await tab.until("session_status", status="running", count=2)
        assert (town.sandbox().files, town.sandbox().roots.asides) == (kept, [remains])
        assert town.fleet.starts == 3


async def test_a_damaged_generation_gives_way_once() -> None:
    async with Mounted() as town:
        actor, tab = await town.begun()
        town.sandbox().files[FILE] = b"first"
        await actor.sync(wait=True)
        packs = {key for key in town.objects._kept if "/packs/" in key}
        town.sandbox().files[FILE] = b"second"
        await actor.sleep()
        for key in {key for key in town.objects._kept if "/packs/" in key} - packs:
            await town.objects.delete(key)
        town.sandbox().files.clear()
        assert (await actor.wake())["status"] == "running"
        assert "generation 2 is damaged" in actor.describe()["sync"]["degraded"]
        assert town.sandbox().files == {FILE: b"first"}
        assert (len(tab.seen("session_status", status="restored")), town.fleet.starts) == (1, 3)
        await town.until(lambda: actor.describe()["sync"]["generation"] == 3, "a generation of what is there")
        pointer = await town.vault().pointer("ann", "s")
        assert [bool(generation.pinned) for generation in pointer.generations] == [False, True, False]


async def test_a_gateway_that_died_after_a_restore_leaves_a_tree_that_is_recognised() -> None:
    async with Mounted() as town:
        _, tab = await asleep(town)
        town.fleet.start_seconds = 10
        tab.say("wake up")
        await tab.until("session_status", status="restored")
        await town.kill()
        assert town.sandbox().roots.held, "nothing was let go in what runs"
        town.fleet.start_seconds = 0
        await town.open()
        town.fleet.mounts_roots = True
        again = await town.welcomed()
        await again.until("done")
        assert town.sandbox().files == {FILE: b"mine"}
        assert not again.seen("session_status", status="restored"), "it was there"
        assert again.seen("session_status", status="restore_skipped")


async def test_a_new_sandbox_that_cannot_be_started_is_an_error_and_the_tree_is_there_for_the_next() -> None:
    async with Mounted() as town:
        actor, tab = await asleep(town)
        town.before_start(2, lambda: town.fleet.start_failures.append("no room"))
        described = await actor.wake()
        assert (described["status"], described["reason"]) == ("error", "no room")
        assert (await actor.wake())["status"] == "running"
        assert town.sandbox().files == {FILE: b"mine"}
        assert len(tab.seen("session_status", status="restored")) == 1


async def test_a_provider_that_falls_silent_before_the_new_sandbox_loses_nothing() -> None:
    async with Mounted() as town:
        _, tab = await asleep(town)

        def fall_silent() -> None:
            town.fleet.unavailable = "gone fishing"

        town.before_start(2, fall_silent)
        tab.say("wake up")
        await town.until(lambda: town.fleet.unavailable is not None, "silence")
        await asyncio.sleep(30)
        town.fleet.unavailable = None
        await tab.until("done", count=2)
        assert town.sandbox().files == {FILE: b"mine"}
        assert len(tab.seen("session_status", status="restored")) == 1


async def test_a_new_sandbox_without_what_was_restored_is_not_let_go_and_nothing_is_pushed() -> None:
    async with Mounted() as town:
        actor, tab = await asleep(town)
        town.before_start(2, lambda: town.sandbox().files.clear())
        described = await actor.wake()
        assert (described["status"], "finds 0" in described["reason"]) == ("unrestored", True)
        assert described["sync"]["generation"] == 1
        assert tab.seen("error", code="unrestored")
        assert (await actor.wake())["status"] == "running"
        assert town.sandbox().files == {FILE: b"mine"}


async def test_what_was_restored_and_not_noted_stays_and_is_synced() -> None:
    async with Mounted() as town:
        actor, _ = await asleep(town)

        def forget() -> None:
            town.sandbox().roots.known = None

        town.before_start(2, forget)
        assert (await actor.wake())["status"] == "running"
        assert (town.sandbox().files, town.fleet.starts) == ({FILE: b"mine"}, 3)
        assert not town.sandbox().roots.asides


async def test_a_look_at_what_a_dead_sandbox_left_starts_one_sandbox() -> None:
    async with Mounted() as town:
        actor, tab = await town.begun()
        town.sandbox().files.update({b"workspace/%d" % n: b"%d" % n for n in range(10)})
        await actor.sync(wait=True)
        town.fleet.start_problem = "not today"
        town.sandbox().crash()
        await town.until(lambda: actor.describe()["status"] == "error", "an error")
        town.sandbox().files.clear()
        town.fleet.start_problem, starts = None, town.fleet.starts
        await town.until(lambda: bool(tab.seen("session_status", status="restored")), "a restore")
        await town.until(lambda: not town.sandbox().alive, "the end of the visit")
        assert town.fleet.starts == starts + 1
        assert (await actor.wake())["status"] == "running"
        assert len(town.sandbox().files) == 10
