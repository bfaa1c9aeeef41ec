"""The small parts under the local fleet: removal, processes, the filter, calls, layout."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.client.bridge_requests import MAX_ANSWER, CallFailed, call
from sandbox.client.endpoint import UnixEndpoint
from sandbox.providers.local import processes, seccomp
from sandbox.providers.local.isolation import _bridge
from sandbox.providers.local.layout import SandboxHome, tail
from sandbox.providers.local.teardown import end
from sandbox.system.safe_remove import remove_tree
from tests.support.bridge import ROOT
from tests.support.headless import headless, looks_dead
from tests.support.waiting import held_below

HOSTILE = """
import os, sys
os.chdir(sys.argv[1])
os.symlink(sys.argv[2], "link-to-file")
os.symlink(os.path.dirname(sys.argv[2]), "link-to-directory")
os.symlink(".", "loop")
os.mkfifo("fifo")
for name in ("\\n", "\\x1b[2J", "-rf", "x" * 255): open(name, "w").close()
os.makedirs("locked/inner/innermost")
open("locked/inner/file", "w").close()
top = os.getcwd()
for _ in range(500):
    os.mkdir("d" * 50)
    os.chdir("d" * 50)
os.chdir(top)
os.chmod("locked/inner/innermost", 0)
os.chmod("locked/inner", 0)
os.chmod("locked", 0o555)
os.chmod(".", 0o555)
"""
REMOVE = """
import sys
from pathlib import Path
safe_remove.remove_tree(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_hostile_tree_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """Root may do everything, so the tree is made and removed by somebody who may not."""
    somebody = 65534 if os.geteuid() == 0 else None
    home = Path(tmp_path)
    victim = home / "victim"
    victim.write_text("precious")
    tree, trash = home / "mine" / "tree", home / "mine" / "trash"
    tree.mkdir(parents=True)
    if somebody is not None:
        os.chown(tree, somebody, somebody)
        os.chown(tree.parent, somebody, somebody)
        for parent in (home, *home.parents):  # pytest's directories are closed to others
            if parent.stat().st_uid == os.geteuid() and parent.is_relative_to(home.parents[1]):
                parent.chmod(parent.stat().st_mode | 0o011)
    for code, arguments in ((HOSTILE, [tree, victim]), (REMOVE, [tree, trash])):
        # The interpreter may lie in a home that is closed to others: the right to be somebody is taken on within.
        become = f"import os; os.setgid({somebody}); os.setuid({somebody})\n"
        prefix = "from sandbox.system import safe_remove\n" + (become if somebody is not None else "")
        subprocess.run([sys.executable, "-c", prefix + code, *map(str, arguments)], check=True, cwd=ROOT)
    assert not tree.exists()
    assert list(trash.iterdir()) == []
    assert victim.read_text() == "precious"


def test_removing_nothing_is_fine_and_old_trash_goes_along(tmp_path: Path) -> None:
    trash = tmp_path / "trash"
    (trash / "left" / "over").mkdir(parents=True)
    (trash / "file").touch()
    remove_tree(tmp_path / "missing", trash)
    assert list(trash.iterdir()) == []
    (tmp_path / "link").symlink_to(trash)
    remove_tree(tmp_path / "link", trash)
    assert trash.is_dir()
    assert not (tmp_path / "link").is_symlink()


def test_what_lies_in_the_home_does_not_run_in_the_bridge(tmp_path: Path) -> None:
    """An interpreter of a venv never looks there; any other did."""
    _, *flags = _bridge({})
    flags = flags[: flags.index("-m")]
    python = str(Path(sys.base_prefix) / "bin" / "python3")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    place = tmp_path / ".local" / "lib" / version / "site-packages"
    place.mkdir(parents=True)
    (place / "usercustomize.py").write_text("print('I run')")
    said = [
        subprocess.run(
            [python, *some, "-c", "pass"], env={"HOME": str(tmp_path)}, capture_output=True, check=True
        ).stdout
        for some in (["-P"], flags)
    ]
    assert said == [b"I run\n", b""]


async def test_a_process_is_known_by_more_than_its_pid() -> None:
    child = subprocess.Popen(["sleep", "600"])
    try:
        process = processes.find(child.pid)
        assert process is not None
        impostor = processes.Process(process.pid, process.started + 1)
        assert [each.alive for each in (process, impostor)] == [True, False]
        impostor.signal(signal.SIGKILL)
        assert not await process.ended(0.01)
        assert child.poll() is None
        process.signal(signal.SIGTERM)
        assert await process.ended(30)
        assert [process.alive] == [False]
        process.signal(signal.SIGTERM)
        assert await process.ended(0)
    finally:
        child.kill()
        child.wait()
    assert processes.find(child.pid) is None


async def test_a_process_lives_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    """One that is killed seems dead a while before it is: its locks were still held when the next one was started."""
    home = SandboxHome(tmp_path, "s1")
    home.make()
    child = subprocess.Popen(
        headless("print('up', flush=True)"), env={processes.MARKER: home.marker}, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        process = processes.find(child.pid)
        assert process is not None
        assert looks_dead(child.pid)
        assert process.alive
        assert not await process.ended(0.01)
        assert processes.marked(home.marker) == [process]
        assert process in processes.descendants(os.getpid())
        await end(home, patience=0, thorough=True)
        assert await process.ended(0)
        assert child.stdout.read() == b""  # everything it had open is closed
        assert processes.marked(home.marker) == []
    finally:
        child.kill()
        child.communicate()


def test_relatives_and_marked_processes_are_found() -> None:
    marker = os.urandom(8).hex()
    script = "sleep 600 & echo $!; wait"
    child = subprocess.Popen(
        ["sh", "-c", script, "(a) name"], env={processes.MARKER: marker}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert [process.pid for process in processes.children(child.pid)] == [grandchild]
        assert child.pid in [process.pid for process in processes.descendants(os.getpid())]
        assert grandchild in [process.pid for process in processes.descendants(os.getpid())]
        assert {process.pid for process in processes.marked(marker)} == {child.pid, grandchild}
        assert processes.marked(marker + "x") == []
    finally:
        for process in processes.marked(marker):
            process.signal(signal.SIGKILL)
        child.communicate()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_is_a_program_whose_every_jump_lands_inside(machine: str) -> None:
    program = seccomp.program(machine)
    assert program is not None
    steps = list(struct.iter_unpack("=HBBI", program))
    for index, (code, if_true, if_false, _) in enumerate(steps):
        if code & 0x07 == 0x05:
            assert index + 1 + max(if_true, if_false) < len(steps)
    assert steps[-1] == (0x06, 0, 0, 0x7FFF0000)
    assert len(steps) < 4096


def test_there_is_no_filter_for_an_unknown_machine() -> None:
    assert seccomp.program("pdp11") is None


@pytest.mark.parametrize("session_id", ["", "..", "a/b", "-x", "a" * 129, "a\n", "é", "."])
def test_only_a_session_id_names_a_directory(session_id: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="session id"):
        SandboxHome(tmp_path, session_id)


def test_roots_of_an_earlier_version_are_moved_to_their_new_place_once(tmp_path: Path) -> None:
    home = SandboxHome(tmp_path, "s1")
    for root in ("workspace", "agent"):
        (home.root / root).mkdir(parents=True)
        (home.root / root / "file").write_text(root)
    home.make()
    home.make()
    assert [(root / "file").read_text() for root in (home.workspace, home.agent)] == ["workspace", "agent"]
    assert sorted(path.name for path in home.root.iterdir()) == ["kept", "state"]
    (home.root / "workspace").mkdir()  # nobody of ours made it: what is in its place already is not touched
    home.make()
    assert (home.workspace / "file").read_text() == "workspace"


def test_what_a_sandbox_put_in_the_place_of_its_workspace_is_not_followed(tmp_path: Path) -> None:
    home = SandboxHome(tmp_path / "data", "s1")
    home.make()
    assert home.workspace_is_empty(), "there is none yet"
    home.workspace.mkdir()
    assert home.workspace_is_empty()
    (home.workspace / "file").touch()
    assert not home.workspace_is_empty()
    (tmp_path / "empty").mkdir()
    home.workspace.rename(home.kept / "elsewhere")
    home.workspace.symlink_to(tmp_path / "empty")
    assert not home.workspace_is_empty(), "a link to an empty directory is no empty workspace"


def test_the_end_of_a_log_is_read_from_a_file_and_from_nothing_else(tmp_path: Path) -> None:
    """What stands there is the sandbox's. A directory once cost a descriptor at each look."""
    (tmp_path / "file").write_bytes(b"the end")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
    assert tail(tmp_path / "file", 3) == b"end"
    for name in ("link", "directory", "fifo", "socket", "nothing", "file/below"):
        assert tail(tmp_path / name, 3) == b"", name
    assert held_below(tmp_path) == []


def test_a_note_replaces_the_one_before_in_one_step(tmp_path: Path) -> None:
    home = SandboxHome(tmp_path, "s1")
    home.make()
    assert home.read_note() is None
    note = {
        "session_id": "s1",
        "incarnation": 1,
        "level": "trusted",
        "socket": "x.sock",
        "token": "t",
        "pid": 1,
        "started": 2,
        "init_pid": 1,
        "init_started": 2,
        "boot": "b",
    }
    home.note.write_text(json.dumps(note))
    bridge = home.read_note()
    assert bridge is not None
    home.note.with_suffix(".new").write_text("half a note")
    home.write_note(bridge)
    assert home.read_note() == bridge
    assert stat.S_IMODE(home.note.stat().st_mode) == 0o600
    home.drop_note()
    home.drop_note()
    assert home.read_note() is None


@contextlib.asynccontextmanager
async def answering(path: Path, answer: bytes, *, hang: bool = False) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            writer.write(answer)
            await writer.drain()
            if hang:
                await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield str(path)
    finally:
        server.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "closed before the answer was complete"),
        (b"HTTP/1.1 200 OK\r\n", "closed before the answer was complete"),
        (b"\r\n\r\n", "closed before the answer was complete"),
        (b"HTTP/1.1 401 No\r\n\r\n{}", "answered 401"),
        (b"HTTP/1.1 200 OK\r\n\r\nnonsense", "not JSON"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "not JSON"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"1" * (MAX_ANSWER + 1), "too long"),
    ],
)
async def test_a_bad_answer_of_a_bridge_is_a_failed_call(answer: bytes, reason: str, tmp_path: Path) -> None:
    async with answering(tmp_path / "s", answer) as path:
        with pytest.raises(CallFailed, match=reason):
            await call(UnixEndpoint(path), "GET", "/health", timeout=30)


async def test_a_bridge_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    async with answering(tmp_path / "s", b"HTTP/1.1 200 OK\r\n\r\n{", hang=True) as path:
        with pytest.raises(CallFailed, match="no answer within"):
            await call(UnixEndpoint(path), "GET", "/health", timeout=0.05)
    with pytest.raises(CallFailed, match="no connection"):
        await call(UnixEndpoint(str(tmp_path / "missing")), "GET", "/health", timeout=30)
