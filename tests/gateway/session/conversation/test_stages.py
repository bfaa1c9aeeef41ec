"""A message is accepted where the store follows, then stored or rejected; and a session has one writer."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from gateway.protocol.errors import ApiError
from gateway.session.conversation import receipts, sequence
from persistence.record import Dead, Outcome, Session, Spooled, Stored, Write
from sandbox.providers.memory.scripted import OnLine, ScriptedProcess, silent
from tests.support.faults import Fault
from tests.support.sessions import AT_MEMORY, Tab, World

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def spooled() -> AsyncIterator[World]:
    async with World(spooled=True) as world:
        yield world


def asking(process: ScriptedProcess) -> OnLine:
    """Answers a message with a question, and its answer with `done`."""

    def on_line(line: bytes) -> None:
        if json.loads(line)["type"] == "message":
            frame = {"type": "tool_permission_request", "requestId": "r1", "toolName": "rm", "toolInput": {}}
            process.emit(json.dumps(frame).encode())
        else:
            process.emit(b'{"type":"done"}')

    return on_line


def boom() -> None:
    raise ZeroDivisionError("a bug in a handler")


def words(tab: Tab, cid: str) -> list[str]:
    """What a sender heard of one message."""
    frames = [frame for frame in tab.frames if frame["type"] in ("ack", "nack") and frame["cid"] == cid]
    return [str(frame.get("stage") or frame["reason"]) for frame in frames]


def handed(world: World) -> list[str]:
    return [json.loads(line)["content"] for _, line in world.sandbox().handed]


async def connected(world: World) -> Tab:
    await world.create()
    tab = await world.welcomed()
    await tab.until("connection_status", sandboxStatus="connected")
    return tab


# -- accepted, then stored --------------------------------------------------------------------------------------------


async def test_a_message_is_accepted_then_stored_and_each_is_said_once(spooled: World) -> None:
    tab = await connected(spooled)
    spooled.store.held = True
    tab.say("a", "c1")
    await tab.until("done")
    assert tab.seen("ack") == [{"type": "ack", "cid": "c1", "seq": 1, "stage": "accepted", "status": "stored"}]
    assert [frame["seq"] for frame in tab.seen("record")] == [1, 2]
    spooled.store.held = False
    ack = await tab.until("ack", stage="stored")
    assert ack == {"type": "ack", "cid": "c1", "seq": 1, "stage": "stored", "status": "delivered"}
    await asyncio.sleep(5)
    assert words(tab, "c1") == ["accepted", "stored"]
    assert [record["status"] for record in await spooled.history()] == ["delivered", "complete"]


async def test_a_store_that_is_away_does_not_stop_the_conversation_and_has_everything_in_order_afterwards(
    spooled: World,
) -> None:
    tab = await connected(spooled)
    spooled.store.outage = Fault.AWAY
    for number in range(100):
        tab.say(f"m{number}", f"c{number}")
    await tab.until("done", count=100)
    assert not tab.seen("ack", stage="stored")
    spooled.store.outage = None
    await tab.until("ack", stage="stored", count=100)
    assert [ack["cid"] for ack in tab.seen("ack", stage="stored")] == [f"c{number}" for number in range(100)]
    sent = [record["content"] for record in await spooled.history() if record["role"] == "user"]
    assert sent == handed(spooled) == [f"m{number}" for number in range(100)]


async def test_a_store_that_answers_at_once_is_one_stage(spooled: World) -> None:
    tab = await connected(spooled)
    tab.say("a", "c1")
    await tab.until("done")
    assert words(tab, "c1") == ["stored"]


async def test_a_resend_of_what_is_accepted_hears_accepted_at_once_and_stored_when_it_is(spooled: World) -> None:
    tab = await connected(spooled)
    spooled.store.held = True
    tab.say("a", "c1")
    await tab.until("done")
    spooled.store.outage = Fault.AWAY
    other = await spooled.welcomed()
    other.say("a", "c1")
    assert (await other.until("ack"))["status"] == "delivered"
    spooled.store.outage, spooled.store.held = None, False
    for each in (tab, other):
        await each.until("ack", stage="stored")
        assert words(each, "c1") == ["accepted", "stored"]
    other.say("a", "c1")
    await other.until("ack", count=3)
    assert words(other, "c1") == ["accepted", "stored", "stored"]
    assert handed(spooled) == ["a"]


async def test_a_word_of_the_store_that_overtakes_the_queue_waits_for_it(spooled: World) -> None:
    tab = await connected(spooled)
    spooled.store.held = True
    spooled.registry.settled("s", 1, Stored(1))
    spooled.registry.settled("s", 2, Stored(2))
    tab.say("a", "c1")
    await tab.until("done")
    assert words(tab, "c1") == ["accepted", "stored"]
    spooled.store.held = False
    await spooled.history()
    await asyncio.sleep(1)
    assert words(tab, "c1") == ["accepted", "stored"]


async def test_what_was_accepted_before_the_session_was_loaded_is_not_called_stored_too_early(
    spooled: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that numbers by itself can load what it has not passed on yet."""
    tab = await connected(spooled)
    tab.say("a", "c1")
    await tab.until("ack", stage="stored")
    monkeypatch.setattr(spooled.gateway.store, "behind", lambda session_id: True)
    tab.actor.post(boom)
    await tab.until_closed()
    back = await spooled.welcomed()
    back.say("a", "c1")
    await back.until("ack")
    back.say("a", "c1")
    await back.until("ack", count=2)
    assert words(back, "c1") == ["accepted", "accepted"]
    spooled.store.held = True
    back.say("b", "c2")
    await back.until("ack", cid="c2", stage="accepted")
    spooled.store.held = False
    await back.until("ack", cid="c1", count=4)
    assert words(back, "c1") == ["accepted", "accepted", "stored", "stored"]
    back.say("a", "c1")
    await back.until("ack", cid="c1", count=5)
    assert words(back, "c1")[-1] == "stored"


async def test_what_is_in_doubt_is_not_called_stored_because_the_store_cannot_be_asked(
    spooled: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = await connected(spooled)
    tab.say("a", "c1")
    await tab.until("ack", stage="stored")
    behind = True
    monkeypatch.setattr(spooled.gateway.store, "behind", lambda session_id: behind)
    tab.actor.post(boom)
    await tab.until_closed()
    back = await spooled.welcomed()
    spooled.store.outage = Fault.AWAY
    back.say("a", "c1")
    await back.until("ack")
    assert words(back, "c1") == ["accepted"]
    spooled.store.outage, behind = None, False
    back.say("a", "c1")
    await back.until("ack", count=2)
    assert words(back, "c1") == ["accepted", "stored"]
    spooled.registry.settled("s", 2, Stored(2))
    await back.until("ack", count=3)
    assert words(back, "c1") == ["accepted", "stored", "stored"]


@pytest.mark.parametrize("outage", [None, Fault.AWAY])
async def test_a_resend_of_what_is_too_old_to_be_waited_for_hears_its_stage_all_the_same(
    spooled: World, monkeypatch: pytest.MonkeyPatch, outage: Fault | None
) -> None:
    monkeypatch.setattr(receipts, "UNSETTLED", 2)
    tab = await connected(spooled)
    spooled.store.held = True
    for number in range(5):
        tab.say(f"m{number}", f"c{number}")
    await tab.until("done", count=5)
    spooled.store.outage = outage
    tab.say("m0", "c0")
    await tab.until("ack", cid="c0", count=2)
    assert words(tab, "c0") == ["accepted", "accepted"]
    spooled.store.held, spooled.store.outage = False, None
    await tab.until("ack", cid="c4", stage="stored")
    assert words(tab, "c0") == ["accepted", "accepted", "stored"]
    assert words(tab, "c1") == ["accepted"]
    tab.say("m1", "c1")
    await tab.until("ack", cid="c1", count=2)
    assert words(tab, "c1") == ["accepted", "stored"]
    assert handed(spooled) == [f"m{number}" for number in range(5)]


async def test_a_session_whose_records_are_not_all_stored_is_not_let_go(spooled: World) -> None:
    tab = await connected(spooled)
    spooled.store.outage = Fault.AWAY
    tab.say("a", "c1")
    await tab.until("done")
    await tab.actor.sleep()
    tab.leave()
    await asyncio.sleep(2000)
    assert await spooled.actor() is tab.actor
    spooled.store.outage = None
    await spooled.history()
    await asyncio.sleep(2000)
    assert await spooled.actor() is not tab.actor


async def test_a_service_is_answered_at_the_first_durable_stage(spooled: World) -> None:
    actor = await spooled.create()
    spooled.store.held = True
    note: dict[str, Any] = {"role": "system", "type": "note", "content": "x", "metadata": None, "deliver": False}
    for _ in range(2):
        assert await actor.intake.post_record(**note, cid="n1") == ("s.1", 1, "accepted")
    spooled.store.held = False
    await spooled.history()
    assert await actor.intake.post_record(**note, cid="n1") == ("s.1", 1, "stored")


async def test_what_expired_before_it_was_stored_is_acked_as_expired(spooled: World) -> None:
    spooled.fleet.start_failures += ["no room"] * 100
    await spooled.create()
    tab = await spooled.welcomed()
    spooled.store.held = True
    tab.say("a", "c1")
    await tab.until("expired", cid="c1")
    spooled.store.held = False
    assert (await tab.until("ack", stage="stored"))["status"] == "expired"


# -- a session that does not know all its cids ------------------------------------------------------------------------


async def test_a_session_too_old_to_know_all_its_cids_delivers_what_is_stored_and_never_twice(
    spooled: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequence, "REMEMBERED", 4)
    tab = await connected(spooled)
    for number in range(4):
        tab.say(f"m{number}", f"c{number}")
    await tab.until("done", count=4)
    await spooled.history()
    spooled.store.held = True
    tab.say("m0", "c0")  # no longer known
    tab.say("new", "c9")
    await tab.until("ack", cid="c9", stage="accepted")
    await asyncio.sleep(5)
    assert handed(spooled) == ["m0", "m1", "m2", "m3"]
    spooled.store.held = False
    await tab.until("done", count=5)
    assert handed(spooled) == ["m0", "m1", "m2", "m3", "new"]
    assert [(ack["seq"], ack["stage"], ack["status"]) for ack in tab.seen("ack", cid="c0")[1:]] == [
        (9, "accepted", "stored"),
        (1, "stored", "delivered"),
    ]
    assert (await spooled.history())[8]["type"] == "duplicate"


async def test_where_the_cid_is_certain_to_be_new_an_old_session_does_not_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the HTTP sink, whose index knows every cid there ever was."""
    monkeypatch.setattr(sequence, "REMEMBERED", 4)
    commit = world.store.inner.commit

    async def accept(writes: Sequence[Write]) -> list[Outcome]:
        outcomes = await commit(writes)
        appended = [write.append is not None for write in writes]
        return [
            Spooled(each.seq, unique=True) if isinstance(each, Stored) and new else each
            for each, new in zip(outcomes, appended, strict=True)
        ]

    monkeypatch.setattr(world.store.inner, "commit", accept)
    tab = await connected(world)
    for number in range(6):
        tab.say(f"m{number}", f"c{number}")
    await tab.until("done", count=6)
    assert handed(world) == [f"m{number}" for number in range(6)]
    assert tab.seen("ack", stage="stored") == []


# -- what the store will never take -----------------------------------------------------------------------------------


async def test_a_message_the_store_will_not_take_is_nacked_marked_and_harms_no_other(world: World) -> None:
    tab = await connected(world)
    world.store.poison = b"bad"
    for name in ("a", "bad", "b"):
        tab.say(name, f"c-{name}")
    await tab.until("done", count=2)
    nack = tab.seen("nack")[0]
    assert (nack["cid"], nack["reason"]) == ("c-bad", "rejected")
    assert nack["error"] == "it is not made of characters and times"
    assert handed(world) == ["a", "b"]
    assert [frame["seq"] for frame in tab.seen("record")] == [1, 2, 3, 4, 5]
    marker = tab.seen("record", seq=2)[0]["record"]
    assert (marker["type"], marker["status"], marker["metadata"]["cid"]) == ("rejected", "rejected", "c-bad")
    history = await world.history()
    assert history[1] == marker | {"role": history[1]["role"]}
    world.store.poison = None
    tab.say("bad", "c-bad")
    assert (await tab.until("ack", cid="c-bad"))["seq"] == 6
    await tab.until("done", count=3)
    assert handed(world) == ["a", "b", "bad"]


async def test_what_was_accepted_and_is_not_taken_is_nacked_and_may_be_sent_again(spooled: World) -> None:
    tab = await connected(spooled)
    spooled.store.poison, spooled.store.held = b"bad", True
    tab.say("bad", "c1")
    tab.say("good", "c2")
    await tab.until("done", count=2)
    spooled.store.held = False
    await tab.until("ack", cid="c2", stage="stored")
    assert words(tab, "c1") == ["accepted", "rejected"]
    assert words(tab, "c2") == ["accepted", "stored"]
    assert handed(spooled) == ["bad", "good"]
    assert [(record["type"], record["status"]) for record in (await spooled.history())[:2]] == [
        ("rejected", "delivered"),
        ("message", "delivered"),
    ]
    spooled.store.poison = None
    tab.say("bad", "c1")
    assert (await tab.until("ack", cid="c1", stage="stored"))["seq"] == 5


async def test_what_is_not_taken_is_not_delivered_if_it_still_waited(spooled: World) -> None:
    tab = await connected(spooled)
    await tab.actor.pause()
    spooled.store.poison, spooled.store.held = b"bad", True
    for name in ("bad", "good"):
        tab.say(name, name)
    await tab.until("ack", cid="good")
    spooled.store.held = False
    await tab.until("ack", cid="good", stage="stored")
    await tab.actor.resume(None)
    await tab.until("done")
    assert words(tab, "bad") == ["accepted", "rejected"]
    assert handed(spooled) == ["good"]
    assert (await spooled.history())[0]["status"] == "rejected"


async def test_a_turn_whose_message_was_not_taken_is_still_its_own_after_a_restart(spooled: World) -> None:
    """Its `done` was once taken for the next message's: the marker did not say that the agent has it."""
    spooled.fleet.script = silent
    tab = await connected(spooled)
    spooled.store.poison, spooled.store.held = b"bad", True
    tab.say("bad", "c1")
    tab.say("good", "c2")
    await tab.until("receipt", cid="c2")
    spooled.store.held = False
    await tab.until("ack", cid="c2", stage="stored")
    await spooled.history()
    await asyncio.sleep(1)
    await spooled.restart()
    back = await spooled.welcomed()
    await back.until("connection_status", sandboxStatus="connected")
    agent = spooled.sandbox().agent
    assert agent is not None
    agent.emit(b'{"type":"done"}')
    await back.until("done")
    assert back.actor.conversation.state.answered == 1
    agent.emit(b'{"type":"done"}')
    await back.until("done", count=2)
    assert back.actor.conversation.state.answered == 2


async def test_an_answer_of_the_agent_that_is_not_taken_still_ends_the_turn(world: World) -> None:
    tab = await connected(world)
    tab.say("a", "c1")
    await tab.until("ack")
    world.store.poison = b"a"
    done = await tab.until("done")
    assert done["seq"] == 2
    assert tab.seen("record", seq=2)[0]["record"]["status"] == "rejected"
    world.store.poison = None
    tab.say("b", "c2")
    await tab.until("done", count=2)
    assert [record["status"] for record in await world.history()] == ["delivered", "rejected", "delivered", "complete"]


async def test_a_permission_whose_answer_is_not_taken_can_be_answered_again() -> None:
    async with World(asking) as world:
        tab = await connected(world)
        tab.say("a", "c1")
        await tab.until("tool_permission_request")
        world.store.poison = b"allow"
        tab.send("permission_response", cid="p1", requestId="r1", allow=True)
        assert (await tab.until("nack", cid="p1"))["reason"] == "rejected"
        world.store.poison = None
        later = await world.welcomed()
        assert [record["content"]["requestId"] for record in later.seen("welcome")[0]["open"]] == ["r1"]
        later.send("permission_response", cid="p2", requestId="r1", allow=True)
        await later.until("done")
        assert [record["status"] for record in await world.history()][1] == "answered"


async def test_a_permission_of_a_process_that_ended_stays_closed_whatever_became_of_its_answer() -> None:
    async with World(asking) as world:
        tab = await connected(world)
        tab.say("a", "c1")
        await tab.until("tool_permission_request")
        world.store.poison = b"allow"
        world.store.gate.clear()
        tab.send("permission_response", cid="p1", requestId="r1", allow=True)
        tab.send("close")
        await tab.until("session_status", status="agent_exited")
        world.store.gate.set()
        await tab.until("nack", cid="p1")
        assert "open" not in (await world.welcomed()).seen("welcome")[0]


async def test_a_service_hears_that_its_record_is_not_taken(world: World) -> None:
    actor = await world.create()
    world.store.poison = b"bad"
    with pytest.raises(ApiError) as refused:
        await actor.intake.post_record(
            role="system", type="note", content="bad", metadata=None, cid=None, deliver=False
        )
    assert (refused.value.status, refused.value.code) == (422, "rejected")


async def test_a_dead_record_from_before_the_session_was_loaded_is_forgotten(spooled: World) -> None:
    tab = await connected(spooled)
    tab.say("a", "c1")
    await tab.until("ack", stage="stored")
    spooled.registry.settled("s", 1, Dead("no"))
    spooled.store.held = True
    tab.say("a", "c1")
    assert (await tab.until("ack", cid="c1", stage="accepted"))["seq"] > 1


async def test_a_resend_of_what_was_trimmed_away_is_acked_with_its_seq(world: World) -> None:
    tab = await connected(world)
    tab.say("a", "c1")
    await tab.until("done")
    await asyncio.sleep(1)
    assert await world.kept.trim("s", older_than=None, keep=0, below=3) == 2
    tab.say("a", "c1")
    assert await tab.until("ack", count=2) == {"type": "ack", "cid": "c1", "seq": 1, "stage": "stored"}


# -- one writer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spooling", [False, True])
async def test_a_session_that_another_gateway_has_taken_ends_here_and_may_be_had_back(spooling: bool) -> None:
    async with World(spooled=spooling) as world:
        tab = await connected(world)
        tab.say("a", "c1")
        await tab.until("done")
        await world.history()
        await asyncio.sleep(2)
        await world.steal()
        world.store.held = spooling
        tab.say("b", "c2")
        if spooling:
            await tab.until("ack", cid="c2")
            world.store.held = False
        assert await tab.until_closed() == 4409
        assert words(tab, "c2") == (["accepted", "rejected"] if spooling else ["owner_moved"])
        assert world.sandbox().alive
        assert [record["cid"] for record in await world.history()][:1] == ["c1"]
        assert "c2" not in [record["cid"] for record in await world.history()]
        late = Tab(tab.actor)
        tab.actor.post(tab.actor.viewers.attach, late.viewer, None)
        assert late.closed_with == 4409
        back = await world.welcomed("s", tab.position)
        back.say("c", "c3")
        await back.until("ack", cid="c3", stage="stored")


async def test_a_service_that_writes_into_a_session_that_moved_is_told_to_come_again(world: World) -> None:
    actor = await world.create()
    await asyncio.sleep(5)
    await world.steal()
    with pytest.raises(ApiError) as refused:
        await actor.intake.post_record(role="system", type="note", content="x", metadata=None, cid="n", deliver=False)
    assert (refused.value.status, refused.value.code) == (503, "owner_moved")


async def test_a_fenced_session_writes_nothing_more(world: World) -> None:
    """The first write of any kind that is refused ends it: here a change of its state."""
    tab = await connected(world)
    await asyncio.sleep(2)
    before = await world.kept.find("s")
    await world.steal()
    tab.send("start", model="m")
    assert await tab.until_closed() == 4409
    assert await world.kept.find("s") == before


# -- looking ----------------------------------------------------------------------------------------------------------


async def test_to_look_at_a_session_neither_loads_nor_takes_it(world: World) -> None:
    actor = await world.create()
    await actor.intake.post_record(role="system", type="note", content="x", metadata=None, cid="n", deliver=False)
    await asyncio.sleep(2)
    fence = world.kept._kept["s"].fence
    looked = await world.catalogue.look("s")
    assert looked is not None
    assert (looked.user_id, looked.first_seq, looked.last_seq) == ("ann", 1, 1)
    assert world.kept._kept["s"].fence == fence
    assert await world.catalogue.look("nobody's") is None
    await world.kept.create(Session("asleep", "bob", 0.0, AT_MEMORY))
    assert (await world.catalogue.look("asleep") or looked).user_id == "bob"
    assert world.sessions.stats()["sessions_loaded"] == 1


async def test_a_loaded_session_can_be_looked_at_while_the_store_is_away(spooled: World) -> None:
    tab = await connected(spooled)
    spooled.store.outage = Fault.AWAY
    tab.say("a", "c1")
    await tab.until("done")
    looked = await spooled.catalogue.look("s")
    assert looked is not None
    assert (looked.user_id, looked.last_seq) == ("ann", 2)


async def test_a_purged_session_is_not_there_to_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(silent) as world:
        actor = await world.create()
        purge, begun, go_on = world.store.purge, asyncio.Event(), asyncio.Event()

        async def slowly(session_id: str) -> None:
            begun.set()
            await go_on.wait()
            await purge(session_id)

        monkeypatch.setattr(world.store, "purge", slowly)
        purging = asyncio.create_task(actor.destroy(purge=True))
        await begun.wait()
        assert await world.store.find("s") is not None
        assert await world.catalogue.look("s") is None
        go_on.set()
        await purging
        assert await world.catalogue.look("s") is None
