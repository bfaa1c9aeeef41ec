"""The tree of a real bridge process: operations that are cut short, what else it offers, and what it notices."""

import asyncio
import contextlib
import io
import json
import os
import secrets
import signal
import stat
import sys
import tarfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message
from starlette.websockets import WebSocket

from sandbox.bridge.agent.agent import Agent
from sandbox.bridge.agent.taken import TakenNotes
from sandbox.bridge.base.config import Config, parse_config
from sandbox.bridge.tree.socket import Trees
from sandbox.client.endpoint import UnixEndpoint
from sandbox.client.tree import BridgeTree
from sandbox.ports.link import LinkRefused
from sandbox.ports.tree import LiveFile, LiveListing, TreeFailed
from sandbox.protocol.tree import (
    Batch,
    Done,
    Down,
    ReleaseAsk,
    RestoreAsk,
    Restored,
    RestoreEnd,
    RestorePlan,
    ScanAsk,
    Survey,
    SurveyAsk,
    TreeLimits,
    Up,
    decode_up,
    encode,
)
from tests.contract.sandbox_tree import Told, frames, restore, scan
from tests.support.bridge import TOKEN, BridgeProcess, Owner, at, running_bridge
from tests.support.headless import headless, looks_dead
from tests.support.waiting import until


def tree_of(bridge: BridgeProcess, **settings: Any) -> BridgeTree:
    """The bridge may still be starting: the product asks one that has said hello."""
    return BridgeTree(at(bridge.path), **{"greet_seconds": 30.0, **settings})


def write_much(bridge: BridgeProcess, files: int = 400) -> dict[str, bytes]:
    """More than a batch of content that cannot be compressed."""
    written = {f"file{n}": os.urandom(40_000) for n in range(files)}
    for name, content in written.items():
        (bridge.workspace / name).write_bytes(content)
    return written


def read_all(bridge: BridgeProcess) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in bridge.workspace.iterdir()}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# Operations that are cut short


async def test_a_bridge_that_is_killed_in_the_middle_of_a_scan_is_a_failure(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        written = write_much(bridge)
        async with tree_of(bridge).scan(ScanAsk()) as begun:
            batch = await begun.next()
            assert isinstance(batch, Batch)
            bridge.kill()
            with pytest.raises(TreeFailed, match="ended the connection"):
                async for _ in begun.fetch(range(len(batch.offers))):
                    pass
        bridge.start()
        told = await scan(tree_of(bridge))
        assert {os.fsdecode(path).rpartition("/")[2]: content for path, content in told.files().items()} == written


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
async def test_a_bridge_that_is_killed_in_the_middle_of_a_restore_leaves_the_old_tree_and_the_next_one_goes_on(
    share: float, tmp_path: Path
) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        written = write_much(bridge)
        told = await scan(tree_of(bridge))
        for name in written:
            (bridge.workspace / name).write_bytes(b"newer")
        async with tree_of(bridge).restore("generation", aside=False) as begun:
            lacking = sorted(await begun.plan(list(told.entries.values())))
            some = lacking[: int(len(lacking) * share)]
            for frame in frames(told.content, some):
                await begun.put(frame)
            size = sum(len(told.content[id]) for id in some)
            await until(lambda: begun.progress()[1] == size)
            bridge.kill()
            with pytest.raises(TreeFailed):
                await begun.finish()
        assert set(read_all(bridge).values()) == {b"newer"}
        bridge.start()
        assert await restore(tree_of(bridge), told, "generation") == len(lacking) - len(some)
        assert read_all(bridge) == written


def beside(bridge: BridgeProcess) -> list[str]:
    return sorted(path.name for path in bridge.kept.iterdir() if path.name not in ("workspace", "agent"))


async def test_what_restores_replaced_is_gone_in_the_end_whatever_comes_next(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        tree = tree_of(bridge)
        for number in range(300):
            (bridge.workspace / f"dir{number}").mkdir()
            (bridge.workspace / f"dir{number}" / "file").touch()
        told = await scan(tree)
        for token in ("first", "second"):
            await restore(tree, told, token)
            assert (await tree.survey(())).files == 300
        await restore(tree, told, "third")
        async with bridge.client() as http:
            await agrees(http, "/start")
        await tree.quiet()
        assert (await scan(tree)).entries == told.entries
        await until(lambda: beside(bridge) == [])
        await restore(tree, told, "fourth")
        bridge.kill()
        bridge.start()
        assert (await tree.survey(())).files == 300
        assert beside(bridge) == []


async def test_a_swap_that_was_cut_short_is_finished_before_anybody_looks(tmp_path: Path) -> None:
    bridge = BridgeProcess(tmp_path, ["cat"])
    (bridge.workspace / "old").touch()
    staging = bridge.kept / (".staging-" + "0" * 32)
    for root in ("workspace", "agent"):
        (staging / "new" / root).mkdir(parents=True)
        (staging / "new" / root).chmod(0o1700)
        (staging / "new" / root / "new").touch()
    (bridge.kept / ".swap").write_text(json.dumps({"staging": staging.name, "aside": False}))
    with running_bridge(tmp_path, ["cat"]) as bridge:
        assert (await tree_of(bridge).survey(())).files == 2
        assert sorted(path.name for path in bridge.kept.iterdir()) == ["agent", "workspace"]
        assert [path.name for path in bridge.workspace.iterdir()] == ["new"]


async def test_whoever_waits_for_his_turn_may_go_and_whoever_is_at_it_ends_with_his_connection(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        write_much(bridge)
        tree = tree_of(bridge)
        async with tree.scan(ScanAsk()) as first:
            assert isinstance(await first.next(), Batch)
            waiting = [asyncio.create_task(tree.survey(())) for _ in range(3)]
            await asyncio.wait(waiting, timeout=0.2)
            assert not any(task.done() for task in waiting)
            waiting[0].cancel()
        assert (await waiting[1]).files == (await waiting[2]).files == 400


async def test_a_bridge_shows_that_it_lives_while_an_operation_waits_and_one_that_stands_still_does_not(
    tmp_path: Path,
) -> None:
    with running_bridge(tmp_path, ["cat"], limits={"heartbeat_seconds": 0.1}) as bridge:
        write_much(bridge)
        impatient = tree_of(bridge, silence_seconds=10.0)  # a hundred heartbeats: a busy bridge is not silent
        async with tree_of(bridge).scan(ScanAsk()) as first:
            assert isinstance(await first.next(), Batch)
            waiting = asyncio.create_task(impatient.survey(()))
            await asyncio.wait({waiting}, timeout=2.0)
            assert not waiting.done()
            heard = first.lived_at
            await until(lambda: first.lived_at > heard, "a sign of life")
        assert (await waiting).files == 400
        bridge.signal(signal.SIGSTOP)
        with pytest.raises(TreeFailed) as failed:
            await tree_of(bridge, silence_seconds=0.3).survey(())
        assert failed.value.code == "silent"
        bridge.signal(signal.SIGCONT)


async def test_a_gateway_that_says_nothing_does_not_keep_others_out_for_ever(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], limits={"tree_silence_seconds": 2.0}) as bridge:
        write_much(bridge)
        tree = tree_of(bridge)
        async with tree.scan(ScanAsk()) as asleep:
            assert isinstance(await asleep.next(), Batch)
            assert (await tree.survey(())).files == 400
            with pytest.raises(TreeFailed, match="said nothing"):
                async for _ in asleep.fetch(()):
                    pass


async def test_a_tree_that_is_too_large_is_refused_with_its_reason(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        write_much(bridge, files=5)
        tree = tree_of(bridge)
        for limits, code in ((TreeLimits(files=3), "too_many"), (TreeLimits(total_bytes=9), "too_large")):
            with pytest.raises(TreeFailed) as failed:
                await scan(tree, limits=limits)
            assert failed.value.code == code


async def test_a_bridge_takes_little_memory_for_a_large_tree(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        with open(bridge.workspace / "large", "wb") as file:
            for _ in range(30):
                file.write(os.urandom(4 << 20))
        tree = tree_of(bridge)
        await tree.survey(())
        assert bridge.process is not None
        before = resident_kib(bridge.process.pid)
        async with tree.scan(ScanAsk()) as large:
            while isinstance(batch := await large.next(), Batch):
                async for _ in large.fetch(range(len(batch.offers))):
                    pass
        assert resident_kib(bridge.process.pid) < before + 48 * 1024


def resident_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0])


# Holding, and quiet


async def test_a_held_agent_is_started_by_nobody(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], hold=True) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        async with bridge.client() as http:
            for path in ("/start", "/start-pi"):
                answer = await http.post(path)
                assert (answer.status_code, answer.json()["code"]) == (409, "held")
            link.start(b"too early")
            await until(lambda: owner.problems)
            await tree_of(bridge).release()
            assert (await http.post("/start", json={"line": "now"})).json()["started"]
        await until(lambda: owner.received)
        assert owner.lines() == [b"now"]


async def test_no_agent_starts_while_a_tree_is_restored(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        async with bridge.client() as http:
            async with tree_of(bridge).restore("t", aside=False) as begun:
                await begun.plan([])
                assert (await http.post("/start")).json()["code"] == "held"
                await begun.finish()
            await agrees(http, "/start")


async def test_no_command_runs_while_all_must_be_quiet_or_a_tree_is_restored(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        async with bridge.client() as http:

            async def run() -> tuple[int, str | None]:
                answer = await http.post("/exec", json={"command": "echo late > late"})
                return answer.status_code, answer.json().get("code")

            await tree_of(bridge).quiet()
            assert await run() == (409, "held")
            await tree_of(bridge).release()
            async with tree_of(bridge).restore("t", aside=False) as begun:
                await begun.plan([])
                assert await run() == (409, "held")
            assert not (bridge.workspace / "late").exists()
            await agrees(http, "/start")
            assert await run() == (200, None)
        assert (bridge.workspace / "late").exists()


async def test_whoever_is_let_go_after_a_restore_can_start_at_once(tmp_path: Path) -> None:
    """The bridge still learns what it has put there when the gateway has heard of it."""
    with running_bridge(tmp_path, ["cat"], hold=True) as bridge:
        write_much(bridge)
        told = await scan(tree_of(bridge))
        async with bridge.client() as http:
            for token in ("first", "second", "third"):
                await restore(tree_of(bridge), told, token)
                await tree_of(bridge).release()
                assert (await http.post("/start")).json().get("started")
                await tree_of(bridge).quiet()


async def agrees(http: httpx.AsyncClient, path: str) -> None:
    """The bridge hears of the end of a connection in its own time."""

    async def asked() -> bool:
        return (await http.post(path)).status_code == 200

    await until(asked, path)


RUNS_AWAY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for n in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open(f"pid{n}", "w") as file: file.write(f"{os.getpid()}\\n")
            while True: time.sleep(600) if n else subprocess.run(["true"])
        os._exit(0)
sys.stdin.read()
"""


async def test_quiet_ends_every_program_and_nothing_else(tmp_path: Path) -> None:
    limits = {"stop_input_seconds": 0.05, "stop_term_seconds": 0.1}
    with running_bridge(tmp_path, [sys.executable, "-c", RUNS_AWAY], limits=limits) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        names = [bridge.workspace / f"pid{n}" for n in range(3)]
        await until(lambda: all(path.exists() and path.read_text().endswith("\n") for path in names))
        pids = [int(path.read_text()) for path in names]
        async with bridge.client() as http:
            command = asyncio.create_task(http.post("/exec", json={"command": "echo up; sleep 600"}))
            await until(lambda: "sleep 600" in "".join(commands(bridge)))
            await tree_of(bridge).quiet()
            assert not any(map(alive, pids))
            assert (await command).json()["exitCode"] == 137
            await until(lambda: owner.exits)
            assert (await http.get("/health")).status_code == 200
        assert owner.lost == []


async def test_quiet_ends_a_program_whose_first_thread_has_ended(tmp_path: Path) -> None:
    """It looks dead and writes all the same: what it wrote after the last scan would not have been kept."""
    leaves = headless("import os; open('up', 'w').write(f'{os.getpid()}\\n')")
    start = f"import subprocess, sys; subprocess.Popen({leaves!r}, start_new_session=True); sys.stdin.read()"
    with running_bridge(tmp_path, [sys.executable, "-c", start]) as bridge:
        link = await bridge.link(Owner())
        link.start(None)
        up = bridge.workspace / "up"
        await until(lambda: up.exists() and up.read_text().endswith("\n"))
        pid = int(up.read_text())
        assert looks_dead(pid)
        await tree_of(bridge).quiet()
        assert not Path(f"/proc/{pid}/task/{pid}").exists() or len(os.listdir(f"/proc/{pid}/task")) == 1


STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while not os.path.exists("end"):
    time.sleep(0.01)
"""


async def test_a_start_that_waits_for_the_end_of_a_process_is_forgotten_when_all_is_quiet(tmp_path: Path) -> None:
    limits = {"stop_input_seconds": 0.05, "stop_term_seconds": 600}
    with running_bridge(tmp_path, [sys.executable, "-c", STUBBORN], limits=limits) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        await until(lambda: owner.received)
        link.stop_agent()
        link.start(None)
        quiet = asyncio.create_task(tree_of(bridge).quiet())
        async with bridge.client() as http:
            while (await http.post("/start")).json().get("code") != "held":  # noqa: ASYNC110  # only the bridge knows
                await asyncio.sleep(0.01)
            (bridge.workspace / "end").touch()
            await quiet
            await until(lambda: owner.exits)
            assert len(owner.epochs) == 1
            await tree_of(bridge).release()
            assert (await http.post("/start")).json()["started"]


def commands(bridge: BridgeProcess) -> list[str]:
    assert bridge.process is not None
    pids = Path(f"/proc/{bridge.process.pid}/task/{bridge.process.pid}/children").read_text().split()
    return [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in pids if alive(int(pid))]


# Roots that a program inside has spoilt


@pytest.mark.parametrize("spoilt", ["a symlink", "a file", "a fifo", "no rights", "nothing"])
async def test_a_bridge_starts_with_roots_that_can_be_used(spoilt: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    bridge = BridgeProcess(tmp_path, ["cat"])
    bridge.workspace.rmdir()
    if spoilt == "a symlink":
        bridge.workspace.symlink_to(outside)
    elif spoilt == "a file":
        bridge.workspace.write_text("not a directory")
    elif spoilt == "a fifo":
        os.mkfifo(bridge.workspace)
        (bridge.kept / ".aside-workspace-1").touch()
    elif spoilt == "no rights":
        bridge.workspace.mkdir(mode=0)
        bridge.kept.chmod(0o500)
    bridge.start()
    try:
        async with asyncio.timeout(30):
            assert (await tree_of(bridge).survey(())).files == 0
        assert bridge.workspace.is_dir()
        assert not bridge.workspace.is_symlink()
        assert bridge.workspace.stat().st_mode & 0o700 == 0o700
        assert (outside / "precious").exists()
        aside = {path.name: stat.S_IFMT(path.lstat().st_mode) for path in bridge.kept.glob(".aside-*")}
        assert aside == {
            "a symlink": {".aside-workspace-1": stat.S_IFLNK},
            "a file": {".aside-workspace-1": stat.S_IFREG},
            "a fifo": {".aside-workspace-1": stat.S_IFREG, ".aside-workspace-2": stat.S_IFIFO},
        }.get(spoilt, {})
    finally:
        bridge.kill()


# What it notices


async def test_changes_are_noticed_at_any_depth_and_after_a_swap(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], limits={"hint_seconds": 0.05}) as bridge:
        (bridge.workspace / "a/b/c").mkdir(parents=True)
        (bridge.kept / "agent").mkdir()
        owner = Owner()
        await bridge.link(owner)
        await quiet_hints(bridge, owner)
        for path in ("workspace/a/b/c/file", "agent/file", "workspace/new/er/file", "workspace/new/er/other"):
            before = owner.changes
            (bridge.kept / path).parent.mkdir(parents=True, exist_ok=True)
            (bridge.kept / path).write_text("x")
            await until(partial(has_more, owner, before))
            await quiet_hints(bridge, owner)
        await restore(tree_of(bridge), Told(), "empty")
        await quiet_hints(bridge, owner)
        before = owner.changes
        (bridge.workspace / "after").touch()
        await until(lambda: owner.changes > before)


def has_more(owner: Owner, changes: int) -> bool:
    return owner.changes > changes


async def quiet_hints(bridge: BridgeProcess, owner: Owner) -> None:
    """Wait until no more hints come, however busy the bridge is."""
    seen = -1
    async with bridge.client() as http:
        while seen != owner.changes:
            seen = owner.changes
            await many_turns(http)


async def test_hints_are_few_however_much_happens(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], limits={"hint_seconds": 0.5}) as bridge:
        owner = Owner()
        await bridge.link(owner)
        began = asyncio.get_running_loop().time()
        for n in range(1000):
            (bridge.workspace / f"file{n}").write_text("x")
            if n % 50 == 0:
                await asyncio.sleep(0.02)
        await until(lambda: owner.changes, "a hint")
        seconds = asyncio.get_running_loop().time() - began
        assert owner.changes <= 3 + seconds / 0.5


async def test_a_change_that_nobody_heard_of_is_told_to_who_comes_next(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], limits={"hint_seconds": 0.05}) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        await quiet_hints(bridge, owner)
        link.close()
        async with bridge.client() as http:
            (bridge.workspace / "file").touch()
            await many_turns(http)
        later = Owner()
        await bridge.link(later)
        await until(lambda: later.changes)


async def many_turns(http: httpx.AsyncClient) -> None:
    for _ in range(20):  # the bridge has read its events by then: each answer is a turn of its loop
        await http.get("/health")
        await asyncio.sleep(0.015)


async def test_a_link_to_everything_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    with running_bridge(tmp_path, ["cat"], limits={"hint_seconds": 0.05}) as bridge:
        (bridge.workspace / "root").symlink_to("/")
        (bridge.workspace / "elsewhere").symlink_to(tmp_path / "elsewhere")
        owner = Owner()
        await bridge.link(owner)
        await quiet_hints(bridge, owner)
        before = owner.changes
        (tmp_path / "elsewhere" / "file").touch()
        await quiet_hints(bridge, owner)
        assert (owner.changes, owner.lost) == (before, [])


async def test_where_not_everything_can_be_watched_a_running_agent_is_reason_enough(tmp_path: Path) -> None:
    limits = {"watches": 3, "blind_hint_seconds": 0.2, "hint_seconds": 0.05}
    with running_bridge(tmp_path, ["cat"], limits=limits) as bridge:
        for n in range(5):
            (bridge.workspace / f"d{n}").mkdir()
        owner = Owner()
        link = await bridge.link(owner)
        await until(lambda: "watch.blind" in bridge.log)
        await quiet_hints(bridge, owner)
        before = owner.changes
        link.start(None)
        await until(lambda: owner.changes >= before + 3)
        link.stop_agent()
        await until(lambda: owner.exits)
        await quiet_hints(bridge, owner)


# Over HTTP


def members(tar: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        found = {}
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            found[member.name] = file.read() if file else member.linkname.encode()
        return found


async def test_a_backup_holds_both_roots_and_can_be_restored(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        async with bridge.client() as http:
            await tree_of(bridge).survey(())
            written = write_much(bridge, files=50)
            (bridge.kept / "agent" / "memory").write_text("kept too")
            (bridge.workspace / "link").symlink_to("nowhere")
            backup = await http.post("/backup")
            assert (backup.status_code, backup.headers["content-type"]) == (200, "application/x-tar")
            found = members(backup.content)
            assert found["agent/memory"] == b"kept too"
            assert found["workspace/link"] == b"nowhere"
            assert {name: found[f"workspace/{name}"] for name in written} == written
            for name in written:
                (bridge.workspace / name).write_bytes(b"spoilt")
            answer = await http.post("/restore", content=backup.content)
            assert (answer.status_code, answer.json()) == (200, {"restored": True})
            assert {name: (bridge.workspace / name).read_bytes() for name in written} == written
            assert os.readlink(bridge.workspace / "link") == "nowhere"


async def test_a_backup_that_fails_halfway_has_no_end(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        await tree_of(bridge).survey(())
        write_much(bridge, files=200)
        deep = bridge.workspace / "z"
        for _ in range(70):
            deep = deep / "d"
        deep.mkdir(parents=True)
        async with bridge.client() as http:
            with pytest.raises(httpx.RemoteProtocolError):
                await http.post("/backup")
            assert (await http.get("/health")).status_code == 200
        assert "tree.backup_failed" in bridge.log


async def test_who_leaves_in_the_middle_of_a_backup_keeps_nobody_waiting(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        write_much(bridge)
        async with bridge.client() as http, http.stream("POST", "/backup") as backup:
            await anext(backup.aiter_bytes())
        assert (await tree_of(bridge).survey(())).files == 400


@pytest.mark.parametrize("fault", ["cut short", "truncated", "nonsense", "empty", "escaping", "agent runs"])
async def test_an_upload_that_is_not_whole_and_good_changes_nothing(fault: str, tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        tree = tree_of(bridge)
        await tree.survey(())
        (bridge.workspace / "old").write_text("old")
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz" if fault == "truncated" else "w") as archive:
            name = "../../evil" if fault == "escaping" else "workspace/new"
            member = tarfile.TarInfo(name)
            member.size = 3_000_000
            archive.addfile(member, io.BytesIO(os.urandom(member.size)))
        tar = buffer.getvalue()
        body = {"truncated": tar[:-100_000], "nonsense": os.urandom(5000), "empty": b""}.get(fault, tar)
        async with bridge.client() as http:
            if fault == "agent runs":
                assert (await http.post("/start")).json()["started"]
            if fault == "cut short":
                reader, writer = await asyncio.open_unix_connection(bridge.path)
                head = f"POST /restore HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer {TOKEN}\r\n"
                writer.write(f"{head}Content-Length: {len(tar)}\r\n\r\n".encode() + tar[:-1000])
                await writer.drain()
                writer.close()
                assert await reader.read() == b""
                await until(lambda: "tree.upload_failed" in bridge.log)
            else:
                answer = await http.post("/restore", content=body)
                expected = (409, "busy") if fault == "agent runs" else (400, "bad_archive")
                assert (answer.status_code, answer.json()["code"]) == expected, answer.json()
        assert [path.name for path in bridge.workspace.iterdir()] == ["old"]
        assert (await tree.survey(())).files == 1
        assert sorted(path.name for path in bridge.kept.iterdir()) == ["agent", "workspace"]


async def test_files_are_read_and_never_beyond_their_root(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    with running_bridge(tmp_path, ["cat"]) as bridge:
        (bridge.workspace / "dir").mkdir()
        (bridge.workspace / "dir" / "file").write_text("0123456789")
        (bridge.workspace / "good").symlink_to("dir/file")
        (bridge.workspace / "evil").symlink_to(secret)
        os.mkfifo(bridge.workspace / "fifo")
        tree = tree_of(bridge)
        for path in (b"dir/file", b"good", b"./dir//file"):
            file = await tree.files(b"workspace", path)
            assert isinstance(file, LiveFile)
            assert b"".join([piece async for piece in file.content]) == b"0123456789"
        for path in (b"evil", b"fifo", b"../secret", b"dir/../../secret"):
            with pytest.raises(TreeFailed) as failed:
                await tree.files(b"workspace", path)
            assert failed.value.code == "bad_path"
        async with bridge.client() as http:
            for asked, status, body in (
                (None, 200, b"0123456789"),
                ("bytes=2-4", 206, b"234"),
                ("bytes=-3", 206, b"789"),
                ("bytes=7-", 206, b"789"),
                ("bytes=5-99", 206, b"56789"),
                ("bytes=10-", 416, b""),
                ("bytes=-0", 416, b""),
                ("bytes=1-2,4-5", 200, b"0123456789"),
                ("lines=1-2", 200, b"0123456789"),
            ):
                answer = await http.get("/files/workspace/dir/file", headers={"Range": asked} if asked else {})
                assert (answer.status_code, answer.content) == (status, body)
            assert (await http.get("/files/workspace/none")).json()["code"] == "not_found"
            assert (await http.get("/files/workspace/dir")).json()["entries"][0]["name"] == "file"
            assert (await http.get("/files/%2e%2e/secret")).status_code in (403, 404)


async def test_a_listing_that_would_be_too_long_is_cut(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        for number in range(200):
            (bridge.workspace / f"{number:03}").symlink_to("\x01" * 4000)
        found = await tree_of(bridge).files(b"workspace", b"")
        assert isinstance(found, LiveListing)
        assert found.cut
        names = [entry.name for entry in found.entries]
        assert 100 < len(names) < 200
        assert names == [b"%03d" % number for number in range(len(names))]


async def test_only_the_token_opens_the_tree(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        await bridge.link(Owner())
        stranger = BridgeTree(at(bridge.path, "x" * 43))
        for attempt in (stranger.survey(()), stranger.files(b"workspace", b"")):
            with pytest.raises(TreeFailed):
                await attempt
        async with bridge.client("x" * 43) as http:
            for method, path in (("POST", "/backup"), ("POST", "/restore"), ("GET", "/files/workspace/")):
                assert (await http.request(method, path)).status_code == 401


async def test_a_tree_of_nobody_is_absent(tmp_path: Path) -> None:
    async def find() -> UnixEndpoint:
        raise LinkRefused("no sandbox runs")

    with pytest.raises(TreeFailed, match="no sandbox runs") as failed:
        await BridgeTree(find).release()
    assert failed.value.code == "absent"
    with pytest.raises(TreeFailed, match="cannot be reached"):
        await BridgeTree(at(str(tmp_path / "nothing"))).release()


def config_in(home: Path) -> Config:
    members = {"session_id": "s", "incarnation": 1, "token": TOKEN, "agent": ["cat"], "agent_log": str(home / "log")}
    paths = {name: str(home / name) for name in ("kept", "state")}
    return parse_config(json.dumps({**members, **paths, "workspace": str(home / "kept" / "workspace")}).encode())


class Conversation:
    """A WebSocket without a wire: the bridge hears these messages; `on_said` is called with what it says."""

    def __init__(self, *messages: Down, on_said: Callable[[Up], None]) -> None:
        self._heard: asyncio.Queue[Message] = asyncio.Queue()
        self._heard.put_nowait({"type": "websocket.connect"})
        for message in messages:
            self._heard.put_nowait({"type": "websocket.receive", "bytes": encode(message)})
        self._on_said = on_said
        self.socket = WebSocket({"type": "websocket"}, self._heard.get, self._send)

    async def _send(self, message: Message) -> None:
        if message["type"] == "websocket.send":
            self._on_said(decode_up(message["bytes"]))


async def test_a_restore_is_over_before_the_old_tree_is_removed_and_nobody_waits_for_that(tmp_path: Path) -> None:
    """The removal does not end before it may: as long as it is under way there is more to be removed."""
    config, notes = config_in(tmp_path), TakenNotes(tmp_path)
    (config.kept / "workspace" / "old").mkdir(parents=True)
    (config.kept / "agent").mkdir()
    trash, over, may_end = config.kept / ".trash", asyncio.Event(), asyncio.Event()
    said: list[Up] = []
    found: list[tuple[int, int]] = []  # of the old tree, in the trash and in its place

    def on_said(message: Up) -> None:
        if isinstance(message, Restored):
            found.append((len(list(trash.glob("*/old/workspace/old"))), len(os.listdir(config.kept / "workspace"))))
            over.set()

    async def litter() -> None:
        await over.wait()
        while not may_end.is_set():
            for _ in range(10):
                with contextlib.suppress(FileNotFoundError):
                    (trash / secrets.token_hex(8)).mkdir()
            await asyncio.sleep(0)

    with ThreadPoolExecutor(1) as worker:
        agent = Agent(config, notes)
        trees = Trees(config, agent, worker, lambda: None, agent.end)
        restoring = Conversation(RestoreAsk("t"), RestorePlan(), RestoreEnd(), on_said=on_said)
        littering = asyncio.create_task(litter())
        removing = asyncio.create_task(trees.serve(restoring.socket))
        await over.wait()
        assert found == [(1, 0)]
        await trees.serve(Conversation(SurveyAsk(), on_said=said.append).socket)
        await trees.serve(Conversation(ReleaseAsk(), on_said=said.append).socket)
        assert agent.start(None)
        assert not removing.done()
        assert said[-2:] == [Survey(False, "t", 0, 0), Done()]
        may_end.set()
        await removing
        await littering
        assert sorted(os.listdir(config.kept)) == ["agent", "workspace"]
        await agent.end()
        await until(lambda: not agent.alive)
    notes.close()


async def test_whoever_is_cancelled_keeps_his_turn_until_his_work_is_done(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    notes = TakenNotes(tmp_path)
    began, may_end, done = threading.Event(), threading.Event(), list[str]()

    def swap() -> None:
        began.set()
        may_end.wait(30)
        done.append("swapped")

    with ThreadPoolExecutor(1) as worker:
        agent = Agent(config, notes)
        trees = Trees(config, agent, worker, lambda: done.append("told"), agent.end)

        async def restore() -> None:
            async with trees.turn:
                with trees.swapping():
                    await trees.work(swap)

        async def next_one() -> None:
            async with trees.turn:
                done.append("next")

        restoring = asyncio.create_task(restore())
        await until(began.is_set)
        following = asyncio.create_task(next_one())
        restoring.cancel()
        await asyncio.wait({restoring, following}, timeout=0.1)
        assert done == []
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await restoring
        await following
        assert done == ["swapped", "told", "next"]
    notes.close()
