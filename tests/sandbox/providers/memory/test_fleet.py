"""The memory provider's own handles, on virtual time: everything a session test may do to a sandbox."""

import asyncio
import json
from typing import Any

import pytest

from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import SandboxFailed
from sandbox.ports.tree import TreeFailed
from sandbox.protocol.tree import ScanAsk, TreeLimits
from sandbox.providers.memory.fleet import MemoryFleet
from sandbox.providers.memory.scripted import OnLine, ScriptedProcess, silent
from tests.contract.sandbox_tree import Told, restore, scan
from tests.support.bridge import Owner

SPEC = SandboxSpec("s1", 1, ("agent",))

pytestmark = pytest.mark.virtual_time


async def settle() -> None:
    """Let everything that is on its way arrive."""
    await asyncio.sleep(0.001)


def message(text: Any) -> bytes:
    return json.dumps({"type": "message", "content": text, "seq": 1}).encode()


async def test_the_default_agent_answers_in_the_chat_dialect() -> None:
    fleet, owner = MemoryFleet(), Owner()
    await fleet.start(SPEC)
    link = await fleet.sandbox("s1").connect(owner, None)
    link.start(b'{"type":"start"}')
    link.deliver(1, message("well met"))
    link.deliver(2, message([{"type": "text", "text": "par"}, {"type": "image"}, {"type": "text", "text": "ts"}]))
    link.deliver(3, b'{"type":"close"}')
    await settle()
    frames = [json.loads(line) for line in owner.lines()]
    types = ["stream_start", "chunk", "chunk", "stream_end", "sdk_message", "done"]
    assert [frame["type"] for frame in frames] == types + types[:1] + types[2:]
    assert "".join(frame["text"] for frame in frames[:6] if frame["type"] == "chunk") == "well met"
    assert frames[4]["message"]["message"]["content"] == [{"type": "text", "text": "well met"}]
    assert frames[9]["message"]["message"]["content"] == [{"type": "text", "text": "parts"}]
    assert owner.exits[0].code == 0


async def test_a_start_takes_its_time_and_fails_when_told_to() -> None:
    fleet = MemoryFleet()
    fleet.start_seconds = 90.0
    fleet.start_failures = ["no room"]
    with pytest.raises(SandboxFailed, match="no room"):
        await fleet.start(SPEC)
    await fleet.start(SPEC)
    assert asyncio.get_running_loop().time() >= 180
    assert fleet.starts == 2
    fleet.start_problem = "never again"
    with pytest.raises(SandboxFailed, match="never again"):
        await fleet.start(SPEC)
    assert await fleet.running() == []


async def test_a_link_is_refused_when_told_to() -> None:
    fleet = MemoryFleet()
    await fleet.start(SPEC)
    fleet.link_problem = "half-open"
    with pytest.raises(LinkRefused, match="half-open"):
        await fleet.sandbox("s1").connect(Owner(), None)


@pytest.mark.parametrize("what", ["link", "agent", "bridge"])
async def test_a_record_that_was_noted_and_not_handed_over_is_never_handed_over(what: Any) -> None:
    fleet, owner = MemoryFleet(silent), Owner()
    await fleet.start(SPEC)
    sandbox = fleet.sandboxes["s1"]
    link = await fleet.sandbox("s1").connect(owner, None)
    link.start(None)
    link.deliver(1, b"one")
    await settle()
    sandbox.cut_at = (2, what)
    link.deliver(2, b"two")
    link.deliver(3, b"three")
    await settle()
    assert owner.taken == 1
    assert bool(owner.lost) == (what != "agent")
    assert bool(owner.exits) == (what == "agent")
    if what == "bridge":
        assert await fleet.running() == []
        await fleet.start(SPEC)
    again = Owner()
    link = await fleet.sandbox("s1").connect(again, None)
    link.start(None)
    link.deliver(2, b"two")
    link.deliver(3, b"three")
    await settle()
    assert again.hellos[0].taken == 2
    assert sandbox.handed == [(1, b"one"), (3, b"three")]


async def test_an_agent_that_hangs_takes_nothing_until_it_reads_on() -> None:
    fleet, owner = MemoryFleet(silent), Owner()
    await fleet.start(SPEC)
    link = await fleet.sandbox("s1").connect(owner, None)
    link.start(None)
    await settle()
    agent = fleet.sandboxes["s1"].agent
    assert agent is not None
    agent.hang()
    link.deliver(1, b"one")
    await settle()
    assert (owner.taken, agent.lines) == (0, [])
    agent.read_on()
    await settle()
    assert (owner.taken, agent.lines) == (1, [b"one"])


async def test_an_agent_that_ignores_the_end_of_its_input_is_killed_and_the_next_start_waits() -> None:
    def stubborn(process: ScriptedProcess) -> OnLine:
        process.on_stop = lambda: None
        return lambda line: process.emit(line)

    fleet, owner = MemoryFleet(stubborn), Owner()
    await fleet.start(SPEC)
    link = await fleet.sandbox("s1").connect(owner, None)
    link.start(b"first")
    link.stop_agent()
    link.start(b"second")
    link.deliver(1, b"meant for the first")
    await asyncio.sleep(60)
    assert owner.exits[0].signal == "SIGKILL"
    assert owner.lines() == [b"second"]
    assert len(owner.epochs) == 2
    link.deliver(1, b"meant for the second")
    await settle()
    assert owner.lines() == [b"second", b"meant for the second"]


async def test_a_start_that_waits_for_the_end_of_a_process_is_forgotten_when_all_is_quiet() -> None:
    def stubborn(process: ScriptedProcess) -> OnLine:
        process.on_stop = lambda: None
        return lambda line: process.emit(line)

    fleet, owner = MemoryFleet(stubborn), Owner()
    await fleet.start(SPEC)
    link = await fleet.sandbox("s1").connect(owner, None)
    link.start(b"first")
    link.stop_agent()
    link.start(b"second")
    await settle()
    quiet = asyncio.create_task(fleet.sandbox("s1").tree().quiet())
    await settle()
    link.start(b"third")
    await quiet
    await settle()
    assert (len(owner.epochs), owner.exits[0].signal) == (1, "SIGKILL")
    assert owner.problems == ["the agent waits for its workspace"]
    await fleet.sandbox("s1").tree().release()
    link.start(b"fourth")
    await settle()
    assert owner.lines() == [b"fourth"]


async def test_a_script_acts_later_unless_its_process_has_ended() -> None:
    def ticking(process: ScriptedProcess) -> OnLine:
        process.later(3600, lambda: process.emit(b"an hour later"))
        process.later(7200, lambda: process.lose_link("by the script"))
        return lambda line: process.exit(1)

    fleet, owner = MemoryFleet(ticking), Owner()
    await fleet.start(SPEC)
    link = await fleet.sandbox("s1").connect(owner, None)
    link.start(None)
    await asyncio.sleep(4000)
    assert owner.lines() == [b"an hour later"]
    link.inject(b"end")
    await asyncio.sleep(4000)
    assert owner.exits[0].code == 1
    assert owner.lost == []


async def test_what_was_on_its_way_when_a_link_is_cut_is_gone_and_comes_with_the_next_link() -> None:
    fleet, owner = MemoryFleet(silent), Owner()
    await fleet.start(SPEC)
    sandbox = fleet.sandboxes["s1"]
    link = await fleet.sandbox("s1").connect(owner, None)
    link.start(None)
    await settle()
    assert sandbox.agent is not None
    sandbox.agent.emit({"never": "arrives here"})
    link.deliver(1, b"nor this there")
    sandbox.lose_link()
    await settle()
    assert (owner.received, owner.lost, sandbox.handed) == (0, ["cut by the test"], [])
    assert not sandbox.linked
    again = Owner()
    await fleet.sandbox("s1").connect(again, None)
    await settle()
    assert again.lines() == [b'{"never":"arrives here"}']


async def test_a_paused_link_hears_nothing_until_it_resumes() -> None:
    fleet, owner = MemoryFleet(silent), Owner()
    await fleet.start(SPEC)
    link = await fleet.sandbox("s1").connect(owner, None)
    link.pause_reading()
    link.start(None)
    await settle()
    assert owner.order == []
    link.resume_reading()
    await settle()
    assert owner.order == ["hello", "epoch"]


async def test_an_agent_that_cannot_be_run_is_a_problem_and_notes_can_be_lost() -> None:
    fleet, owner = MemoryFleet(silent), Owner()
    await fleet.start(SPEC)
    sandbox = fleet.sandboxes["s1"]
    sandbox.agent_problem = "no such program"
    sandbox.log += b"agent: no such program"
    link = await fleet.sandbox("s1").connect(owner, None)
    link.start(None)
    await settle()
    assert (owner.problems, owner.epochs) == (["no such program"], [])
    assert await fleet.sandbox("s1").logs(limit=7) == b"program"
    taker = sandbox.taker
    sandbox.forget_taken()
    assert sandbox.taker != taker


async def test_what_a_script_writes_is_in_the_roots_and_is_noticed() -> None:
    def writing(process: ScriptedProcess) -> OnLine:
        return lambda line: process.write_file(b"workspace/" + line, b"written")

    fleet, owner = MemoryFleet(writing), Owner()
    await fleet.start(SPEC)
    link = await fleet.sandbox("s1").connect(owner, None)
    link.start(b"a")
    link.inject(b"b")
    await settle()
    sandbox = fleet.sandboxes["s1"]
    assert sandbox.files == {b"workspace/a": b"written", b"workspace/b": b"written"}
    assert owner.changes == 2
    sandbox.files[b"workspace/c"] = b"unnoticed"
    await settle()
    assert owner.changes == 2
    sandbox.crash()
    await fleet.start(SPEC)
    assert sandbox.files.keys() == {b"workspace/a", b"workspace/b", b"workspace/c"}


async def test_each_step_of_an_operation_takes_its_time_and_fails_when_told_to() -> None:
    fleet = MemoryFleet(silent)
    await fleet.start(SPEC)
    roots, tree = fleet.sandboxes["s1"].roots, fleet.sandbox("s1").tree()
    roots.files[b"workspace/a"] = b"x"
    roots.step_seconds = 10.0
    told = await scan(tree, remember="first")
    assert asyncio.get_running_loop().time() >= 50
    assert roots.steps == ["scan", "next", "fetch", "next", "remember"]
    roots.step_seconds = 0.0
    operations = (
        ("scan next fetch remember", lambda: scan(tree, remember="second")),
        ("restore plan put finish", lambda: restore(tree, told, "third")),
        ("survey", lambda: tree.survey(())),
        ("quiet", lambda: tree.quiet()),
        ("release", lambda: tree.release()),
        ("files", lambda: tree.files(b"workspace", b"a")),
    )
    for steps, operation in operations:
        for step in steps.split():
            roots.failures[step] = [TreeFailed("failed", f"no {step}")]
            with pytest.raises(TreeFailed, match=f"no {step}"):
                await operation()
            assert roots.files == {b"workspace/a": b"x"}
            assert roots.known is not None
            assert roots.known[0] == "first"
    await restore(tree, Told(), "third")
    assert (roots.files, roots.known) == ({}, ("third", {}))


@pytest.mark.parametrize("end", ["crash", "stop", "start"])
async def test_an_operation_ends_with_its_sandbox(end: str) -> None:
    fleet = MemoryFleet(silent)
    await fleet.start(SPEC)
    sandbox, tree = fleet.sandboxes["s1"], fleet.sandbox("s1").tree()
    sandbox.files[b"workspace/a"] = b"x"
    async with tree.scan(ScanAsk()) as begun:
        await begun.next()
        if end == "crash":
            sandbox.crash()
        else:
            await (fleet.sandbox("s1").stop() if end == "stop" else fleet.start(SPEC))
        with pytest.raises(TreeFailed):
            await anext(begun.fetch((0,)))
    assert sandbox.files == {b"workspace/a": b"x"}


async def test_limits_hold_for_a_tree_in_memory_too() -> None:
    fleet = MemoryFleet(silent)
    await fleet.start(SPEC)
    fleet.sandboxes["s1"].files.update({b"workspace/%d" % n: b"xy" for n in range(5)})
    for limits, code in ((TreeLimits(files=4), "too_many"), (TreeLimits(total_bytes=9), "too_large")):
        with pytest.raises(TreeFailed) as failed:
            async with fleet.sandbox("s1").tree().scan(ScanAsk(limits=limits)) as begun:
                await begun.next()
        assert failed.value.code == code
