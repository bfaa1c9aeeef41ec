"""The page: its size, the time until one can type in its terminal, and the effect of a flood on its tab. The peer is
JupyterLab's terminal page in the same browser.

Each load is a first visit: an empty cache, a server on loopback, a shell that already runs. The visit ends when a typed
key has come back from the shell, so it includes late drawing. After the flood, the shell asks the terminal for its
cursor position: the answer comes only when the terminal has parsed everything before the question. Memory is that of
the browser's renderer processes. Their page is one terminal (`/terminals/1` of notebook 7, which is JupyterLab's
terminal alone); ours is the whole console, with the conversation beside the terminal.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from urllib.request import Request, urlopen

from playwright.async_api import Browser, BrowserContext, CDPSession, Page, WebSocket

from bench.figures import Figure
from bench.peers import environment
from bench.processes import LOAD, Process, pss_kib
from bench.rounds import OURS, Measure, take_turns
from bench.terminal_peers import free_port
from tests.support.browser import chromium
from tests.support.gateway import Gateway, GatewayByCommandLine

PEER = "jupyter"
REQUIREMENTS = ("notebook>=7.6,<8",)
SHELL = ("/bin/bash", "--norc", "--noprofile")
SIZE = {"width": 1280, "height": 800}
PATIENCE_SECONDS = 120.0
WEIGHT, REQUESTS, ECHOED = "page weight, first visit", "requests, first visit", "first visit until a key is echoed"
IDLE = "the tab's memory, idle"
FLOOD = "head -c {size} /dev/zero | tr '\\0' x | fold -w 79; printf '\\e[6n'; IFS= read -rsd R _; echo over$((6*7))\n"


@dataclass(frozen=True, slots=True)
class Visit:
    """A first visit until one can type: its seconds, bytes and requests."""

    seconds: float
    kilobytes: float
    requests: int


@dataclass(frozen=True, slots=True)
class Weight:
    """The memory of the tab's renderer, in MiB: with an idle terminal, at most during a flood, and after it."""

    before: float
    most: float
    after: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Site:
    """A page with a terminal. `cookies` are the visitor's."""

    name: str
    url: str
    cookies: list[dict[str, object]]


class Ear:
    """Collects everything that the page's sockets receive, as it comes."""

    def __init__(self, page: Page) -> None:
        self._heard = bytearray()
        self._came = asyncio.Event()
        page.on("websocket", self._open)

    def _open(self, socket: WebSocket) -> None:
        socket.on("framereceived", self._take)

    def _take(self, payload: str | bytes) -> None:
        self._heard += payload.encode() if isinstance(payload, str) else payload
        del self._heard[: -(1 << 16)]
        self._came.set()

    def forget(self) -> None:
        self._heard.clear()

    async def hears(self, text: str, within: float) -> bool:
        try:
            async with asyncio.timeout(within):
                while text.encode() not in self._heard:
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            return False
        return True


class Traffic:
    """A page's HTTP requests, and the bytes of the responses: heads and bodies, as on the wire."""

    def __init__(self, cdp: CDPSession) -> None:
        self.bytes = 0.0
        self.requests = 0
        cdp.on("Network.requestWillBeSent", self._asked)
        cdp.on("Network.loadingFinished", self._came)

    def _asked(self, _: object) -> None:
        self.requests += 1

    def _came(self, told: dict[str, float]) -> None:
        self.bytes += told["encodedDataLength"]


async def run(*, quick: bool) -> list[Figure]:
    programs = await asyncio.to_thread(environment, PEER, *REQUIREMENTS)
    rounds, size = (2, 10_000_000) if quick else (6, 100_000_000)
    with tempfile.TemporaryDirectory() as scratch:
        async with AsyncExitStack() as open_parts:
            ours = await open_parts.enter_async_context(_holdfast(Path(scratch)))
            theirs = await open_parts.enter_async_context(_jupyter(Path(scratch), programs))
            visits = {site.name: _visits(site) for site in (ours, theirs)}
            for visit in visits.values():
                await visit()  # the first visit warms the machine's caches
            found = await take_turns(rounds, [visits], Random())
            floods = {site.name: _floods(site, size) for site in (ours, theirs)}
            await take_turns(1, [floods], Random(), found)
    return [found.figure(step, PEER, unit, less_is_better=True) for step, unit in _units(size).items()]


def _units(size: int) -> dict[str, str]:
    most, after, parsed = _of_flood(size)
    return {WEIGHT: "kB", REQUESTS: "requests", ECHOED: "ms", IDLE: "MiB", most: "MiB", after: "MiB", parsed: "s"}


def _of_flood(size: int) -> tuple[str, str, str]:
    flood = f"a flood of {size // 1_000_000} MB"
    return (
        f"the tab's memory, most during {flood}",
        f"the tab's memory after {flood}",
        f"{flood}, until all of it is parsed",
    )


def _visits(site: Site) -> Measure:
    async def measure() -> Mapping[str, float]:
        async with chromium() as browser:
            visit = await _visit(browser, site)
        return {WEIGHT: visit.kilobytes, REQUESTS: visit.requests, ECHOED: visit.seconds * 1e3}

    return measure


def _floods(site: Site, size: int) -> Measure:
    async def measure() -> Mapping[str, float]:
        async with chromium() as browser:
            weight = await _flooded(browser, site, size)
        most, after, parsed = _of_flood(size)
        return {IDLE: weight.before, most: weight.most, after: weight.after, parsed: weight.seconds}

    return measure


# One visit


async def _visit(browser: Browser, site: Site) -> Visit:
    async with _page(browser, site) as (page, ear, cdp):
        traffic = Traffic(cdp)
        await cdp.send("Network.enable")
        began = time.monotonic()
        await page.goto(site.url, wait_until="commit")
        await _type_until_echoed(page, ear)
        seconds = time.monotonic() - began
        return Visit(seconds, traffic.bytes / 1e3, traffic.requests)


async def _flooded(browser: Browser, site: Site, size: int) -> Weight:
    async with _page(browser, site) as (page, ear, cdp):
        await page.goto(site.url)
        await _type_until_echoed(page, ear)
        renderers = await _renderers(browser)
        before = await _settled(cdp, renderers)
        most = [before]
        sampling = asyncio.create_task(_sample(renderers, most), name="memory")
        began = time.monotonic()
        await page.keyboard.type(FLOOD.format(size=size))
        if not await ear.hears("over42", PATIENCE_SECONDS * 2):
            raise RuntimeError(f"{site.name}: the flood did not end")
        seconds = time.monotonic() - began
        sampling.cancel()
        return Weight(before, max(most), await _settled(cdp, renderers), seconds)


async def _type_until_echoed(page: Page, ear: Ear) -> None:
    """Type a key as soon as the terminal accepts keys. Type another one while the shell is not there yet."""
    textarea = page.locator(".xterm-helper-textarea").first
    await textarea.wait_for(state="attached", timeout=PATIENCE_SECONDS * 1000)
    late = time.monotonic() + PATIENCE_SECONDS
    number = 0
    while time.monotonic() < late:
        await textarea.focus()
        word = f"#{number}z"
        ear.forget()
        await page.keyboard.type(word)
        if await ear.hears(word, 0.25):
            await page.keyboard.press("Control+u")
            return
        number += 1
    raise RuntimeError("no key was echoed")


@asynccontextmanager
async def _page(browser: Browser, site: Site) -> AsyncIterator[tuple[Page, Ear, CDPSession]]:
    context: BrowserContext = await browser.new_context(viewport=SIZE)  # type: ignore[arg-type]
    try:
        await context.add_cookies(site.cookies)  # type: ignore[arg-type]
        page = await context.new_page()
        yield page, Ear(page), await context.new_cdp_session(page)
    finally:
        await context.close()


async def _renderers(browser: Browser) -> list[int]:
    told = await (await browser.new_browser_cdp_session()).send("SystemInfo.getProcessInfo")
    return [each["id"] for each in told["processInfo"] if each["type"] == "renderer"]


async def _settled(cdp: CDPSession, renderers: list[int]) -> float:
    """The renderers' memory in MiB, after a garbage collection."""
    for _ in range(3):
        await cdp.send("HeapProfiler.collectGarbage")
        await asyncio.sleep(0.3)
    return _mebibytes(renderers)


async def _sample(renderers: list[int], found: list[float]) -> None:
    while True:
        found.append(_mebibytes(renderers))
        await asyncio.sleep(0.25)


def _mebibytes(pids: list[int]) -> float:
    return sum(pss_kib(pid) for pid in pids) / 1024


# Both sides


@asynccontextmanager
async def _holdfast(scratch: Path) -> AsyncIterator[Site]:
    async with GatewayByCommandLine(scratch / "holdfast", SHELL=" ".join(SHELL)) as gateway:
        await gateway.create("bench", "ann")
        token = gateway.token("ann")
        cookie = {"name": "session", "value": token, "url": gateway.url, "httpOnly": True, "sameSite": "Strict"}
        await _made(gateway, token)
        yield Site(OURS, f"{gateway.url}/#/s/bench", [cookie])


async def _made(gateway: Gateway, token: str) -> None:
    asked = Request(
        f"{gateway.url}/api/sandboxes/bench/terminals/main", b"{}", {"Authorization": f"Bearer {token}"}, method="POST"
    )
    await asyncio.to_thread(lambda: urlopen(asked).close())


@asynccontextmanager
async def _jupyter(scratch: Path, programs: Path) -> AsyncIterator[Site]:
    home, port = scratch / "jupyter", free_port()
    home.mkdir()
    with Jupyter(programs, home, port) as server:
        await asyncio.to_thread(server.ready)
        url = f"http://127.0.0.1:{port}"
        made = await asyncio.to_thread(lambda: urlopen(Request(f"{url}/api/terminals", b"{}", method="POST")).read())
        yield Site(PEER, f"{url}/terminals/{json.loads(made)['name']}", [])


class Jupyter(Process):
    """Jupyter's server as people start it, but without tokens."""

    def __init__(self, programs: Path, home: Path, port: int) -> None:
        self.port = port
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": port,
            "ServerApp.allow_root": True,
            "ServerApp.open_browser": False,
            "ServerApp.root_dir": home,
            "ServerApp.disable_check_xsrf": True,
            "ServerApp.terminado_settings": json.dumps({"shell_command": SHELL}),
            "IdentityProvider.token": "",
        }
        super().__init__(
            [programs / "python", "-m", "notebook", *(f"--{name}={value}" for name, value in options.items())],
            core=LOAD,
            log=home / "log",
            env={"HOME": str(home), "JUPYTER_CONFIG_DIR": str(home / "config")},
        )

    def ready(self) -> None:
        self._wait_for_port(self.port)
