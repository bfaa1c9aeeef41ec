"""What is typed into a terminal whose sandbox sleeps runs in the shell that comes up, whole and once, whatever the
client speaks."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import ClientConnection, connect

from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.processes import Process
from tests.support.gateway import Gateway
from tests.support.waiting import PATIENCE, until


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("type-ahead") / "data") as running:
        yield running


class Client:
    """Types as one dialect's clients do, and keeps what was shown."""

    def __init__(self, socket: ClientConnection, dialect: str) -> None:
        self._socket = socket
        self._dialect = dialect
        self.shown = ""
        self.said: list[dict[str, object]] = []

    async def type(self, text: str) -> None:
        match self._dialect:
            case "jupyter":
                await self._socket.send(json.dumps(["stdin", text]))
            case "tty":
                await self._socket.send(b"0" + text.encode())
            case "native":
                await self._socket.send(text.encode())
            case _:
                await self._socket.send(text)

    async def until(self, met: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not met():
                self._hear(await self._socket.recv())

    async def shows(self, text: str) -> None:
        await self.until(lambda: text in self.shown)

    async def says(self, **members: object) -> None:
        await self.until(lambda: [said for said in self.said if members.items() <= said.items()])

    def _hear(self, message: str | bytes) -> None:
        if self._dialect == "jupyter":
            word, content = json.loads(message)
            self.shown += content if word == "stdout" else ""
        elif self._dialect == "native" and isinstance(message, str):
            self.said.append(json.loads(message))
        else:
            text = message if isinstance(message, str) else message.decode(errors="replace")
            self.shown += text[1:] if self._dialect == "tty" else text


@asynccontextmanager
async def at(gateway: Gateway, session: str, dialect: str, **query: str) -> AsyncIterator[Client]:
    path, extra = f"/terminal/{session}", {"dialect": dialect}
    if dialect == "jupyter":
        async with gateway.http() as http:
            answer = await http.post(f"/jupyter/{session}/api/terminals")
        path, extra = f"/jupyter/{session}/terminals/websocket/{answer.json()['name']}", {}
    elif dialect == "tty":
        path, extra = f"/tty/{session}/ws", {}
    opening: connect = gateway.socket(path, **extra, **query)
    async with opening as socket:
        client = Client(socket, dialect)
        if dialect == "tty":
            await socket.send(json.dumps({"AuthToken": "", "columns": 80, "rows": 24}).encode())
        yield client


async def do(gateway: Gateway, session: str, verb: str) -> None:
    async with gateway.http() as http:
        answer = await http.post(f"/api/sandboxes/{session}/{verb}")
    assert answer.status_code == 200, answer.text


async def status(gateway: Gateway, session: str) -> str:
    async with gateway.http() as http:
        return str((await http.get(f"/api/sandboxes/{session}/status")).json()["status"])


@pytest.mark.parametrize("keys", ["line", "key by key"])
@pytest.mark.parametrize("dialect", ["native", "plain", "jupyter", "tty"])
async def test_a_line_typed_into_a_sleeping_terminal_runs(gateway: Gateway, dialect: str, keys: str) -> None:
    session = f"{dialect}-{'line' if keys == 'line' else 'keys'}"
    await gateway.create(session)
    async with at(gateway, session, dialect) as client:
        await client.type("echo $((6*7))before\r")
        await client.shows("42before")
        await do(gateway, session, "sleep")
        client.shown = ""
        line = "echo $((6*7))after\r"
        for piece in [line] if keys == "line" else line:
            await client.type(piece)
        await client.shows("42after")
        await client.type("echo $((40+2))done\r")
        await client.shows("42done")
        assert client.shown.count("42after") == 1
        assert "not found" not in client.shown


@pytest.mark.parametrize("dialect", ["native", "plain"])
async def test_lines_typed_while_a_session_falls_asleep_run_when_it_wakes(gateway: Gateway, dialect: str) -> None:
    """The last sync takes a while, and the program has ended by then: what was typed meanwhile was lost."""
    session = f"falls-{dialect}"
    await gateway.create(session)
    async with at(gateway, session, dialect) as client, gateway.http() as http:
        await client.type("for i in $(seq 3000); do echo $i > f$i; done; echo $((6*7))made\r")
        await client.shows("42made")
        sleeping = asyncio.create_task(do(gateway, session, "sleep"))

        async def hung_up() -> bool:
            there = (await http.get(f"/api/sandboxes/{session}/terminals")).json()["terminals"]
            return sleeping.done() or not any(each["alive"] for each in there)

        await until(hung_up, "the program to end")
        lines = 0
        while not lines or not sleeping.done():
            lines += 1
            await client.type(f"echo {lines} >> typed\r")
            await asyncio.sleep(0.05)
        await sleeping
        await client.type("echo $((6*7))woken\r")
        await client.shows("42woken")
        ran = await http.get(f"/files/{session}/typed", params={"source": "live"})
        assert ran.text.split() == [str(number) for number in range(1, lines + 1)]
        assert not [said for said in client.said if said["type"] == "error"]


@pytest.mark.parametrize("keys", ["line", "key by key"])
async def test_a_line_typed_after_the_program_ended_runs_in_the_next(gateway: Gateway, keys: str) -> None:
    """The first key was once eaten: `cho` ran. A line in one frame vanished."""
    session = f"ended-{'line' if keys == 'line' else 'keys'}"
    await gateway.create(session)
    async with at(gateway, session, "native") as client:
        await client.type("exit\r")
        await client.says(type="exit")
        line = "echo $((6*7))after\r"
        for piece in [line] if keys == "line" else line:
            await client.type(piece)
        await client.shows("42after")
        assert "not found" not in client.shown
        assert not [said for said in client.said if said["type"] == "error"]


async def test_tens_of_kilobytes_are_typed_in_order_and_once(gateway: Gateway) -> None:
    await gateway.create("long")
    lines = [f"n=$(((n*31+{number})%1000003)); : {'x' * 960}\r" for number in range(60)]
    expected = 0
    for number in range(60):
        expected = (expected * 31 + number) % 1_000_003
    async with at(gateway, "long", "plain") as client:
        await client.type("echo $((6*7))before\r")
        await client.shows("42before")
        await do(gateway, "long", "sleep")
        await client.type("n=0\r")
        for at_line in range(0, 60, 10):
            await client.type("".join(lines[at_line : at_line + 10]))
        await client.type("echo sum=$n\r")
        await client.shows(f"sum={expected}")


async def test_more_than_64_kib_is_refused_with_a_word_and_nothing_behind_it_runs(gateway: Gateway) -> None:
    await gateway.create("much")
    async with at(gateway, "much", "native") as client:
        await client.type("echo $((6*7))before\r")
        await client.shows("42before")
        await do(gateway, "much", "sleep")
        await client.says(type="status", status="sleeping")
        await client.type("echo $((6*7))first\r")
        for _ in range(5):
            await client.type(f": {'x' * 16_000}\r")
        await client.type("echo $((6*7))behind\r")
        await client.says(type="error", code="input_full")
        await client.says(type="status", status="running")
        await client.shows("42first")
        await client.type("echo $((40+2))room\r")
        await client.shows("42room")
        assert "42behind" not in client.shown


async def test_a_paused_session_types_nothing_and_says_so(gateway: Gateway) -> None:
    await gateway.create("paused")
    async with at(gateway, "paused", "native") as client:
        await client.says(type="ready")
        await do(gateway, "paused", "pause")
        await client.says(type="status", status="paused")
        await client.type("echo $((6*7))paused\r")
        await client.says(type="error", code="paused")
        await do(gateway, "paused", "resume")
        await client.says(type="status", status="running")
        await client.type("echo $((6*7))resumed\r")
        await client.shows("42resumed")
        assert "42paused" not in client.shown


async def test_who_only_views_types_nothing_and_wakes_nothing(gateway: Gateway) -> None:
    await gateway.create("viewed")
    await do(gateway, "viewed", "sleep")
    async with at(gateway, "viewed", "native", role="view") as viewer:
        await viewer.says(type="status", status="sleeping")
        await viewer.type("echo $((6*7))viewed\r")
        async with at(gateway, "viewed", "native") as driver:
            await driver.says(type="status", status="sleeping")
            assert await status(gateway, "viewed") == "sleeping"
            await driver.type("echo $((6*7))driven\r")
            await driver.shows("42driven")
            assert "42viewed" not in driver.shown


@pytest.mark.parametrize("dialect", ["native", "plain"])
async def test_keys_meant_for_a_program_that_died_do_not_run_in_the_next(gateway: Gateway, dialect: str) -> None:
    """Whoever answers a program's question while the sandbox dies must not have the answer run by a fresh shell."""
    session = f"dies-{dialect}"
    await gateway.create(session)
    async with at(gateway, session, dialect) as client:
        await client.type("echo $((6*7))asks; read answer\r")
        await client.shows("42asks")
        note = SandboxHome(gateway.data_dir, session).read_note()
        assert note is not None
        client.shown = ""
        Process(note.init_pid, note.init_started).signal(signal.SIGKILL)
        for key in "touch wrong-program\r":
            await client.type(key)
        await client.until(lambda: any(prompt in client.shown for prompt in ("$ ", "# ")))
        await client.type("test -e wrong-program; echo $((41+$?))absent\r")
        await client.shows("42absent")
