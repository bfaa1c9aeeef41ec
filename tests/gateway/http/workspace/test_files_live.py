"""`/files` of a real gateway and a real sandbox, over real sockets: what a program may leave in its workspace, and what
a client may write in a path."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.http.workspace.test_files import ATTEMPTS
from tests.support.gateway import Gateway
from tests.support.waiting import until

LARGE = os.urandom(1 << 20) * 24  # more than all buffers on the way hold


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    home = tmp_path_factory.mktemp("files")
    (home / "secret").write_text("outside")
    async with Gateway(home / "data") as running:
        await running.create("s")
        async with running.http() as ada:

            async def live() -> bool:
                return bool((await ada.get("/files/s/")).json().get("source") == "live")

            await until(live, "files of a live sandbox")
        furnish(workspace(running), home / "secret")
        yield running


def workspace(gateway: Gateway) -> Path:
    return gateway.data_dir / "sandboxes" / "s" / "kept" / "workspace"


def furnish(top: Path, secret: Path) -> None:
    (top / "src").mkdir()
    (top / "src" / "large").write_bytes(LARGE)
    (top / "a.txt").write_text("hello")
    (top / "empty").touch()
    (top / "odd \x1b[31m\udcff").write_text("odd")
    (top / "two\nlines").write_text("both")
    (top / "link").symlink_to("src/../a.txt")
    (top / "out").symlink_to(secret)
    (top / "up").symlink_to("../../../../secret")
    (top / "absolute").symlink_to("/etc/passwd")
    (top / "magic").symlink_to("/proc/self/root/etc/passwd")
    (top / "circle").symlink_to("circle")
    os.mkfifo(top / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        directory = os.open(top, os.O_PATH)  # its whole path is too long for a socket's name
        listener.bind(f"/proc/self/fd/{directory}/socket")
        os.close(directory)


@pytest.fixture
async def ada(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http() as client:
        yield client


async def raw(gateway: Gateway, target: str, *headers: str, method: str = "GET") -> tuple[int, bytes]:
    """Status and body, of a request that goes out letter for letter."""
    host, _, port = gateway.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [f"{method} {target} HTTP/1.1", "Host: x", f"Authorization: Bearer {gateway.token()}", "Connection: close"]
    writer.write("\r\n".join([*lines, *headers, "", ""]).encode("latin-1"))
    try:
        async with asyncio.timeout(30):
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.read()
    finally:
        writer.close()
    return int(head.split()[1]), body


async def test_a_workspace_is_listed_as_it_is(ada: httpx.AsyncClient) -> None:
    shown = (await ada.get("/files/s/")).json()
    kinds = {entry["name"]: entry["type"] for entry in shown["entries"]}
    assert list(kinds) == sorted(kinds)
    assert kinds["fifo"] == kinds["socket"] == "other"
    assert kinds["src"] == "directory"
    assert kinds["out"] == "symlink"
    odd = next(entry for entry in shown["entries"] if entry["name"].startswith("odd"))
    assert odd["nameBase64"]


async def test_files_are_served_whole_in_part_and_by_their_head(ada: httpx.AsyncClient, gateway: Gateway) -> None:
    whole = await ada.get("/files/s/src/large")
    assert (whole.status_code, whole.content == LARGE) == (200, True)
    assert whole.headers["content-length"] == str(len(LARGE))
    part = await ada.get("/files/s/src/large", headers={"Range": "bytes=1000000-1000009"})
    assert (part.status_code, part.content) == (206, LARGE[1000000:1000010])
    head = await ada.head("/files/s/src/large")
    assert (head.content, head.headers["content-length"]) == (b"", str(len(LARGE)))
    assert (await ada.get("/files/s/link")).text == "hello"
    assert (await ada.get("/files/s/empty")).content == b""
    assert await raw(gateway, "/files/s/odd%20%1b[31m%ff") == (200, b"odd")
    assert (await ada.get("/files/s/a.txt", headers={"Range": "bytes=5-"})).status_code == 416
    ranges = "bytes=" + ",".join("0-" for _ in range(5000))
    assert (await raw(gateway, "/files/s/src/large", f"Range: {ranges}"))[0] in (400, 431)


@pytest.mark.parametrize(
    "name", ["out", "up", "absolute", "magic", "circle", "fifo", "socket", "up/x", "fifo/x", "gone"]
)
async def test_what_leads_out_or_is_no_file_is_not_there(ada: httpx.AsyncClient, name: str) -> None:
    async with asyncio.timeout(60):
        answer = await ada.get(f"/files/s/{name}?source=live")
    assert answer.status_code == 404, answer.text
    assert answer.json()["code"] in ("cannot_be_read", "no_such_file")
    assert "outside" not in answer.text
    assert "root:" not in answer.text


@pytest.mark.parametrize("path", [each for each in ATTEMPTS if " " not in each])
async def test_no_path_leads_out_of_a_real_workspace(gateway: Gateway, path: str) -> None:
    status, body = await raw(gateway, f"/files/s/{path}")
    assert status in (400, 404), body
    assert b"root:" not in body
    assert b"outside" not in body


async def test_a_file_that_becomes_shorter_while_it_is_read_is_not_ended(gateway: Gateway) -> None:
    shrinking = workspace(gateway) / "shrinking"
    shrinking.write_bytes(LARGE)
    got = bytearray()
    with pytest.raises(httpx.RemoteProtocolError):
        await read_while_it_shrinks(gateway, shrinking, got)
    assert 0 < len(got) < len(LARGE)


async def read_while_it_shrinks(gateway: Gateway, shrinking: Path, got: bytearray) -> None:
    async with gateway.http() as ada, asyncio.timeout(30), ada.stream("GET", f"/files/s/{shrinking.name}") as answer:
        assert answer.headers["content-length"] == str(len(LARGE))
        async for piece in answer.aiter_raw():
            if not got:
                os.truncate(shrinking, 1 << 16)
            got += piece


async def test_a_sandbox_that_sleeps_is_read_from_what_is_kept_and_not_woken(
    gateway: Gateway, ada: httpx.AsyncClient
) -> None:
    (workspace(gateway) / "shrinking").unlink(missing_ok=True)
    slept = await ada.post("/api/sandboxes/s/sleep")
    assert (slept.status_code, slept.json()["status"]) == (200, "sleeping"), slept.text
    kept = await ada.get("/files/s/src/large")
    assert (kept.headers["x-holdfast-source"], kept.content == LARGE) == ("synced", True)
    assert (await ada.get("/files/s/src/large", headers={"Range": "bytes=-9"})).content == LARGE[-9:]
    assert await raw(gateway, "/files/s/odd%20%1b[31m%ff") == (200, b"odd")
    assert await raw(gateway, "/files/s/two%0alines") == (200, b"both")
    names = [entry["name"] for entry in (await ada.get("/files/s/")).json()["entries"]]
    assert "out" in names
    assert "fifo" not in names
    assert (await ada.get("/files/s/out")).json()["code"] == "link_leads_out"
    assert (await ada.get("/files/s/a.txt?source=live")).status_code == 409
    shown = (await ada.get("/api/sandboxes/s/snapshots/newest")).json()
    assert {entry["path"] for entry in shown["skipped"]} == {"workspace/fifo", "workspace/socket"}
    assert (await ada.get("/api/sandboxes/s")).json()["status"] == "sleeping"
