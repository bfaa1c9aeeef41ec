"""The local fleet beyond the contract: levels, secrets, processes that will not go, a gateway that dies."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import SandboxFailed
from sandbox.ports.tree import TreeFailed
from sandbox.protocol.tree import Batch, ScanAsk
from sandbox.providers.local import processes
from sandbox.providers.local.fleet import LocalFleet
from sandbox.providers.local.isolation import SandboxLimits
from sandbox.providers.local.layout import SandboxHome
from tests.contract.sandbox import PARROT, attach, run_agent
from tests.contract.sandbox_tree import frames, restore, scan
from tests.sandbox.local import LEVELS, command, opened, python, spec
from tests.support.bridge import Owner
from tests.support.waiting import until

CANARY = "canary-in-the-coal-mine"

# Leaves its parent, its group and its session, and closes what it was given.
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        for fd in range(3): os.close(fd)
        time.sleep(600)
    os._exit(0)
os.wait()
sys.stdin.read()
"""
STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


def alive(home: SandboxHome) -> list[processes.Process]:
    return [process for process in processes.marked(home.marker) if process.alive]


async def test_auto_means_contained_where_that_works(tmp_path: Path) -> None:
    async with opened(tmp_path, "auto") as fleet:
        assert fleet.level == "contained"


@pytest.mark.parametrize("fault", ["missing", "failing"])
async def test_what_cannot_be_contained_is_refused_or_warned_about(fault: str, tmp_path: Path) -> None:
    bwrap = tmp_path / "bwrap"
    if fault == "failing":
        bwrap.write_text("#!/bin/sh\necho no namespaces today >&2\nexit 1\n")
        bwrap.chmod(0o700)
    reason = "no namespaces today" if fault == "failing" else "No such file"
    for level, loopback_only in (("contained", True), ("auto", False)):
        fleet = LocalFleet(tmp_path, level=level, loopback_only=loopback_only, bwrap=str(bwrap))
        with pytest.raises(SandboxFailed, match=reason) as refused:
            await fleet.open()
        assert "bubblewrap" in str(refused.value)
        assert ("HOLDFAST_LOCAL_LEVEL=trusted" in str(refused.value)) == (level == "auto")
        await fleet.close()
    warnings: list[str] = []
    async with opened(tmp_path, "auto", bwrap=str(bwrap), warn=warnings.append) as fleet:
        assert fleet.level == "trusted"
        assert reason in warnings[0]


async def test_a_data_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxFailed, match="data directory"):
        await LocalFleet(tmp_path / "file").open()


@pytest.mark.parametrize("level", LEVELS)
async def test_a_secret_is_nowhere_but_in_the_environment_of_what_runs_inside(level: str, tmp_path: Path) -> None:
    async with opened(tmp_path, level) as fleet:
        await fleet.start(spec(env={"SECRET": CANARY}))
        link = await attach(fleet, Owner())
        link.start(None)
        told = await command(fleet, "s1", ["printenv", "SECRET"])
        assert told.stdout.strip() == CANARY
        home = SandboxHome(tmp_path, "s1")
        bridge = home.read_note()
        assert bridge is not None
        everything = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert home.note in everything
        for path in everything:
            kept = path.read_bytes()
            assert CANARY.encode() not in kept
            assert bridge.token.encode() not in kept or path == home.note
        for process in (bridge.pid, bridge.init_pid, *(each.pid for each in processes.descendants(bridge.pid))):
            shown = Path(f"/proc/{process}/cmdline").read_bytes()
            assert CANARY.encode() not in shown
            assert bridge.token.encode() not in shown
        with contextlib.suppress(PermissionError):  # a bridge lets nobody look, but root
            assert CANARY.encode() not in Path(f"/proc/{bridge.pid}/environ").read_bytes()


async def test_directories_and_notes_are_for_the_gateway_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "data", "contained") as fleet:
        await fleet.start(spec())
        root = tmp_path / "data/sandboxes/s1"
        kept = root / "kept"
        for path in (root, kept, kept / "workspace", kept / "agent", root / "state", tmp_path / "data/run"):
            assert path.stat().st_mode & 0o777 == 0o700
        for path in (root / "bridge.json", root / "bridge.log", next((tmp_path / "data/run").iterdir())):
            assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("level", LEVELS)
async def test_the_environment_is_the_sandbox_s_own(
    level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_GATEWAY_SECRET", CANARY)
    async with opened(tmp_path, level, base_env={"FROM_FILE": "yes", "HOME": "/nowhere"}) as fleet:
        await fleet.start(spec(env={"FROM_USER": "too", "FROM_FILE": "overridden"}))
        told = await command(fleet, "s1", ["env", "-0"])
        env = dict(pair.split("=", 1) for pair in told.stdout.split("\0") if pair)
        agent = "/agent" if level == "contained" else str(tmp_path / "sandboxes/s1/kept/agent")
        assert (env["HOME"], env["FROM_USER"], env["FROM_FILE"]) == (agent, "too", "overridden")
        assert env["CLAUDE_CONFIG_DIR"] == f"{agent}/.claude"
        assert env["PI_CODING_AGENT_DIR"] == f"{agent}/.pi"
        assert env["HOLDFAST_SESSION_ID"] == "s1"
        assert CANARY not in told.stdout
        assert "PYTHONPATH" not in env


async def test_a_path_longer_than_a_socket_address_is_no_hindrance(tmp_path: Path) -> None:
    data = tmp_path / ("d" * 100) / ("e" * 100)
    async with opened(data, "contained") as fleet:
        await fleet.start(spec("s" * 128))
        assert await fleet.running() == ["s" * 128]


async def test_the_demo_agent_answers(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained") as fleet:
        await fleet.start(spec(agent=(sys.executable, "-m", "sandbox.demo_agent")))
        owner = Owner()
        link = await attach(fleet, owner)
        link.start(b'{"type":"start"}')
        await until(lambda: owner.epochs)
        link.deliver(1, b'{"type":"message","content":"are you there","seq":1}')
        await until(lambda: any(json.loads(line)["type"] == "done" for line in owner.lines()))


@pytest.mark.parametrize("level", LEVELS)
async def test_a_killed_gateway_leaves_its_sandboxes_to_the_next(level: str, tmp_path: Path) -> None:
    first = f"""
import asyncio
from pathlib import Path
from sandbox.providers.local.isolation import SandboxLimits
from sandbox.providers.local.fleet import LocalFleet
from sandbox.ports.fleet import SandboxSpec
from tests.contract.sandbox import attach, run_agent, spec
from tests.support.bridge import Owner
async def main():
    fleet, owner = LocalFleet(Path({str(tmp_path)!r}), level={level!r}), Owner()
    await fleet.open()
    await fleet.start(spec())
    link = await attach(fleet, owner)
    print(await run_agent(link, owner), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    gateway = subprocess.Popen([sys.executable, "-c", first], stdout=subprocess.PIPE, text=True)
    try:
        assert gateway.stdout is not None
        epoch = (await asyncio.to_thread(gateway.stdout.readline)).strip()
    finally:
        gateway.kill()
        gateway.communicate()
    async with opened(tmp_path, level) as fleet:
        assert await fleet.running() == ["s1"]
        owner = Owner()
        link = await attach(fleet, owner)
        await until(lambda: owner.output)
        assert (owner.epoch, owner.lines()) == (epoch, [b"start"])
        link.deliver(1, b"still there")
        await until(lambda: len(owner.lines()) == 2)
        await fleet.sandbox("s1").stop()
        assert alive(SandboxHome(tmp_path, "s1")) == []


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bridge_is", ["well", "killed"])
async def test_stopping_ends_also_what_ran_away(level: str, bridge_is: str, tmp_path: Path) -> None:
    async with opened(tmp_path, level) as fleet:
        await fleet.start(spec(agent=python(DAEMON)))
        owner = Owner()
        link = await attach(fleet, owner)
        link.start(None)
        await until(lambda: owner.epochs and owner.lines())
        home = SandboxHome(tmp_path, "s1")
        bridge = home.read_note()
        assert bridge is not None
        inside = [process.pid for process in alive(home)]
        assert len(inside) >= 2
        if bridge_is == "killed":
            for pid in [bridge.pid] if level == "trusted" else [p.pid for p in processes.children(bridge.init_pid)]:
                os.kill(pid, signal.SIGKILL)
            await until(lambda: owner.lost)
        await fleet.sandbox("s1").stop()
        assert alive(home) == []
        assert not any(process.alive for pid in inside if (process := processes.find(pid)))


@pytest.mark.parametrize("level", LEVELS)
async def test_stopping_does_not_wait_for_ever(level: str, tmp_path: Path) -> None:
    async with opened(tmp_path, level, stop_timeout=0.2) as fleet:
        await fleet.start(spec(agent=python(STUBBORN)))
        owner = Owner()
        link = await attach(fleet, owner)
        link.start(None)
        await until(lambda: owner.epochs and owner.lines())
        await fleet.sandbox("s1").stop()
        assert alive(SandboxHome(tmp_path, "s1")) == []
        assert await fleet.running() == []


async def test_a_stranger_with_the_same_pid_is_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path, "trusted") as fleet:
        await fleet.start(spec())
        home = SandboxHome(tmp_path, "s1")
        await fleet.sandbox("s1").stop()
        await fleet.start(spec())
        note = home.read_note()
        assert note is not None
        stranger = subprocess.Popen(["sleep", "600"])
        try:
            real = json.loads(home.note.read_bytes())
            fake = {**real, "pid": stranger.pid, "init_pid": stranger.pid}
            home.note.write_text(json.dumps(fake))
            assert await fleet.running() == []
            with pytest.raises(LinkRefused):
                await fleet.sandbox("s1").connect(Owner(), None)
            await fleet.sandbox("s1").stop()
            assert stranger.poll() is None
            assert alive(home) == []
        finally:
            stranger.kill()
            stranger.wait()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"pid": "x"}', "\xff"])
async def test_an_unreadable_note_names_nobody(content: str, tmp_path: Path) -> None:
    async with opened(tmp_path, "trusted") as fleet:
        home = SandboxHome(tmp_path, "s1")
        home.make()
        home.note.write_bytes(content.encode("latin-1"))
        (tmp_path / "sandboxes" / ".not-a-session").mkdir()
        assert await fleet.running() == []
        await fleet.sandbox("s1").stop()
        await fleet.sandbox("s1").destroy()
        assert not home.root.exists()


@pytest.mark.parametrize("level", LEVELS)
async def test_a_bridge_that_cannot_start_says_why_and_leaves_nothing_behind(level: str, tmp_path: Path) -> None:
    async with opened(tmp_path, level) as fleet:
        home = SandboxHome(tmp_path, "s1")
        (home.state / "taken").mkdir(parents=True)  # where the bridge wants a file
        (home.state / "taken" / CANARY).touch()
        with pytest.raises(SandboxFailed, match=r"did not start.*taken"):
            await fleet.start(spec(env={"SECRET": "taken-by-force"}))
        assert await fleet.running() == []
        assert alive(home) == []


async def test_what_a_failed_bridge_said_is_told_without_secrets(tmp_path: Path) -> None:
    async with opened(tmp_path / "a-secret-path", "trusted") as fleet:
        home = SandboxHome(tmp_path / "a-secret-path", "s1")
        (home.state / "taken").mkdir(parents=True)
        with pytest.raises(SandboxFailed) as failed:
            await fleet.start(spec(env={"PATH_TO": "a-secret-path", "SHORT": "taken"}))
        assert "a-secret-path" not in str(failed.value)
        assert "***" in str(failed.value)
        assert "taken" in str(failed.value), "a short value is an ordinary word"


async def test_a_bridge_that_is_too_slow_is_ended(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained", start_timeout=0.001) as fleet:
        with pytest.raises(SandboxFailed, match=r"no answer within 0\.001 s"):
            await fleet.start(spec())
        assert await fleet.running() == []
        assert alive(SandboxHome(tmp_path, "s1")) == []


@pytest.mark.parametrize(("level", "turns"), [("trusted", 1), ("trusted", 50), ("contained", 5), ("contained", 20)])
async def test_a_cancelled_start_leaves_nothing_behind(level: str, turns: int, tmp_path: Path) -> None:
    async with opened(tmp_path, level) as fleet:
        starting = asyncio.create_task(fleet.start(spec()))
        for _ in range(turns):
            await asyncio.sleep(0.001)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert await fleet.running() == []
        assert alive(SandboxHome(tmp_path, "s1")) == []
        await fleet.start(spec())
        assert await fleet.running() == ["s1"]


async def test_a_configuration_larger_than_a_pipe_arrives(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained") as fleet:
        await fleet.start(spec(env={f"BIG_{n}": "x" * 100_000 for n in range(10)}))
        told = await command(fleet, "s1", ["sh", "-c", "printenv BIG_9 | wc -c"])
        assert told.stdout.strip() == "100001"


async def test_a_network_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, "trusted") as fleet:
        with pytest.raises(SandboxFailed, match="network"):
            await fleet.start(spec(network="everything"))


async def test_starts_and_stops_of_one_session_take_turns(tmp_path: Path) -> None:
    async with opened(tmp_path, "trusted") as fleet:
        await asyncio.gather(*(fleet.start(spec()) for _ in range(2)), fleet.sandbox("s1").stop(), fleet.start(spec()))
        home = SandboxHome(tmp_path, "s1")
        assert await fleet.running() == ["s1"]
        note = home.read_note()
        assert note is not None
        assert {process.pid for process in alive(home)} <= {note.pid}


async def test_the_logs_are_what_bridge_and_agent_said(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained") as fleet:
        await fleet.start(spec(agent=python("import sys; print('oh dear', file=sys.stderr)")))
        owner = Owner()
        link = await attach(fleet, owner)
        link.start(None)
        await until(lambda: owner.exits)
        logs = await fleet.sandbox("s1").logs()
        assert b"bridge.started" in logs
        assert logs.endswith(b"oh dear\n")
        assert await fleet.sandbox("s1").logs(limit=3) == b"ar\n"


async def test_a_log_that_the_sandbox_replaced_leads_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(CANARY)
    async with opened(tmp_path / "data", "trusted") as fleet:
        home = SandboxHome(tmp_path / "data", "s1")
        home.make()
        home.agent_log.symlink_to(secret)
        assert await fleet.sandbox("s1").logs() == b""
        home.agent_log.unlink()
        os.mkfifo(home.agent_log)
        assert await fleet.sandbox("s1").logs() == b""


async def test_the_two_roots_are_kept_and_the_parrot_still_talks(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained") as fleet:
        await fleet.start(spec(agent=python(PARROT)))
        await command(fleet, "s1", ["sh", "-c", "echo kept > file; echo kept > $HOME/file"])
        await fleet.sandbox("s1").stop()
        for root in ("workspace", "agent"):
            assert (tmp_path / "sandboxes/s1/kept" / root / "file").read_text() == "kept\n"
        await fleet.start(spec(agent=python(PARROT)))
        owner = Owner()
        await run_agent(await attach(fleet, owner), owner)


@pytest.mark.parametrize("level", LEVELS)
async def test_programs_know_the_roots_by_both_names_and_start_in_the_workspace(level: str, tmp_path: Path) -> None:
    async with opened(tmp_path, level) as fleet:
        await fleet.start(spec())
        kept = SandboxHome(tmp_path, "s1").kept
        (kept / "workspace" / "here").touch()
        assert (await command(fleet, "s1", ["ls"])).stdout == "here\n"
        if level == "contained":
            shell = "echo 1 > /workspace/a; echo 2 > /agent/b; cat /session/*/a /session/*/b; readlink -f $HOME"
            assert (await command(fleet, "s1", ["sh", "-c", shell])).stdout == "1\n2\n/agent\n"
        bridge = SandboxHome(tmp_path, "s1").read_note()
        assert bridge is not None
        inside = processes.children(bridge.init_pid)[0].pid if level == "contained" else bridge.init_pid
        with contextlib.suppress(PermissionError):  # a bridge lets nobody look, but root
            assert os.readlink(f"/proc/{inside}/cwd") == "/", "whoever is in a root would keep an old one"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("wish", [{}, {"empty": True}], ids=["as it is", "empty"])
async def test_a_sandbox_that_spoilt_its_roots_starts_again_and_reaches_nothing(
    level: str, wish: dict[str, Any], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text(CANARY)
    async with opened(tmp_path / "data", level) as fleet:
        await fleet.start(spec())
        kept = SandboxHome(tmp_path / "data", "s1").kept
        shell = f"cd {kept if level == 'trusted' else '/session'}; mv workspace moved; ln -s {outside} workspace; "
        shell += f"rm -r agent; echo > agent; ln -s {outside} .aside-1; ln -s {outside} .trash; ln -s {outside} .swap; "
        shell += f"mkdir -p .staging-{'0' * 32}; ln -s {outside} .staging-{'0' * 32}/new; chmod 0 ."
        assert (await command(fleet, "s1", ["sh", "-c", shell])).exit_code == 0
        await fleet.start(spec(**wish))
        survey = await fleet.sandbox("s1").tree().survey(())
        assert (survey.files, survey.known) == (0, None)
        for root in (kept / "workspace", kept / "agent"):
            assert root.is_dir()
            assert not root.is_symlink()
        assert (await command(fleet, "s1", ["sh", "-c", "echo > $HOME/file"])).exit_code == 0
    assert [path.name for path in outside.iterdir()] == ["precious"]
    assert (outside / "precious").read_text() == CANARY


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("moment", ["scan", "restore"])
async def test_a_bridge_killed_in_the_middle_of_an_operation_is_a_failure_and_the_old_tree_stays(
    moment: str, level: str, tmp_path: Path
) -> None:
    async with opened(tmp_path, level) as fleet:
        await fleet.start(spec())
        home, tree = SandboxHome(tmp_path, "s1"), fleet.sandbox("s1").tree()
        for n in range(200):
            (home.workspace / f"file{n}").write_bytes(os.urandom(40_000))
        told = await scan(tree)
        bridge = home.read_note()
        assert bridge is not None
        pids = [bridge.pid] if level == "trusted" else [p.pid for p in processes.children(bridge.init_pid)]
        if moment == "scan":
            async with tree.scan(ScanAsk()) as begun:
                assert isinstance(await begun.next(), Batch)
                kill_all(pids)
                with pytest.raises(TreeFailed):
                    await anext(begun.fetch((0,)))
        else:
            async with tree.restore("generation", aside=False) as restoring:
                lacking = sorted(await restoring.plan(list(told.entries.values())))
                for frame in frames(told.content, lacking[:150]):
                    await restoring.put(frame)
                kill_all(pids)
                with pytest.raises(TreeFailed):
                    await restoring.finish()
        with pytest.raises(TreeFailed):
            await tree.survey(())
        await fleet.start(spec())
        assert (await scan(tree)).files() == told.files()
        await restore(tree, told, "generation")
        assert (await scan(tree)).entries == told.entries


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


async def test_limits_are_those_that_were_asked_for(tmp_path: Path) -> None:
    limits = SandboxLimits(processes=77, open_files=123, file_bytes=2**20, memory_bytes=2**30, tmp_bytes=2**20)
    async with opened(tmp_path, "contained", limits=limits) as fleet:
        await fleet.start(spec())
        shell = (
            "ulimit -n; ulimit -c; head -c 3000000 /dev/zero > /tmp/x; head -c 3000000 /dev/zero > y; wc -c < /tmp/x"
        )
        told = await command(fleet, "s1", ["sh", "-c", shell])
        assert told.stdout.split() == ["123", "0", str(2**20)]
        assert (tmp_path / "sandboxes/s1/kept/workspace/y").stat().st_size == 2**20
        assert "77" in (await command(fleet, "s1", ["cat", "/proc/self/limits"])).stdout


async def test_the_data_directory_is_hidden_also_beneath_something_readable(tmp_path: Path) -> None:
    (tmp_path / "shown").write_text("for everybody")
    async with opened(tmp_path / "data", "contained", readable=[tmp_path]) as fleet:
        await fleet.start(spec())
        (tmp_path / "data" / "secret").write_text(CANARY)
        assert (await command(fleet, "s1", ["cat", str(tmp_path / "shown")])).stdout == "for everybody"
        assert (await command(fleet, "s1", ["ls", "-A", str(tmp_path / "data")])).stdout == ""
        assert (await command(fleet, "s1", ["touch", str(tmp_path / "new")])).exit_code != 0


@pytest.mark.parametrize("network", ["none", "outbound"])
async def test_no_program_has_the_hosts_network_and_each_sandbox_hands_its_listener_out(
    tmp_path: Path, network: str
) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reach = [sys.executable, "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"]
    ask = "import socket; s = socket.create_connection(('127.0.0.1', 3128), 30); print(s.recv(99).decode())"
    async with server, opened(tmp_path, "contained") as fleet:
        await fleet.start(spec(network=network))
        assert (await command(fleet, "s1", reach)).exit_code != 0
        for _ in range(2):  # it is kept inside, and given again
            listener = await fleet.sandbox("s1").egress()
            assert listener is not None

            async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(b"from outside")
                await writer.drain()
                writer.close()

            async with await asyncio.start_server(answer, sock=listener):
                assert (await command(fleet, "s1", [sys.executable, "-c", ask])).stdout.strip() == "from outside"


async def test_where_nothing_is_held_there_is_no_listener(tmp_path: Path) -> None:
    async with opened(tmp_path, "trusted") as fleet:
        await fleet.start(spec())
        assert await fleet.sandbox("s1").egress() is None
        assert "PROXY" not in (await command(fleet, "s1", ["env"])).stdout
