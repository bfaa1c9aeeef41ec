"""A page with a real terminal is reloaded in a real browser while programs run in it. It shows the same screen, input
arrives, and nothing arrives that was not typed."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.async_api import Browser, Page

from tests.campaign.size import seeded, sized
from tests.campaign.terminal.arena import COLS, PATIENCE, PROGRAMS, ROWS, TerminalArena, differences, terminal_arena
from tests.campaign.terminal.recorder import FIRST_MODE
from tests.campaign.terminal.screens import unlike
from tests.campaign.terminal.verdict import Reading
from tests.support.browser import chromium, open_page
from tests.support.waiting import until

SHELL = ("/bin/bash", "--norc", "--noprofile")
PROMPT = "> "
CAT_BYTES = 10_000_000


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as running:
        yield running


class Tab:
    """One page. `refreshes` counts its reloads, `problems` are differences from before."""

    def __init__(self, arena: TerminalArena, name: str, page: Page) -> None:
        self._arena = arena
        self._name = name
        self.page = page
        self.refreshes = 0
        self.problems: list[str] = []

    async def type(self, text: str) -> None:
        await self.page.keyboard.type(text)

    async def look(self) -> dict[str, Any]:
        seen: dict[str, Any] = await self.page.evaluate("() => window.look()")
        return seen

    async def shows(self, text: str) -> None:
        async def look() -> bool:
            shown = "\n".join((await self.look())["lines"])
            assert text in shown, shown
            return True

        await until(look, repr(text), PATIENCE)

    async def has_prompt(self, *prompts: str) -> None:
        """The shell is there again: a program that ends may drop earlier input."""

        async def look() -> bool:
            shown = "\n".join(["", *(await self.look())["lines"]])
            assert shown.rstrip().endswith(prompts or f"\n{PROMPT.rstrip()}"), shown
            return True

        await until(look, "the prompt", PATIENCE)

    async def settled(self) -> dict[str, Any]:
        """A look at it when its program is silent, and it has drawn everything."""
        before: tuple[int, Any] = (-1, None)
        async with asyncio.timeout(PATIENCE):
            while True:
                now = await self._arena.end_of(self._name), (await self.look())["dump"]
                if now == before:
                    found: dict[str, Any] = now[1]
                    return found
                before = now
                await asyncio.sleep(0.1)

    async def refresh(self, what: str, shows: str, *, flooded: bool = False) -> None:
        """Reload it; it must show the same screen. After a flood the scrollback may be shorter."""
        before = await self.settled()
        await self.page.reload()
        await self.page.wait_for_function("() => window.look !== undefined", timeout=PATIENCE * 1000)
        await self.shows(shows)
        after = await self.settled()
        found = unlike(after, before) if flooded else differences(after, before)
        self.problems += [f"{what}: {each}" for each in found[:5]]
        self.refreshes += 1


@asynccontextmanager
async def _tab(arena: TerminalArena, browser: Browser, client: str, name: str) -> AsyncIterator[Tab]:
    dialect = {"native": "native", "attach": "plain"}[client]
    url = arena.address(name, direct=True, dialect=dialect, cols=COLS, rows=ROWS)
    asked = urlencode({"client": client, "url": url})
    page = await open_page(browser, arena.gateway.url, f"refresh.html#{asked}")
    try:
        await page.wait_for_function("() => window.look !== undefined", timeout=PATIENCE * 1000)
        yield Tab(arena, name, page)
    finally:
        await page.context.close()


@pytest.mark.parametrize("client", ["native", "attach"])
async def test_what_programs_show_survives_a_refresh(tmp_path: Path, browser: Browser, client: str) -> None:
    seed, rng = seeded()
    text, big = tmp_path / "text", tmp_path / "big"
    text.write_text("".join(f"line {number} of it\n" for number in range(1, 301)))
    lines = "".join(f"{number:09d} \x1b[3{number % 8}mof many\x1b[m\n" for number in range(CAT_BYTES // 28))
    big.write_text(lines + "that was all\n")
    async with terminal_arena(tmp_path, seed, rng) as arena:
        await arena.run("main", *SHELL)
        async with _tab(arena, browser, client, "main") as tab:
            await tab.has_prompt("$", "#")  # input before the socket is open is lost
            await tab.type(f"PS1='{PROMPT}'; cd /; clear; echo $((6*7))first\n")
            await tab.shows("42first")
            await tab.refresh("shell", "42first")

            await tab.type(f"vim -N -u NONE -i NONE -n --cmd 'set number ruler' {text}\n")
            await tab.shows("300L")
            await tab.type("100Gotyped here\x1b:echo 6*7 'out'\n")  # alone, escape may be the beginning of a key
            await tab.shows("42 out")
            await tab.refresh("vim", "typed here")
            await tab.type("ggOtyped again\x1b")
            await tab.shows("typed again")
            await tab.type(":q!\n")
            await tab.has_prompt()
            await tab.refresh("the shell behind vim", "42first")

            await tab.type("top -d 1000\n")
            await tab.shows("PID")
            await tab.refresh("top", "PID")
            await tab.type("q")
            await tab.has_prompt()

            await tab.type(f"clear; less {text}\n")
            await tab.shows("line 23 of it")
            await tab.type(" ")
            await tab.shows("line 46 of it")
            await tab.refresh("less", "line 46 of it")
            await tab.type(" ")
            await tab.shows("line 69 of it")
            await tab.type("q")
            await tab.has_prompt()

            await tab.type(f"clear; {sys.executable} {PROGRAMS / 'mouse.py'}\n")
            await tab.shows("click me")
            await tab.refresh("mouse", "click me")
            await tab.page.locator(".xterm-screen").click(position={"x": 40, "y": 30})
            await tab.shows("[<0;")
            await tab.refresh("mouse that was used", "[<0;")
            await tab.type("q")
            await tab.has_prompt()

            await tab.type(f"clear; cat {big}\n")
            await tab.shows("that was all")
            await tab.refresh("cat", "that was all", flooded=True)
            await tab.type("echo $((6*7))last\n")
            await tab.shows("42last")
            tail = [line.rstrip() for line in (await tab.look())["lines"] if line][-4:]
            if tail != ["that was all", "> echo $((6*7))last", "42last", ">"]:
                tab.problems.append(f"something was typed: {tail}")
            arena.acquit(f"terminal, refreshes in chromium, {client}", tab.problems, refreshes=tab.refreshes)


@pytest.mark.soak
@pytest.mark.parametrize("client", ["native", "attach"])
async def test_a_refresh_answers_no_question_again(tmp_path: Path, browser: Browser, client: str) -> None:
    seed, rng = seeded()
    log = tmp_path / "read.log"
    refreshes = sized(3, 40)
    async with terminal_arena(tmp_path, seed, rng) as arena:
        fifo = arena.fifo("questions")
        await arena.run("main", "recorder.py", str(fifo.path), str(log))
        async with _tab(arena, browser, client, "main") as tab:
            await tab.shows("recording")
            typed: list[str] = []

            def read() -> Reading:
                return Reading(log.read_bytes() if log.exists() else b"")

            for number in range(refreshes):
                fifo.tell(number)
                await until(lambda: read().modes[FIRST_MODE + number], "answered", within=PATIENCE)  # noqa: B023
                typed.append(f"a{number};")
                await tab.type(typed[-1])
                await until(lambda: read().typed == typed, "typed", within=PATIENCE)
                await tab.refresh("recorder", f"{number} asked")
            reading = read()
            asked = range(refreshes)
            problems = tab.problems + reading.problems(typed, asked, asked)
            arena.acquit(
                f"terminal, questions and refreshes in chromium, {client}",
                problems,
                refreshes=tab.refreshes,
                asked=3 * refreshes,
                answered=reading.answers,
            )
