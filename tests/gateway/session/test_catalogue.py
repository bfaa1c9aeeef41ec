"""What can be said of sessions without loading them."""

import pytest

from gateway.session.model.state import SessionSpec, SessionState
from persistence.record import Session
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


async def test_all_sessions_are_described_loaded_or_not(world: World) -> None:
    await world.create("a", title="first")
    await world.create("b", user="bob")
    await world.restart()
    described = await world.described("ann")
    assert [(each["id"], each["title"]) for each in described] == [("a", "first")]
    assert {each["id"] for each in await world.described(None)} == {"a", "b"}
    assert set(world.sessions.stats()) >= {"sessions_loaded", "viewers", "pending_records", "pending_bytes"}


async def test_a_session_stores_its_provider_and_one_of_another_provider_is_left_alone(world: World) -> None:
    await world.create("here")
    kept = await world.kept.find("here")
    assert kept is not None
    assert SessionSpec.from_json(kept.spec).provider == "memory"
    spec, state = SessionSpec(provider="elsewhere", title="t"), SessionState()
    await world.kept.create(Session("there", "ann", 1.0, spec.to_json(), state.to_json()))
    shown = {each["id"]: (each["provider"], each["level"]) for each in await world.described(None)}
    assert shown == {"here": ("memory", "trusted"), "there": ("elsewhere", "unknown")}
