"""Terminals of a real gateway in the hands of clients that others wrote, unmodified, at real shells.

Each types a command and shows what it printed, resizes its screen and the program knows, comes back and shows it again,
and is told of the program's end the way it expects. ttyd's page cannot be had as a package: what it sends and reads is
spelled out here byte by byte instead.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlencode

import pytest
from playwright.async_api import Browser, Page
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from tests.support.browser import chromium, open_page
from tests.support.gateway import Gateway
from tests.support.terminal_clients import TerminalClient, terminal_client

NUMBERS = count(1)


@dataclass(frozen=True)
class Place:
    """A session with a terminal, and how to get there."""

    url: str
    session: str
    token: str

    @property
    def query(self) -> str:
        return urlencode({"token": self.token})

    def socket(self, path: str, **query: object) -> str:
        asked = urlencode({"token": self.token, **query})
        return f"{self.url.replace('http', 'ws', 1)}{path.format(id=self.session)}?{asked}"

    def plain(self, **query: object) -> str:
        return self.socket("/terminal/{id}", **query)


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("dialects") / "data") as running:
        yield running


@pytest.fixture
async def place(gateway: Gateway) -> Place:
    session = f"shell-{next(NUMBERS)}"
    await gateway.create(session)
    return Place(gateway.url, session, gateway.token())


async def try_the_shell(client: TerminalClient) -> None:
    """Typing reaches a shell, and what it prints the screen: also what takes more than one byte a character."""
    await client.type("echo $((6*7))is grün 日本\r")
    await client.shows_line("42is grün 日本")


@pytest.mark.parametrize("driver", ["attach", "snippet"])
async def test_a_plain_client_types_sees_comes_back_and_is_closed_at_the_end(place: Place, driver: str) -> None:
    async with terminal_client(driver, url=place.plain(cols=80, rows=24)) as client:
        await client.tells(state="connected")
        await try_the_shell(client)
    async with terminal_client(driver, cols=100, rows=30, url=place.plain(cols=100, rows=30)) as client:
        await client.shows_line("42is grün 日本")
        await client.type("stty size\r")
        await client.shows_line("30 100")
        await client.type("exit 3\r")
        assert (await client.tells(state="closed"))["code"] == 1000


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as running:
        yield running


async def shows_line(page: Page, line: str) -> None:
    await page.wait_for_function("line => window.shown().includes(line)", arg=line, timeout=60_000)


@pytest.mark.parametrize("client", ["attach", "snippet"])
async def test_a_plain_page_in_a_real_browser_shows_its_screen_again_when_it_is_loaded_anew(
    place: Place, browser: Browser, client: str
) -> None:
    asked = urlencode({"client": client, "url": place.plain(cols=80, rows=24)})
    page = await open_page(browser, place.url, f"plain.html#{asked}")
    await page.wait_for_function("document.title === 'connected'")
    await page.keyboard.type("echo $((6*7))is grün; stty size\n")
    await shows_line(page, "42is grün")
    await shows_line(page, "24 80")
    await page.reload()
    await shows_line(page, "42is grün")
    await page.keyboard.type("exit 3\n")
    await page.wait_for_function("document.title === 'closed 1000'", timeout=60_000)
    await page.context.close()


async def test_what_a_full_screen_program_asked_for_is_there_after_coming_back(place: Place) -> None:
    async with terminal_client("attach", url=place.plain(cols=80, rows=24)) as client:
        await client.tells(state="connected")
        await client.type("printf '\\033[?1049h\\033[2J\\033[5;10Hin the middle'; cat\r")
        await client.shows_line(" " * 9 + "in the middle")
    async with terminal_client("attach", url=place.plain(cols=80, rows=24)) as client:
        await client.shows_line(" " * 9 + "in the middle")
        assert client.screen[4] == " " * 9 + "in the middle"
        assert client.history == 0
        await client.type("\x04printf '\\033[?1049l'; echo $((40+2))back\r")
        await client.shows_line("42back")


async def test_cloudflares_addon_types_resizes_comes_back_by_itself_and_is_told_the_exit(place: Place) -> None:
    options = {"origin": place.url, "query": place.query, "sandbox": place.session}
    async with terminal_client("cloudflare", cols=90, rows=20, **options) as client:
        await client.tells(state="connected")
        await try_the_shell(client)
        await client.type("stty size\r")  # it said its size when it was told `ready`
        await client.shows_line("20 90")
        await client.do("resize", cols=100, rows=30)
        await client.type("clear; stty size\r")
        await client.shows_line("30 100")

        await client.do("cut")
        await client.tells(state="disconnected")
        await client.tells(state="connected")
        await client.shows_line("30 100")
        await client.type("echo $((40+2))again\r")
        await client.shows_line("42again")
        assert client.screen.count("30 100") == 1  # painted anew, not below what it had

        await client.type("exit 3\r")
        await client.tells(state="connected", error="Session exited with code 3")
        assert not [told for told in client.told if told.get("closed") == 1000]


async def test_jupyterlabs_manager_starts_lists_joins_and_ends_a_terminal(place: Place) -> None:
    options = {"base": f"{place.url}/jupyter/{place.session}/", "token": place.token}
    async with terminal_client("jupyter", cols=90, rows=20, **options) as client:
        name = (await client.tells(state="connecting"))["name"]
        await client.tells(state="connected")
        await try_the_shell(client)
        await client.type("stty size\r")
        await client.shows_line("20 90")
        await client.do("resize", cols=100, rows=30)
        await client.type("clear; stty size\r")
        await client.shows_line("30 100")
        await client.do("list")
        assert name in (await client.tells(state="listed"))["running"]

        await client.do("reconnect")
        await client.tells(state="connecting")
        await client.tells(state="connected")
        await client.type("echo $((40+2))again\r")
        await client.shows_line("42again")
        assert client.screen.count("30 100") == 1

        async with terminal_client("jupyter", cols=100, rows=30, name=name, **options) as other:
            await other.tells(state="connected")
            await other.shows_line("42again")
            await other.type("exit\r")
            await other.tells(state="disposed")
        await client.tells(state="disposed")


async def test_jupyterlabs_manager_shuts_a_terminal_down(place: Place) -> None:
    options = {"base": f"{place.url}/jupyter/{place.session}/", "token": place.token}
    async with terminal_client("jupyter", cols=80, rows=24, **options) as client:
        name = (await client.tells(state="connecting"))["name"]
        await client.tells(state="connected")
        await client.do("shutdown")
        await client.tells(state="shut down")
        await client.do("list")
        assert name not in (await client.tells(state="listed"))["running"]


async def test_a_jupyter_terminal_that_nobody_started_is_not_found(place: Place) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(place.socket("/jupyter/{id}/terminals/websocket/77"), proxy=None):
            pass
    assert refused.value.response.status_code == 404


@pytest.fixture
async def ttyd_page(place: Place) -> AsyncIterator[ClientConnection]:
    """Connected and introduced as ttyd's page does it."""
    address = place.socket("/tty/{id}/ws")
    async with connect(address, subprotocols=[Subprotocol("tty")], compression=None, proxy=None) as page:
        assert page.subprotocol == "tty"
        await page.send(json.dumps({"AuthToken": "", "columns": 90, "rows": 20}).encode())
        yield page


async def read_until(page: ClientConnection, wanted: bytes) -> bytes:
    """The output up to and with `wanted`."""
    output = b""
    while wanted not in output:
        message = await page.recv()
        assert isinstance(message, bytes)
        assert message[:1] == b"0"
        output += message[1:]
    return output


async def test_ttyds_bytes(ttyd_page: ClientConnection) -> None:
    title, preferences = await ttyd_page.recv(), await ttyd_page.recv()
    assert isinstance(title, bytes)
    assert title[:1] == b"1"
    assert preferences == b"2{}"
    await ttyd_page.send(b"0echo $((6*7))is; stty size\r")
    await read_until(ttyd_page, b"42is\r\n20 90\r\n")
    await ttyd_page.send(b"1" + json.dumps({"columns": 100, "rows": 30}).encode())
    await ttyd_page.send(b"0stty size\r")
    await read_until(ttyd_page, b"30 100\r\n")
    await ttyd_page.send(b"0exit\r")
    with pytest.raises(ConnectionClosed):
        await read_until(ttyd_page, b"never")
    assert ttyd_page.close_code == 1000


async def test_a_ttyd_page_that_pauses_gets_nothing_until_it_goes_on(place: Place, ttyd_page: ClientConnection) -> None:
    await ttyd_page.recv()
    await ttyd_page.recv()
    await ttyd_page.send(b"0echo $((6*7))ready\r")
    await read_until(ttyd_page, b"42ready\r\n")
    await ttyd_page.send(b"2")
    await ttyd_page.send(b"0echo $((40+2))held\r")
    async with terminal_client("attach", url=place.plain(cols=90, rows=20)) as witness:
        await witness.shows_line("42held")
    await (await ttyd_page.ping())
    # What was sent before the pong came before it: whoever was not paused would have it by now.
    assert b"42held" not in await there_already(ttyd_page)
    await ttyd_page.send(b"3")
    await read_until(ttyd_page, b"42held\r\n")


class NativePage:
    """A client of our own dialect that counts as it should."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.epoch = ""
        self.offset = 0
        self.output = b""
        self._painting = False

    def take(self, message: str | bytes) -> None:
        if isinstance(message, str):
            told = json.loads(message)
            if told["type"] in ("ready", "reset"):
                self.epoch, self.offset, self.output = told["epoch"], told["offset"], b""
                self._painting = told["type"] == "reset"
        elif self._painting:
            self._painting = False
        else:
            self.output += message
            self.offset += len(message)

    async def shows(self, wanted: bytes) -> None:
        while wanted not in self.output:
            self.take(await self.socket.recv())

    async def drain(self) -> None:
        """Take what was sent before the pong of a ping: whoever is not paused has everything by then."""
        await (await self.socket.ping())
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(0):
                    message = await self.socket.recv()
                self.take(message)


async def test_a_native_page_that_pauses_gets_nothing_until_it_goes_on_and_counts_right(place: Place) -> None:
    address = place.socket("/terminal/{id}", dialect="native", cols=90, rows=20)
    async with connect(address, compression=None, proxy=None, max_size=None) as socket, asyncio.timeout(60):
        page = NativePage(socket)
        await socket.send(b"echo $((6*7))ready\r")
        await page.shows(b"42ready\r\n")
        await socket.send('{"type":"pause"}')
        await socket.send(b"seq 100000; echo $((40+2))held\r")
        async with terminal_client("attach", url=place.plain(cols=90, rows=20)) as witness:
            await witness.shows_line("42held")
        await page.drain()
        assert b"42held" not in page.output
        await socket.send('{"type":"resume"}')
        await page.shows(b"42held\r\n")
        assert b"".join(b"%d\r\n" % number for number in range(1, 100_001)) in page.output
    query = {"dialect": "native", "epoch": page.epoch, "offset": page.offset}
    async with connect(place.socket("/terminal/{id}", **query), compression=None, proxy=None) as socket:
        again = NativePage(socket)
        again.take(await socket.recv())
        assert (again.epoch, again.offset) == (page.epoch, page.offset)


async def there_already(page: ClientConnection) -> bytes:
    output = b""
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(0):
                message = await page.recv()
            assert isinstance(message, bytes)
            output += message
    return output
