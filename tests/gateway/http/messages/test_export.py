"""Conversations as lines of JSON: whole, in order, in constant memory; and never half a file that looks whole."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.http.messages.export import SESSIONS_AT_ONCE, ExportRoutes
from gateway.routing.route import served
from gateway.session.store_events import StoreEvents
from persistence.memory import MemoryStore
from persistence.record import Record, Session, Write
from persistence.sqlite.store import SqliteStore
from tests.campaign.stage import cutting
from tests.support.asgi import ask
from tests.support.faults import Fault
from tests.support.gateway import PASSED_ON, REPOSITORY, Gateway, GatewayByCommandLine
from tests.support.replaced import ReplacedStore
from tests.support.sessions import World
from tests.support.waiting import until

LONG, BODY = 20_000, "x" * 4096
# Separators that are none in JSON, and that careless readers of lines take for some.
ODD = "a\u2028b\u0085c\x0bd\r\n"


async def fill(store: SqliteStore | MemoryStore, session_id: str, user: str, contents: list[Any]) -> None:
    await store.create(Session(session_id, user, 1.0))
    for start in range(0, len(contents), 1000):
        writes = [
            Write(session_id, Record(session_id, seq, f"c{seq}", "user", "message", _payload(content), 1.0))
            for seq, content in enumerate(contents[start : start + 1000], start + 1)
        ]
        await store.commit(writes)


def _payload(content: Any) -> bytes:
    return json.dumps({"content": content}, ensure_ascii=False).encode()


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    home = tmp_path_factory.mktemp("export") / "data"
    home.mkdir(mode=0o700)
    async with SqliteStore(home / "holdfast.db") as store:
        await fill(store, "long", "ada", [BODY] * LONG)
        await fill(store, "empty", "ada", [])
        await fill(store, "odd", "eve", ["one", ODD, ["two"], None])
        for number in range(120):
            await fill(store, f"small-{number}", "many", [number])
    async with GatewayByCommandLine(home) as running:
        yield running


@pytest.fixture
async def service(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http(gateway.internal) as client:
        yield client


def read(body: bytes) -> list[dict[str, Any]]:
    assert body == b"" or body.endswith(b"\n")
    return [json.loads(line) for line in body.split(b"\n")[:-1]]


async def test_a_line_is_a_record_with_its_session_and_its_user(service: httpx.AsyncClient) -> None:
    answer = await service.get("/internal/sessions/odd/export")
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = read(answer.content)
    assert [line["content"] for line in lines] == ["one", ODD, ["two"], None]
    assert [line["seq"] for line in lines] == [1, 2, 3, 4]
    assert {(line["sessionId"], line["userId"], line["id"].split(".")[0]) for line in lines} == {("odd", "eve", "odd")}
    assert set(lines[0]) == {
        "sessionId", "userId", "id", "seq", "cid", "role", "type", "content", "metadata", "createdAt", "status",
    }  # fmt: skip
    assert (await service.get("/internal/sessions/empty/export")).content == b""


async def test_all_sessions_of_a_user_come_one_after_the_other(service: httpx.AsyncClient) -> None:
    lines = read((await service.get("/internal/export", params={"userId": "many"})).content)
    assert [line["sessionId"] for line in lines] == [f"small-{number}" for number in reversed(range(120))]
    assert read((await service.get("/internal/export", params={"userId": "nobody"})).content) == []


async def test_only_services_export(gateway: Gateway) -> None:
    async with gateway.http() as ada, gateway.http(gateway.admin) as admin:
        for path in ("/internal/export", "/internal/sessions/long/export"):
            assert (await ada.get(path)).status_code == 401
            assert (await admin.get(path)).status_code == 401


def resident(gateway: Gateway) -> int:
    return int(Path(f"/proc/{gateway.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_a_long_export_takes_no_memory(gateway: Gateway, service: httpx.AsyncClient) -> None:
    await service.get("/internal/sessions/odd/export")
    before = highest = resident(gateway)
    count, size = 0, 0
    async with asyncio.timeout(120), service.stream("GET", "/internal/export") as answer:
        async for chunk in answer.aiter_bytes():
            count += chunk.count(b"\n")
            size += len(chunk)
            highest = max(highest, resident(gateway))
    assert count == LONG + 4 + 120
    assert size > LONG * len(BODY)
    assert highest - before < 16 << 20, f"{(highest - before) >> 20} MiB"


async def test_an_export_that_the_gateway_leaves_says_so_and_does_not_end(gateway: Gateway) -> None:
    got = bytearray()
    reading = asyncio.create_task(_read_slowly(gateway, got))
    await until(lambda: got, "the first bytes")
    async with asyncio.timeout(60):
        assert await gateway.terminate() == 0
        with pytest.raises(httpx.RemoteProtocolError):
            await reading
    await gateway.start()
    *records, last = read(bytes(got))
    assert last["code"] == "draining"
    assert "not complete" in last["error"]
    assert 0 < len(records) < LONG


async def _read_slowly(gateway: Gateway, got: bytearray) -> None:
    async with (
        gateway.http(gateway.internal) as service,
        service.stream("GET", "/internal/sessions/long/export") as answer,
    ):
        async for chunk in answer.aiter_raw():
            got += chunk
            await asyncio.sleep(0.02)


async def exported(world: World, path: str = "/internal/export", query: str = "") -> tuple[list[dict[str, Any]], bool]:
    """The lines of an export from a store in memory, and whether it was ended as HTTP asks for."""
    answer = await ask(served(ExportRoutes(world.catalogue, world.store, StoreEvents())), path, query)
    return read(answer.body), answer.ended


async def test_a_store_that_goes_away_in_the_middle_leaves_no_file_that_looks_whole(world: World) -> None:
    await fill(world.kept, "s", "ada", list(range(40)))
    whole, ended = await exported(world)
    assert ended
    assert [line["seq"] for line in whole] == list(range(1, 41))
    calls = world.store.calls
    await exported(world)
    for call in range(2, world.store.calls - calls + 1):  # the first call fails before anything is said: a 503
        world.store.faults = {world.store.calls + call: Fault.AWAY}
        lines, ended = await exported(world)
        assert not ended
        assert lines[-1]["code"] == "storage_unavailable"
        assert lines[:-1] == whole[: len(lines) - 1]


async def test_what_retention_takes_away_meanwhile_is_left_out_and_nothing_else(world: World) -> None:
    await fill(world.kept, "s", "ada", list(range(100)))
    trimming = asyncio.create_task(_trim_when_read(world, 50))
    lines, ended = await exported(world, "/internal/sessions/s/export")
    await trimming
    seqs = [line["seq"] for line in lines]
    assert ended
    assert seqs == sorted(set(seqs))
    assert set(range(51, 101)) <= set(seqs)


async def _trim_when_read(world: World, below: int) -> None:
    while world.store.calls < 3:  # noqa: ASYNC110 - the export is under way
        await asyncio.sleep(0)
    await world.kept.trim("s", older_than=None, keep=0, below=below + 1)


async def test_sessions_that_are_purged_or_made_again_meanwhile_harm_no_other(world: World) -> None:
    """The list goes on after the last session of a page: when that is gone, it must not just end."""
    names = [f"s{number:03}" for number in range(2 * SESSIONS_AT_ONCE + 10)]
    for name in names:
        await fill(world.kept, name, "ada", ["x"])
    newest_first = names[::-1]
    last_of_page, before_it = newest_first[SESSIONS_AT_ONCE - 1], newest_first[SESSIONS_AT_ONCE - 2]
    app = ExportRoutes(world.catalogue, world.store, StoreEvents())
    seen: list[str] = []
    async for some in app._all(None, await world.kept.sessions(limit=SESSIONS_AT_ONCE)):
        seen += [line["sessionId"] for line in read(some)]
        if seen[-1] == last_of_page:
            await world.kept.purge(before_it)
            await world.kept.purge(last_of_page)
            await world.kept.create(Session(last_of_page, "ada", 2.0))
    assert seen == newest_first


@pytest.mark.parametrize("path", ["/internal/sessions/s/export", "/internal/export"])
@pytest.mark.parametrize("then", [None, Session("s", "eve", 2.0)])
async def test_an_export_does_not_go_on_with_another_session(world: World, path: str, then: Session | None) -> None:
    for step in range(2, 10):  # the first read is the look by which its turn comes
        world.store.inner = store = ReplacedStore(step, then)
        await store.fill(Session("s", "ada", 1.0), 60)
        (*lines, last), ended = await exported(world, path)
        assert (last["code"], ended) == ("storage_unavailable", False)
        assert all(line["cid"].startswith("ada") for line in lines)


async def test_a_users_export_has_no_session_that_is_anothers_by_now(world: World) -> None:
    world.store.inner = store = ReplacedStore(1, Session("s", "eve", 2.0))
    await store.fill(Session("s", "ada", 1.0), 60)
    assert await exported(world, query="userId=ada") == ([], True)


# -- the command ------------------------------------------------------------------------------------------------------


def run(gateway: Gateway, *words: str, **options: Any) -> subprocess.Popen[bytes]:
    base = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-m", "gateway", "export", *words],
        env=base | {"HOLDFAST_DATA_DIR": str(gateway.data_dir)},
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


async def finished(process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    out, err = await asyncio.to_thread(process.communicate, timeout=60)
    return process.returncode, out, err.decode()


async def test_the_command_writes_one_session_one_user_or_all(gateway: Gateway, tmp_path: Path) -> None:
    code, out, err = await finished(run(gateway, "odd"))
    assert (code, err) == (0, "")
    assert [line["content"] for line in read(out)] == ["one", ODD, ["two"], None]
    target = tmp_path / "many.ndjson"
    code, out, err = await finished(run(gateway, "--user", "many", "-o", str(target)))
    assert (code, out) == (0, b"")
    assert err.startswith("holdfast: 120 records")
    assert len(read(target.read_bytes())) == 120
    assert target.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["many.ndjson"]


async def test_the_command_fails_with_words(gateway: Gateway, tmp_path: Path) -> None:
    code, out, err = await finished(run(gateway, "nobody"))
    assert (code, out) == (1, b"")
    assert "no such session" in err
    code, out, err = await finished(run(gateway, "odd", "-o", str(tmp_path / "nowhere" / "file")))
    assert (code, err) == (1, f"holdfast: cannot write {tmp_path}/nowhere/file: No such file or directory\n")
    assert (await finished(run(gateway, "odd", "--user", "eve")))[0] == 2


async def test_an_export_whose_gateway_is_killed_keeps_the_old_file(gateway: Gateway, tmp_path: Path) -> None:
    target, part = tmp_path / "all.ndjson", tmp_path / "all.ndjson.part"
    target.write_bytes(b"the one before\n")
    async with cutting(gateway) as road:  # while this process does not run nothing passes: it cannot be done too soon
        process = run(gateway, "long", "-o", str(target), "--url", f"http://127.0.0.1:{road.port}")
        await until(lambda: part.stat().st_size > 1 << 20, "it has begun")
        await gateway.kill()
        code, _, err = await finished(process)
    await gateway.start()
    assert code == 1
    assert "not complete" in err
    assert target.read_bytes() == b"the one before\n"
    assert part.exists()
