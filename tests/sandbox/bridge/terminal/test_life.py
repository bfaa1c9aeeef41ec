"""From the first viewer to the last: starting, ending, being held, being too many."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.bridge.base.config import Limits
from sandbox.bridge.terminal.viewer import BAD_FRAME, ENDED, GOING, HELD, START_FAILED, TOO_MANY
from sandbox.client.tree import BridgeTree
from sandbox.protocol.terminal import MAX_INPUT, Exit, Greeting, Reset, Size, TerminalTrouble
from sandbox.protocol.websocket_frames import BINARY, CLOSE, TEXT, client_frame
from tests.support.bridge import BridgeProcess, Owner, at, running_bridge
from tests.support.terminal import Refusal, dial, viewing
from tests.support.waiting import until

PATIENT = {"terminal_hang_up_seconds": 60.0}  # a program that ends by itself may get its turn late


async def listed(bridge: BridgeProcess) -> list[dict[str, Any]]:
    async with bridge.client() as client:
        found: list[dict[str, Any]] = (await client.get("/terminals")).json()["terminals"]
        return found


async def is_forgotten(bridge: BridgeProcess) -> None:
    async def none() -> bool:
        return await listed(bridge) == []

    await until(none, "no terminals")


async def ready(bridge: BridgeProcess) -> None:
    """Wait until the bridge answers."""
    await bridge.link(Owner())


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def pid_in(path: Path) -> int:
    await until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


async def test_who_comes_after_the_end_is_told_of_it_and_typing_starts_anew(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["sh", "-c", "echo hello; read x; exit 7"]) as bridge:
        async with viewing(bridge) as first:
            await first.shows(b"hello")
            first.type(b"\n")
            assert await first.until(lambda: first.exit) == Exit(7, None)
            async with viewing(bridge) as late, viewing(bridge, role="view") as onlooker:
                assert await late.until(lambda: late.exit) == Exit(7, None)
                assert late.hello.picture
                assert b"hello" in (late.parts[0].picture or b"")
                [terminal] = await listed(bridge)
                assert (terminal["alive"], terminal["exit"]) == (False, {"code": 7, "signal": None})
                onlooker.type(b"x")
                late.type(b"\x1b[I")
                late.type(b"x")
                for viewer in (first, late, onlooker):
                    await viewer.until(lambda v=viewer: v.heard(Reset))  # type: ignore[misc]
                    await viewer.shows(b"hello")
                    assert viewer.parts[-1].picture == b""
                    assert viewer.parts[-1].epoch != first.hello.epoch
                late.type(b"\n")
                await first.until(lambda: len(first.heard(Exit)) == 2)


async def test_a_signal_is_named(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["sh", "-c", "kill -9 $$"]) as bridge:
        async with viewing(bridge) as viewer:
            assert await viewer.until(lambda: viewer.exit) == Exit(None, "SIGKILL")


async def test_all_that_was_written_is_sent_before_the_exit(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["sh", "-c", "stty raw; head -c 3000000 /dev/zero"]) as bridge:
        async with viewing(bridge) as viewer:
            await viewer.until(lambda: viewer.exit)
            assert viewer.parts[-1].end == 3_000_000


async def test_a_background_process_that_keeps_the_terminal_open_does_not_keep_it_alive(tmp_path: Path) -> None:
    # The leader gives its terminal up, so its end hangs up on nobody.
    script = (
        "import fcntl, os, signal, termios, time\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n os.setsid(); time.sleep(1000)\n"
        "fcntl.ioctl(0, termios.TIOCNOTTY)\n"
        "os.write(1, b'bye')\n"
    )
    shell = [sys.executable, "-c", script]
    with running_bridge(tmp_path, ["cat"], shell=shell, limits={"drain_seconds": 0.1}) as bridge:
        async with viewing(bridge) as viewer:
            assert await viewer.until(lambda: viewer.exit) == Exit(0, None)
            await viewer.shows(b"bye")
            bridge.terminate()  # which finds the process that went its own way


async def test_a_program_that_closes_its_terminal_is_waited_for(tmp_path: Path) -> None:
    script = "import os, time\nos.write(1, b'closing')\nfor n in (0, 1, 2): os.close(n)\n"
    script += "while not os.path.exists('go'): time.sleep(0.01)\nos._exit(5)"
    with running_bridge(tmp_path, ["cat"], shell=[sys.executable, "-c", script]) as bridge:
        async with viewing(bridge) as viewer:
            await viewer.shows(b"closing")
            viewer.type(b"to nobody")
            viewer.resize(50, 50)
            await viewer.until(lambda: viewer.sizes[-1] == Size(50, 50))
            assert viewer.exit is None
            (bridge.workspace / "go").touch()
            assert await viewer.until(lambda: viewer.exit) == Exit(5, None)


async def test_a_command_that_cannot_be_run_is_explained(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["/no/such/program"]) as bridge:
        await ready(bridge)
        async with viewing(bridge) as viewer:
            [trouble] = viewer.said
            assert isinstance(trouble, TerminalTrouble)
            assert (trouble.code, "/no/such/program" in trouble.reason) == ("start_failed", True)
            assert await viewer.is_closed() == START_FAILED
        assert await listed(bridge) == []
        async with bridge.client() as client:
            for body in ({"command": ["/no/such"]}, {"command": ["sh"], "cwd": "nowhere"}):
                answer = await client.post("/terminals/x", json=body)
                assert (answer.status_code, answer.json()["code"]) == (400, "start_failed")


async def test_a_command_that_vanished_is_explained_when_it_should_start_anew(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    with running_bridge(tmp_path, ["cat"], shell=[str(program)]) as bridge:
        async with viewing(bridge) as viewer:
            await viewer.until(lambda: viewer.exit)
            program.unlink()
            viewer.type(b"x")
            await viewer.until(lambda: viewer.troubles == ["start_failed"])
            assert not viewer.heard(Reset)


async def test_nothing_starts_while_the_workspace_is_not_there_yet(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["sh"], hold=True) as bridge:
        await ready(bridge)
        async with viewing(bridge) as viewer:
            assert viewer.troubles == ["held"]
            assert await viewer.is_closed() == HELD
        async with bridge.client() as client:
            answer = await client.post("/terminals/main")
            assert (answer.status_code, answer.json()["code"]) == (409, "held")
        assert await listed(bridge) == []


async def test_all_quiet_ends_terminals_in_order_and_lets_nobody_start_them(tmp_path: Path) -> None:
    script = "trap 'echo hung up > trace; exit 3' HUP; echo $$ > pid; echo ready; while :; do sleep 0.05; done"
    with running_bridge(tmp_path, ["cat"], shell=["sh", "-c", script], limits=PATIENT) as bridge:
        async with viewing(bridge) as viewer, viewing(bridge, "other") as other:
            for each in (viewer, other):
                await each.shows(b"ready")
            tree = BridgeTree(at(bridge.path))
            await tree.quiet()
            for each in (viewer, other):
                assert await each.until(lambda v=each: v.exit) == Exit(3, None)  # type: ignore[misc]
            assert (bridge.workspace / "trace").read_text() == "hung up\n"
            viewer.type(b"x")
            await viewer.until(lambda: viewer.troubles == ["held"])
            await tree.release()
            viewer.type(b"x")
            await viewer.until(lambda: viewer.heard(Reset))


async def test_the_end_of_a_bridge_is_told_to_programs_and_to_viewers(tmp_path: Path) -> None:
    script = "trap 'echo hung up > trace; exit 3' HUP; echo ready; while :; do sleep 0.05; done"
    with running_bridge(tmp_path, ["cat"], shell=["sh", "-c", script], limits=PATIENT) as bridge:
        async with viewing(bridge) as viewer:
            await viewer.shows(b"ready")
            bridge.signal(signal.SIGTERM)
            assert await viewer.is_closed() == GOING
            assert viewer.exit == Exit(3, None)
            assert bridge.process is not None
            await asyncio.to_thread(bridge.process.wait, 30)
            assert (bridge.workspace / "trace").read_text() == "hung up\n"


async def test_a_program_that_is_hung_up_on_has_time_to_save_its_work(tmp_path: Path) -> None:
    """An editor that wrote its file for more than a second was killed in the middle of it."""
    script = "trap 'sleep 2; echo saved > work; exit 3' HUP; echo ready; while :; do sleep 0.05; done"
    with running_bridge(tmp_path, ["cat"], shell=["sh", "-c", script], limits=PATIENT) as bridge:
        async with viewing(bridge) as viewer, bridge.client() as client:
            await viewer.shows(b"ready")
            assert (await client.delete("/terminals/main")).status_code == 204
            assert await viewer.until(lambda: viewer.exit) == Exit(3, None)
            assert (bridge.workspace / "work").read_text() == "saved\n"
    assert Limits().terminal_hang_up_seconds == 5, "docs/protocol/routes.md says so"


async def test_a_killed_bridge_takes_its_terminals_along(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["sh", "-c", "echo $$ > pid; exec sleep 1000"]) as bridge:
        async with viewing(bridge):
            pid = await pid_in(bridge.workspace / "pid")
            bridge.kill()
            await until(lambda: not lives(pid))


async def test_a_terminal_can_be_ended_and_whoever_ignores_it_is_killed(tmp_path: Path) -> None:
    script = (
        "trap '' HUP TERM; echo $$ > pid; (trap '' HUP; exec sleep 1000) & echo $! > pid2; while :; do sleep 1; done"
    )
    limits = {"terminal_hang_up_seconds": 0.2}
    with running_bridge(tmp_path, ["cat"], shell=["sh", "-c", script], limits=limits) as bridge:
        async with viewing(bridge) as viewer:
            pids = await pid_in(bridge.workspace / "pid"), await pid_in(bridge.workspace / "pid2")
            async with bridge.client() as client:
                assert (await client.delete("/terminals/main")).status_code == 204
                assert (await client.delete("/terminals/main")).status_code == 404
            assert await viewer.is_closed() == ENDED
            assert viewer.exit == Exit(None, "SIGKILL")
            await until(lambda: not any(map(lives, pids)))


async def test_there_are_so_many_terminals_and_no_more(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["cat"]) as bridge:
        await ready(bridge)
        async with contextlib.AsyncExitStack() as stack, bridge.client() as client:
            first = await stack.enter_async_context(viewing(bridge, "t0"))
            for number in range(1, 16):
                assert (await client.post(f"/terminals/t{number}")).status_code == 201
            async with viewing(bridge, "t16") as refused:
                assert refused.troubles == ["too_many"]
                assert await refused.is_closed() == TOO_MANY
            answer = await client.post("/terminals/t16")
            assert (answer.status_code, answer.json()["code"]) == (429, "too_many")
            # One that has ended and nobody looks at makes room; one that somebody looks at does not.
            first.type(b"\x04")
            await first.until(lambda: first.exit)
            assert (await client.post("/terminals/t16")).status_code == 429
            async with viewing(bridge, "t1") as ending:
                ending.type(b"\x04")
                await ending.until(lambda: ending.exit)
            assert (await client.post("/terminals/t16")).status_code == 201
            assert "t1" not in {each["name"] for each in await listed(bridge)}


async def test_there_are_so_many_viewers_and_no_more(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["cat"], limits={"terminal_viewers": 2}) as bridge:
        async with viewing(bridge), viewing(bridge), viewing(bridge) as third:
            assert third.troubles == ["too_many"]
            assert await third.is_closed() == TOO_MANY


async def test_an_ended_terminal_that_nobody_looks_at_is_forgotten(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["true"], limits={"terminal_exit_seconds": 0.05}) as bridge:
        async with viewing(bridge) as viewer:
            await viewer.until(lambda: viewer.exit)
            assert len(await listed(bridge)) == 1
        await is_forgotten(bridge)


async def test_a_silent_terminal_that_nobody_looks_at_is_ended_if_that_is_wanted(tmp_path: Path) -> None:
    limits = {"terminal_idle_seconds": 0.05, "terminal_exit_seconds": 0.05}
    with running_bridge(tmp_path, ["cat"], shell=["sh", "-c", "echo $$ > pid; exec cat"], limits=limits) as bridge:
        async with viewing(bridge) as viewer:
            pid = await pid_in(bridge.workspace / "pid")
            viewer.type(b"still here\n")
            await viewer.shows(b"still here\r\nstill here")
        await until(lambda: not lives(pid))
        await is_forgotten(bridge)


async def test_a_terminal_is_made_to_order(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["sh"]) as bridge:
        await ready(bridge)
        (bridge.workspace / "sub").mkdir()
        async with bridge.client() as client:
            order = {
                "command": ["sh", "-c", "stty size; pwd; echo $COLOUR $TERM; exec cat"],
                "env": {"COLOUR": "blue", "TERM": "vt100"},
                "cwd": "sub",
                "cols": 50,
                "rows": 10,
            }
            answer = await client.post("/terminals/made", json=order)
            assert answer.status_code == 201
            made = answer.json()
            assert (made["command"], made["cols"], made["alive"], made["viewers"]) == (order["command"], 50, True, 0)
            async with viewing(bridge, "made") as viewer:
                await viewer.shows(b"10 50")
                await viewer.shows(b"/workspace/sub")
                await viewer.shows(b"blue vt100")
            assert (await client.post("/terminals/made", json=order)).status_code == 200
            assert (await client.post("/terminals/made", json={"cols": 9, "rows": 9})).json()["cols"] == 9
            answer = await client.post("/terminals/made", json={"command": ["other"]})
            assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
            async with viewing(bridge, "made") as viewer:
                viewer.type(b"\x04")
                await viewer.until(lambda: viewer.exit)
                assert (await client.post("/terminals/made", json={"command": ["cat"]})).status_code == 201
                await viewer.until(lambda: viewer.heard(Reset))
                assert (await listed(bridge))[0]["command"] == ["cat"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"3",
        b'{"what":1}',
        b'{"command":[]}',
        b'{"command":"sh"}',
        b'{"command":["a\\u0000"]}',
        b'{"env":{"a=":"b"}}',
        b'{"cols":0,"rows":5}',
        b'{"cols":5}',
        b'{"cols":1001,"rows":5}',
        b'{"cols":"5","rows":5}',
        b'{"cwd":"a\\u0000b"}',
    ],
)
async def test_an_order_that_makes_no_sense_is_refused(tmp_path: Path, body: bytes) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["cat"]) as bridge:
        await ready(bridge)
        async with bridge.client() as client:
            answer = await client.post("/terminals/x", content=body)
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


async def test_names_and_tokens_are_checked_before_anything_else(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["cat"]) as bridge:
        await ready(bridge)
        async with bridge.client() as client:
            for name in ("-x", "a.b", "x" * 65, "%20"):
                with pytest.raises(Refusal) as refusal:
                    await dial(bridge, name)
                assert refusal.value.status == 400
                assert (await client.post(f"/terminals/{name}")).status_code == 400
                assert (await client.delete(f"/terminals/{name}")).status_code == 400
            assert (await client.post("/terminals/x/size", json={"cols": 5, "rows": 5})).status_code == 404
            assert (await client.post("/terminals/x/size", json={"cols": 5})).status_code == 400
            assert (await client.post("/terminals/x/size", json=[])).status_code == 400
        with pytest.raises(Refusal) as refusal:
            await dial(bridge, "main", token="x" * 43)
        assert refusal.value.status == 401
        async with bridge.client(token=None) as client:
            assert (await client.get("/terminals")).status_code == 401
        assert await listed(bridge) == []


OPEN = json.dumps({"type": "open", "role": "drive", "epoch": None, "offset": 0, "anew": False}).encode()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (client_frame(TEXT, b"{"), BAD_FRAME),
        (client_frame(TEXT, b"\xff"), BAD_FRAME),
        (client_frame(TEXT, b'{"type":"resize","cols":5,"rows":5}'), BAD_FRAME),
        (client_frame(BINARY, b"typed"), BAD_FRAME),
        (client_frame(TEXT, OPEN) * 2, BAD_FRAME),
        (client_frame(TEXT, OPEN) + client_frame(TEXT, b'{"type":"resize","cols":0,"rows":5}'), BAD_FRAME),
        (client_frame(TEXT, b" " * 10_000), BAD_FRAME),
        (b"\x81\x02{}", 1002),  # not masked
        (b"\xc1" + client_frame(TEXT, OPEN)[1:], 1002),
        (b"\x82\xff" + (MAX_INPUT + 1).to_bytes(8, "big") + b"mask", 1009),
        (client_frame(CLOSE, b"\x03\xe8"), 1000),
        (client_frame(TEXT, OPEN) + client_frame(CLOSE, b"\x03\xe9bye"), 1001),
    ],
)
async def test_what_cannot_be_read_ends_that_link_alone(tmp_path: Path, said: bytes, code: int) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["cat"]) as bridge:
        async with viewing(bridge) as bystander:
            hostile = await dial(bridge, "main")
            hostile.send_raw(said)
            assert await hostile.is_closed() == code
            await hostile.cut()
            bystander.type(b"still there\n")
            await bystander.shows(b"still there")


async def test_one_who_says_nothing_is_sent_away(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["cat"], limits={"attach_seconds": 0.05}) as bridge:
        await ready(bridge)
        silent = await dial(bridge, "main")
        assert await silent.is_closed() == BAD_FRAME
        await silent.cut()
        assert await listed(bridge) == []


async def test_one_who_takes_nothing_for_long_is_cut_off_and_holds_the_program_no_longer(tmp_path: Path) -> None:
    shell = ["sh", "-c", "stty raw; head -c 8000000 /dev/zero; echo over > over; exec cat"]
    limits = {"silence_seconds": 2.0, "terminal_hold_seconds": 0.1}
    with running_bridge(tmp_path, ["cat"], shell=shell, limits=limits) as bridge:
        async with viewing(bridge) as viewer:
            viewer.freeze()
            await until((bridge.workspace / "over").exists)
            viewer.thaw()
            assert await viewer.is_closed() in (1006, 4408)


async def test_an_end_in_the_middle_of_the_handshake_leaves_nothing(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["cat"]) as bridge:
        await ready(bridge)
        assert bridge.process is not None
        descriptors = Path(f"/proc/{bridge.process.pid}/fd")
        before = len(os.listdir(descriptors))
        for _ in range(20):
            viewer = await dial(bridge, "main")
            viewer.open()
            await viewer.cut()
        async with viewing(bridge) as viewer:
            assert isinstance(viewer.said[0], Greeting)
            async with bridge.client() as client:
                await client.delete("/terminals/main")
        await until(lambda: len(os.listdir(descriptors)) <= before)
