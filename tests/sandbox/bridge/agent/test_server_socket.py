"""A real bridge and agents that are servers: real programs, reached over a WebSocket."""

import asyncio
import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from sandbox.bridge.agent.server_socket import MAX_HEAD, AgentSocket, ServerUnready, check_health, dial, taken_port
from sandbox.client.agent_link import BridgeLink
from sandbox.protocol.agent_server import read_server
from tests.support import agent_server
from tests.support.agent_server import reserved_port
from tests.support.bridge import BridgeProcess, Owner, running_bridge
from tests.support.waiting import until

ARGUMENTS = [sys.executable, "-u", agent_server.__file__]
START = b'{"type":"start","model":"m"}'


@pytest.fixture
def port() -> Iterator[int]:
    with reserved_port() as holder:
        yield holder.getsockname()[1]


def server(
    home: Path, port: int, *words: str, agent: list[str] | None = None, health: str = "/health", **limits: float
) -> AbstractContextManager[BridgeProcess]:
    members = {"connect": f"ws://127.0.0.1:{port}/agent", "health": health}
    return running_bridge(home, agent or [*ARGUMENTS, str(port), *words], server=members, limits=limits)


async def begun(bridge: BridgeProcess, start: bytes | None = START) -> tuple[BridgeLink, Owner]:
    owner = Owner()
    link = await bridge.link(owner)
    link.start(start)
    return link, owner


def message(seq: int, text: str) -> tuple[int, bytes]:
    return seq, json.dumps({"seq": seq, "type": "message", "content": text}).encode()


def frames(owner: Owner) -> list[dict[str, Any]]:
    return [json.loads(line) for line in owner.lines()] if owner.epochs else []


def told(bridge: BridgeProcess) -> list[Any]:
    path = bridge.workspace / "told"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line if line == "+" else json.loads(line) for line in lines]


async def done(owner: Owner, count: int = 1) -> None:
    await until(lambda: [frame["type"] for frame in frames(owner)].count("done") >= count)


async def test_lines_are_frames_both_ways_once_the_server_is_healthy(tmp_path: Path, port: int) -> None:
    with server(tmp_path, port, "2") as bridge:
        link, owner = await begun(bridge)
        link.deliver(*message(1, "hello"))
        await done(owner)
        assert frames(owner) == [{"type": "chunk", "text": "you said hello"}, {"type": "done"}]
        assert [each if each == "+" else each["type"] for each in told(bridge)] == ["+", "start", "message"]
        assert owner.taken == 1
        assert owner.problems == []
        assert "an agent that prints" in (tmp_path / "agent.log").read_text()


async def test_a_server_without_a_health_path_is_ready_when_it_takes_the_connection(tmp_path: Path, port: int) -> None:
    with server(tmp_path, port, "99", health="") as bridge:
        link, owner = await begun(bridge, None)
        link.deliver(*message(1, "lines"))
        await done(owner)
        assert frames(owner)[0] == {"type": "chunk", "text": "two lines"}
        assert told(bridge)[0] == "+"


async def test_a_server_that_is_never_healthy_is_ended_in_words_and_took_nothing(tmp_path: Path, port: int) -> None:
    with server(tmp_path, port, "1000000", server_start_seconds=3.0) as bridge:
        link, owner = await begun(bridge)
        link.deliver(*message(1, "hello"))
        await until(lambda: bool(owner.exits))
        assert owner.exits[0].signal == "SIGTERM"
        (problem,) = owner.problems
        assert problem.startswith(f"the agent's server at 127.0.0.1:{port} was not ready within 3 s: ")
        assert owner.taken == 0
        assert told(bridge) == []


async def test_a_server_that_never_listens_is_told_apart(tmp_path: Path, port: int) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    with server(tmp_path, port, agent=sleeper, server_start_seconds=3.0) as bridge:
        _, owner = await begun(bridge)
        await until(lambda: bool(owner.exits))
        assert owner.problems[0].endswith("Connection refused")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "/agent: 404"),
        (b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n\r\n", "/agent: not a WebSocket"),
        (b"SSH-2.0\r\n\r\n", "/agent: no HTTP answer"),
        (b"x" * (MAX_HEAD + 1), "the answer's head has no end"),
        (b"", "the connection was closed"),
    ],
)
async def test_a_server_that_speaks_no_websocket_says_so_in_words(answer: bytes, why: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as listening:
        address = read_server(f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}/agent")
        with pytest.raises(ServerUnready) as refused:
            await dial(address, lambda: None)
        assert str(refused.value) == why


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 503 Busy\r\n\r\n", "/ok: status 503"),
        (b"SSH-2.0\r\n", "/ok: no HTTP answer"),
        (b"x" * (MAX_HEAD * 2), "/ok: no HTTP answer"),
        (b"", "/ok: no HTTP answer"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", ""),
    ],
)
async def test_the_health_of_a_server_is_what_its_path_answers(answer: bytes, why: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(answer)
        writer.close()

    asked: list[bytes] = []
    async with await asyncio.start_server(talk, "127.0.0.1", 0) as listening:
        said = ""
        try:
            await check_health(read_server(f"ws://localhost:{listening.sockets[0].getsockname()[1]}", "/ok"))
        except ServerUnready as unready:
            said = str(unready)
    assert (asked, said) == ([b"GET /ok HTTP/1.1\r\n"], why)


async def test_a_connection_that_ends_is_made_again_while_the_server_lives(tmp_path: Path, port: int) -> None:
    with server(tmp_path, port) as bridge:
        link, owner = await begun(bridge)
        link.deliver(*message(1, "drop"))
        await until(lambda: bool(owner.problems))
        link.deliver(*message(2, "hello"))
        await done(owner)
        assert not owner.exits
        assert owner.problems == [
            "the connection to the agent's server ended and was made again: what was under way may be lost"
        ]
        kinds = [each if each == "+" else each["type"] for each in told(bridge)]
        assert kinds == ["+", "start", "message", "+", "start", "message"]
        starts = [each for each in told(bridge) if each != "+" and each["type"] == "start"]
        assert starts == [json.loads(START), {**json.loads(START), "resume": True}]


async def test_the_servers_death_is_the_agents_and_its_last_words_are_read(tmp_path: Path, port: int) -> None:
    with server(tmp_path, port) as bridge:
        link, owner = await begun(bridge)
        link.deliver(*message(1, "die"))
        await until(lambda: bool(owner.exits))
        assert frames(owner) == [{"type": "chunk", "text": "my last words"}]
        assert (owner.exits[0].code, owner.exits[0].taken) == (3, 1)
        link.start(None)
        await until(lambda: len(owner.epochs) == 2)
        link.deliver(*message(2, "hello"))
        await done(owner)


async def test_a_server_that_closes_every_connection_is_ended_in_words(tmp_path: Path, port: int) -> None:
    rude = (
        "import sys, os\nfrom websockets.sync.server import serve\n"
        f"with serve(lambda socket: socket.close(), '127.0.0.1', {port}) as server: server.serve_forever()"
    )
    with server(tmp_path, port, agent=[sys.executable, "-c", rude], health="") as bridge:
        _, owner = await begun(bridge)
        await until(lambda: bool(owner.exits))
        assert owner.problems[-1] == "the agent's server closed 10 connections without a word"


async def test_a_frame_that_is_too_long_costs_the_connection_and_says_so(tmp_path: Path, port: int) -> None:
    with server(tmp_path, port) as bridge:
        link, owner = await begun(bridge)
        link.deliver(*message(1, f"large {2 << 20}"))
        await until(lambda: len(owner.problems) == 2)
        assert owner.problems[0].endswith("closed: message is longer than 1048576 bytes")
        link.deliver(*message(2, "large 1000000"))
        await until(lambda: bool(frames(owner)))
        assert len(frames(owner)[0]["text"]) == 1_000_000


async def test_a_full_backlog_stops_the_server_and_nothing_is_lost(tmp_path: Path, port: int) -> None:
    bound, one_read, count = 64 << 10, 320 << 10, 6000
    with server(tmp_path, port, backlog_bytes=bound) as bridge:
        link, owner = await begun(bridge)
        link.deliver(*message(1, f"flood {count}"))
        confirmed = 0

        def full() -> bool:
            return (owner.received - confirmed) * 564 >= bound or owner.received == count

        async with bridge.client() as http:
            while confirmed < count:
                await until(full)
                for _ in range(3):  # a bridge that went on reading would show it now
                    await http.get("/health")
                assert (owner.received - confirmed) * 564 <= bound + one_read
                confirmed = owner.received
                link.confirm(owner.position)
        assert owner.lines() == [b"%0500d" % n for n in range(count)]


async def test_a_binary_frame_is_left_out_and_told_once(tmp_path: Path, port: int) -> None:
    with server(tmp_path, port) as bridge:
        link, owner = await begun(bridge)
        link.deliver(*message(1, "binary"))
        link.deliver(*message(2, "binary"))
        await done(owner, 2)
        assert [frame["type"] for frame in frames(owner)] == ["done", "done"]
        assert len(owner.problems) == 1


async def test_a_port_that_another_program_has_is_not_spoken_to(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, server(tmp_path, other.getsockname()[1]) as bridge:
        _, owner = await begun(bridge)
        await until(lambda: bool(owner.problems))
        assert "is taken by another program: name another port" in owner.problems[0]
        assert owner.epochs == []


async def test_a_stop_ends_it_at_once_and_an_abort_is_a_frame(tmp_path: Path, port: int) -> None:
    with server(tmp_path, port) as bridge:
        link, owner = await begun(bridge)
        link.deliver(*message(1, "hello"))
        await done(owner)
        link.inject(b'{"type":"abort"}')
        await done(owner, 2)
        link.stop_agent()
        await until(lambda: bool(owner.exits))
        assert owner.exits[0].signal == "SIGTERM"


async def test_a_server_that_is_to_stop_is_not_connected_to_again() -> None:
    told: list[str] = []
    accepted: list[ServerConnection] = []

    async def speak(connection: ServerConnection) -> None:
        accepted.append(connection)
        await connection.wait_closed()

    async with serve(speak, "127.0.0.1", 0) as listening:
        both = AgentSocket(
            read_server(f"ws://127.0.0.1:{next(iter(listening.sockets)).getsockname()[1]}"),
            start_seconds=60.0,
            start=START,
            pull=lambda: b"",
            on_chunk=lambda chunk: None,
            on_problem=told.append,
            on_lost=told.append,
        )
        await until(lambda: accepted)
        both.finish()
        await until(lambda: both.done)
        assert (len(accepted), told) == (1, [])


@pytest.mark.parametrize("host", ["localhost", "[::1]"])
def test_a_machine_without_ipv6_has_no_port_of_it_taken(host: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    def unsupported(family: int = socket.AF_INET) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return real(family)

    address = read_server(f"ws://{host}:{port}")
    monkeypatch.setattr(socket, "socket", unsupported)
    assert not taken_port(address)


async def test_a_killed_server_takes_its_connection_along(tmp_path: Path, port: int) -> None:
    with server(tmp_path, port) as bridge:
        link, owner = await begun(bridge)
        link.deliver(*message(1, "hello"))
        await done(owner)
        link.kill_agent()
        await until(lambda: bool(owner.exits))
        assert owner.exits[0].signal == signal.SIGKILL.name
        assert owner.problems == []
