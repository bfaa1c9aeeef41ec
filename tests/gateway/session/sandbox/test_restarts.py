"""How long a session waits for an object store that says nothing, and what it does when it has waited long enough."""

import asyncio

import pytest

from gateway.protocol.errors import ApiError
from gateway.session.workspace.restore import LOOK_SECONDS
from gateway.session.workspace.sync import SETTLE_SECONDS
from sync.objects.memory import MemoryObjects
from sync.ports import Got
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time

FILE = b"workspace/a.txt"


class SilentObjects(MemoryObjects):
    """An object store that takes requests and says nothing while it is `silent`."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.answers.set()

    async def get(self, key: str) -> Got | None:
        await self.answers.wait()
        return await super().get(key)


class Town(World):
    objects: SilentObjects

    def __init__(self) -> None:
        super().__init__()
        self.objects = SilentObjects()


async def test_a_new_session_begins_although_the_store_says_nothing() -> None:
    async with Town() as town:
        town.objects.answers.clear()
        actor = await town.create()
        began = asyncio.get_running_loop().time()
        assert (await actor.wake())["status"] == "running"
        assert asyncio.get_running_loop().time() - began <= LOOK_SECONDS + 1


async def test_a_session_wakes_with_the_disk_it_has_although_the_store_says_nothing() -> None:
    async with Town() as town:
        actor = await town.create()
        await actor.wake()
        town.sandbox().files[FILE] = b"mine"
        await actor.sleep()
        town.objects.answers.clear()
        began = asyncio.get_running_loop().time()
        assert (await actor.wake())["status"] == "running"
        assert asyncio.get_running_loop().time() - began <= LOOK_SECONDS + 1
        assert town.sandbox().files == {FILE: b"mine"}


async def test_what_the_disk_does_not_have_is_unrestored_when_the_store_says_nothing() -> None:
    async with Town() as town:
        actor = await town.create()
        await actor.wake()
        town.sandbox().files[FILE] = b"mine"
        await actor.sleep()
        town.sandbox().files.clear()
        town.objects.answers.clear()
        assert (await actor.wake())["status"] == "unrestored"
        assert (await actor.resume(None, empty=True))["status"] == "unrestored", "and nobody waits for ever"
        town.objects.answers.set()
        assert (await actor.wake())["status"] == "running"
        assert town.sandbox().files == {FILE: b"mine"}


@pytest.mark.parametrize("how", ["sleep", "pause"])
async def test_a_session_that_cannot_be_stopped_for_long_can_be_used_again(how: str) -> None:
    async with Town() as town:
        actor = await town.create()
        tab = await town.welcomed()
        tab.say("hello")
        await tab.until("done")
        town.sandbox().files[FILE] = b"mine"
        town.objects.answers.clear()
        began = asyncio.get_running_loop().time()
        with pytest.raises(ApiError, match="the sandbox stays"):
            await getattr(actor, how)()
        assert asyncio.get_running_loop().time() - began <= SETTLE_SECONDS + 1
        assert actor.describe()["sync"]["dirty"]
        tab.say("are you there?")
        await tab.until("done", count=2)
        town.objects.answers.set()
        await town.until(lambda: not actor.describe()["sync"]["dirty"], "it is kept after all")
        await getattr(actor, how)()
        assert not town.sandbox().alive
