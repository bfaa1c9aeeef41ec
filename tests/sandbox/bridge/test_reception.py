"""Who comes to a bridge: what every start needs is answered without a web server, the rest as ever."""

import asyncio
import json
import re
import socket
from pathlib import Path

import pytest

from sandbox.bridge.agent.agent import Agent
from sandbox.bridge.agent.taken import TakenNotes
from sandbox.bridge.base.config import parse_config
from sandbox.bridge.reception import Reception
from sandbox.bridge.server import Bridge
from sandbox.client.tree import BridgeTree
from tests.support.bridge import TOKEN, BridgeProcess, Owner, at, running_bridge
from tests.support.waiting import until

HEAVY = {"uvicorn", "starlette", "click", "httptools", "anyio", "sandbox.bridge.web", "sandbox.bridge.tree.routes"}
HEALTH = b"GET /health HTTP/1.1\r\nHost: bridge\r\n\r\n"


async def started(bridge: BridgeProcess) -> Owner:
    """All that a gateway does until the agent has read a line."""
    owner = Owner()
    assert (await ask(bridge, HEALTH)).startswith(b"HTTP/1.1 200 ")
    tree = BridgeTree(at(bridge.path))
    assert (await tree.survey([])).held
    await tree.release()
    link = await bridge.link(owner)
    link.start(None)
    link.deliver(1, b"a line")
    await until(lambda: owner.received)
    return owner


async def ask(bridge: BridgeProcess, *pieces: bytes) -> bytes:
    """Send the pieces one after the other; what is answered until the other end closes."""
    async with asyncio.timeout(60):
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(bridge.path)
                break
            except ConnectionRefusedError:  # it is starting
                await asyncio.sleep(0)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        answer = await reader.read()
        writer.close()
        return answer


@pytest.mark.parametrize("path", ["/tree", "/agent"])
async def test_what_comes_before_any_task_runs_is_for_who_was_asked_for(tmp_path: Path, path: str) -> None:
    """uvloop may read several times before it gives tasks their turn."""
    config = parse_config(json.dumps(BridgeProcess(tmp_path, ["cat"]).config).encode())
    config.state.mkdir()
    notes = TakenNotes(config.state)
    bridge = Bridge(config, Agent(config, notes))
    reception = Reception(bridge, TOKEN)
    near, far = socket.socketpair()
    transport, caller = await asyncio.get_running_loop().create_connection(reception.caller, sock=near)
    caller.data_received(upgrade(path, f"Authorization: Bearer {TOKEN}\r\n"))
    taken_by = transport.get_protocol()
    far.close()
    await reception.close()
    bridge.close()
    notes.close()
    assert taken_by is not caller


def upgrade(path: str, authorization: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: bridge\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{authorization}"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def loaded(bridge: BridgeProcess) -> set[str]:
    bridge.terminate()
    said = re.search(r"^loaded: (.*)$", bridge.log, re.MULTILINE)
    assert said is not None, bridge.log
    return set(said[1].split())


async def test_a_start_loads_no_web_server(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], module="tests.support.telling_bridge", hold=True) as bridge:
        await started(bridge)
        assert HEAVY & loaded(bridge) == set()


async def test_who_asks_for_more_gets_a_web_server(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], module="tests.support.telling_bridge", hold=True) as bridge:
        await started(bridge)
        async with bridge.client() as http:
            assert (await http.get("/terminals")).json() == {"terminals": []}
            assert (await http.get("/files/agent")).status_code == 200
        assert loaded(bridge) >= HEAVY


async def test_many_who_come_while_it_is_loaded_are_all_answered(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        await ask(bridge, HEALTH)
        async with bridge.client() as http:
            answers = await asyncio.gather(*(http.get("/terminals") for _ in range(8)))
        assert [answer.status_code for answer in answers] == [200] * 8


@pytest.mark.parametrize(
    "pieces",
    [
        [HEALTH[number : number + 1] for number in range(len(HEALTH))],
        [b"GET /health HTTP/1.0\r\n\r\n"],
        [b"GET /health HTTP/1.1\r\nHost: bridge\r\nX-Long: " + b"x" * 20_000, b"\r\nConnection: close\r\n\r\n"],
        [b"GET /health?really HTTP/1.1\r\nHost: bridge\r\nConnection: close\r\n\r\n"],
        [b"GET /health HTTP/1.1\r\nHost: bridge\r\nhost: another\r\nConnection: close\r\n\r\n"],
    ],
    ids=["in pieces", "of an older HTTP", "with a long head", "with a query", "with a header twice"],
)
async def test_health_is_told_however_it_is_asked_for(tmp_path: Path, pieces: list[bytes]) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        answer = await ask(bridge, *pieces)
        assert answer.split(b"\r\n")[0] == b"HTTP/1.1 200 OK"
        assert answer.endswith(b'"agent":{"state":"waiting"}}') or answer.endswith(b'"agent": {"state": "waiting"}}')


@pytest.mark.parametrize("path", ["/tree", "/agent"])
@pytest.mark.parametrize("authorization", ["", "Authorization: Bearer wrong\r\n", f"Authorization: Basic {TOKEN}\r\n"])
async def test_without_the_token_nobody_comes_in(tmp_path: Path, path: str, authorization: str) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        assert (await ask(bridge, upgrade(path, authorization))).startswith(b"HTTP/1.1 401 ")


async def test_a_long_body_that_comes_while_it_is_loaded_arrives_whole(tmp_path: Path) -> None:
    command = b'{"command":"true","timeout":60,"cwd":"' + b"." + b"/" * (4 * 65_536) + b'"}'
    head = b"POST /exec HTTP/1.1\r\nHost: bridge\r\nConnection: close\r\nAuthorization: Bearer %b\r\n" % TOKEN.encode()
    with running_bridge(tmp_path, ["cat"]) as bridge:
        answer = await ask(bridge, head, b"Content-Length: %d\r\n\r\n" % len(command), command)
        assert answer.split(b" ")[1] in (b"200", b"400"), answer  # read to its end, and judged


async def test_a_bridge_ends_while_somebody_has_said_half_a_request(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        await ask(bridge, HEALTH)
        _, writer = await asyncio.open_unix_connection(bridge.path)
        writer.write(HEALTH[:20])
        await writer.drain()
        await ask(bridge, HEALTH)
        assert bridge.terminate() == 0
        writer.close()
