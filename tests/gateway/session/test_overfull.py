"""A workspace that is more than may be kept: its sandbox stops, its disk stays, and the session says why."""

import asyncio
import re

import pytest

from gateway.limits.quota import UserLimits
from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from gateway.session.model.state import SessionStatus
from sandbox.protocol.tree import ScanAsk, TreeLimits
from tests.gateway.session.workspace.test_workspace import FILE, Town

pytestmark = pytest.mark.virtual_time

LARGE, SMALL = b"workspace/large", b"workspace/small"
HOURS = 10_000.0


async def overfull(town: Town) -> SessionActor:
    """It runs, has a generation of ten small files, and more on its disk than may be kept."""
    town.user_limits = UserLimits(stored=10_000)
    await town.restart()
    actor, tab = await town.begun()
    files = town.sandbox().files
    files.update({b"workspace/%d" % number: b"x" * 100 for number in range(10)})
    await actor.sync(wait=True)
    files[LARGE] = b"y" * 20_000
    tab.leave()
    return actor


def told(text: str) -> list[int]:
    assert "HOLDFAST_MAX_STORED_PER_USER" in text
    return [int(number.replace(",", "")) for number in re.findall(r"[0-9][0-9,]*(?= bytes|, of| are)", text)]


@pytest.mark.parametrize("how", ["sleep", "pause"])
async def test_it_stops_when_asked_and_goes_on_with_its_disk(how: str) -> None:
    async with Town() as town:
        actor = await overfull(town)
        stopped = await getattr(actor, how)()
        assert stopped["status"] == {"sleep": "sleeping", "pause": "paused"}[how]
        assert not town.sandbox().alive
        assert stopped["reason"] == stopped["sync"]["lastError"]
        assert (stopped["sync"]["state"], stopped["sync"]["dirty"]) == ("failed", True)
        usage = await town.sessions.quota.usage("ann")
        room, allowed, used, own = told(stopped["reason"])
        assert (allowed, used, own) == (10_000, usage.record_bytes + usage.snapshot_bytes, 1_000)
        assert room == allowed - used + own
        with pytest.raises(ApiError, match="HOLDFAST_MAX_STORED_PER_USER"):
            await actor.sync(wait=True)
        await town.restart()
        actor = await town.actor()
        await (actor.resume(None) if how == "pause" else actor.wake())
        assert town.sandbox().files[LARGE] == b"y" * 20_000
        assert town.sandbox().roots.asides == []
        with pytest.raises(ApiError, match="HOLDFAST_MAX_STORED_PER_USER"):
            await actor.sync(wait=True)
        del town.sandbox().files[LARGE]
        await getattr(actor, how)()
        state = actor.conversation.state
        assert (state.clean, state.overfull, state.sync_error, state.generation) == (True, False, "", 1)


async def test_it_sleeps_when_idle_and_costs_nothing_then() -> None:
    async with Town() as town:
        actor = await overfull(town)
        actor.workspace.request()
        await asyncio.sleep(60)
        assert actor.describe()["sync"]["state"] == "failed"
        await asyncio.sleep(2 * actor.sleep_after)
        assert actor.conversation.state.status is SessionStatus.SLEEPING
        starts = town.fleet.starts
        await asyncio.sleep(HOURS)
        assert (town.fleet.starts, await town.fleet.running()) == (starts, [])
        assert await town.actor() is not actor, "it is not kept in memory"
        await town.restart()
        await asyncio.sleep(HOURS)
        assert town.fleet.starts == starts


async def test_one_that_has_crashed_is_looked_at_once_and_then_waits_for_its_owner() -> None:
    async with Town() as town:
        actor = await overfull(town)
        await town.kill()
        town.sandbox().crash()
        await town.open()
        actor = await town.actor()
        await asyncio.sleep(300)
        assert actor.conversation.state.overfull
        starts = town.fleet.starts
        await asyncio.sleep(HOURS)
        assert town.fleet.starts == starts
        assert town.sandbox().files[LARGE] == b"y" * 20_000


async def test_what_is_left_after_most_files_were_removed_is_no_lost_disk() -> None:
    async with Town() as town:
        actor = await overfull(town)
        for path in [path for path in town.sandbox().files if path != LARGE]:
            del town.sandbox().files[path]
        await actor.sleep()
        await actor.wake()
        assert (list(town.sandbox().files), town.sandbox().roots.asides) == ([LARGE], [])


async def test_a_disk_that_is_gone_gives_way_to_the_newest_generation() -> None:
    async with Town() as town:
        actor = await overfull(town)
        await actor.sleep()
        town.sandbox().roots.clear()  # it is opened on another machine
        await actor.wake()
        assert len(town.sandbox().files) == 10


async def test_its_disk_goes_with_the_session() -> None:
    async with Town() as town:
        actor = await overfull(town)
        await actor.sleep()
        await actor.destroy(purge=True)
        assert "s" not in town.fleet.sandboxes


async def test_the_limits_of_every_workspace_keep_no_sandbox_running_either() -> None:
    async with Town() as town:
        town.workspaces = type(town.workspaces)(rules=ScanAsk(limits=TreeLimits(total_bytes=1_000)))
        await town.restart()
        actor, _ = await town.begun()
        town.sandbox().files[FILE] = b"x" * 2_000
        stopped = await actor.sleep()
        assert (stopped["status"], "HOLDFAST_SYNC_MAX_BYTES" in stopped["reason"]) == ("sleeping", True)


async def test_the_reason_stays_although_its_sandbox_takes_long_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another attempt meanwhile would find a bridge that does not answer, and say so instead."""
    async with Town() as town:
        actor = await overfull(town)
        stop = town.fleet.stop

        async def slow(session_id: str) -> None:
            await stop(session_id)
            await asyncio.sleep(300)

        monkeypatch.setattr(town.fleet, "stop", slow)
        stopped = await actor.sleep()
        assert stopped["status"] == "sleeping"
        assert stopped["sync"]["lastError"] == stopped["reason"]
        assert "HOLDFAST_MAX_STORED_PER_USER" in stopped["reason"]


async def test_it_is_synced_again_if_its_sandbox_cannot_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Town() as town:
        actor = await overfull(town)

        async def fails(session_id: str) -> None:
            raise OSError("not now")

        with monkeypatch.context() as patch:
            patch.setattr(town.fleet, "stop", fails)
            with pytest.raises(OSError, match="not now"):
                await actor.sleep()
        del town.sandbox().files[LARGE]
        tab = await town.talk("again")
        await town.until(lambda: actor.conversation.state.sync_error == "", "a sync")
        assert tab.seen("done")
