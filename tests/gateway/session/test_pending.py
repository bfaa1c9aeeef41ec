"""Messages that the agent does not have: listed, cancelled, given more time; whatever happens meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from gateway.protocol.errors import ApiError
from sandbox.providers.memory.scripted import OnLine, ScriptedProcess, answer, said
from tests.support.faults import Fault
from tests.support.sessions import Tab, World

pytestmark = pytest.mark.virtual_time


def one_at_a_time(process: ScriptedProcess) -> OnLine:
    """Reads nothing more once it is told to `work`, until the test makes it read on; answers all else."""

    def on_line(line: bytes) -> None:
        frame = json.loads(line)
        if frame["type"] != "message":
            return
        if said(frame) == "work":
            process.hang()
        elif said(frame) == "ask":
            process.emit({"type": "tool_permission_request", "requestId": "r1"})
        else:
            answer(process, said(frame))

    return on_line


@pytest.fixture(params=[False, True], ids=["store", "spool"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with World(one_at_a_time, spooled=request.param) as world:
        yield world


async def busy(world: World, *texts: str, cids: bool = True) -> Tab:
    """The agent works on the first message; these wait in its sandbox."""
    await world.create()
    tab = await world.welcomed()
    for text in ("work", *texts):
        tab.say(text, text)
    await tab.until("receipt", cid="work")
    if texts:
        await tab.until("ack", cid=texts[-1])
    return tab


def away(world: World) -> None:
    """No sandbox can be started: messages wait here."""
    world.fleet.start_problem = "no room"


async def statuses(world: World) -> dict[str, str]:
    return {record["cid"]: record["status"] for record in await world.history() if record["role"] == "user"}


async def refused(asked: Awaitable[Any]) -> str:
    with pytest.raises(ApiError) as error:
        await asked
    return error.value.code


def handed(world: World) -> list[str]:
    return [json.loads(line)["content"] for _, line in world.sandbox().handed]


def listed(world: World, tab: Tab) -> list[tuple[int, str, bool]]:
    return [(each["seq"], each["content"], each["inSandbox"]) for each in tab.actor.pending.listed()]


async def test_what_waits_in_the_sandbox_is_listed_in_order(world: World) -> None:
    tab = await busy(world, "a", "b")
    tab.send("message", content=[{"type": "text", "text": "c"}], cid="c", metadata={"k": 1})
    tab.send_line("raw line")
    await tab.until("record", count=5)
    shown = tab.actor.pending.listed()
    assert [each["seq"] for each in shown] == [2, 3, 4, 5]
    assert shown[2] | {"createdAt": ""} == {
        "seq": 4,
        "cid": "c",
        "type": "message",
        "content": [{"type": "text", "text": "c"}],
        "metadata": {"k": 1},
        "createdAt": "",
        "status": "stored",
        "inSandbox": True,
        "expiresAt": None,
    }
    assert shown[2]["createdAt"] == (await world.history())[3]["createdAt"]
    assert (shown[3]["type"], shown[3]["content"]) == ("raw", "raw line")
    assert tab.actor.describe()["pending"] == 4


async def test_a_list_that_is_too_long_is_without_the_content_of_its_last(world: World) -> None:
    tab = await busy(world)
    for count, text in enumerate("xy", 1):
        tab.say(text * 700_000)
        await tab.until("ack", count=count + 1)
    first, second = tab.actor.pending.listed()
    assert len(first["content"]) == 700_000
    assert (second["content"], second["omitted"]) == (None, True)


async def test_a_message_in_the_sandbox_is_cancelled_and_those_behind_it_keep_their_order(world: World) -> None:
    tab = await busy(world, "a", "b", "c")
    shown = await tab.actor.pending.cancel(3)
    assert (shown["cid"], shown["status"]) == ("b", "cancelled")
    assert tab.seen("expired") == [{"type": "expired", "cid": "b", "seq": 3, "reason": "cancelled"}]
    assert listed(world, tab) == [(2, "a", True), (4, "c", True)]
    agent = world.sandbox().agent
    assert agent is not None
    agent.read_on()
    await tab.until("done", count=2)
    assert handed(world) == ["work", "a", "c"]
    assert await statuses(world) == {"work": "delivered", "a": "delivered", "b": "cancelled", "c": "delivered"}
    assert await refused(tab.actor.pending.cancel(3)) == "not_pending"


async def test_what_the_agent_has_cannot_be_cancelled(world: World) -> None:
    tab = await busy(world)
    assert await refused(tab.actor.pending.cancel(1)) == "not_pending"
    assert await refused(tab.actor.pending.extend(1, 60.0)) == "not_pending"
    for seq in (0, 2, 99):
        assert await refused(tab.actor.pending.cancel(seq)) == "unknown_message"


async def test_a_message_that_the_agent_takes_first_is_not_cancelled(world: World) -> None:
    tab = await busy(world, "a")
    agent = world.sandbox().agent
    assert agent is not None
    asked = asyncio.ensure_future(refused(tab.actor.pending.cancel(2)))
    agent.read_on()  # before the bridge hears of it
    assert await asked == "not_pending"
    await tab.until("done")
    assert (await statuses(world))["a"] == "delivered"


async def test_an_agent_that_answers_what_it_does_not_have_keeps_nothing_from_itself(world: World) -> None:
    """It says so before the bridge, which was asked for the message, holds it back with all that follows."""
    tab = await busy(world, "a", "b")
    agent = world.sandbox().agent
    assert agent is not None
    asked = asyncio.ensure_future(refused(tab.actor.pending.cancel(2)))
    agent.emit({"type": "done", "answers": [2]})
    assert await asked == "not_pending"
    agent.read_on()
    await tab.until("done", count=2)
    assert handed(world) == ["work", "b"]
    assert (await statuses(world))["b"] == "delivered"


async def test_two_who_cancel_the_same_message_are_both_answered(world: World) -> None:
    tab = await busy(world, "a")
    both = await asyncio.gather(tab.actor.pending.cancel(2), tab.actor.pending.cancel(2))
    assert [each["status"] for each in both] == ["cancelled", "cancelled"]
    assert len(tab.seen("expired")) == 1


async def test_an_answer_to_a_request_is_not_listed_and_cannot_be_cancelled(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("ask")
    await tab.until("tool_permission_request")
    tab.say("work", "work")
    await tab.until("receipt", cid="work")
    tab.send("permission_response", requestId="r1", cid="yes")
    seq = (await tab.until("ack", cid="yes"))["seq"]
    assert tab.actor.pending.listed() == []
    assert await refused(tab.actor.pending.cancel(seq)) == "not_pending"


@pytest.mark.parametrize("what", ["link", "agent", "bridge"])
async def test_what_was_asked_while_the_link_was_lost_is_known_when_the_bridge_says_what_it_took(
    world: World, what: str
) -> None:
    tab = await busy(world, "a", "b")
    sandbox = world.sandbox()
    agent = sandbox.agent
    assert agent is not None
    if what == "link":
        sandbox.lose_link()
    elif what == "agent":
        agent.exit(1)
    else:
        sandbox.crash()
    asked = asyncio.ensure_future(tab.actor.pending.cancel(2))
    assert (await asked)["status"] == "cancelled"
    if (agent := sandbox.agent) is not None:
        agent.read_on()
    await tab.until("done")
    assert handed(world) == ["work", "b"]
    assert (await statuses(world))["a"] == "cancelled"


async def test_what_a_lost_link_had_handed_over_is_not_cancelled(world: World) -> None:
    tab = await busy(world, "a")
    sandbox = world.sandbox()
    agent = sandbox.agent
    assert agent is not None
    sandbox.cut_at = (2, "link")
    agent.read_on()
    assert await refused(tab.actor.pending.cancel(2)) == "not_pending"


async def test_a_message_that_waits_for_a_sandbox_is_cancelled_and_never_delivered(world: World) -> None:
    actor = await world.create()
    await actor.pause()
    tab = await world.welcomed()
    for text in ("a", "b", "c"):
        tab.say(text, text)
    await tab.until("ack", cid="c")
    assert listed(world, tab) == [(1, "a", False), (2, "b", False), (3, "c", False)]
    assert all(each["expiresAt"] for each in actor.pending.listed())
    assert (await actor.pending.cancel(2))["inSandbox"] is False
    await world.restart()
    tab = await world.welcomed()
    assert listed(world, tab) == [(1, "a", False), (3, "c", False)]
    await tab.actor.resume(None)
    await tab.until("done", count=2)
    assert handed(world) == ["a", "c"]
    assert (await statuses(world))["b"] == "cancelled"


async def test_a_cancel_that_was_not_durable_is_as_if_it_had_not_been_asked(world: World) -> None:
    tab = await busy(world, "a", "b")
    world.store.outage = Fault.AWAY
    if world.spooled:
        return
    asked = asyncio.ensure_future(tab.actor.pending.cancel(2))
    await asyncio.sleep(1)
    agent = world.sandbox().agent
    assert agent is not None
    agent.read_on()
    await asyncio.sleep(1)
    assert handed(world) == ["work"], "what follows it waits until it is known"
    assert not tab.seen("expired")
    await world.restart()
    with pytest.raises(ApiError):
        await asked
    tab = await world.welcomed()
    await tab.until("done", count=2)
    assert handed(world) == ["work", "a", "b"]


async def test_who_cancels_while_the_store_is_away_hears_that_it_is_not_done_yet(world: World) -> None:
    if world.spooled:
        return
    tab = await busy(world, "a", "b")
    world.store.outage = Fault.AWAY
    assert await refused(tab.actor.pending.cancel(2)) == "storage_unavailable"
    world.store.outage = None
    await tab.until("expired", cid="a", reason="cancelled")
    assert (await statuses(world))["a"] == "cancelled"


async def test_a_message_is_given_more_time_and_a_restart_does_not_forget_it(world: World) -> None:
    actor = await world.create()
    await actor.pause()
    tab = await world.welcomed()
    tab.say("a", "a")
    tab.say("b", "b")
    await tab.until("ack", cid="b")
    before = actor.pending.listed()[0]["expiresAt"]
    shown = await actor.pending.extend(1, 1000.0)
    assert shown["expiresAt"] > before
    assert (await actor.pending.extend(1, 10.0))["expiresAt"] >= shown["expiresAt"], "never less than it had"
    await tab.until("expired", cid="b")
    assert not tab.seen("expired", cid="a")
    await world.restart()
    tab = await world.welcomed()
    assert listed(world, tab) == [(1, "a", False)]
    await asyncio.sleep(300)
    assert not tab.seen("expired")
    await tab.until("expired", cid="a")
    assert await statuses(world) == {"a": "expired", "b": "expired"}
    assert tab.actor.conversation.state.extended == ()


async def test_only_so_many_messages_may_be_given_more_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.session.pending.MOST_EXTENDED", 1)
    actor = await world.create()
    await actor.pause()
    tab = await world.welcomed()
    tab.say("a", "a")
    tab.say("b", "b")
    await tab.until("ack", cid="b")
    await actor.pending.extend(1, 100.0)
    assert await refused(actor.pending.extend(2, 100.0)) == "too_many_extended"
    await actor.pending.cancel(1)
    await actor.pending.extend(2, 100.0)


async def test_who_cancels_while_the_sandbox_cannot_be_reached_hears_that_it_is_not_done_yet(world: World) -> None:
    tab = await busy(world, "a")
    world.fleet.unavailable = "away"
    world.sandbox().lose_link()
    assert await refused(tab.actor.pending.cancel(2)) == "storage_unavailable"
    assert listed(world, tab) == [(2, "a", True)]
    world.fleet.unavailable = None
    await tab.until("expired", cid="a", reason="cancelled")


async def test_a_delete_comes_after_a_cancel_that_is_being_written(world: World) -> None:
    if world.spooled:
        return
    actor = await world.create()
    await actor.pause()
    tab = await world.welcomed()
    tab.say("a", "a")
    tab.say("b", "b")
    await tab.until("ack", cid="b")
    world.store.outage = Fault.AWAY
    asked = asyncio.ensure_future(actor.pending.cancel(1))
    await asyncio.sleep(0.1)
    deleted = asyncio.ensure_future(actor.destroy(purge=False))
    await asyncio.sleep(1)
    world.store.outage = None
    assert (await asked)["status"] == "cancelled"
    await deleted
    assert await statuses(world) == {"a": "cancelled", "b": "interrupted"}
    assert await refused(actor.pending.cancel(2)) == "not_pending"
