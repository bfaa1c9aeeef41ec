"""Files of the data directory that are removed under a running gateway, and a disk without room for a start."""

import asyncio
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.support.gateway import REPOSITORY, Gateway
from tests.support.waiting import until

MANY = 20


async def _say(gateway: Gateway, session_id: str, cids: list[str]) -> dict[str, str]:
    """What each message was answered with, as far as an answer came before the socket closed. A gateway that ends lets
    nobody in: then there was no answer."""
    heard: dict[str, str] = {}
    try:
        async with gateway.chat(session_id) as socket:
            for cid in cids:
                await socket.send(json.dumps({"type": "message", "cid": cid, "content": "x"}))
            while len(heard) < len(cids):
                frame = json.loads(await socket.recv())
                if frame["type"] in ("ack", "nack"):
                    heard.setdefault(frame["cid"], frame["type"])
    except (ConnectionClosed, InvalidHandshake, OSError):  # what was not answered was not acknowledged
        pass
    return heard


@pytest.mark.parametrize("removed", ["holdfast.db", "holdfast.db-wal", "holdfast.db-shm"])
async def test_nothing_is_acknowledged_once_a_file_of_the_database_is_gone(tmp_path: Path, removed: str) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("first")
        before = [f"before-{n}" for n in range(MANY)]
        assert set((await _say(gateway, "first", before)).values()) == {"ack"}
        (gateway.data_dir / removed).unlink()
        heard = await _say(gateway, "first", [f"after-{n}" for n in range(MANY)])
        assert "ack" not in heard.values()
        assert await gateway.wait() == 1
        told = gateway.log.splitlines()[-1]
        assert f"{removed} was removed or replaced" in told
        assert "Traceback" not in told
        rescued = list(gateway.data_dir.glob("holdfast.db.rescued-*"))
        assert [each.stat().st_mode & 0o777 for each in rescued] == [0o600]
        for file in gateway.data_dir.glob("holdfast.db*"):
            if file not in rescued:
                file.unlink()
        code, told = await _holdfast(gateway, "serve")
        assert (code, f"its content was written to {rescued[0]}" in told) == (1, True), "it begins no empty one"
        code, told = await _holdfast(gateway, "doctor")
        assert (code, f"{rescued[0]} has its content" in told) == (1, True)
        rescued[0].rename(gateway.data_dir / "holdfast.db")
        await gateway.start()
        kept = [each["cid"] for each in await gateway.messages("first") if each["role"] == "user"]
        assert set(before) <= set(kept), "a slip of the hand loses nothing"


async def test_a_gateway_without_work_notices_that_its_database_was_replaced(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        database = gateway.data_dir / "holdfast.db"
        copy = tmp_path / "copy"
        copy.write_bytes(database.read_bytes())
        copy.rename(database)  # the same bytes, another file
        assert await gateway.wait() == 1
        assert "was removed or replaced" in gateway.log.splitlines()[-1]


async def test_the_spool_and_the_directory_itself_are_watched_too(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "spooled", STORE="http://127.0.0.1:1") as gateway:
        (gateway.data_dir / "spool.db").unlink()
        assert await gateway.wait() == 1
        assert "spool.db was removed or replaced" in gateway.log.splitlines()[-1]
    store = f"sqlite:///{tmp_path}/elsewhere.db"
    async with Gateway(tmp_path / "moved", STORE=store) as gateway:
        gateway.data_dir.rename(tmp_path / "away")
        assert await gateway.wait() == 1
        (tmp_path / "away").rename(gateway.data_dir)


async def test_doctor_fails_where_a_gateway_runs_and_its_database_is_gone(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        gateway.process.send_signal(19)  # SIGSTOP: it must not end before doctor has looked
        (gateway.data_dir / "holdfast.db").unlink()
        code, told = await _holdfast(gateway, "doctor", "--json")
        gateway.process.send_signal(18)
        findings = {each["name"]: each for each in json.loads(told)["checks"]}
        assert (code, findings["store"]["state"]) == (1, "fail")
        assert "is gone" in findings["store"]["told"]


async def test_a_removed_lock_lets_nobody_in_and_comes_back(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        lock = gateway.data_dir / "lock"
        lock.unlink()
        code, told = await _holdfast(gateway, "serve")
        assert (code, "is in use by another gateway" in told) == (1, True)
        await until(lambda: b"address" in lock.read_bytes(), "the lock with its note")
        code, told = await _holdfast(gateway, "serve")
        assert f"pid {gateway.pid}" in told
        assert gateway.running


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", path], check=True)


async def test_a_start_on_a_full_disk_says_so_and_goes_on_when_there_is_room(small_disk: Path, tmp_path: Path) -> None:
    async with Gateway(small_disk / "data") as gateway:
        gateway.log_path = tmp_path / "log"
        await gateway.create("first")
        assert set((await _say(gateway, "first", ["kept"])).values()) == {"ack"}
        await gateway.terminate()
        ballast = small_disk / "ballast"
        with ballast.open("wb") as file:
            try:
                while os.write(file.fileno(), b"x" * 4096):
                    pass
            except OSError:
                pass
        starting = asyncio.create_task(gateway.start())
        await until(lambda: "goes on as soon as there is room" in gateway.log, "words about the full disk")
        assert "Traceback" not in gateway.log
        ballast.unlink()
        await starting
        assert "kept" in [each["cid"] for each in await gateway.messages("first")]
        async with gateway.http({}) as client:
            assert (await client.get("/ready")).status_code == httpx.codes.OK


async def test_sandboxes_start_where_few_descriptors_are_allowed_and_doctor_says_that_they_are_few(
    tmp_path: Path,
) -> None:
    gateway = Gateway(tmp_path / "data", LOCAL_LEVEL="auto")
    async with gateway:
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (64, 64))
        await gateway.create("first")
        await gateway.create("second")
        async with gateway.http() as client:
            statuses = [(await client.post(f"/api/sandboxes/{each}/wake")).json() for each in ("first", "second")]
        assert [each["status"] for each in statuses] == ["running", "running"]
        code, told = await _holdfast(gateway, "doctor", descriptors=64)
        assert (code, "fail  files       ulimit -n is 64" in told) == (1, True)


async def _holdfast(gateway: Gateway, *words: str, descriptors: int = 1024) -> tuple[int, str]:
    """Run a command on the gateway's data directory; its exit code and all it said."""
    few = ["prlimit", f"--nofile={descriptors}:{descriptors}"]
    process = await asyncio.create_subprocess_exec(
        *few, sys.executable, "-m", "gateway", *words,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env=gateway.environment() | {"HOLDFAST_PORT": "0"}, cwd=REPOSITORY,
    )  # fmt: skip
    async with asyncio.timeout(60):
        told, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, told.decode()
