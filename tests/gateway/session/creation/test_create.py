"""Sessions that are made, or had again, by the id their creator chose."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace

import pytest

from gateway.limits.images import ImageRule
from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from gateway.session.model.ports import SessionLimits
from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.progress import ImageChosen
from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.memory.fleet import MemoryFleet
from tests.support.sessions import World
from tests.support.waiting import until

pytestmark = pytest.mark.virtual_time


async def test_the_owner_gets_the_same_session_and_a_stranger_a_409(world: World) -> None:
    actor = await world.create()
    assert await world.create() is actor
    with pytest.raises(ApiError) as refused:
        await world.create(user="eve")
    assert (refused.value.status, refused.value.code) == (409, "taken")
    assert await world.registry.find("nobody's", user_id=None) is None


async def test_attach_or_create_makes_a_session_that_sleeps(world: World) -> None:
    actor = await world.sessions.creation.attach_or_create("new", "ann")
    assert actor is not None
    await asyncio.sleep(10)
    assert actor.describe()["status"] == "sleeping"
    assert world.fleet.starts == 0
    tab = await world.welcomed("new")
    tab.say("a")
    await tab.until("done")


async def test_while_draining_nothing_is_created(world: World) -> None:
    world.sessions.drain.draining = True
    with pytest.raises(ApiError) as refused:
        await world.create()
    assert (refused.value.status, refused.value.code) == (503, "draining")


class Other(MemoryFleet):
    name = "other"


class NoImages(MemoryFleet):
    name = "plain"

    def check(self, spec: SandboxSpec) -> None:
        if spec.image is not None:
            raise SandboxFailed("image: there are none")


@pytest.fixture
async def choice() -> AsyncIterator[World]:
    """A gateway of three providers: `memory`, where sessions run that name none, `other`, and `plain` without images.
    Users may name some images."""
    world = World(limits=SessionLimits(images=ImageRule("house:1", ("debian",))))
    world.other_fleets = (Other(), NoImages())
    async with world:
        yield world


async def comes_to(actor: SessionActor, member: str, value: str) -> None:
    await until(lambda: actor.describe()[member] == value)


async def refusal(asked: Awaitable[object]) -> tuple[int, str, str]:
    with pytest.raises(ApiError) as refused:
        await asked
    return refused.value.status, refused.value.code, refused.value.message


async def test_a_session_runs_at_the_provider_that_it_names_and_counts_there(choice: World) -> None:
    other = choice.other_fleets[0]
    await choice.create("default")
    named = await choice.create("named", provider="other")
    await comes_to(named, "status", "running")
    assert (choice.fleet.starts, other.starts) == (1, 1)
    assert named.describe()["provider"] == "other"
    figures = choice.metrics.render().decode()
    assert 'holdfast_sandboxes_created_total{provider="other"} 1.0' in figures

    await choice.restart()
    again = await choice.create("named", provider="memory")
    assert again.describe()["provider"] == "other", "one that is there stays as it is"
    assert other.starts == 1


async def test_a_provider_that_is_not_here_is_refused_by_its_setting(choice: World) -> None:
    status, code, words = await refusal(choice.create("s", provider="docker"))
    assert (status, code) == (400, "unknown_provider")
    assert words == "provider must be one of memory, other, plain: the operator can add others (HOLDFAST_PROVIDERS)"
    assert await choice.registry.find("s", user_id=None) is None


async def test_users_name_images_that_the_operator_allows_and_services_any(choice: World) -> None:
    status, code, words = await refusal(choice.create("s", image="node:24"))
    assert (status, code) == (403, "image_not_allowed")
    assert "HOLDFAST_IMAGES" in words
    status, code, words = await refusal(choice.create("s", provider="plain", image="debian:12"))
    assert (status, code, words) == (400, "bad_sandbox", "image: there are none")
    allowed = await choice.create("allowed", image="debian:12")
    granted = await choice.create("granted", image="node:24", by_service=True)
    for actor in (allowed, granted):
        await comes_to(actor, "status", "running")

    choice.limits = replace(choice.limits, images=ImageRule("house:1"))
    await choice.restart()
    for name, comes in (("allowed", "error"), ("granted", "running")):
        actor = await choice.actor(name)
        await actor.sleep()
        await actor.wake()
        await comes_to(actor, "status", comes)
    assert (
        "image: debian:12 is none that users may name here, house:1"
        in (await choice.actor("allowed")).describe()["reason"]
    )


async def test_a_session_keeps_what_its_image_meant_at_the_first_start(choice: World) -> None:
    choice.fleet.images = {
        "debian:12": ImageChosen("debian:12", "id-1", "debian@sha256:1"),
        "": ImageChosen("house:1", "id-2"),
    }
    named, default = await choice.create("named", image="debian:12"), await choice.create("default")
    await comes_to(named, "imageDigest", "debian@sha256:1")
    await comes_to(default, "imageDigest", "id-2")
    assert (named.describe()["image"], named.describe()["imageDigest"]) == ("debian:12", "debian@sha256:1")
    assert (default.describe()["image"], default.describe()["imageDigest"]) == ("house:1", "id-2")

    await named.sleep()
    choice.limits = replace(choice.limits, images=ImageRule("house:2", ("debian",)))
    await choice.restart()
    for name, chosen in (("named", ("debian:12", "id-1", "debian@sha256:1")), ("default", ("house:1", "id-2", ""))):
        actor = await choice.actor(name)
        await actor.sleep()
        await actor.wake()
        sandbox = choice.fleet.sandboxes[name]
        assert (sandbox.spec.image, sandbox.spec.image_id, sandbox.spec.image_digest) == chosen


async def test_an_archived_session_comes_back_at_its_provider_with_what_its_image_means_now(choice: World) -> None:
    choice.other_fleets[0].images = {"debian:12": ImageChosen("debian:12", "id-1", "debian@sha256:1")}
    actor = await choice.create("s", provider="other", image="debian:12")
    await comes_to(actor, "imageDigest", "debian@sha256:1")
    await actor.destroy(purge=False)
    status, code, words = await refusal(choice.create("s", provider="memory"))
    assert (status, code) == (409, "other_provider")
    assert "at provider other: leave provider out" in words
    choice.other_fleets[0].images = {"debian:13": ImageChosen("debian:13", "id-3")}
    actor = await choice.create("s", image="debian:13")
    await comes_to(actor, "imageDigest", "id-3")
    assert (actor.describe()["provider"], actor.describe()["image"]) == ("other", "debian:13")
