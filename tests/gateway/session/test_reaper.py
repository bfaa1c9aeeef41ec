"""Sessions that nobody uses."""

import asyncio
import json

import pytest

from gateway.session.model.ports import SessionLimits
from sandbox.providers.memory.scripted import OnLine, ScriptedProcess, said, silent
from tests.support.faults import Fault
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


async def test_while_the_store_is_away_no_session_is_let_go_that_could_not_be_loaded_again() -> None:
    """One that was put to sleep in an outage once was: its user was refused until the store was back."""
    async with World(spooled=True) as world:
        actor = await world.create()
        world.store.outage = Fault.AWAY
        await actor.sleep()
        await asyncio.sleep(2000)
        assert await world.actor() is actor
        world.store.outage = None
        await asyncio.sleep(2000)
        assert await world.actor() is not actor


async def test_a_session_whose_agent_never_says_done_sleeps_when_it_has_been_quiet_for_long() -> None:
    async with World(silent, limits=SessionLimits(sleep_after=60.0, quiet_after=1000.0)) as world:
        actor = await world.create()
        tab = await world.welcomed()
        tab.say("anyone?", "c1")
        await tab.until("receipt", cid="c1")
        await asyncio.sleep(900)
        assert actor.describe()["status"] == "running"
        assert world.sandbox().agent is not None
        world.sandbox().agent.emit({"type": "thinking", "text": "hm"})  # type: ignore[union-attr]
        await asyncio.sleep(900)
        assert actor.describe()["status"] == "running", "it is at work"
        await tab.until("interrupted", cid="c1", within=300)
        await world.until(lambda: actor.describe()["status"] == "sleeping")


async def test_a_session_whose_agent_waits_for_an_answer_sleeps_when_nobody_gives_it_for_long() -> None:
    def asking(process: ScriptedProcess) -> OnLine:
        def on_line(line: bytes) -> None:
            process.emit({"type": "tool_permission_request", "requestId": f"about {json.loads(line)['cid']}"})

        return on_line

    async with World(asking, limits=SessionLimits(sleep_after=60.0, quiet_after=1000.0)) as world:
        actor = await world.create()
        tab = await world.welcomed()
        tab.say("may you?", "c1")
        await tab.until("tool_permission_request")
        await asyncio.sleep(900)
        assert actor.describe()["status"] == "running"
        tab.say("hm", "c2")
        await tab.until("tool_permission_request")
        await asyncio.sleep(900)
        assert actor.describe()["status"] == "running", "somebody is there"
        await tab.until("interrupted", cid="c1", within=300)
        await tab.until("expired", requestId="about c1")
        await world.until(lambda: actor.describe()["status"] == "sleeping")
        asked = [request["requestId"] for request in actor.conversation.spec.pending]
        assert asked == ["about c1", "about c2"]
        tab.send("permission_response", cid="c3", requestId="about c1", allow=True)
        assert (await tab.until("nack", cid="c3"))["reason"] == "unknown_request"


async def test_a_session_with_a_message_that_waits_does_not_sleep() -> None:
    def deaf(process: ScriptedProcess) -> OnLine:
        def on_line(line: bytes) -> None:
            if said(json.loads(line)) == "work":
                process.hang()

        return on_line

    async with World(deaf, limits=SessionLimits(sleep_after=60.0, quiet_after=100.0)) as world:
        actor = await world.create()
        tab = await world.welcomed()
        tab.say("work", "c1")
        await tab.until("receipt", cid="c1")
        tab.say("next", "c2")
        await tab.until("ack", cid="c2")
        await asyncio.sleep(5000)
        assert actor.describe()["status"] == "running"
