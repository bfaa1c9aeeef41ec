"""`holdfast snapshots`, as operators type it, against a running gateway: what is said, where, and how it exits."""

import asyncio
import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import tarfile
import termios
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.commands.snapshots import NONE, brief, changes, collected, full
from gateway.cli.console.progress import drawn, size_in_words
from gateway.cli.main import main
from persistence.record import Session
from persistence.sqlite.store import SqliteStore
from sandbox.protocol.tree import ScanAsk
from sandbox.providers.memory.tree import MemoryRoots, MemoryTree
from sync.objects.files import FileObjects
from sync.snapshots.service import SnapshotService
from tests.support.gateway import PASSED_ON, Gateway
from tests.support.launcher import launch

ODD = b"workspace/\x1b[31m\nred"


async def fill(data: Path) -> None:
    """Give a gateway that does not run sessions with snapshots: `s` has three, `broken` one that is damaged."""
    data.mkdir(mode=0o700, parents=True)
    async with SqliteStore(data / "holdfast.db") as store:
        for session_id in ("s", "broken", "new"):
            await store.create(Session(session_id, "ada", 1.0))
    async with FileObjects(data / "objects") as objects:
        vault = SnapshotService(objects)
        broken, roots = MemoryRoots(), MemoryRoots()
        broken.files[b"workspace/x"] = os.urandom(100_000)
        await keep(vault, "broken", broken)
        async for found in objects.list(""):
            if "/packs/" in found.key:
                await objects.put(found.key, bytes(found.size))
        roots.files |= {b"workspace/%02d" % number: b"content %d" % number for number in range(20)}
        roots.symlinks[b"workspace/link"] = b"nowhere"
        roots.directories.add(b"workspace/empty")
        await keep(vault, "s", roots)
        for number in range(1, 20):
            del roots.files[b"workspace/%02d" % number]
        await keep(vault, "s", roots)
        roots.files |= {b"workspace/00": b"changed", ODD: b"odd"}
        roots.modes[b"workspace/empty"] = 0o700
        await keep(vault, "s", roots)


async def keep(vault: SnapshotService, session_id: str, roots: MemoryRoots) -> None:
    await vault.push("ada", session_id, MemoryTree(lambda: roots), ScanAsk(), lambda: None)


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    data = tmp_path_factory.mktemp("snapshots") / "data"
    await fill(data)
    async with Gateway(data) as running:
        yield running


def environment(gateway: Gateway) -> dict[str, str]:
    base = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return base | {"HOLDFAST_DATA_DIR": str(gateway.data_dir)}


async def holdfast(gateway: Gateway, *words: str) -> tuple[int, bytes, str]:
    """Run `holdfast snapshots ...`: exit code, stdout, stderr."""
    process = await launch(
        "snapshots", *words,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(gateway),
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, errors = await process.communicate()
    return process.returncode or 0, out, errors.decode()


async def as_json(gateway: Gateway, *words: str) -> Any:
    code, out, errors = await holdfast(gateway, *words, "--json")
    assert (code, errors) == (0, "")
    return json.loads(out)


async def test_list_show_and_diff(gateway: Gateway) -> None:
    code, out, errors = await holdfast(gateway, "list", "s")
    assert (code, errors) == (0, "")
    newest, _, first = out.decode().splitlines()
    assert newest.split()[0] == "3"
    assert newest.endswith("newest")
    assert "pinned: generation 2 has 2 of its 21 files" in first
    _, out, _ = await holdfast(gateway, "list", "s", "--json")
    assert [json.loads(line)["generation"] for line in out.splitlines()] == [3, 2, 1]

    code, out, _ = await holdfast(gateway, "show", "s", "--generation", "1")
    assert code == 0
    assert b"20 files, 1 directories, 1 symlinks" in out
    assert (await as_json(gateway, "show", "s"))["generation"] == 3

    code, out, errors = await holdfast(gateway, "diff", "s")
    assert out.decode().splitlines() == ["A  workspace/\\x1b[31m\\nred", "M  workspace/00", "m  workspace/empty/"]
    assert errors == "holdfast: from generation 2 to 3: 1 added, 2 changed, 0 removed\n"
    assert (await as_json(gateway, "diff", "s", "--generation", "1", "--to", "2"))["counts"]["removed"] == 19
    code, out, errors = await holdfast(gateway, "diff", "s", "--generation", "3", "--to", "3")
    assert (code, out, errors) == (0, b"no difference between generations 3 and 3\n", "")
    code, out, errors = await holdfast(gateway, "diff", "s", "--to", "1")
    assert (code, out) == (1, b"")
    assert "nothing to compare" in errors


async def test_nothing_yet_is_said_and_is_no_failure(gateway: Gateway) -> None:
    assert await holdfast(gateway, "list", "new") == (0, f"{NONE}\n".encode(), "")
    assert await holdfast(gateway, "list", "new", "--json") == (0, b"", "")
    for words in (["diff", "new"], ["show", "new"], ["restore", "new"], ["export", "new"], ["verify", "new"]):
        code, out, errors = await holdfast(gateway, *words)
        assert (code, out) == (1, b""), words
        assert "no snapshot" in errors


async def test_what_is_wrong_is_said_in_words(gateway: Gateway) -> None:
    code, out, errors = await holdfast(gateway, "list", "nobody")
    assert (code, out) == (1, b"")
    assert "there is no such session (404)" in errors
    code, _, errors = await holdfast(gateway, "show", "s", "--generation", "77")
    assert code == 1
    assert "no generation 77" in errors
    code, _, errors = await holdfast(gateway, "restore", "s", "--generation", "1", "--in-place")
    assert code == 1
    assert "paused" in errors
    code, _, errors = await holdfast(gateway, "list", "s", "--url", "http://127.0.0.1:9")
    assert code == 1
    assert "no gateway answers" in errors


async def test_a_branch_prints_its_id_and_nothing_else(gateway: Gateway) -> None:
    for word, how in (("branch", "branch"), ("restored", "restore")):
        code, out, errors = await holdfast(gateway, how, "s", "--generation", "1")
        assert code == 0, errors
        session_id = out.decode().strip()
        assert session_id.startswith(f"s-{word}-")
        assert f"chat {session_id}" in errors
        _, out, _ = await holdfast(gateway, "list", session_id)
        assert b"from s, generation 1" in out
        assert b"it began as a branch of s@1" in out
        async with gateway.http() as ada:
            assert (await ada.get(f"/files/{session_id}/19")).content == b"content 19"
    assert (await as_json(gateway, "branch", "s"))["userId"] == "ada"


async def test_a_pinned_generation_is_released(gateway: Gateway) -> None:
    code, out, _ = await holdfast(gateway, "release", "s", "--generation", "1")
    assert (code, out) == (0, b"1: released; kept until newer ones take its place\n")
    code, out, _ = await holdfast(gateway, "release", "s", "--generation", "1")
    assert (code, out) == (0, b"1: was not pinned; kept until newer ones take its place\n")


async def test_verify_tells_whole_from_damaged_by_its_exit_code(gateway: Gateway) -> None:
    code, out, errors = await holdfast(gateway, "verify", "s")
    assert (code, errors) == (0, "")
    assert [line.split()[-1] for line in out.decode().splitlines()] == ["whole"] * 3
    code, out, errors = await holdfast(gateway, "verify", "broken")
    assert (code, errors) == (1, "")
    assert b"damaged" in out
    assert b"pack" in out
    assert (await as_json(gateway, "verify", "s"))["whole"] is True


async def test_export_writes_a_whole_tar_or_leaves_the_file_as_it_was(gateway: Gateway, tmp_path: Path) -> None:
    target = tmp_path / "s.tar"
    code, out, errors = await holdfast(gateway, "export", "s", "-o", str(target))
    assert (code, out) == (0, b"")
    assert errors.startswith("holdfast: generation 3: 3 files, ")
    assert os.listdir(tmp_path) == ["s.tar"]
    with tarfile.open(target) as archive:
        names = set(archive.getnames())
    assert names == {"workspace/00", "workspace/empty", "workspace/link", os.fsdecode(ODD)}
    code, out, errors = await holdfast(gateway, "export", "s", "--generation", "1")
    assert (code, errors) == (0, "")
    with tarfile.open(fileobj=io.BytesIO(out)) as archive:
        assert len(archive.getnames()) == 22

    target.write_bytes(b"the one before")
    code, out, errors = await holdfast(gateway, "export", "broken", "-o", str(target))
    assert (code, out) == (1, b"")
    assert "not complete" in errors
    assert target.read_bytes() == b"the one before"
    assert (tmp_path / "s.tar.part").exists()
    code, _, errors = await holdfast(gateway, "export", "s", "-o", str(tmp_path / "nowhere" / "file"))
    assert (code, errors) == (1, f"holdfast: cannot write {tmp_path}/nowhere/file: No such file or directory\n")


async def test_gc_looks_and_removes_nothing_that_is_named(gateway: Gateway) -> None:
    result = await as_json(gateway, "gc", "--dry-run")
    assert (result["dryRun"], result["removed"]) == (True, 0)
    code, out, errors = await holdfast(gateway, "gc")
    assert (code, errors) == (0, "")
    assert b"0 objects removed" in out
    assert (await holdfast(gateway, "verify", "s"))[0] == 0


async def test_a_terminal_sees_how_far_it_is_and_a_tar_is_not_for_it(gateway: Gateway, tmp_path: Path) -> None:
    seen = await at_a_terminal(gateway, "export", "s", "-o", str(tmp_path / "s.tar"))
    assert "\r\x1b[K" in seen
    assert "generation 3" in seen.splitlines()[-1]
    assert (tmp_path / "s.tar").exists()
    assert "whole" in await at_a_terminal(gateway, "verify", "s")
    assert "a tar cannot be shown on a terminal" in await at_a_terminal(gateway, "export", "s")
    listed = await at_a_terminal(gateway, "diff", "s")
    assert "\x1b[31m" not in listed


async def at_a_terminal(gateway: Gateway, *words: str) -> str:
    """What a person sees, stdout and stderr as they come."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = await launch(
        "snapshots", *words,
        stdin=terminal, stdout=terminal, stderr=terminal, env=environment(gateway),
    )  # fmt: skip
    os.close(terminal)
    seen = b""
    try:
        async with asyncio.timeout(60):
            while piece := await asyncio.to_thread(_read, screen):
                seen += piece
            await process.wait()
    finally:
        os.close(screen)
    return seen.decode()


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 65536)
    except OSError:  # EIO: nobody has the terminal any more
        return b""


# -- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    ["", "list", "list ../x", "show s --generation 0", "show s --generation x", "release s", "gc s", "diff s --to -1",
     "export s --json", "verify s --generation 1"],
)  # fmt: skip
def test_wrong_words_are_wrong_usage(words: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(["snapshots", *words.split()])
    assert left.value.code == 2


@pytest.mark.parametrize(
    "action", ["", "list", "show", "diff", "restore", "branch", "release", "verify", "export", "gc"]
)
def test_every_action_explains_itself(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["snapshots", *action.split(), "--help"])
    assert left.value.code == 0
    assert len(capsys.readouterr().out) > 200


def test_what_strangers_wrote_cannot_speak_to_the_terminal() -> None:
    evil = "\x1b]0;x\x07\u202e\nfake line"
    snapshot = {
        "generation": 7, "at": "2026-01-01T00:00:00.000Z", "files": 1234, "bytes": 5 << 20,
        "pinned": evil, "note": evil, "manifest": "0" * 64, "skipped": [{"path": evil}], "unsettled": [{"path": evil}],
        "counts": {"files": 1, "directories": 2, "symlinks": 3, "skipped": 7, "unsettled": 1},
    }  # fmt: skip
    entry = {"path": evil, "type": "file", "size": 1, "content": True}
    shown = [brief(snapshot, newest=7), *changes({"added": [entry], "changed": [entry], "removed": [entry]})]
    assert all("\n" not in line for line in shown)
    whole = "".join(shown) + full(snapshot)
    assert not {"\x1b", "\x07", "\u202e"} & set(whole)
    assert "and 6 more" in whole


def test_a_bar_grows_and_never_beyond_its_end() -> None:
    assert drawn("verifying", 0, 10, counts_bytes=False) == f"verifying [{' ' * 30}]   0%  0 of 10"
    assert drawn("verifying", 20, 10, counts_bytes=False) == f"verifying [{'#' * 30}] 100%  10 of 10"
    assert drawn("removing", 1234, None, counts_bytes=False) == "removing 1,234"
    assert drawn("exporting", 1 << 20, 2 << 20, counts_bytes=True).endswith(" 50%  1.0 MiB of 2.0 MiB")


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.0 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (5 << 42, "20,480.0 GiB"),
    ],
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert size_in_words(size) == words


def test_a_collection_in_words() -> None:
    result = {
        "sessions": 2,
        "generations": 5,
        "packs": 3,
        "packBytes": 2048,
        "marked": 1,
        "removed": 4,
        "removedBytes": 1024,
    }
    assert "4 objects removed, 1.0 KiB" in collected({**result, "dryRun": False})
    assert "4 objects would be removed" in collected({**result, "dryRun": True})
