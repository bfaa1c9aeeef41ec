"""A gateway that leaves its sessions in order."""

import pytest

from sandbox.providers.memory.scripted import silent
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


async def test_drain_says_goodbye_gets_the_acks_out_and_leaves_sandboxes_running() -> None:
    async with World(silent) as world:
        await world.create()
        tab = await world.welcomed()
        await tab.until("connection_status", sandboxStatus="connected")
        for number in range(50):
            tab.say("x", f"c{number}")
        await world.leave()
        assert tab.closed_with == 1012
        assert not tab.outlet.reading
        assert [ack["cid"] for ack in tab.seen("ack")] == [f"c{number}" for number in range(50)]
        assert 0 < tab.seen("going_away")[0]["retryAfter"] <= 5
        assert world.sandbox().alive
        agent = world.sandbox().agent
        await world.open()
        tab = await world.welcomed(after=tab.position)
        await tab.until("connection_status", sandboxStatus="connected")
        assert world.sandbox().agent is agent
        assert len(await world.history()) == 50
