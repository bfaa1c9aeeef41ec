"""Programs of contained sandboxes reach hosts by the proxy alone; a gateway that goes cuts none of their streams."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.egress import process
from tests.gateway.egress.proxies import HERE, host, plain
from tests.support.chat import hear
from tests.support.gateway import Gateway
from tests.support.inside import Inside, inside
from tests.support.waiting import until

STREAM = "import sys, urllib.request as r\nfor line in r.urlopen(sys.argv[1]): print(line.decode().strip(), flush=True)"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    settings = {"LOCAL_LEVEL": "contained", "NETWORK_INNER": f"{HERE}/32"}
    async with Gateway(tmp_path / "data", **settings) as gateway:
        yield gateway


@pytest.fixture
async def within(gateway: Gateway) -> AsyncIterator[Inside]:
    async with inside(gateway.data_dir) as within:
        yield within


async def test_a_list_allows_what_it_names_and_nothing_else(gateway: Gateway, within: Inside) -> None:
    async with host(plain) as web, host(plain) as other:
        made = await gateway.create("ann", network={"allow": [f"{HERE}:{web}"]})
        assert made["network"] == {"allow": [f"{HERE}:{web}"]}
        assert "GET /a HTTP/1.1" in await within.shell("ann", f"curl -sS http://{HERE}:{web}/a")
        denied = await within.shell("ann", f"curl -sS http://{HERE}:{other}/a; curl -sS https://example.com/")
        assert f'"{HERE}:{other}" in the allow of its network (HOLDFAST_NETWORK) allows it' in denied
        assert "403" in denied
        told = [json.loads(line) for line in gateway.log.splitlines() if "egress.denied" in line]
        assert {each["host"]: each["allow"] for each in told}["example.com"] == '"allow": ["example.com"]'


async def test_with_no_network_a_program_is_told_so(gateway: Gateway, within: Inside) -> None:
    await gateway.create("ann")
    told = await within.shell("ann", "curl -sS http://example.com/; env | sort")
    assert "this session has network: none" in told
    assert "HTTPS_PROXY=http://127.0.0.1:3128" in told
    assert "NO_PROXY=127.0.0.1,localhost,::1" in told


async def test_who_watches_a_session_sees_what_it_was_refused(gateway: Gateway, within: Inside) -> None:
    await gateway.create("ann", network={"allow": ["a.example"]})
    async with gateway.chat("ann") as socket:
        await hear(socket, "welcome")
        await within.shell("ann", "curl -sS https://b.example:8443/; curl -sS https://b.example:8443/")
        shown = await hear(socket, lambda frame: frame.get("status") == "host_denied")
    assert (shown["host"], shown["port"], shown["allow"]) == ("b.example", 8443, "b.example:8443")
    assert "HOLDFAST_NETWORK" in shown["reason"]


async def test_the_hosts_loopback_is_out_of_reach(gateway: Gateway, within: Inside) -> None:
    async with host(plain, "127.0.0.1") as own:
        await gateway.create("ann", network="outbound")
        port = gateway.url.rpartition(":")[2]
        said = await within.shell(
            "ann",
            f"curl -sS -m 5 --noproxy '*' http://127.0.0.1:{own}/; curl -sS -m 5 --noproxy '*' {gateway.url}/health;"
            f"curl -sS -x http://127.0.0.1:3128 --noproxy '' http://127.0.0.1:{port}/health; cat /proc/net/dev",
        )
        assert "GET /" not in said
        assert "HTTP/1.1" not in said
        assert '"version"' not in said
        assert said.splitlines()[-1].split(":")[0].strip() == "lo", "there is no other interface"


@pytest.mark.parametrize("end", ["kill", "terminate"])
async def test_no_stream_is_cut_when_the_gateway_goes(gateway: Gateway, within: Inside, end: str) -> None:
    go_on, said = asyncio.Event(), asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfirst\n")
        said.set()
        await go_on.wait()
        writer.write(b"last\n")
        await writer.drain()

    async with host(stream) as port:
        await gateway.create("ann", network={"allow": [f"{HERE}:{port}"]})
        reading = asyncio.create_task(within.run("ann", "python3", "-c", STREAM, f"http://{HERE}:{port}/"))
        await said.wait()
        note = process.noted(gateway.data_dir / "run")
        await gateway.restart(kill=end == "kill")
        go_on.set()
        done = await reading
        assert done.stdout.split() == ["first", "last"], done
        again = await within.run("ann", "python3", "-c", STREAM, f"http://{HERE}:{port}/")
        assert again.stdout.split() == ["first", "last"]
        assert process.noted(gateway.data_dir / "run") == note, "it is the same proxy"


async def test_a_killed_proxy_is_started_again_and_nobody_else_notices(gateway: Gateway, within: Inside) -> None:
    async with host(plain) as web, gateway.http() as client:
        await gateway.create("ann", network={"allow": [f"{HERE}:{web}"]})
        assert "GET /a HTTP/1.1" in await within.shell("ann", f"curl -sS http://{HERE}:{web}/a")
        note = process.noted(gateway.data_dir / "run")
        assert note is not None
        async with gateway.chat("ann") as socket:
            os.kill(note.pid, signal.SIGKILL)
            assert "GET /b HTTP/1.1" in await within.shell("ann", f"curl -sS http://{HERE}:{web}/b")
            await socket.ping()
        assert (await client.get("/health")).status_code == 200


async def test_an_ended_sandbox_is_served_no_more(gateway: Gateway, within: Inside) -> None:
    async with host(plain) as web, gateway.http() as client:
        await gateway.create("ann", network={"allow": [f"{HERE}:{web}"]})
        assert "GET /a HTTP/1.1" in await within.shell("ann", f"curl -sS http://{HERE}:{web}/a")
        note = process.noted(gateway.data_dir / "run")
        assert note is not None
        before = _sockets(note.pid)
        assert (await client.post("/api/sandboxes/ann/sleep")).status_code == 200
        await until(lambda: _sockets(note.pid) == before - 1, "the listener's end")


def _sockets(pid: int) -> int:
    found = [os.readlink(f"/proc/{pid}/fd/{each}") for each in os.listdir(f"/proc/{pid}/fd")]
    return sum(each.startswith("socket:") for each in found)
