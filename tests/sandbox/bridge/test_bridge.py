"""A real bridge process, a real link, real agents."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from sandbox.bridge.agent.taken import TakenNotes
from sandbox.bridge.base.config import ConfigError, parse_config
from sandbox.client.agent_link import BridgeLink, Timings
from sandbox.ports.link import LinkRefused
from sandbox.protocol.values import AgentExit, Position
from sandbox.system.child import die_with
from tests.support.bridge import TOKEN, BridgeProcess, Owner, running_bridge
from tests.support.waiting import until


def python(script: str) -> list[str]:
    return [sys.executable, "-u", "-c", script]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_gone(pid: int) -> bool:
    return not alive(pid)


def took(owner: Owner, seq: int) -> bool:
    return owner.taken >= seq


def got(owner: Owner, frames: int) -> bool:
    return owner.received >= frames


async def started(bridge: BridgeProcess, owner: Owner, line: bytes | None = None) -> tuple[BridgeLink, int]:
    """Attach, start the agent, and wait until it has written its pid to the workspace."""
    link = await bridge.link(owner)
    link.start(line)
    pid_file = bridge.workspace / "pid"
    await until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
    return link, int(pid_file.read_text())


WRITES_DOWN = """
import os, sys
open("pid", "w").write(f"{os.getpid()}\\n")
with open("lines", "a") as file:
    for line in sys.stdin:
        file.write(line)
        file.flush()
"""


async def test_lines_go_in_and_come_out_numbered(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        assert (owner.hellos[0].epoch, owner.hellos[0].alive, owner.hellos[0].taken) == (None, False, 0)
        link.start(b'{"type":"start"}')
        for seq in range(1, 4):
            link.deliver(seq, b"line %d" % seq)
        await until(lambda: owner.received == 4)
        assert owner.lines() == [b'{"type":"start"}', b"line 1", b"line 2", b"line 3"]
        await until(lambda: owner.taken == 3)
        link.stop_agent()
        exit = (await until(lambda: owner.exits))[0]
        assert exit == AgentExit(owner.epoch, 4, 3, 0, None, "exited with code 0")
        assert owner.order[:2] == ["hello", "epoch"]
        link.close()


async def test_a_killed_bridge_takes_its_agent_along_and_hands_nothing_twice(tmp_path: Path) -> None:
    with running_bridge(tmp_path, python(WRITES_DOWN)) as bridge:
        taker, written = None, bridge.workspace / "lines"
        sent = 0
        for round in range(3):
            owner = Owner()
            link, agent = await started(bridge, owner)
            hello = owner.hellos[0]
            assert hello.taker == (taker or hello.taker)
            assert (hello.taken > 0) == (round > 0)
            taker = hello.taker
            for seq in range(hello.taken + 1, sent + 400):
                link.deliver(seq, b"%d %s" % (seq, b"x" * 500))
            sent += 399
            await until(partial(took, owner, hello.taken + 50))
            bridge.kill()
            await until(partial(is_gone, agent))
            (bridge.workspace / "pid").unlink()
            await until(partial(list, owner.lost))
            bridge.start()
        owner = Owner()
        await bridge.link(owner)
        numbers = [int(line.split()[0]) for line in written.read_text().splitlines() if line.endswith("x" * 500)]
        assert numbers == sorted(set(numbers))
        assert max(numbers) <= owner.hellos[0].taken
        assert owner.hellos[0].taken - len(numbers) < 3 * 150  # only what lay in a dying pipe is missing


async def test_the_exit_of_a_crashed_agent_tells_what_it_was_given(tmp_path: Path) -> None:
    script = "import os, sys\nfor n, line in enumerate(sys.stdin, 1):\n print(n)\n if n == 3: os._exit(7)"
    with running_bridge(tmp_path, python(script)) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        for seq in (10, 20, 30):
            link.deliver(seq, b"x")
        exit = (await until(lambda: owner.exits))[0]
        assert (exit.offset, exit.taken, exit.code, exit.signal) == (3, 30, 7, None)
        assert exit.reason == "exited with code 7"
        assert owner.lines() == [b"1", b"2", b"3"]
        # It is not started again by itself, and its end is told to whoever comes next.
        link.close()
        later = Owner()
        await bridge.link(later, owner.position)
        assert (later.hellos[0].alive, later.hellos[0].epoch, later.hellos[0].taken) == (False, exit.epoch, 30)
        await until(lambda: later.exits)
        assert (later.exits, later.epochs, later.received) == ([exit], [(exit.epoch, 3)], 0)


async def test_a_signal_is_named(tmp_path: Path) -> None:
    with running_bridge(tmp_path, python(WRITES_DOWN)) as bridge:
        owner = Owner()
        _, agent = await started(bridge, owner)
        os.kill(agent, signal.SIGKILL)
        exit = (await until(lambda: owner.exits))[0]
        assert (exit.code, exit.signal, exit.reason) == (None, "SIGKILL", "killed by SIGKILL")


async def test_a_reconnect_in_the_middle_gives_exactly_the_missing_frames(tmp_path: Path) -> None:
    count = 20_000
    script = f"import sys\nfor n in range({count}): sys.stdout.write(f'{{n}}\\n')"
    with running_bridge(tmp_path, ["python3", "-c", script]) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        for part in range(1, 6):
            await until(partial(got, owner, count * part // 8))
            link.close()
            link = await bridge.link(owner, owner.position)
        exit = (await until(lambda: owner.exits))[0]
        assert owner.received == count  # nothing came twice
        assert owner.lines() == [b"%d" % n for n in range(count)]
        assert exit.offset == count
        # What is not confirmed is all there for one that knows nothing, and what is confirmed is not.
        stranger = Owner()
        other = await bridge.link(stranger)
        await until(lambda: stranger.exits)
        assert stranger.lines() == owner.lines()
        other.confirm(Position(exit.epoch, count - 5))
        other.close()
        last = Owner()
        await bridge.link(last)
        await until(lambda: last.exits)
        assert (last.epochs, last.received) == ([(exit.epoch, count - 5)], 5)


async def test_a_full_backlog_stops_the_agent_and_nothing_is_lost(tmp_path: Path) -> None:
    bound, count = 64 * 1024, 3000
    script = f"for n in range({count}): print(f'{{n:0500}}')"
    with running_bridge(tmp_path, ["python3", "-c", script], limits={"backlog_bytes": bound}) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        confirmed = stops = 0
        async with bridge.client() as http:
            while not owner.exits:
                full = (owner.received - confirmed) * 564 >= bound
                if full:
                    for _ in range(3):  # a bridge that went on reading would show it now
                        await http.get("/health")
                    assert (owner.received - confirmed) * 564 <= bound + 80 * 1024
                    stops += 1
                if full or owner.received == count:
                    confirmed = owner.received
                    link.confirm(owner.position)
                await asyncio.sleep(0.001)
        assert stops >= 5
        assert owner.lines() == [b"%0500d" % n for n in range(count)]


NEVER_READS_AT_FIRST = """
import os, signal, sys, time
if os.path.exists("second"):
    for line in sys.stdin: print(line.split()[0])
else:
    open("second", "w").close()
    signal.signal(signal.SIGINT, lambda *_: os._exit(5))
    print("deaf")
    time.sleep(600)
"""


async def test_what_an_agent_did_not_take_is_dropped_with_it_and_can_be_delivered_again(tmp_path: Path) -> None:
    with running_bridge(tmp_path, python(NEVER_READS_AT_FIRST)) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        await until(lambda: owner.received == 1)
        lines = {seq: b"%d %s" % (seq, b"y" * 40_000) for seq in range(1, 11)}
        for seq, line in lines.items():
            link.deliver(seq, line)
        await until(lambda: owner.taken > 0)
        async with bridge.client() as http:  # an agent that never reads harms nobody
            assert (await http.get("/health")).status_code == 200
        link.interrupt()
        exit = (await until(lambda: owner.exits))[0]
        assert (exit.code, exit.taken) == (5, owner.taken)
        assert 0 < exit.taken < 5
        link.start(None)
        for seq, line in lines.items():
            link.deliver(seq, line)  # also those that were taken: they are not handed again
        await until(lambda: owner.taken == 10)
        await until(lambda: len(owner.output.get(owner.epoch, {})) == 10 - exit.taken)
        assert owner.lines() == [b"%d" % seq for seq in range(exit.taken + 1, 11)]


async def test_deliveries_without_an_agent_are_dropped(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.deliver(1, b"too early")
        link.inject(b"too early")
        link.start(None)
        link.deliver(2, b"in time")
        await until(lambda: owner.received)
        assert owner.lines() == [b"in time"]
        await until(lambda: owner.taken == 2)


async def test_a_start_whose_line_is_no_line_is_refused(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        await bridge.link(Owner())
        async with bridge.client() as http:
            for body in (b"{", b"[]", b"7", b'{"line":7}', b'{"line":"a\\nb"}', b'{"line":"\\ud800"}'):
                answer = await http.post("/start", content=body)
                assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
            assert (await http.post("/start", content=b'{"line":null,"more":1}')).json()["started"]


async def test_a_process_that_somebody_else_started_takes_nothing_before_the_gateway_knows_it(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["tee", "copy"]) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        async with bridge.client() as http:
            link.pause_reading()
            answer = (await http.post("/start", json={"line": "first"})).json()
            assert answer["started"]
            link.deliver(5, b"meant for the process before")
            copy = bridge.workspace / "copy"
            await until(lambda: copy.exists() and copy.read_bytes() == b"first\n")  # tee writes its output first
            assert not (await http.post("/start-pi")).json()["started"]
            link.interrupt()
        link.resume_reading()
        exit = (await until(lambda: owner.exits))[0]
        assert (exit.epoch, exit.signal, exit.taken, owner.lines()) == (answer["epoch"], "SIGINT", 0, [b"first"])


async def test_the_newest_gateway_wins(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        old, new = Owner(), Owner()
        first = await bridge.link(old)
        first.start(None)
        await until(lambda: old.epochs)
        second = await bridge.link(new)
        await until(lambda: old.lost)
        assert old.lost == ["another gateway attached"]
        first.deliver(1, b"from the past")
        second.deliver(2, b"now")
        await until(lambda: new.received)
        assert (new.lines(), old.received, new.lost) == ([b"now"], 0, [])


async def test_a_bridge_that_stands_still_is_found_and_found_again_when_it_moves(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        owner = Owner()
        link = await bridge.link(owner, timings=Timings(handshake_seconds=30, ping_seconds=0.1, pong_seconds=5))
        link.start(None)
        link.deliver(1, b"before")
        await until(lambda: owner.received)
        bridge.signal(signal.SIGSTOP)
        await until(lambda: owner.lost)
        assert owner.lost == ["the bridge fell silent"]
        link.deliver(2, b"into the void")
        with pytest.raises(LinkRefused, match="does not answer"):
            await bridge.link(Owner(), timings=Timings(handshake_seconds=0.2))
        bridge.signal(signal.SIGCONT)
        again = Owner()
        link = await bridge.link(again, owner.position)
        link.deliver(2, b"after")
        await until(lambda: again.received)
        assert again.lines() == [b"after"]


async def test_a_gateway_that_falls_silent_is_let_go(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], limits={"silence_seconds": 0.2}) as bridge:
        owner = Owner()
        await bridge.link(owner)
        await until(lambda: owner.lost)
        assert owner.lost == ["the bridge heard nothing from us"]


async def test_pings_keep_a_link_alive(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], limits={"silence_seconds": 3}) as bridge:
        owner = Owner()
        await bridge.link(owner, timings=Timings(handshake_seconds=30, ping_seconds=0.02, pong_seconds=10))
        async with bridge.client() as http:
            await http.post("/exec", json={"command": "sleep 4"})
        assert owner.lost == []


async def test_an_orphan_ends_itself_and_its_agent(tmp_path: Path) -> None:
    with running_bridge(tmp_path, python(WRITES_DOWN), orphan_seconds=3) as bridge:
        owner = Owner()
        link, agent = await started(bridge, owner)
        async with bridge.client() as http:
            assert (await http.post("/exec", json={"command": "sleep 3.5"})).json()["exitCode"] == 0
        assert bridge.process is not None
        assert bridge.process.poll() is None  # an attached gateway is all it needs
        link.close()
        assert await until(lambda: bridge.process is not None and bridge.process.poll() is not None)
        assert bridge.process.returncode == 0
        assert not alive(agent)
        assert '"event": "bridge.orphaned"' in bridge.log


async def test_a_command_that_runs_is_no_orphanage(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], orphan_seconds=3) as bridge:
        async with bridge.client() as http:
            answer = await http.post("/exec", json={"command": "sleep 3.5; echo done"})
        assert answer.json()["stdout"] == "done\n"


async def test_sigterm_ends_the_agent_in_order_and_leaves_nothing_behind(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, sys\n"
        "stray = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "open('stray', 'w').write(str(stray.pid))\n"
        "open('pid', 'w').write(f'{os.getpid()}\\n')\n"
        "sys.stdin.read()\n"
        "open('bye', 'w').close()\n"
    )
    with running_bridge(tmp_path, python(script)) as bridge:
        owner = Owner()
        _, agent = await started(bridge, owner)
        stray = int((bridge.workspace / "stray").read_text())
        assert await asyncio.to_thread(bridge.terminate) == 0
        assert (bridge.workspace / "bye").exists()
        assert not alive(agent)
        assert not alive(stray)
        await until(lambda: owner.lost)


async def test_a_stop_that_is_ignored_becomes_a_kill(tmp_path: Path) -> None:
    script = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('no', flush=True))\n"
        "open('pid', 'w').write(f'{os.getpid()}\\n')\n"
        "while True: time.sleep(1)\n"
    )
    limits = {"stop_input_seconds": 0.05, "stop_term_seconds": 3}  # it must get its turn to say so
    with running_bridge(tmp_path, python(script), limits=limits) as bridge:
        owner = Owner()
        link, _ = await started(bridge, owner)
        link.stop_agent()
        exit = (await until(lambda: owner.exits))[0]
        assert (exit.signal, owner.lines()) == ("SIGKILL", [b"no"])


async def test_a_start_during_a_stop_waits_for_the_end(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(b"one")
        await until(lambda: owner.received == 1)
        link.stop_agent()
        link.start(b"two")
        await until(lambda: owner.received == 2)
        assert len(owner.epochs) == 2
        assert owner.exits[0].epoch == owner.epochs[0][0]
        assert owner.lines() == [b"two"]
        link.start(b"three")  # it runs: nothing happens
        link.deliver(1, b"x")
        await until(lambda: owner.received == 3)
        assert owner.lines() == [b"two", b"x"]


async def test_an_agent_that_cannot_be_started_is_a_problem(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["/no/such/agent"]) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        assert (await until(lambda: owner.problems))[0] == (
            "the agent could not be started: /no/such/agent: No such file or directory"
        )
        async with bridge.client() as http:
            answer = await http.post("/start")
            assert (answer.status_code, answer.json()["code"]) == (500, "agent_failed")


async def test_a_line_of_a_gigabyte_costs_a_problem_and_no_memory(tmp_path: Path) -> None:
    script = (
        "import os\nos.write(1, b'first\\n')\nblock = b'x' * 65536\n"
        "for _ in range(4000): os.write(1, block)\n"
        "os.write(1, b'\\nlast\\n')"
    )
    with running_bridge(tmp_path, python(script)) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        assert bridge.process is not None
        before = resident_kib(bridge.process.pid)
        link.start(None)
        await until(lambda: owner.exits)
        assert owner.lines() == [b"first", b"last"]
        assert owner.problems == ["a line of agent output was longer than 1048576 bytes and was left out"]
        assert resident_kib(bridge.process.pid) < before + 8 * 1024


def resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


async def test_what_the_agent_complains_about_is_kept_in_a_bounded_log(tmp_path: Path) -> None:
    script = "import sys\nfor n in range(4000): sys.stderr.write(f'{n:099}\\n')"
    limit = 100 * 1024
    with running_bridge(tmp_path, python(script), limits={"agent_log_bytes": limit}) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        await until(lambda: owner.exits)
        log = tmp_path / "agent.log"
        await until(lambda: log.read_bytes().endswith(b"3999\n"))
        assert log.stat().st_size <= limit
        assert (tmp_path / "agent.log.1").stat().st_size <= limit
        assert log.stat().st_mode & 0o077 == 0


async def test_output_after_the_death_of_the_agent_is_read_but_not_for_ever(tmp_path: Path) -> None:
    script = (
        "import os, subprocess\n"
        "subprocess.Popen(['sh', '-c', 'sleep 600'], start_new_session=True)\n"
        "print('last words')\n"
    )
    with running_bridge(tmp_path, python(script), limits={"drain_seconds": 0.1}) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        exit = (await until(lambda: owner.exits))[0]
        assert (exit.code, owner.lines()) == (0, [b"last words"])
        await asyncio.to_thread(bridge.terminate)


async def test_an_injected_line_passes_the_queue(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\n"
        "open('pid', 'w').write(f'{os.getpid()}\\n')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "for line in sys.stdin: print(line.split()[0])"
    )
    with running_bridge(tmp_path, python(script)) as bridge:
        owner = Owner()
        link, _ = await started(bridge, owner, b"start")
        for seq in range(1, 11):
            link.deliver(seq, b"%d %s" % (seq, b"z" * 30_000))
        await until(lambda: owner.taken > 1)
        link.inject(b"abort now")
        async with bridge.client() as client:  # by its answer the bridge has read what was sent before
            await client.get("/health")
        (bridge.workspace / "go").touch()
        await until(lambda: owner.received == 12)
        lines = owner.lines()
        assert lines[0] == b"start"
        assert [line for line in lines if line.isdigit()] == [b"%d" % seq for seq in range(1, 11)]
        assert 2 <= lines.index(b"abort") < 11


async def test_an_agent_that_closes_its_input_is_told_and_goes_on(tmp_path: Path) -> None:
    script = "import os, time\nos.close(0)\nprint('deaf', flush=True)\ntime.sleep(600)"
    with running_bridge(tmp_path, python(script)) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        await until(lambda: owner.received)
        link.deliver(1, b"hello?")
        assert await until(lambda: owner.problems) == ["the agent closed its input"]
        link.interrupt()
        assert (await until(lambda: owner.exits))[0].taken == 1


async def test_only_the_token_opens_a_bridge(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        for token in ("x" * 43, TOKEN[:-1], TOKEN + "t", "-"):
            with pytest.raises(LinkRefused, match="token"):
                await bridge.link(Owner(), token=token)
            async with bridge.client(token) as http:
                for path in ("/exec", "/start", "/start-pi", "/nothing"):
                    answer = await http.post(path, json={"argv": ["touch", "evil"]})
                    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        async with bridge.client(None) as http:
            health = (await http.get("/health")).json()
            assert health == {"status": "ok", "incarnation": 1, "agent": {"state": "waiting"}}
            assert (await http.get("/exec")).status_code == 401
            twice = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer x")]
            assert (await http.post("/exec", headers=twice, json={})).status_code == 401
        async with bridge.client() as http:
            assert (await http.get("/nothing")).json()["code"] == "not_found"
            assert (await http.get("/exec")).json()["code"] == "method_not_allowed"
        assert not (bridge.workspace / "evil").exists()


async def test_secrets_reach_the_agent_and_nothing_else(tmp_path: Path) -> None:
    secret = "canary-5f0c2d"
    script = "import os, sys\nprint(os.environ['KEY'], os.environ['HOME'], 'LEAK' in os.environ)\nsys.stdin.read()"
    with running_bridge(tmp_path, python(script), env={"KEY": secret}) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        await until(lambda: owner.received)
        assert owner.lines() == [f"{secret} {tmp_path} False".encode()]
        assert bridge.process is not None
        about = Path(f"/proc/{bridge.process.pid}")
        seen = (about / "cmdline").read_bytes() + (about / "environ").read_bytes() + bridge.log.encode()
        for path in tmp_path.rglob("*"):
            if path.is_file():
                seen += path.read_bytes()
        for hidden in (secret, TOKEN):
            assert hidden.encode() not in seen
        link.stop_agent()
        await until(lambda: owner.exits)


async def test_a_broken_configuration_is_said_without_its_values(tmp_path: Path) -> None:
    bridge = BridgeProcess(tmp_path, ["cat"], env={"KEY": ["canary-5f0c2d"]})
    bridge.start()
    assert bridge.process is not None
    assert await asyncio.to_thread(bridge.process.wait, 30) == 1
    assert "env: an object of strings" in bridge.log
    assert "canary" not in bridge.log


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ("ws://127.0.0.1:1", "server: an object with connect and health"),
        ({"connect": "ws://127.0.0.1:1", "port": 1}, "server: an object with connect and health"),
        ({"connect": "ws://10.9.8.7:1"}, "server.connect: ws://HOST:PORT"),
        ({"connect": "ws://127.0.0.1:1", "health": "x"}, "server.health: a path of the same server"),
    ],
)
def test_an_agents_server_is_one_of_its_own_sandbox(server: object, told: str) -> None:
    members = {"session_id": "s1", "token": "t" * 43, "agent": ["x"], "kept": "/k", "workspace": "/w", "state": "/s"}
    with pytest.raises(ConfigError) as refused:
        parse_config(json.dumps({**members, "agent_log": "/l", "server": server}).encode())
    assert str(refused.value).startswith(told)


async def test_a_bridge_waits_for_the_notes_of_one_that_is_not_gone_yet(tmp_path: Path) -> None:
    """A killed bridge has them until its last thread is gone: the session ended in `error` for that."""
    with running_bridge(tmp_path, ["cat"]) as bridge:
        await bridge.link(Owner())
        bridge.kill()
        notes = TakenNotes(bridge.home / "state")
        bridge.start()
        await until(lambda: "bridge.waiting" in bridge.log)
        notes.close()
        await bridge.link(Owner())


def test_a_child_whose_bridge_is_gone_before_it_began_starts_nothing() -> None:
    """Nobody would end it: it was not there yet when those were killed that were to die with the bridge."""
    nobody = 2**22 + 1
    ran = subprocess.run(["echo", "here"], stdout=subprocess.PIPE, preexec_fn=partial(die_with, nobody))
    assert (ran.returncode, ran.stdout) == (1, b"")


async def test_two_bridges_cannot_share_their_notes(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        await bridge.link(Owner())
        second = BridgeProcess(tmp_path, ["cat"])
        second.path = str(tmp_path / "other.sock")
        second.start()
        assert second.process is not None
        assert await asyncio.to_thread(second.process.wait, 30) == 1
        assert "NotesInUse" in bridge.log
