"""A start that waits for its image: told to viewers and in the status, and stopped by whoever wants it stopped."""

import asyncio
from typing import Any

import pytest

from gateway.limits.start_queue import StartLimits
from sandbox.ports.progress import ImagePull
from tests.support.sessions import Tab, World
from tests.support.waiting import until

pytestmark = pytest.mark.virtual_time


def pulls(steps: int) -> list[ImagePull]:
    return [ImagePull("debian:12", step // 10, 3, step, 30) for step in range(steps)]


def members(step: int) -> dict[str, Any]:
    return {"image": "debian:12", "layers": step // 10, "ofLayers": 3, "bytes": step, "ofBytes": 30}


def told(tab: Tab) -> list[dict[str, Any]]:
    return [frame for frame in tab.seen("session_status") if frame["status"] in ("pulling", "pulled")]


async def test_viewers_and_the_status_tell_how_much_is_fetched(world: World) -> None:
    world.fleet.pulls = pulls(30)
    actor = await world.create()
    await until(lambda: actor.describe()["pull"])
    shown = actor.describe()
    assert (shown["status"], shown["sandboxStatus"], shown["pull"]) == ("starting", "connecting", members(0))
    tab = await world.tab()
    await tab.until("session_status", status="pulled")
    frames = [{name: value for name, value in frame.items() if name != "type"} for frame in told(tab)]
    assert frames[0] == {"status": "pulling", **members(0)}, "who comes later is told at once"
    assert [frame["bytes"] for frame in frames[1:-1]] == list(range(1, 30))
    assert frames[-1] == {"status": "pulled", "image": "debian:12"}
    await until(lambda: actor.describe()["status"] == "running")
    assert actor.describe()["pull"] is None


async def test_steps_that_follow_each_other_closely_are_told_now_and_then(world: World) -> None:
    world.fleet.pulls, world.fleet.pull_seconds = pulls(30), 0.13
    actor = await world.create()
    tab = await world.tab()
    await tab.until("session_status", status="pulled")
    assert [frame["bytes"] for frame in told(tab)[:-1]] == [0, 3, 7, 11, 15, 19, 23, 26]
    await until(lambda: actor.describe()["status"] == "running")


async def test_the_last_step_is_told_even_if_nothing_follows_it(world: World) -> None:
    """All layers are there soon after each other; then one is unpacked, and of that engines say little."""
    world.fleet.pulls, world.fleet.pull_seconds, world.fleet.pull_ends_after = pulls(11), 0.01, 3600.0
    actor = await world.create()
    tab = await world.tab()
    await until(lambda: told(tab))
    await asyncio.sleep(60)
    assert actor.describe()["pull"] == members(10)
    assert {name: told(tab)[-1][name] for name in members(10)} == members(10)
    assert len(told(tab)) <= 3


async def test_a_pull_that_fails_is_why_the_start_fails(world: World) -> None:
    world.fleet.pulls, world.fleet.pull_problem = pulls(3), "there is no image debian:12 in its registry"
    actor = await world.create()
    await until(lambda: actor.describe()["status"] == "error")
    assert actor.describe()["reason"] == "there is no image debian:12 in its registry"
    assert actor.describe()["pull"] is None


async def test_a_session_that_waits_for_its_image_keeps_nobody_else_from_starting(world: World) -> None:
    await world.leave()
    world.starts = StartLimits(at_once=1, at_once_per_user=1)
    await world.open()
    world.fleet.pulls = pulls(1000)
    slow = await world.create("slow")
    await until(lambda: slow.describe()["pull"])
    world.fleet.pulls = []
    quick = await world.create("quick")
    await until(lambda: quick.describe()["status"] == "running")
    assert slow.describe()["pull"] is not None


@pytest.mark.parametrize(("verb", "status"), [("sleep", "sleeping"), ("pause", "paused")])
async def test_a_stop_does_not_wait_for_an_image_and_the_next_start_begins_anew(
    verb: str, status: str, world: World
) -> None:
    world.fleet.pulls = pulls(1000)
    actor = await world.create()
    await until(lambda: actor.describe()["pull"])
    began = asyncio.get_running_loop().time()
    assert (await getattr(actor, verb)())["status"] == status
    assert asyncio.get_running_loop().time() - began < 10
    assert world.fleet.starts == 1
    world.fleet.pulls = pulls(2)
    await actor.resume(None) if status == "paused" else await actor.wake()
    assert actor.describe()["status"] == "running"
    assert actor.describe()["incarnation"] == 1, "nothing ran before"


async def test_a_delete_does_not_wait_for_an_image(world: World) -> None:
    world.fleet.pulls = pulls(1000)
    actor = await world.create()
    await until(lambda: actor.describe()["pull"])
    assert (await actor.destroy(purge=False))["status"] == "archived"


async def test_a_gateway_that_leaves_does_not_wait_for_an_image(world: World) -> None:
    world.fleet.pulls = pulls(1000)
    actor = await world.create()
    await until(lambda: actor.describe()["pull"])
    began = asyncio.get_running_loop().time()
    await world.leave()
    assert asyncio.get_running_loop().time() - began < 60
    world.fleet.pulls = []
    await world.open()
    actor = await world.actor()
    await actor.wake()
    assert actor.describe()["status"] == "running"
