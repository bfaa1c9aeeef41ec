"""The log: one order for all that a session writes, and each outcome finds its write."""

import asyncio
from random import Random
from typing import Any

import pytest

from gateway.session.actor import SessionActor
from gateway.session.conversation.log import SessionLog
from persistence.record import Dead, Outcome, Spooled, Status, Stored
from tests.support.faults import Fault
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time

POISON = b"poison"


async def created(world: World) -> tuple[SessionActor, SessionLog]:
    actor = await world.create()
    return actor, actor.conversation


async def delivered(world: World) -> int:
    session = await world.kept.find("s")
    assert session is not None
    return session.delivered


def say(log: SessionLog, heard: list[Any], number: int, payload: bytes = b'{"content":"x"}') -> None:
    """A sender's record."""

    def told(outcome: Outcome, number: int) -> None:
        heard.append((number, type(outcome)))

    record = log.record(f"c{number}", "user", "note", payload, Status.COMPLETE)
    assert log.append(record, (), told, number, refusable=True)


@pytest.mark.parametrize("spooled", [False, True])
@pytest.mark.parametrize("seed", range(8))
async def test_each_outcome_finds_its_write_however_they_are_batched(seed: int, spooled: bool) -> None:
    """Writes without a record join the one before them, some batches wait for the store, one session's writes are held:
    what was put first is told first, once."""
    rng = Random(seed)
    async with World(spooled=spooled) as world:
        world.poison = POISON
        await world.restart()
        actor, log = await created(world)
        heard: list[Any] = []
        expected: list[Any] = []
        durable = {Stored, Spooled} if spooled else {Stored}  # a spool is used while the store is away
        for number in range(40):
            match rng.randrange(6):
                case 0 | 1:
                    log.write(heard.append, number, state=log.next_state(reason=str(number)))
                    expected.append(number)
                case 2:
                    record = log.agent_record(str(number), b'{"content":"x"}', Status.COMPLETE)
                    log.write(heard.append, number, append=record)
                    expected.append(number)
                case 3:
                    say(log, heard, number)
                    expected.append((number, durable))
                case 4:
                    say(log, heard, number, b'{"content":"poison"}')
                    expected.append((number, {Dead, Spooled} if spooled else {Dead}))
                case 5:
                    world.store.outage = rng.choice([None, Fault.AWAY])
                    world.queue.hold(actor.id, 1.0)
                    await asyncio.sleep(rng.uniform(0, 2))
        world.store.outage = None
        await world.until(lambda: len(heard) == len(expected), "every outcome")
        for what, wanted in zip(heard, expected, strict=True):
            if isinstance(wanted, tuple):
                assert what[0] == wanted[0]
                assert what[1] in wanted[1]
            else:
                assert what == wanted


async def test_what_reached_the_agent_goes_along_with_the_next_write() -> None:
    async with World() as world:
        _, log = await created(world)
        heard: list[Any] = []
        say(log, heard, 1)
        await world.until(lambda: bool(heard))
        commits = world.queue.commits
        log.note_delivered(1, [])
        log.write(heard.append, "state", state=log.next_state(reason="more"))
        await world.until(lambda: "state" in heard)
        assert await delivered(world) == 1
        assert world.queue.commits == commits + 1


async def test_what_reached_the_agent_is_written_soon_if_nothing_else_is() -> None:
    async with World() as world:
        _, log = await created(world)
        heard: list[Any] = []
        say(log, heard, 1)
        log.note_delivered(1, [])
        await world.until(lambda: world.queue.committed_writes > 1 and world.queue.depth == 0)
        assert await delivered(world) == 1


async def test_a_closed_log_writes_nothing() -> None:
    """The session may have another writer by then."""
    async with World() as world:
        actor, log = await created(world)
        await world.until(lambda: world.queue.depth == 0)
        written = world.queue.committed_writes
        log.note_delivered(1, [])
        log.close()
        heard: list[Any] = []
        log.write(heard.append, 1, state=log.next_state(reason="late"))
        await world.queue.flush(5)
        assert (world.queue.committed_writes, heard, world.queue.depth) == (written, [], 0)
        assert actor.describe()["reason"] == "late", "what is known here is shown all the same"


async def test_a_record_for_which_there_is_no_room_gives_its_number_back(world: World) -> None:
    _, log = await created(world)
    await world.queue.__aexit__(None, None, None)
    record = log.record("c1", "user", "note", b"{}", Status.COMPLETE)
    assert not log.append(record, (), lambda outcome: None, refusable=True)
    assert log.sequence.seq_of("c1") is None
    assert log.record("c2", "user", "note", b"{}", Status.COMPLETE).seq == record.seq
