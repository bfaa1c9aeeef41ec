"""What the handle of every fleet's sandboxes promises. An adapter's test class inherits this and gives the `fleet`
fixture.

The agent in these tests is a parrot: it repeats each line it reads. `quit` ends it with code 3, an interrupt with 4.
"""

import sys
from functools import partial
from typing import Any

import pytest

from sandbox.ports.fleet import Fleet, SandboxSpec
from sandbox.ports.link import Link, LinkRefused
from sandbox.ports.sandbox import Command, CommandResult
from sandbox.protocol.values import Position
from sandbox.providers.memory.scripted import OnLine, ScriptedProcess
from tests.support.bridge import Owner
from tests.support.waiting import until

PARROT = """
import os, signal, sys
signal.signal(signal.SIGINT, lambda *_: os._exit(4))
for line in sys.stdin:
    if line == "quit\\n":
        sys.exit(3)
    print(line, end="", flush=True)
"""


def parrot(process: ScriptedProcess) -> OnLine:
    """The same agent as a script of the memory fleet."""
    process.on_interrupt = lambda: process.exit(4)
    return lambda line: process.exit(3) if line == b"quit" else process.emit(line)


PRINTS = """
import os, sys
print("out", os.environ.get("WORD"), end="")
print("err", end="", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""
COMMAND = Command((sys.executable, "-c", PRINTS, "3"), env={"WORD": "word"})


def prints(command: Command) -> CommandResult:
    """The same command as the memory fleet runs it."""
    return CommandResult(int(command.argv[-1]), f"out {command.env.get('WORD')}", "err")


def spec(session_id: str = "s1", incarnation: int = 1, **wishes: Any) -> SandboxSpec:
    return SandboxSpec(session_id, incarnation, (sys.executable, "-c", PARROT), **wishes)


def has_lines(owner: Owner, count: int) -> bool:
    return len(owner.lines()) == count


def has_frame(owner: Owner, epoch: str, offset: int) -> bool:
    return offset in owner.output.get(epoch, {})


async def attach(fleet: Fleet, owner: Owner, after: Position | None = None, session_id: str = "s1") -> Link:
    hellos = len(owner.hellos)
    link = await fleet.sandbox(session_id).connect(owner, after)
    await until(lambda: len(owner.hellos) > hellos)
    return link


async def run_agent(link: Link, owner: Owner, line: bytes = b"start") -> str:
    """Start the agent and wait until it has repeated the start line."""
    epochs = len(owner.epochs)
    link.start(line)
    await until(lambda: len(owner.epochs) > epochs and owner.lines() == [line])
    return owner.epoch


class SandboxContract:
    async def test_lines_reach_the_agent_in_order_and_once(self, fleet: Fleet) -> None:
        await fleet.start(spec())
        owner = Owner()
        link = await attach(fleet, owner)
        assert (owner.hellos[0].taken, owner.hellos[0].epoch, owner.hellos[0].alive) == (0, None, False)
        epoch = await run_agent(link, owner)
        for seq in (1, 2, 3):
            link.deliver(seq, b"line %d" % seq)
        link.inject(b"aside")
        link.deliver(2, b"line 2 again")
        link.deliver(4, b"line 4")
        assert owner.taken == 0, "nothing is told from within a call"
        await until(lambda: owner.taken == 4 and len(owner.lines()) == 6)
        assert [line for line in owner.lines() if line != b"aside"] == [
            b"start",
            b"line 1",
            b"line 2",
            b"line 3",
            b"line 4",
        ]
        assert b"aside" in owner.lines()
        assert owner.epochs == [(epoch, 0)]

    async def test_a_new_link_gets_exactly_what_is_missing(self, fleet: Fleet) -> None:
        await fleet.start(spec())
        first = Owner()
        link = await attach(fleet, first)
        epoch = await run_agent(link, first)
        link.deliver(1, b"one")
        link.deliver(2, b"two")
        await until(lambda: len(first.lines()) == 3)
        link.close()
        second = Owner()
        link = await attach(fleet, second, Position(epoch, 2))
        await until(lambda: second.output)
        assert (second.epochs, second.output) == ([(epoch, 2)], {epoch: {3: b"two"}})
        assert (second.hellos[0].taken, second.hellos[0].epoch, second.hellos[0].alive) == (2, epoch, True)
        assert first.lost == [], "who closes a link is not told that it is lost"

    async def test_what_is_confirmed_is_forgotten_and_nothing_else(self, fleet: Fleet) -> None:
        await fleet.start(spec())
        owner = Owner()
        link = await attach(fleet, owner)
        epoch = await run_agent(link, owner)
        link.deliver(1, b"one")
        await until(lambda: len(owner.lines()) == 2)
        link.confirm(Position(epoch, 1))
        for seq, line in ((2, b"two"), (3, b"three")):  # the second comes behind the confirmation
            link.deliver(seq, line)
            await until(partial(has_lines, owner, seq + 1))
        for after in (None, Position("unknown", 7)):
            late = Owner()
            await attach(fleet, late, after)
            await until(partial(has_frame, late, epoch, 4))
            assert late.output == {epoch: {2: b"one", 3: b"two", 4: b"three"}}

    async def test_a_new_link_ends_the_one_before(self, fleet: Fleet) -> None:
        await fleet.start(spec())
        first, second = Owner(), Owner()
        old = await attach(fleet, first)
        new = await attach(fleet, second)
        await until(lambda: first.lost)
        old.start(b"from the old link")
        await run_agent(new, second, b"from the new link")
        assert len(first.lost) == 1
        assert first.epochs == []

    async def test_an_exit_is_told_and_what_was_not_taken_is_forgotten(self, fleet: Fleet) -> None:
        await fleet.start(spec())
        owner = Owner()
        link = await attach(fleet, owner)
        link.deliver(1, b"nobody is there")
        first = await run_agent(link, owner)
        link.deliver(1, b"quit")
        await until(lambda: owner.exits)
        ended = owner.exits[0]
        assert (ended.epoch, ended.offset, ended.taken, ended.code, ended.signal) == (first, 1, 1, 3, None)
        link.deliver(2, b"nobody is there either")
        second = await run_agent(link, owner, b"again")
        assert second != first
        link.deliver(2, b"two")
        await until(lambda: len(owner.lines()) == 2)
        assert owner.lines() == [b"again", b"two"]

    async def test_what_does_not_run_uses_nothing(self, fleet: Fleet) -> None:
        sandbox = fleet.sandbox("s1")
        assert await sandbox.resources() is None
        await fleet.start(spec())
        await sandbox.stop()
        assert await sandbox.resources() is None

    async def test_an_exit_that_nobody_heard_is_told_to_the_next_link(self, fleet: Fleet) -> None:
        await fleet.start(spec())
        owner = Owner()
        link = await attach(fleet, owner)
        epoch = await run_agent(link, owner)
        link.deliver(1, b"quit")
        await until(lambda: owner.exits)
        late = Owner()
        await attach(fleet, late, Position(epoch, 1))
        await until(lambda: late.exits)
        assert late.exits == owner.exits
        assert late.received == 0
        assert (late.hellos[0].epoch, late.hellos[0].alive) == (epoch, False)

    async def test_the_agent_is_stopped_and_interrupted_on_request(self, fleet: Fleet) -> None:
        await fleet.start(spec())
        owner = Owner()
        link = await attach(fleet, owner)
        await run_agent(link, owner)
        link.interrupt()
        await until(lambda: len(owner.exits) == 1)
        await run_agent(link, owner)
        link.stop_agent()
        await until(lambda: len(owner.exits) == 2)
        assert [ended.code for ended in owner.exits] == [4, 0]
        assert await fleet.running() == ["s1"], "a sandbox outlives its agent"

    async def test_what_was_taken_is_remembered_by_the_next_incarnation(self, fleet: Fleet) -> None:
        await fleet.start(spec())
        owner = Owner()
        link = await attach(fleet, owner)
        await run_agent(link, owner)
        link.deliver(7, b"seven")
        await until(lambda: len(owner.lines()) == 2)
        await fleet.start(spec(incarnation=2))
        await until(lambda: owner.lost)
        assert await fleet.running() == ["s1"]
        later = Owner()
        link = await attach(fleet, later, Position(owner.epoch, 2))
        hello = later.hellos[0]
        assert (hello.taker, hello.taken, hello.alive) == (owner.hellos[0].taker, 7, False)
        await run_agent(link, later)
        link.deliver(7, b"seven again")
        link.deliver(8, b"eight")
        await until(lambda: later.taken == 8 and len(later.lines()) == 2)
        assert later.lines() == [b"start", b"eight"]

    async def test_a_killed_agent_ends_without_a_word_and_its_sandbox_goes_on(self, fleet: Fleet) -> None:
        await fleet.start(spec())
        owner = Owner()
        link = await attach(fleet, owner)
        link.kill_agent()  # there is none
        await run_agent(link, owner)
        link.kill_agent()
        await until(lambda: owner.exits)
        assert (owner.exits[0].code, owner.exits[0].signal) == (None, "SIGKILL")
        assert owner.lost == []
        assert await fleet.running() == ["s1"]
        await run_agent(link, owner, b"again")

    async def test_a_killed_sandbox_is_lost_at_once_and_remembers_what_was_taken(self, fleet: Fleet) -> None:
        assert not await fleet.sandbox("s1").kill()
        await fleet.start(spec())
        owner = Owner()
        link = await attach(fleet, owner)
        await run_agent(link, owner)
        link.deliver(7, b"seven")
        await until(lambda: owner.taken == 7)
        assert await fleet.sandbox("s1").kill()
        await until(lambda: owner.lost)
        assert owner.exits == [], "it had no time to say so"
        await fleet.sandbox("s1").stop()
        assert await fleet.running() == []
        assert not await fleet.sandbox("s1").kill()
        await fleet.start(spec(incarnation=2))
        later = Owner()
        await attach(fleet, later)
        assert (later.hellos[0].taker, later.hellos[0].taken) == (owner.hellos[0].taker, 7)

    async def test_destroying_forgets_everything(self, fleet: Fleet) -> None:
        await fleet.start(spec())
        owner = Owner()
        link = await attach(fleet, owner)
        await run_agent(link, owner)
        link.deliver(1, b"one")
        await until(lambda: owner.taken == 1)
        await fleet.sandbox("s1").destroy()
        await until(lambda: owner.lost)
        await fleet.start(spec(incarnation=2))
        later = Owner()
        await attach(fleet, later)
        assert later.hellos[0].taker != owner.hellos[0].taker
        assert later.hellos[0].taken == 0

    async def test_a_command_runs_to_its_end(self, fleet: Fleet) -> None:
        with pytest.raises(LinkRefused):
            await fleet.sandbox("s1").exec(COMMAND)
        await fleet.start(spec())
        assert await fleet.sandbox("s1").exec(COMMAND) == CommandResult(3, "out word", "err")
        await fleet.sandbox("s1").stop()
        with pytest.raises(LinkRefused):
            await fleet.sandbox("s1").exec(COMMAND)
