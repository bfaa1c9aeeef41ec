"""What a session may have of the network is asked again at each start, by the settings of that day."""

from dataclasses import replace

import pytest

from gateway.limits.network import NetworkRule
from gateway.session.model.state import SessionSpec
from persistence.record import Session
from sandbox.providers.memory.fleet import MemoryFleet
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time
REPOSITORY = "https://example.com/a.git"


async def test_a_repository_that_nobody_may_clone_any_more_is_not_cloned(world: World) -> None:
    """Of a provider that clones outside its sandboxes: those may have no network themselves."""
    await world.kill()
    world.limits = replace(world.limits, network=NetworkRule("none", "none"))
    spec = SessionSpec(provider=MemoryFleet.name, network="none", repo_url=REPOSITORY)
    await world.kept.create(Session("s", "ann", 0.0, spec.to_json()))
    await world.open()
    tab = await world.welcomed()
    tab.say("hello")
    assert "HOLDFAST_NETWORK_MAX" in (await tab.until("error"))["error"]
    assert world.fleet.starts == 0
    await world.create(network="none", by_service=True)
    assert world.fleet.starts == 0, "it did not ask for the clone"
    await world.create(network="none", repo_url=REPOSITORY, by_service=True)
    tab.say("again")
    await tab.until("done")
    assert world.fleet.starts == 1


async def test_a_session_that_has_its_repository_starts_again(world: World) -> None:
    await world.create(repo_url=REPOSITORY)
    tab = await world.welcomed()
    tab.say("hello")
    await tab.until("done")
    await (await world.actor()).sleep()
    await world.leave()
    world.limits = replace(world.limits, network=NetworkRule("none", "none"))
    await world.open()
    tab = await world.welcomed()
    tab.say("again")
    await tab.until("done")
    assert world.fleet.starts == 2
