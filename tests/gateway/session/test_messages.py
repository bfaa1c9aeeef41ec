"""A message on its way: stored, acknowledged, delivered, answered; or refused, or expired, and said so."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.session.model.delivery_window import WindowLimits
from gateway.session.model.ports import SessionLimits
from sandbox.providers.memory.scripted import OnLine, ScriptedProcess, echo, silent
from tests.support.faults import Fault
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


def deaf(process: ScriptedProcess) -> OnLine:
    """Runs, and never reads."""
    process.hang()
    return lambda line: None


def statuses(history: list[dict[str, Any]]) -> list[str]:
    return [record["status"] for record in history]


async def test_a_message_is_stored_acked_delivered_and_answered_in_that_order(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("two words", "c1")
    await tab.until("done")
    kinds = [frame["type"] for frame in tab.frames if frame["type"] not in ("connection_status", "session_status")]
    assert kinds == [
        *("welcome", "ack", "record", "welcome", "receipt", "stream_start", "chunk", "chunk", "stream_end"),
        *("sdk_message", "record", "done"),
    ]
    assert tab.seen("ack") == [{"type": "ack", "cid": "c1", "seq": 1, "stage": "stored", "status": "stored"}]
    assert tab.seen("receipt") == [{"type": "receipt", "cid": "c1", "seq": 1, "stage": "delivered"}]
    assert [frame["_offset"] for frame in tab.output()] == [1, 2, 3, 4, 5, 6]
    done = tab.output()[-1]
    assert (done["messageId"], done["seq"], done["metadata"]) == ("s.2", 2, {"seq": 1, "answer": 1})
    question, answer = await world.history()
    assert (question["content"], question["status"]) == ("two words", "delivered")
    assert (answer["role"], answer["content"], answer["status"]) == ("assistant", "two words", "complete")


async def test_order_is_kept_and_each_is_answered(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    for number in range(200):
        tab.say(f"m{number}", f"c{number}")
    await tab.until("done", count=200)
    assert [ack["cid"] for ack in tab.seen("ack")] == [f"c{number}" for number in range(200)]
    handed = [json.loads(line) for _, line in world.sandbox().handed]
    assert [frame["content"] for frame in handed] == [f"m{number}" for number in range(200)]
    assert [frame["seq"] for frame in handed] == [seq for seq, _ in world.sandbox().handed]


async def test_a_message_without_a_cid_is_acked_with_the_one_it_was_given(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("hello")
    cid = (await tab.until("ack"))["cid"]
    await tab.until("done")
    assert (await world.history())[0]["cid"] == cid
    assert json.loads(world.sandbox().handed[0][1])["cid"] == cid


async def test_a_resend_is_acked_with_the_first_seq_and_its_present_status_and_delivered_once(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("once", "c1")
    tab.say("once", "c1")
    await tab.until("ack", count=2)
    await tab.until("done")
    other = await world.welcomed()
    other.say("once", "c1")
    ack = await other.until("ack")
    assert (ack["seq"], ack["status"]) == (1, "delivered")
    await world.restart()
    again = await world.welcomed()
    again.say("once", "c1")
    ack = await again.until("ack")
    assert (ack["seq"], ack["status"]) == (1, "delivered")
    assert len(world.sandbox().handed) == 1
    assert len(await world.history()) == 2


async def test_a_resend_while_the_store_is_away_is_answered_all_the_same(world: World) -> None:
    """It once was not: the question for its status failed beside the session, and nobody said so. Then it was nacked,
    as if it were not stored."""
    await world.create()
    tab = await world.welcomed()
    tab.say("once", "c1")
    await tab.until("done")
    world.store.outage = Fault.AWAY
    tab.say("once", "c1")
    ack = await tab.until("ack", count=2)
    assert (ack["seq"], ack["stage"], ack.get("status")) == (1, "stored", None)
    world.store.outage = None
    tab.say("once", "c1")
    ack = await tab.until("ack", count=3)
    assert (ack["seq"], ack["status"]) == (1, "delivered")


async def test_every_viewer_sees_every_record_and_all_output(world: World) -> None:
    await world.create()
    tabs = [await world.welcomed() for _ in range(3)]
    tabs[0].say("for all", "c1")
    for tab in tabs:
        await tab.until("done")
        assert [frame["record"]["role"] for frame in tab.seen("record")] == ["user", "assistant"]
        assert tab.output() == tabs[0].output()
        assert len(tab.seen("receipt", cid="c1")) == 1
    assert [len(tab.seen("ack")) for tab in tabs] == [1, 0, 0]


async def test_of_500_sends_while_it_is_away_100_are_held_and_delivered_in_order(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    await actor.pause()
    for number in range(500):
        tab.say(f"m{number}", f"c{number}")
    await tab.until("nack", count=400)
    await tab.until("ack", count=100)
    assert {nack["reason"] for nack in tab.seen("nack")} == {"buffer_full"}
    assert [ack["cid"] for ack in tab.seen("ack")] == [f"c{number}" for number in range(100)]
    assert actor.describe()["pending"] == 100
    await actor.resume(None)
    await tab.until("done", count=100)
    assert [json.loads(line)["content"] for _, line in world.sandbox().handed] == [f"m{n}" for n in range(100)]
    assert len(tab.seen("receipt")) == 100


async def test_past_1000_for_an_agent_that_does_not_read_busy_is_said_and_the_socket_is_read_on() -> None:
    async with World(deaf) as world:
        await world.create()
        tab = await world.welcomed()
        await tab.until("connection_status", sandboxStatus="connected")
        for number in range(1005):
            tab.say("x", f"c{number}")
            if number % 100 == 0:
                await asyncio.sleep(0.01)
        await tab.until("nack", count=5)
        assert {nack["reason"] for nack in tab.seen("nack")} == {"busy"}
        assert [nack["cid"] for nack in tab.seen("nack")] == [f"c{number}" for number in range(1000, 1005)]
        tab.send("start", model="other")  # still read
        await world.until(lambda: tab.actor.conversation.spec.start == {"type": "start", "model": "other"}, "start")
        await asyncio.sleep(1000)
        assert tab.seen("expired") == [], "nothing expires while the sandbox is there"


async def test_what_outlives_its_ttl_is_expired_told_and_never_delivered(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    await actor.pause()
    for number in range(3):
        tab.say("late", f"c{number}")
    await tab.until("ack", count=3)
    await asyncio.sleep(299)
    assert tab.seen("expired") == []
    await tab.until("expired", count=3)
    assert [event["cid"] for event in tab.seen("expired")] == ["c0", "c1", "c2"]
    await actor.resume(None)
    tab.say("now", "c9")
    await tab.until("done")
    assert [json.loads(line)["content"] for _, line in world.sandbox().handed] == ["now"]
    assert statuses(await world.history())[:4] == ["expired", "expired", "expired", "delivered"]
    tab.say("late", "c0")
    assert (await tab.until("ack", cid="c0", count=2))["status"] == "expired"


async def test_age_goes_on_over_a_restart_and_is_counted_from_the_first_moment(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    await actor.pause()
    tab.say("old", "c1")
    await tab.until("ack")
    await asyncio.sleep(200)
    await world.kill()
    await asyncio.sleep(50)
    await world.open()
    tab = await world.welcomed()
    await asyncio.sleep(45)
    assert tab.seen("expired") == []
    await tab.until("expired", cid="c1", within=10)
    assert statuses(await world.history()) == ["expired"]


async def test_with_a_ttl_of_one_second_every_held_message_is_reported() -> None:
    limits = SessionLimits(window=WindowLimits(away_seconds=1.0))
    async with World(limits=limits) as world:
        actor = await world.create()
        tab = await world.welcomed()
        await actor.pause()
        for number in range(100):
            tab.say("late", f"c{number}")
        await tab.until("expired", count=100, within=5)
        assert statuses(await world.history()) == ["expired"] * 100


async def test_what_waits_after_an_earlier_wait_is_over_expires_in_its_own_time(world: World) -> None:
    actor = await world.create()
    tab = await world.welcomed()
    await actor.pause()
    tab.say("taken", "c1")
    await tab.until("ack", cid="c1")
    await actor.resume(None)
    await tab.until("done")
    await asyncio.sleep(200)
    await actor.pause()
    tab.say("late", "c2")
    await tab.until("ack", cid="c2")
    await asyncio.sleep(299)  # an expiry of the first wait would have come long ago
    assert tab.seen("expired") == []
    assert (await tab.until("expired", within=2))["cid"] == "c2"


async def test_what_was_sent_and_not_confirmed_is_not_expired_before_the_bridge_has_said(world: World) -> None:
    world.fleet.script = deaf
    await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    tab.say("sent", "c1")
    await tab.until("ack")
    await asyncio.sleep(1)
    await world.kill()
    world.fleet.link_problem = "the bridge does not answer"
    world.fleet.start_seconds = 1000
    await world.open()
    tab = await world.welcomed()
    await asyncio.sleep(600)
    assert tab.seen("expired") == []
    assert statuses(await world.history()) == ["stored"]


async def test_a_message_the_dead_bridge_had_taken_is_interrupted_and_never_run_again(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    tab.say("one", "c1")
    await tab.until("done")
    world.sandbox().cut_at = (3, "bridge")
    tab.say("two", "c2")
    tab.say("three", "c3")
    await tab.until("interrupted", cid="c2")
    await tab.until("done", count=2)
    assert [json.loads(line)["content"] for _, line in world.sandbox().handed] == ["one", "three"]
    history = {record["cid"]: record["status"] for record in await world.history()}
    assert (history["c2"], history["c3"]) == ("interrupted", "delivered")


async def test_what_was_sent_to_a_bridge_whose_notes_are_gone_is_interrupted(world: World) -> None:
    world.fleet.script = deaf
    await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    tab.say("sent", "c1")
    await tab.until("ack")
    await asyncio.sleep(1)
    world.sandbox().script = echo
    world.sandbox().crash()
    world.sandbox().forget_taken()
    await tab.until("interrupted", cid="c1")
    tab.say("next", "c2")
    await tab.until("done")
    assert [json.loads(line)["content"] for _, line in world.sandbox().handed] == ["next"]


async def test_what_the_bridge_had_not_taken_is_delivered_after_it_came_back(world: World) -> None:
    world.fleet.script = deaf
    await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    for number in range(3):
        tab.say(f"m{number}")
    await tab.until("ack", count=3)
    await asyncio.sleep(1)
    world.sandbox().script = echo
    world.sandbox().crash()
    await tab.until("done", count=3)
    assert [json.loads(line)["content"] for _, line in world.sandbox().handed] == ["m0", "m1", "m2"]
    assert tab.seen("interrupted") == []


async def test_while_the_store_is_away_acks_are_late_and_in_order(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    world.store.outage = Fault.AWAY
    for number in range(20):
        tab.say("x", f"c{number}")
    await asyncio.sleep(30)
    assert tab.seen("ack") == []
    assert world.sandbox().handed == [], "nothing is delivered that is not stored"
    world.store.outage = None
    await tab.until("ack", count=20)
    assert [ack["cid"] for ack in tab.seen("ack")] == [f"c{number}" for number in range(20)]
    await tab.until("done", count=20)


async def test_a_full_disk_refuses_and_recovers_by_itself(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    await asyncio.sleep(1)
    world.store.outage = Fault.FULL
    tab.say("first", "c0")  # finds out
    await asyncio.sleep(1)
    tab.say("second", "c1")
    assert (await tab.until("nack", cid="c1"))["reason"] == "storage_full"
    world.store.outage = None
    await tab.until("ack", cid="c0")
    tab.say("third", "c2")
    await tab.until("ack", cid="c2")


async def test_a_lost_reply_of_the_store_stores_nothing_twice(world: World) -> None:
    await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    await asyncio.sleep(1)
    world.store.faults[world.store.calls + 1] = Fault.LOST_REPLY
    tab.say("once", "c1")
    await tab.until("done")
    assert [record["cid"] for record in await world.history() if record["role"] == "user"] == ["c1"]


async def test_a_raw_line_is_a_record_and_reaches_the_agent_as_it_came(world: World) -> None:
    world.fleet.script = silent
    await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    raw = await world.tab(raw=True)
    raw.send_line("not json at all")
    await world.until(lambda: bool(world.sandbox().handed), "the delivery")
    assert world.sandbox().handed[0][1] == b"not json at all"
    agent = world.sandbox().agent
    assert agent is not None
    agent.emit(b"nor is this")
    await world.until(lambda: raw.outlet.texts == [b"nor is this"], "the raw line")
    (record,) = await world.history()
    assert (record["type"], record["content"]) == ("raw", "not json at all")


async def test_a_raw_line_that_is_refused_closes_its_socket() -> None:
    limits = SessionLimits(window=replace(WindowLimits(), away_records=1))
    async with World(limits=limits) as world:
        actor = await world.create()
        await actor.pause()
        raw = await world.tab(raw=True)
        raw.send_line("held")
        raw.send_line("refused")
        assert await raw.until_closed() == 4429
