"""What a core does not know, and what breaks it: a real bridge counts it, tells it, and loses no message for it."""

import json
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sandbox.client.agent_link import Timings
from tests.sandbox.bridge.agent.test_cores import AGENT, frames, heard, kinds, message, turns
from tests.support.bridge import BridgeProcess, Owner, running_bridge
from tests.support.failing_core import NAME
from tests.support.waiting import until


def failing(home: Path, **settings: Any) -> AbstractContextManager[BridgeProcess]:
    agent = [sys.executable, "-u", "-c", AGENT]
    return running_bridge(home, agent, module="tests.support.failing_core", core=NAME, **settings)


def failures(bridge: BridgeProcess) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in bridge.log.splitlines()]
    return [entry for entry in entries if entry["event"] == "agent.core_failed"]


async def test_the_gateway_is_told_what_was_unknown_with_the_heartbeat_and_once(tmp_path: Path) -> None:
    with turns(tmp_path) as bridge:
        owner = Owner()
        link = await bridge.link(owner, timings=Timings(ping_seconds=0.05))
        link.start(None)
        link.deliver(1, message(";".join(["what new"] * 5 + [f"what {n}" for n in range(20)] + ["over"])))
        await heard(owner, "done")
        await until(lambda: len(owner.unknown) == 2)
        assert {core for core, _ in owner.unknown} == {"turns"}
        first, second = (counts for _, counts in owner.unknown)
        assert (len(first), len(second)) == (16, 5)
        assert first["new"] == 5
        assert first.keys() | second.keys() == {"new", *map(str, range(20))}


async def test_unknown_frames_are_passed_on_only_where_that_was_asked(tmp_path: Path) -> None:
    with failing(tmp_path, all_events=True) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        link.deliver(1, message("say one;what new;say two;over"))
        await heard(owner, "done")
        assert frames(owner)[:3] == [
            {"type": "chunk", "text": "one"},
            {"type": "agent_event", "kind": "new", "event": {"text": "what new"}},
            {"type": "chunk", "text": "two"},
        ]


async def test_a_line_that_breaks_the_core_costs_that_line(tmp_path: Path) -> None:
    with failing(tmp_path, all_events=True) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        link.deliver(1, message("say one;break;say two;over"))
        await heard(owner, "done")
        told = {"type": "agent_event", "kind": "breaks the core", "event": {"text": "break"}}
        assert frames(owner)[:3] == [{"type": "chunk", "text": "one"}, told, {"type": "chunk", "text": "two"}]
        (failure,) = failures(bridge)
        assert (failure["asked"], failure["core"]) == ("up", "failing")
        assert "KeyError: 'up'" in failure["trace"][-1]


async def test_a_message_that_breaks_the_core_is_answered_and_the_next_goes_on(tmp_path: Path) -> None:
    with failing(tmp_path) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        link.deliver(1, json.dumps({"type": "message", "seq": 1, "content": "bad"}).encode())
        await heard(owner, "done")
        assert [frame["type"] for frame in frames(owner)] == ["error", "done"]
        assert frames(owner)[1]["answers"] == [1]
        link.deliver(2, message("say two;over"))
        await heard(owner, "done", 2)
        assert (owner.taken, owner.exits) == (2, [])


async def test_a_core_that_fails_in_mid_turn_is_replaced_with_its_process(tmp_path: Path) -> None:
    with failing(tmp_path) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        link.deliver(1, json.dumps({"type": "message", "seq": 1, "content": "bad late"}).encode())
        await until(lambda: owner.exits)
        assert kinds(owner)[:2] == ["error", "done"]
        assert "what speaks with the agent failed: the agent is started anew" in owner.problems
        link.start(None)
        await until(lambda: len(owner.epochs) == 2)
        link.deliver(2, message("say two;over"))
        await heard(owner, "done")


async def test_a_core_that_cannot_begin_ends_its_process(tmp_path: Path) -> None:
    with failing(tmp_path) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(b'{"type":"start","text":"bad-begin"}')
        await until(lambda: owner.exits)
        assert owner.problems == ["what speaks with the agent failed: the agent is started anew"]
