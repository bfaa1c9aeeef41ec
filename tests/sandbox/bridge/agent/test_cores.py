"""A real bridge, a real link and a real agent, with the core that each test names."""

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from sandbox.agents.catalogue import CORES
from sandbox.bridge.agent.outgoing import UNREAD_BYTES
from sandbox.client.agent_link import BridgeLink
from tests.support.bridge import BridgeProcess, Owner, running_bridge
from tests.support.turn_core import NAME
from tests.support.waiting import until

# It writes down what it is told, and writes what a message says, a line for each part.
AGENT = """
import os, sys
open("launch", "w").write(repr((sys.argv[1:], os.environ.get("TURNS"))))
with open("told", "a") as told:
    for line in sys.stdin:
        told.write(line)
        told.flush()
        word, _, rest = line.rstrip("\\n").partition(" ")
        says = {"hi": ["hello"], "do": rest.split(";"), "answer": ["say heard"], "stop": ["over"]}
        for each in says.get(word, []):
            print(each, flush=True)
"""
ABORT = b'{"type":"abort"}'


def turns(home: Path, script: str = AGENT) -> AbstractContextManager[BridgeProcess]:
    agent = [sys.executable, "-u", "-c", script]
    return running_bridge(home, agent, module="tests.support.turn_core", core=NAME)


def message(text: str) -> bytes:
    return json.dumps({"type": "message", "content": text}).encode()


def answer(request_id: str) -> bytes:
    return json.dumps({"type": "permission_response", "requestId": request_id}).encode()


def frames(owner: Owner) -> list[dict[str, Any]]:
    return [json.loads(line) for line in owner.lines()]


def kinds(owner: Owner) -> list[str]:
    return [frame["type"] for frame in frames(owner)] if owner.epochs else []


async def heard(owner: Owner, kind: str, count: int = 1) -> None:
    await until(lambda: kinds(owner).count(kind) >= count)


async def in_turn(link: BridgeLink, owner: Owner) -> None:
    """Come back when the bridge has dealt with all that was sent before on this link."""
    before = kinds(owner).count("error")
    link.inject(answer("nobody"))  # the core itself answers that
    await heard(owner, "error", before + 1)


def told(bridge: BridgeProcess) -> list[str]:
    return (bridge.workspace / "told").read_text().splitlines()


async def test_the_core_says_what_is_launched_and_puts_both_sides_words_into_each_others(tmp_path: Path) -> None:
    with turns(tmp_path) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(b'{"type":"start","resume":true}')
        link.deliver(1, message("say one;say two;of tomorrow;over"))
        await heard(owner, "done")
        assert frames(owner) == [
            {"type": "chunk", "text": "one"},
            {"type": "chunk", "text": "two"},
            {"type": "stream_end"},
            {"type": "done"},
        ]
        assert told(bridge) == ["hi again", "do say one;say two;of tomorrow;over"]
        assert (bridge.workspace / "launch").read_text() == repr((["--turns"], "one"))
        await until(lambda: owner.taken == 1)


async def test_a_message_is_taken_when_it_goes_to_the_agent_and_not_before(tmp_path: Path) -> None:
    with turns(tmp_path) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        link.deliver(1, message("say at work"))
        link.deliver(2, message("say next;over"))
        await heard(owner, "chunk")
        await in_turn(link, owner)
        assert (owner.taken, told(bridge)) == (1, ["hi", "do say at work"])
        link.inject(ABORT)
        await heard(owner, "done", 2)
        await until(lambda: owner.taken == 2)
        assert told(bridge) == ["hi", "do say at work", "stop", "do say next;over"]


async def test_a_message_that_waits_is_held_back_and_dropped_and_what_follows_it_is_answered(tmp_path: Path) -> None:
    with turns(tmp_path) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        link.deliver(1, message("say at work"))
        link.deliver(2, message("say never;over"))
        link.deliver(3, message("say after;over"))
        await heard(owner, "chunk")
        assert link.recall(1)  # the agent has it: answered by nothing
        assert link.recall(2)
        await until(lambda: owner.recalled == [2])
        link.inject(ABORT)
        await heard(owner, "done")
        await in_turn(link, owner)
        assert (owner.taken, told(bridge)) == (1, ["hi", "do say at work", "stop"])
        link.drop(2)
        await heard(owner, "done", 2)
        await until(lambda: owner.taken == 3)
        assert told(bridge) == ["hi", "do say at work", "stop", "do say after;over"]
        assert not owner.lost


async def test_what_is_held_back_is_delivered_again_by_the_next_gateway(tmp_path: Path) -> None:
    with turns(tmp_path) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        link.deliver(1, message("say at work"))
        link.deliver(2, message("say after all;over"))
        await heard(owner, "chunk")
        link.recall(2)
        await until(lambda: owner.recalled == [2])
        again = Owner()
        link = await bridge.link(again)
        await until(lambda: bool(again.hellos))
        assert again.hellos[0].taken == 1
        link.deliver(2, message("say after all;over"))
        link.inject(ABORT)
        await until(lambda: again.taken == 2)
        await heard(again, "done", 2)
        assert told(bridge) == ["hi", "do say at work", "stop", "do say after all;over"]


async def test_what_no_agent_had_goes_to_the_next_one_when_the_bridge_is_killed(tmp_path: Path) -> None:
    """Where something before the agent took messages and kept them back, they were lost with it: nobody could say
    that no agent had had them."""
    with turns(tmp_path) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        for seq in (1, 2, 3):
            link.deliver(seq, message(f"say {seq}"))
        await heard(owner, "chunk")
        await in_turn(link, owner)
        bridge.kill()
        await until(lambda: owner.lost)
        bridge.start()
        again = Owner()
        link = await bridge.link(again)
        assert again.hellos[0].taken == 1
        link.start(None)
        for seq in (2, 3):
            link.deliver(seq, message(f"say {seq};over"))
        await heard(again, "done", 2)
        assert told(bridge) == ["hi", "do say 1", "hi", "do say 2;over", "do say 3;over"]


async def test_an_answer_goes_past_the_messages_that_wait_and_is_given_once_over_a_change_of_links(
    tmp_path: Path,
) -> None:
    with turns(tmp_path) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        link.deliver(1, message("ask r-1"))
        await heard(owner, "tool_permission_request")
        link.deliver(2, message("say next;over"))
        link.deliver(3, answer("r-1"))
        await heard(owner, "chunk")
        await in_turn(link, owner)
        assert owner.taken == 1
        link.close()

        again = Owner()
        link = await bridge.link(again, owner.position)
        assert (again.hellos[0].taken, again.hellos[0].alive) == (1, True)
        link.deliver(2, message("say next;over"))
        link.deliver(3, answer("r-1"))
        await in_turn(link, again)
        link.inject(ABORT)
        await until(lambda: again.taken == 3)
        await heard(again, "done", 2)
        assert told(bridge) == ["hi", "do ask r-1", "answer r-1", "stop", "do say next;over"]
        assert kinds(again).count("error") == 1, "the second time it would have been an answer to nothing"


# Without reading a word it writes what must be answered, until for a second nobody takes it; then it reads all answers.
DEAF = f"""
import os, select, sys
sys.stdin.readline()
os.set_blocking(1, False)
ping, sent = b"ping " + b"x" * 1000 + b"\\n", 0
while sent < 64 * {UNREAD_BYTES}:
    if not select.select([], [1], [], 1)[1]:
        break
    try:
        sent += os.write(1, ping[sent % len(ping):])
    except BlockingIOError:
        pass
open("sent", "w").write(f"{{sent}}\\n")
left = sent // len(ping)
while left and (line := sys.stdin.readline()):
    left -= line == "pong " + "x" * 1000 + "\\n"
os.set_blocking(1, True)
os.write(1, (ping[sent % len(ping):] if sent % len(ping) else b"") + b"say all\\n")
sys.stdin.read()
"""


async def test_an_agent_that_does_not_read_what_it_is_answered_is_not_read_until_it_does(tmp_path: Path) -> None:
    with turns(tmp_path, DEAF) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        await heard(owner, "chunk")
        assert int((bridge.workspace / "sent").read_text()) < 4 * UNREAD_BYTES
        assert frames(owner) == [{"type": "chunk", "text": "all"}]
        link.stop_agent()
        await until(lambda: owner.exits)


async def test_an_agent_that_dies_with_answers_unread_is_heard_to_its_end(tmp_path: Path) -> None:
    # Its input stays open, held by a program that left its group: the pipe says nothing of its end.
    holds = "subprocess.Popen(['sleep', '300'], start_new_session=True, stdout=2)"
    dies = DEAF.partition("left =")[0] + f"import subprocess; {holds}; os.kill(os.getpid(), 9)"
    with turns(tmp_path, dies) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        exit = (await until(lambda: owner.exits))[0]
        assert (exit.signal, exit.taken) == ("SIGKILL", 0)
        link.start(None)
        await until(lambda: len(owner.exits) == 2)
        assert bridge.terminate() == 0  # and ends them


async def test_a_bridge_that_is_told_an_unknown_core_says_so_and_starts_nothing(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["touch", "ran"], core="of-tomorrow") as bridge:
        assert bridge.process is not None
        assert bridge.process.wait(timeout=60) == 1
        assert f"core: no such core of an agent; this bridge has {', '.join(sorted(CORES))}" in bridge.log
        assert not (bridge.workspace / "ran").exists()


def odd_lines() -> Iterator[bytes]:
    yield from (b"", b" ", b"\r", b"\0", b"\xff\xfe", b'{"type":"of_tomorrow"}', b'{"type":', b"x" * 70_000)
    yield from (bytes([byte]) * 3 for byte in range(256) if byte != 10)


@pytest.mark.parametrize("settings", [{}, {"core": "plain"}], ids=["default", "named"])
async def test_plain_passes_every_byte_both_ways_as_it_is(tmp_path: Path, settings: dict[str, str]) -> None:
    lines = list(odd_lines())
    with running_bridge(tmp_path, ["tee", "told"], **settings) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(b'{"type":"start"}')
        for seq, line in enumerate(lines, 1):
            link.deliver(seq, line)
        await until(lambda: owner.received == len(lines) + 1)
        assert owner.lines() == [b'{"type":"start"}', *lines]
        written = b"\n".join([b'{"type":"start"}', *lines, b""])
        await until(lambda: (bridge.workspace / "told").read_bytes() == written)
        await until(lambda: owner.taken == len(lines))
