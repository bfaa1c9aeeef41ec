"""A backup of a gateway in use, restored elsewhere: nothing acknowledged or synced before it began is missing."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.backup import manifest
from tests.support.gateway import REPOSITORY, Gateway
from tests.support.launcher import launch
from tests.support.waiting import until

SYNC_LATE = {"SYNC_DEBOUNCE": 600, "SYNC_MAX_WAIT": 600}  # only when it is asked for


async def holdfast(gateway: Gateway, *words: str, **more: str) -> tuple[int, str, str]:
    process = await launch(
        *words,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=gateway.environment() | more,
    )  # fmt: skip
    async with asyncio.timeout(120):
        said, complained = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode(), complained.decode()


def workspace(gateway: Gateway, session_id: str) -> Path:
    return gateway.data_dir / "sandboxes" / session_id / "kept" / "workspace"


async def with_file(gateway: Gateway, session_id: str) -> None:
    """A session that runs, with a file that nothing but a restore brings back."""
    await gateway.create(session_id, agent=["cat"])
    assert (await post(gateway, f"{session_id}/wake"))["status"] == "running"
    (workspace(gateway, session_id) / "d").mkdir()
    (workspace(gateway, session_id) / "d" / "p.txt").write_text("precious")


async def read(gateway: Gateway, session_id: str, path: str) -> str | None:
    async with gateway.http() as client:
        answer = await client.get(f"/files/{session_id}/{path}")
    return answer.text if answer.status_code == httpx.codes.OK else None


async def post(gateway: Gateway, path: str, **body: Any) -> dict[str, Any]:
    async with gateway.http() as client:
        answer = await client.post(f"/api/sandboxes/{path}", json=body)
    assert answer.status_code == httpx.codes.OK, answer.text
    described: dict[str, Any] = answer.json()
    return described


@asynccontextmanager
async def talking(gateway: Gateway, session_id: str) -> AsyncIterator[dict[str, int]]:
    """Somebody sends one message after the other; what was acknowledged so far, with its number."""
    acked: dict[str, int] = {}

    async def talk() -> None:
        async with gateway.chat(session_id) as socket:
            number = 0
            while True:
                number += 1
                await socket.send(
                    json.dumps({"type": "message", "cid": f"{session_id}-{number}", "content": "x" * 500})
                )
                while (frame := json.loads(await socket.recv())).get("cid") != f"{session_id}-{number}":
                    pass
                if frame["type"] == "ack":
                    acked[frame["cid"]] = frame["seq"]

    task = asyncio.create_task(talk())
    try:
        yield acked
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_backup_under_load_has_every_acknowledged_message_and_every_synced_file(tmp_path: Path) -> None:
    place, old = tmp_path / "backup", Gateway(tmp_path / "old", **SYNC_LATE)
    async with old:
        for session_id in ("awake", "asleep", "unsynced"):
            await with_file(old, session_id)
        await post(old, "asleep/sync")
        assert (await post(old, "asleep/sleep"))["status"] == "sleeping"
        await post(old, "awake/sync")
        (workspace(old, "awake") / "later.txt").write_text("not synced")
        async with talking(old, "awake") as awake, talking(old, "unsynced") as unsynced:
            await until(lambda: len(awake) > 20 and len(unsynced) > 20, "messages")
            before = {"awake": dict(awake), "unsynced": dict(unsynced)}
            code, said, complained = await holdfast(old, "backup", str(place), "--json")
            assert code == 0, complained
            backup = json.loads(said)
            assert (backup["sessions"], backup["warnings"], backup["leftOut"]) == (3, [], [])
            assert len(awake) > len(before["awake"]), "nobody was held up for it"
        await old.kill()
    shutil.rmtree(old.data_dir)  # the disk is lost

    new = Gateway(tmp_path / "new", **SYNC_LATE)
    code, said, complained = await holdfast(new, "restore", str(place))
    assert code == 0, complained
    code, said, _ = await holdfast(new, "doctor", "--json", HOLDFAST_PORT="0")
    checks = {each["name"]: each for each in json.loads(said)["checks"]}
    assert checks["snapshots"]["told"] == "2 sessions, all that they name is there"
    assert checks["data"]["state"] != "fail", checks["data"]
    async with new:
        for session_id, acked in before.items():
            kept = {each["cid"]: each["seq"] for each in await new.messages(session_id) if each["role"] == "user"}
            assert {cid: kept.get(cid) for cid in acked} == acked
        for session_id in ("awake", "asleep", "unsynced"):
            assert (await post(new, f"{session_id}/wake"))["status"] == "running"
            assert await read(new, session_id, "d/p.txt") == "precious"
        aside = new.data_dir / "sandboxes" / "awake" / "kept" / ".aside-1" / "workspace"
        assert (aside / "later.txt").read_text() == "not synced"
        assert (await post(new, "unsynced/sync"))["sync"]["generation"] == 1


async def test_a_backup_keeps_who_may_read_what_and_holds_nothing_of_running_processes(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "old") as gateway:
        await with_file(gateway, "first")
        code, _, complained = await holdfast(gateway, "backup", str(tmp_path / "backup"))
        assert code == 0, complained
    modes = {
        path: path.lstat().st_mode & 0o777
        for path in (tmp_path / "backup").rglob("*")
        if "kept" not in path.parts  # what users made has the rights that they gave it
    }
    assert {path for path, mode in modes.items() if mode & 0o077} == set()
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o700
    names = {path.name for path in modes}
    assert not names & {"lock", "bridge.json", "bridge.log", "run", "holdfast.db-wal", "holdfast.db-shm"}
    assert {"jwt_secret", "holdfast.db", manifest.NAME} <= names


async def test_hostile_disks_are_copied_without_following_anything(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret of the host")
    async with Gateway(tmp_path / "old", **SYNC_LATE) as gateway:
        await with_file(gateway, "mal")
        disk = workspace(gateway, "mal")
        (disk / "link").symlink_to(tmp_path / "outside")
        (disk / "tree").symlink_to(tmp_path)
        os.mkfifo(disk / "fifo")
        (disk / "setuid").write_text("")
        (disk / "setuid").chmod(0o6755)
        with (disk / "sparse").open("wb") as sparse:
            sparse.truncate(1 << 40)
        deep = disk
        for _ in range(90):
            deep = deep / "d"
        deep.mkdir(parents=True)
        write_far_down(disk)
        code, said, complained = await holdfast(gateway, "backup", str(tmp_path / "backup"), "--json")
        assert code == 0, complained
    told = json.loads(said)
    assert told["left_out"] == 2
    assert sorted(each.rpartition(": ")[2] for each in told["leftOut"]) == [
        "more than 80 directories deep", "neither a file nor a directory",
    ]  # fmt: skip
    copy = tmp_path / "backup" / "data" / "sandboxes" / "mal" / "kept" / "workspace"
    assert os.readlink(copy / "link") == str(tmp_path / "outside")
    assert (copy / "tree").is_symlink()
    assert (copy / "setuid").stat().st_mode & 0o7777 == 0o755
    assert (copy / "sparse").stat().st_size == 1 << 40
    assert (copy / "sparse").stat().st_blocks == 0
    # A longer path does not make a backup unreadable, nor do the directories of another machine.
    moved = (tmp_path / "backup").rename(tmp_path / ("moved" * 20))
    shutil.rmtree(gateway.data_dir)
    code, _, complained = await holdfast(gateway, "restore", str(moved))
    assert code == 0, complained
    assert os.readlink(workspace(gateway, "mal") / "link") == str(tmp_path / "outside")


def write_far_down(place: Path) -> None:
    """A file whose path is longer than the system takes at once, which a program reaches step by step."""
    here = os.open(place, os.O_RDONLY)
    for _ in range(19):
        os.mkdir("d" * 200, dir_fd=here)
        here, above = os.open("d" * 200, os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(os.open("f" * 250, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=here))
    os.close(here)


@pytest.fixture
async def backed_up(tmp_path: Path) -> AsyncIterator[tuple[Gateway, Path]]:
    """A running gateway, and a backup of it."""
    async with Gateway(tmp_path / "old") as gateway:
        await gateway.create("first")
        code, _, complained = await holdfast(gateway, "backup", str(tmp_path / "backup"))
        assert code == 0, complained
        yield gateway, tmp_path / "backup"


async def test_nothing_is_overwritten_and_everything_refused_is_told_in_words(
    backed_up: tuple[Gateway, Path], tmp_path: Path
) -> None:
    gateway, backup = backed_up
    inside = str(gateway.data_dir / "backup")
    full, cut, torn, newer = (tmp_path / name for name in ("full", "cut", "torn", "newer"))
    full.mkdir()
    (full / "theirs").write_text("")
    cut.mkdir()
    (cut / manifest.UNFINISHED).write_text("")
    for copy in (torn, newer):
        shutil.copytree(backup, copy)
    (torn / "data" / "secrets" / "api_token").unlink()
    (newer / manifest.NAME).write_text((newer / manifest.NAME).read_text().replace('"format": 2', '"format": 3'))
    empty = str(tmp_path / "nobody")
    for words, settings, says in (
        (("backup", inside), {}, "is inside"),
        (("backup", str(backup)), {}, "is not empty"),
        (("backup", str(cut)), {}, "was cut off, or is under way"),
        (("backup", str(tmp_path / "x")), {"HOLDFAST_DATA_DIR": empty}, "there is no database"),
        (("restore", str(backup)), {}, "is not empty"),
        (("restore", str(backup), "--into", str(full)), {}, "is not empty"),
        (("restore", str(full)), {"HOLDFAST_DATA_DIR": empty}, "holds no backup"),
        (("restore", str(cut)), {"HOLDFAST_DATA_DIR": empty}, "was cut off"),
        (("restore", str(torn)), {"HOLDFAST_DATA_DIR": empty}, "is not whole"),
        (("restore", str(newer)), {"HOLDFAST_DATA_DIR": empty}, "of a newer version"),
        (("restore", str(backup)), {"HOLDFAST_DATA_DIR": empty, "HOLDFAST_STORE": "postgresql://h/d"}, "sqlite store"),
    ):
        code, said, complained = await holdfast(gateway, *words, **settings)
        assert (code, said, says in complained) == (1, "", True), (words, complained)
        assert "Traceback" not in complained
    assert not Path(empty).exists()
    assert [each.name for each in full.iterdir()] == ["theirs"]
    assert not Path(inside).exists()


async def test_a_gateway_does_not_start_on_a_restore_that_was_cut_off(
    backed_up: tuple[Gateway, Path], tmp_path: Path
) -> None:
    gateway, backup = backed_up
    installed = tmp_path / "new" / "agents" / "bin"
    installed.mkdir(parents=True)  # agents are in no backup, and in no way of one
    code, said, complained = await holdfast(gateway, "restore", str(backup), "--into", str(tmp_path / "new"), "--json")
    assert installed.is_dir()
    assert (code, json.loads(said)["data"]) == (0, str(tmp_path / "new")), complained
    (tmp_path / "new" / "restore-unfinished").touch()
    at = {"HOLDFAST_DATA_DIR": str(tmp_path / "new"), "HOLDFAST_PORT": "0"}
    for words in (("serve",), ("restore", str(backup)), ("migrate",)):
        code, _, complained = await holdfast(gateway, *words, **at)
        assert (code in (1, 2), "was cut off" in complained) == (True, True), complained
    code, said, _ = await holdfast(gateway, "doctor", **at)
    assert "fail  data        a restore into" in said


async def test_what_was_restored_beside_a_live_gateway_leaves_its_database_alone(tmp_path: Path) -> None:
    live, new = tmp_path / "live", tmp_path / "new"
    live.mkdir()
    places = {"STORE": f"sqlite:///{live}/live.db", "OBJECTS": f"file://{live}/objects"}
    async with Gateway(tmp_path / "old", **places) as gateway:
        await with_file(gateway, "first")
        await post(gateway, "first/sync")
        code, _, complained = await holdfast(gateway, "backup", str(tmp_path / "backup"))
        assert code == 0, complained
        code, said, complained = await holdfast(gateway, "restore", str(tmp_path / "backup"), "--into", str(new))
        assert code == 0, complained
        assert "HOLDFAST_STORE and HOLDFAST_OBJECTS must be unset" in said
        words = f"env -u HOLDFAST_STORE -u HOLDFAST_OBJECTS HOLDFAST_DATA_DIR={new} holdfast"
        assert said.splitlines()[-2:] == [f"next:  {words} doctor", f"then:  {words} serve"]

        # With the variables as they are, the live database would be used: that is refused.
        careless = {"HOLDFAST_DATA_DIR": str(new), "HOLDFAST_PORT": "0"}
        for command in ("serve", "migrate"):
            code, _, complained = await holdfast(gateway, command, **careless)
            assert (code, f"{live}/live.db is in use by another gateway" in complained) == (1, True), complained
            assert f"HOLDFAST_DATA_DIR={tmp_path / 'old'}" in complained
        code, said, _ = await holdfast(gateway, "doctor", "--json", **careless)
        checks = {each["name"]: each for each in json.loads(said)["checks"]}
        assert (code, checks["store"]["state"], checks["objects"]["state"]) == (1, "fail", "warn")
        assert "unset HOLDFAST_STORE" in checks["store"]["advice"]
        code, said, _ = await holdfast(gateway, "doctor", "--json")
        assert {each["name"]: each["state"] for each in json.loads(said)["checks"]}["store"] == "ok"
        assert (await post(gateway, "first/wake"))["status"] == "running"
    code, said, _ = await holdfast(gateway, "doctor", "--json", **careless)
    checks = {each["name"]: each for each in json.loads(said)["checks"]}
    assert (checks["store"]["state"], "which exists as well" in checks["store"]["told"]) == ("warn", True)
    async with Gateway(new) as restored:
        assert (await post(restored, "first/wake"))["status"] == "running"
        assert await read(restored, "first", "d/p.txt") == "precious"


async def test_what_lies_elsewhere_is_named_with_what_to_do(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "old", STORE="http://127.0.0.1:1") as gateway:
        await gateway.create("first")
        code, said, complained = await holdfast(gateway, "backup", str(tmp_path / "backup"))
        assert code == 0, complained
        assert "1 sessions" in said
        assert "not in it: the messages that http://127.0.0.1:1 keeps" in said
        code, _, complained = await holdfast(
            gateway, "restore", str(tmp_path / "backup"), "--into", str(tmp_path / "new")
        )
        assert code == 0, complained
        assert (tmp_path / "new" / "spool.db").exists()
        away = {"HOLDFAST_STORE": "postgresql://u:geheim@127.0.0.1:1/d", "HOLDFAST_DATA_DIR": str(tmp_path / "other")}
        (tmp_path / "other").mkdir(mode=0o700)
        code, said, _ = await holdfast(gateway, "backup", str(tmp_path / "second"), **away)
        assert "run pg_dump now. After this backup" in said
        assert "geheim" not in said


async def test_the_lines_of_the_page_bring_a_session_back(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "operations" / "backup.md").read_text()
    lines = [line.strip() for line in page.splitlines() if line.startswith("    ")]
    assert [line.split()[:2] for line in lines] == [
        ["holdfast", "backup"], ["export", "HOLDFAST_DATA_DIR=/srv/holdfast"],
        ["holdfast", "restore"], ["holdfast", "doctor"], ["holdfast", "serve"],
    ]  # fmt: skip
    old = Gateway(tmp_path / "old")

    async def run(*typed: str) -> None:
        script = "\n".join(["set -e", *typed]).replace("/backups", f"{tmp_path}/backups")
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", script.replace("/srv/holdfast", f"{tmp_path}/new").replace("holdfast ", "run gateway "),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env=old.environment() | {"HOLDFAST_PORT": "0", "BASH_FUNC_run%%": f"() {{ {sys.executable} -m $@; }}"},
            cwd=REPOSITORY,
        )  # fmt: skip
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()

    async with old:
        await with_file(old, "first")
        await post(old, "first/sync")
        await run(lines[0])
        await old.kill()
    shutil.rmtree(old.data_dir)
    await run(*lines[1:4])
    async with Gateway(tmp_path / "new") as new:  # the last line
        assert (await post(new, "first/wake"))["status"] == "running"
        assert await read(new, "first", "d/p.txt") == "precious"
