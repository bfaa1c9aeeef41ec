"""A session with terminals, and everything between a person and a program that can break: the connection of a browser,
the gateway, the links between the gateway and the bridge."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

from sandbox.providers.local.layout import SandboxHome
from tests.campaign.places import TRUSTED, Place
from tests.campaign.size import report
from tests.campaign.stage import cutting
from tests.support.gateway import Gateway
from tests.support.launcher import Launcher, Tampering
from tests.support.proxy import CuttingProxy, LinkProxy
from tests.support.terminal_clients import TerminalClient, terminal_client
from tests.support.waiting import until

SESSION = "s1"
COLS, ROWS = 80, 24
PATIENCE = 120.0
PROGRAMS = Path(__file__).parent
SHOWN = 200  # characters of a difference


class Fifo:
    """Commands for a program, past its terminal."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._opened = os.open(path, os.O_RDWR)

    def tell(self, number: int) -> None:
        os.write(self._opened, number.to_bytes(4, "big"))

    def close(self) -> None:
        os.close(self._opened)


class TerminalArena:
    """`fault` breaks something; `counts` has how often each fault happened."""

    def __init__(
        self, gateway: Gateway, proxy: CuttingProxy, links: LinkProxy, place: Place, seed: int, rng: Random
    ) -> None:
        self.gateway = gateway
        self._place = place
        self._workspace = SandboxHome(gateway.data_dir, SESSION).workspace
        self.seed = seed
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self._proxy = proxy
        self._links = links
        self._fifos: list[Fifo] = []

    # Terminals and their viewers

    def fifo(self, name: str) -> Fifo:
        self._fifos.append(Fifo(self._workspace / name))
        self._place.give(self._fifos[-1].path)
        return self._fifos[-1]

    def inside(self, path: Path) -> str:
        """The name of a workspace file for programs in the sandbox."""
        return self._place.inside(path, self._workspace)

    def close(self) -> None:
        for fifo in self._fifos:
            fifo.close()

    @property
    def url(self) -> str:
        """Where browsers find the gateway: through the proxy."""
        return f"http://127.0.0.1:{self._proxy.port}"

    async def run(self, name: str, *command: str) -> None:
        """A terminal that runs this. A command that ends in .py is one of the programs beside this file."""
        if command[0].endswith(".py"):
            command = (*self._place.program(PROGRAMS / command[0], self._workspace), *command[1:])
        async with self.gateway.http() as client:
            wish = {"command": command, "cols": COLS, "rows": ROWS}
            answer = await client.post(f"/api/sandboxes/{SESSION}/terminals/{name}", json=wish)
        assert answer.status_code == 201, f"{answer.text}\n{self.log}"

    def address(self, name: str, *, direct: bool = False, **query: object) -> str:
        """Where a native viewer finds a terminal: through the proxy, or past it."""
        origin = self.gateway.url.removeprefix("http://") if direct else f"127.0.0.1:{self._proxy.port}"
        asked = {"token": self.gateway.token(), "dialect": "native", "name": name, **query}
        return f"ws://{origin}/terminal/{SESSION}?{urlencode(asked)}"

    @asynccontextmanager
    async def xterm(self, name: str, *, role: str = "drive", direct: bool = False) -> AsyncIterator["Xterm"]:
        """A real terminal as a viewer; it comes back by itself."""
        address = self.address(name, direct=direct, role=role, cols=COLS, rows=ROWS)
        async with terminal_client("native", cols=COLS, rows=ROWS, address=address) as client:
            yield Xterm(client)

    async def end_of(self, name: str) -> int:
        """How much its program has written."""
        async with self.gateway.http() as client:
            answer = await client.get(f"/api/sandboxes/{SESSION}/terminals")
        offsets: dict[str, int] = {each["name"]: each["offset"] for each in answer.json()["terminals"]}
        return offsets[name]

    async def settled(self, name: str, xterms: Sequence["Xterm"]) -> None:
        """Return when all of them have everything, and nothing more comes."""
        before = -1
        async with asyncio.timeout(PATIENCE):
            while True:
                end = await self.end_of(name)
                places = {(await xterm.look())["offset"] for xterm in xterms}
                if before == end and places == {end}:
                    return
                before = end
                await asyncio.sleep(0.1)

    # Breaking

    async def fault(self, kinds: tuple[str, ...] = ("browser", "browser", "link", "link", "gateway")) -> None:
        """Break one thing; a gateway that was killed serves again when this returns."""
        while True:
            kind = self.rng.choice(kinds)
            if await self._break(kind):
                self.counts[kind] += 1
                return
            await asyncio.sleep(0.01)  # they are coming back

    async def _break(self, kind: str) -> bool:
        if kind == "browser":
            return await self._proxy.harm_one(self.rng)
        if kind == "link":
            return await self._links.harm_one(self.rng)
        await self.gateway.kill()
        await asyncio.sleep(self.rng.uniform(0, 0.2))
        await self.gateway.start()
        return True

    # Reporting

    @property
    def log(self) -> str:
        """The end of the gateway's and the bridge's logs, without the lines of requests."""
        home = SandboxHome(self.gateway.data_dir, SESSION)
        lines = [line for line in self.gateway.log[-200_000:].splitlines() if '"http.request"' not in line]
        return "\n".join(lines)[-5000:] + "\n" + home.logs(4000).decode(errors="replace")

    def acquit(self, what: str, problems: list[str], **figures: object) -> None:
        """Print the program's line, and fail if there is a problem."""
        if self.counts:
            broken = ", ".join(f"{kind} {count}" for kind, count in sorted(self.counts.items()))
            figures = {"cuts": f"{self.counts.total()} ({broken})", **figures}
        told = ", ".join(f"{name} {figure}" for name, figure in figures.items())
        line = f"{what}: {told}; problems {len(problems)}; seed={self.seed}"
        report(line)
        again = f"again with HOLDFAST_TEST_SEED={self.seed}"
        assert problems == [], "\n".join([line, *problems[:20], again, self.log])
        assert "session.crashed" not in self.gateway.log, f"{again}\n{self.log}"
        assert "socket.crashed" not in self.gateway.log, f"{again}\n{self.log}"


class Xterm:
    """A client of the native dialect with a real terminal. `seen` is the newest look at it."""

    def __init__(self, client: TerminalClient) -> None:
        self._client = client
        self.seen: dict[str, Any] = {}

    async def type(self, text: str) -> None:
        """Send it, if it is connected: nobody says whether it arrives."""
        await self._client.do("type", text=text)

    async def away(self) -> None:
        """Be gone, and stay so."""
        await self._client.do("away")

    async def back(self) -> None:
        """Reconnect at the last position."""
        await self._client.do("back")

    async def look(self) -> dict[str, Any]:
        await self._client.do("look")
        self.seen = await self._client.tells()
        return self.seen

    @property
    def place(self) -> tuple[str | None, int]:
        return self.seen["epoch"], self.seen["offset"]

    async def shows(self, text: str) -> None:
        await self.until(lambda seen: any(text in line for line in seen["look"]), f"{text!r} on the screen")

    async def until(self, met: Any, what: str) -> dict[str, Any]:
        async def look() -> bool:
            return bool(met(await self.look()))

        def how() -> str:
            return f"{what}; it is at {self.place} and shows\n" + "\n".join(self.seen.get("look", []))

        await until(look, how, PATIENCE)
        return self.seen


def went_through(xterms: Sequence[Xterm]) -> dict[str, int]:
    """The events of all of them, as of their last reports."""
    counts: Counter[str] = sum((Counter(xterm.seen["counts"]) for xterm in xterms), Counter())
    return {what: counts[what] for what in ("connections", "resets", "unsaid")}


def differences(one: Any, other: Any, at: str = "") -> list[str]:
    """Where two dumps of terminals differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [found for key in one | other for found in differences(one.get(key), other.get(key), f"{at}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for key, pair in pairs for found in differences(*pair, f"{at}[{key}]")]
    if one == other:
        return []
    first, second = str(one), str(other)
    same = next((here for here, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)
    return [f"{at}: at {same} {first[same : same + SHOWN]!r} is not {second[same : same + SHOWN]!r}"]


@asynccontextmanager
async def terminal_arena(
    directory: Path,
    seed: int,
    rng: Random,
    *,
    agent: tuple[str, ...] | None = ("cat",),
    patches: tuple[str, ...] = (),
    spawns_bridges: bool = False,
    place: Place = TRUSTED,
    **settings: object,
) -> AsyncIterator[TerminalArena]:
    """One session that runs, with a proxy before the gateway and another before the bridge. Its `agent` is the
    gateway's own if that is None."""
    settings = {"MAX_CONNECTIONS_PER_USER": 1000, **place.settings, **settings}
    place.prepare(directory / "data")
    async with AsyncExitStack() as stack:
        gateway = Gateway(directory / "data", **settings)
        gateway.launcher = await stack.enter_async_context(Launcher())
        gateway.tampering = Tampering(patches=patches, spawns_bridges=spawns_bridges)
        await stack.enter_async_context(gateway)
        await gateway.create(SESSION, agent=agent)
        await _running(gateway)
        home = SandboxHome(gateway.data_dir, SESSION)
        links = await stack.enter_async_context(LinkProxy(gateway.data_dir / "run", home.socket))
        proxy = await stack.enter_async_context(cutting(gateway))
        arena = TerminalArena(gateway, proxy, links, place, seed, rng)
        stack.callback(arena.close)
        yield arena


async def _running(gateway: Gateway) -> None:
    async with gateway.http() as client:

        async def look() -> bool:
            told = (await client.get(f"/api/sandboxes/{SESSION}/status")).json()
            assert (told["status"], told["sandboxStatus"]) == ("running", "connected"), told
            return True

        await until(look, "the session runs", PATIENCE)
