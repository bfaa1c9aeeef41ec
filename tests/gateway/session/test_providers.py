"""What is told of providers, on virtual time: each is asked seldom, and a silent one keeps nobody waiting."""

import asyncio
import math

import pytest

from gateway.session import providers
from gateway.session.providers import FRESH_SECONDS, LOOK_SECONDS, SILENT, Providers
from gateway.session.sandbox.start_turn import own_names, session_named
from sandbox.ports.fleet import ProviderHealth
from sandbox.providers.memory.fleet import MemoryFleet
from sandbox.providers.several import Fleets
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


class Asked(MemoryFleet):
    """Counts how often it is asked; it answers while `answers` is set."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.asked = 0
        self.answers = asyncio.Event()
        self.answers.set()

    async def health(self) -> ProviderHealth:
        self.asked += 1
        await self.answers.wait()
        return await super().health()


def watching(world: World, *fleets: Asked) -> Providers:
    return Providers(Fleets(*fleets), world.sessions.loaded, world.sessions.turns)


async def test_many_who_ask_at_once_cost_one_question() -> None:
    async with World() as world:
        fleet = Asked("one")
        watch = watching(world, fleet)
        assert math.isnan(watch.up("one")), "nobody has asked yet"
        views = await asyncio.gather(*(watch.look() for _ in range(50)))
        assert fleet.asked == 1
        assert {view.health.problem for (view,) in views} == {None}
        assert watch.up("one") == 1
        fleet.unavailable = "it is away"
        await asyncio.sleep(FRESH_SECONDS - 1)
        assert (await watch.look())[0].health.problem is None
        await asyncio.sleep(2)
        assert (await watch.look())[0].health.problem == "it is away"
        assert (fleet.asked, watch.up("one")) == (2, 0)
        assert math.isnan(watch.up("another"))


async def test_a_silent_provider_is_waited_for_once_and_the_others_are_told_as_they_are() -> None:
    async with World() as world:
        now = asyncio.get_running_loop().time
        silent, other = Asked("silent"), Asked("other")
        silent.answers.clear()
        watch = watching(world, silent, other)
        began = now()
        views = await asyncio.gather(*(watch.look() for _ in range(50)))
        assert now() - began == pytest.approx(LOOK_SECONDS)
        assert [[view.health.problem for view in each] for each in views] == [[SILENT, None]] * 50
        assert (silent.asked, other.asked) == (1, 1)
        silent.answers.set()
        await asyncio.sleep(FRESH_SECONDS + 1)
        await watch.keep_watch()
        assert watch.up("silent") == 1


async def test_who_gives_up_waiting_leaves_the_question_to_the_next() -> None:
    async with World() as world:
        fleet = Asked("one")
        fleet.answers.clear()
        watch = watching(world, fleet)
        first = asyncio.create_task(watch.look())
        second = asyncio.create_task(watch.look())
        await asyncio.sleep(providers.LOOK_SECONDS / 2)
        first.cancel()
        fleet.answers.set()
        assert (await second)[0].health.problem is None
        assert first.cancelled()


async def test_sandboxes_count_at_the_provider_of_their_session() -> None:
    async with World() as world:
        watch = world.sessions.providers
        assert watch.running() == {}
        for session_id in ("s1", "s2"):
            await world.create(session_id)
        await world.until(lambda: watch.running() == {"memory": 2})
        await (await world.actor("s1")).sleep()
        assert watch.running() == {"memory": 1}


def test_a_visit_is_its_sessions() -> None:
    assert {session_named(name) for name in own_names("s1")} == {"s1"}
