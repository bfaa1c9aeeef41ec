"""A bridge started by hand on a port, as somebody at a shell does it."""

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from sandbox.bridge.standalone import BadChoice, main, parse_listen
from sandbox.protocol.agent import MAX_DELIVERY
from tests.support.bridge import ROOT
from tests.support.s3 import free_ports
from tests.support.waiting import until

CAT = ("/bin/cat",)


class ByHand:
    """One bridge; `says` is what it wrote to its stderr so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", stderr: Path, temporary: Path) -> None:
        self.process = process
        self._stderr = stderr
        self.temporary = temporary

    @property
    def says(self) -> str:
        return self._stderr.read_text()

    @property
    def address(self) -> str | None:
        found = re.search(r"ws://(\S+?)/ ", self.says)
        return found and found[1]

    def client(self, path: str = "/", **more: Any) -> connect:
        return connect(f"ws://{self.address}{path}", open_timeout=60, **more)

    async def agent(self) -> Any:
        async with httpx.AsyncClient(timeout=60) as http:
            answer = await http.get(f"http://{self.address}/health")
        assert (answer.status_code, answer.json()["status"]) == (200, "ok")
        return answer.json()["agent"]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "sandbox.bridge", *words]


def environment(temporary: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "TMPDIR": str(temporary), "WORD": "told"}


@contextlib.contextmanager
def spawned(argv: list[str], tmp_path: Path) -> Iterator[ByHand]:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with open(tmp_path / "stderr", "wb") as stderr:
        process = subprocess.Popen(
            argv, cwd=tmp_path, env=environment(temporary), stdin=subprocess.DEVNULL, stderr=stderr
        )
    try:
        yield ByHand(process, tmp_path / "stderr", temporary)
    finally:
        process.kill()
        process.wait()


@contextlib.asynccontextmanager
async def by_hand(tmp_path: Path, *agent: str, options: tuple[str, ...] = ()) -> AsyncIterator[ByHand]:
    with spawned(command("--listen", "127.0.0.1:0", *options, "--agent", *agent), tmp_path) as bridge:
        await until(lambda: bridge.address, lambda: bridge.says)
        yield bridge


async def heard(socket: ClientConnection, count: int) -> list[str]:
    async with asyncio.timeout(60):
        return [str(await socket.recv()) for _ in range(count)]


async def close_of(socket: ClientConnection) -> tuple[int, str]:
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionClosed):
            while True:
                await socket.recv()
    return socket.close_code or 0, socket.close_reason or ""


async def test_any_path_is_the_agents_lines_and_health_says_how_it_is(tmp_path: Path) -> None:
    async with by_hand(tmp_path, *CAT) as bridge:
        assert await bridge.agent() == {"state": "waiting"}
        for path in ("/", "/agent", "/terminals/main/link", "/any/path?x=y"):
            async with bridge.client(path) as socket:
                for frame in ("one", "two\n", "three\r\n", "", "four\nfive", b"six", "sieben ünd \u2603"):
                    await socket.send(frame)
                expected = ["one", "two", "three", "", "four", "five", "six", "sieben ünd \u2603"]
                assert await heard(socket, len(expected)) == expected
                assert await bridge.agent() == {"state": "running"}


async def test_the_end_of_the_agent_is_told_and_the_next_client_starts_it_again(tmp_path: Path) -> None:
    script = "read line; echo got $line >&2; echo bye; exit $line"
    async with by_hand(tmp_path, "sh", "-c", script) as bridge:
        for code in (0, 3):
            async with bridge.client() as socket:
                await socket.send(str(code))
                assert await heard(socket, 1) == ["bye"]
                assert await close_of(socket) == (1000, f"agent exited with code {code}")
            assert await bridge.agent() == {"state": "exited", "code": code, "signal": None}
        await until(lambda: re.findall("^got .", bridge.says, re.MULTILINE) == ["got 0", "got 3"])
        async with bridge.client() as socket:
            await until(lambda: len(re.findall("agent.started", bridge.says)) == 3)
            pid = int(re.findall(r'"agent.started", "pid": (\d+)', bridge.says)[-1])
            os.kill(pid, signal.SIGKILL)
            assert await close_of(socket) == (1000, "agent killed by SIGKILL")
        assert await bridge.agent() == {"state": "exited", "code": None, "signal": "SIGKILL"}


async def test_output_that_nobody_was_there_to_read_waits_for_the_next_client(tmp_path: Path) -> None:
    waits = "read line; echo first; read line; while [ ! -e go ]; do sleep 0.01; done; echo second; read line"
    async with by_hand(tmp_path, "sh", "-c", waits) as bridge:
        async with bridge.client() as socket:
            await socket.send("x")
            assert await heard(socket, 1) == ["first"]
            await socket.send("y")
        (tmp_path / "go").touch()
        async with bridge.client() as socket:
            assert await heard(socket, 1) == ["second"]


async def test_the_newest_client_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    async with by_hand(tmp_path, *CAT) as bridge, contextlib.AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(bridge.client()) for _ in range(5)]
        for socket in sockets[:-1]:
            assert await close_of(socket) == (4409, "another client has come")
        await sockets[-1].send("still here")
        assert await heard(sockets[-1], 1) == ["still here"]


async def test_a_client_that_floods_and_an_agent_that_does_not_read_hold_each_other_up(tmp_path: Path) -> None:
    """Lines are held within bounds, none is lost, and they come in order."""
    waits = "while [ ! -e go ]; do sleep 0.01; done; exec cat"
    frames = [f"{number} " + "x" * 200_000 for number in range(200)]  # 40 MB; the queue takes 8
    async with by_hand(tmp_path, "sh", "-c", waits) as bridge, bridge.client(max_size=None) as socket:
        sending = asyncio.gather(*[socket.send(frame) for frame in frames])
        await until(lambda: "agent.started" in bridge.says)
        assert not sending.done()
        (tmp_path / "go").touch()
        assert await heard(socket, len(frames)) == frames
        await sending


async def test_a_frame_beyond_the_bound_ends_its_client_and_not_the_agent(tmp_path: Path) -> None:
    async with by_hand(tmp_path, *CAT) as bridge:
        async with bridge.client() as socket:
            await socket.send("x" * (MAX_DELIVERY + 1))
            assert (await close_of(socket))[0] == 1009
        async with bridge.client() as socket:
            await socket.send("hello")
            assert await heard(socket, 1) == ["hello"]


async def test_a_page_of_a_browser_may_not_come_in(tmp_path: Path) -> None:
    """There is no token: any site's page could drive the agent otherwise."""
    async with by_hand(tmp_path, *CAT) as bridge:
        for origin in ("https://elsewhere.example", f"http://{bridge.address}", "null"):
            with pytest.raises(InvalidStatus) as refused:
                await bridge.client(additional_headers={"Origin": origin})
            assert refused.value.response.status_code == 403
        assert await bridge.agent() == {"state": "waiting"}


async def test_nothing_else_is_served(tmp_path: Path) -> None:
    async with by_hand(tmp_path, *CAT) as bridge, httpx.AsyncClient(timeout=60) as http:
        for method, path in (("POST", "/exec"), ("POST", "/health"), ("GET", "/files/workspace/"), ("GET", "/")):
            answer = await http.request(method, f"http://{bridge.address}{path}", json={})
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_the_agent_runs_where_it_was_told_to_with_the_environment_of_the_shell(tmp_path: Path) -> None:
    workspace = tmp_path / "elsewhere"
    workspace.mkdir()
    (tmp_path / "agent").write_text("#!/bin/sh\npwd; echo $WORD; echo $1; echo $2\n")
    (tmp_path / "agent").chmod(0o755)
    words = ("./agent", "--listen", "an argument")
    async with by_hand(tmp_path, *words, options=("--workspace", "elsewhere")) as bridge, bridge.client() as socket:
        assert await heard(socket, 4) == [str(workspace), "told", "--listen", "an argument"]


async def test_its_end_takes_the_agent_and_the_state_along(tmp_path: Path) -> None:
    async with by_hand(tmp_path, *CAT) as bridge, bridge.client() as socket:
        await socket.send("hello")
        assert await heard(socket, 1) == ["hello"]
        assert [name[:16] for name in os.listdir(bridge.temporary)] == ["holdfast-bridge-"]
        assert sorted(os.listdir(tmp_path)) == ["stderr", "temporary"]
        bridge.process.send_signal(signal.SIGINT)
        assert await close_of(socket) == (1000, "agent exited with code 0")
        assert await asyncio.to_thread(bridge.process.wait, 60) == 0
        assert os.listdir(bridge.temporary) == []


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("--listen 0.0.0.0:0 --agent cat", "--allow-remote"),
        ("--listen [::]:0 --agent cat", "--allow-remote"),
        ("--listen 4000 --agent cat", "such as 127.0.0.1:4000"),
        ("--listen 127.0.0.1:4000", "--agent needs a program"),
        ("--listen 127.0.0.1:4000 --agent", "--agent needs a program"),
        ("--agent cat --listen 127.0.0.1:4000", "everything after --agent belongs to the agent"),
        ("--listen 127.0.0.1:4000 --agent /no/such", "no such program"),
        ("--listen 127.0.0.1:4000 --workspace /no/such --agent cat", "no such directory"),
        ("--listen 192.0.2.1:4000 --allow-remote --agent cat", "Cannot assign requested address"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_one(
    words: str, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert advice in capsys.readouterr().err


async def test_whoever_says_so_lets_others_in(tmp_path: Path) -> None:
    words = command("--listen", "0.0.0.0:0", "--allow-remote", "--agent", *CAT)
    with spawned(words, tmp_path) as bridge:
        await until(lambda: bridge.address, lambda: bridge.says)
        async with bridge.client() as socket:
            await socket.send("hello")
            assert await heard(socket, 1) == ["hello"]


def test_the_help_has_an_example_and_every_option(tmp_path: Path) -> None:
    done = subprocess.run(command("--help"), env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0
    for word in ("--listen", "--agent", "--workspace", "--allow-remote", "/health", "curl "):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("text", "meant"),
    [("127.0.0.1:4000", ("127.0.0.1", 4000)), ("[::1]:0", ("::1", 0)), ("localhost:65535", ("localhost", 65535))],
)
def test_an_address_is_a_host_and_a_port(text: str, meant: tuple[str, int]) -> None:
    assert parse_listen(text) == meant


@pytest.mark.parametrize(
    "text", ["", ":", "4000", "host:", ":4000", "host:65536", "host:-1", "host:x", "host:٣", "[]:1"]
)
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(BadChoice, match="a host and a port"):
        parse_listen(text)


async def test_the_example_of_the_documentation_works(tmp_path: Path) -> None:
    page = (ROOT / "docs/operations/agents.md").read_text()
    section = re.split(r"^## ", page.partition("## Trying an agent by hand\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    (port,) = free_ports(1)
    start, ask, talk = [
        block.replace("4000", str(port)) for block in re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)
    ]
    with spawned([sys.executable, *shlex.split(start)[1:]], tmp_path) as bridge:
        await until(lambda: bridge.address, lambda: bridge.says)
        asked = await asyncio.to_thread(subprocess.run, shlex.split(ask), capture_output=True, text=True)
        assert json.loads(asked.stdout) == {"status": "ok", "agent": {"state": "waiting"}}
        talked = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", talk], capture_output=True, text=True)
        assert talked.stdout == "hello\n", talked.stderr
        assert await bridge.agent() == {"state": "running"}
