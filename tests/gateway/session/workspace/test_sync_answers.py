"""Whoever is told that a workspace is kept can have it back, whatever became of the sandbox just before."""

import asyncio

import pytest

from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from sandbox.ports.tree import TreeFailed
from tests.gateway.session.workspace.test_workspace import FILE, Town

pytestmark = pytest.mark.virtual_time

MOMENTS = range(12)  # turns of the loop: more than it takes to notice that a sandbox has died


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def answered(town: Town, actor: SessionActor) -> bool:
    """Ask for a sync: whether it was not refused. Then what was on the disk is in the generation that was told."""
    disk = town.sandbox().roots.entries()
    try:
        told = await actor.sync(wait=True)
    except ApiError:
        return False
    _, tree = await town.vault().tree("ann", "s", told["sync"]["generation"])
    assert tree.entries == disk
    return True


async def settled(town: Town, files: int = 4) -> SessionActor:
    """A session that runs, and of which everything is kept: so many files."""
    actor, _ = await town.begun()
    town.sandbox().files.update({b"workspace/%d" % number: b"%d" % number for number in range(files)})
    await actor.sync(wait=True)
    return actor


@pytest.mark.parametrize("lasted", [0.0, 30.0])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_sync_tells_the_truth_when_the_sandbox_has_just_died(moment: int, lasted: float) -> None:
    """A link that did not last is not looked for at once: all that time the session is said to run, and does not."""
    async with Town() as town:
        actor = await settled(town)
        await asyncio.sleep(lasted)
        town.sandbox().files[FILE] = b"written before"
        town.sandbox().crash()
        await turns(moment)
        await answered(town, actor)
        await town.until(lambda: actor.describe()["sandboxStatus"] == "connected", "running again")
        assert town.sandbox().files[FILE] == b"written before"
        assert town.sandbox().roots.asides == []
        assert await answered(town, actor)


async def test_what_a_sandbox_left_is_kept_before_it_is_found_again() -> None:
    async with Town() as town:
        actor = await settled(town)
        town.sandbox().files[FILE] = b"written before"
        town.sandbox().crash()
        await town.until(lambda: actor.delivery.link is None, "a link that is lost")
        assert await answered(town, actor)
        assert not actor.conversation.state.clean, "it is about to run again"
        await town.until(lambda: actor.describe()["sandboxStatus"] == "connected", "running again")


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_sync_tells_the_truth_when_gateway_and_sandbox_have_died(moment: int) -> None:
    async with Town() as town:
        await settled(town)
        town.sandbox().files[FILE] = b"written before"
        await asyncio.sleep(1)
        await town.kill()
        await town.fleet.sandbox("s").stop()
        await town.open()
        actor = await town.actor("s")
        await turns(moment)
        assert await answered(town, actor)


async def test_a_sync_that_waited_for_a_restore_that_failed_is_refused() -> None:
    async with Town() as town:
        actor = await settled(town)
        town.sandbox().files.clear()
        town.sandbox().files[FILE] = b"all that is left"
        town.sandbox().roots.step_seconds = 0.2
        town.sandbox().roots.failures["finish"] = [TreeFailed("failed", "never")]
        town.sandbox().crash()
        await town.until(lambda: actor.describe()["status"] == "starting", "a start")
        with pytest.raises(ApiError) as refused:
            await actor.sync(wait=True)
        assert (refused.value.status, actor.describe()["status"]) == (409, "unrestored")


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_sync_of_a_disk_that_lost_most_of_its_files_does_not_answer_with_what_it_had(moment: int) -> None:
    """What is left is kept beside the roots and not in the store, so nobody is told that it is."""
    async with Town() as town:
        actor = await settled(town)
        town.sandbox().files.clear()
        town.sandbox().files[FILE] = b"all that is left"
        town.sandbox().crash()
        await turns(moment)
        assert not await answered(town, actor)
        await town.until(lambda: actor.describe()["sandboxStatus"] == "connected", "running again")
        assert town.sandbox().roots.asides == [{FILE: b"all that is left"}]
        assert await answered(town, actor)


async def test_a_sleeping_session_whose_disk_lost_most_of_its_files_says_so_once() -> None:
    async with Town() as town:
        actor = await settled(town)
        town.fleet.start_problem = "not today"
        town.sandbox().files.clear()
        town.sandbox().files[FILE] = b"all that is left"
        town.sandbox().crash()
        await town.until(lambda: actor.describe()["status"] == "error", "an error")
        town.fleet.start_problem = None
        with pytest.raises(ApiError, match="are beside it"):
            await actor.sync(wait=True)
        assert await answered(town, actor)
