"""The console in a real browser, used as a person uses it: by its visible text and its buttons."""

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page

from tests.support.gateway import REPOSITORY, Gateway
from tests.support.proxy import CuttingProxy
from tests.support.waiting import PATIENCE, until

T = TypeVar("T")
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
LINK = re.compile(r"http://\S+/signin\?link=\S+")
# Screenshots of the tests, for people to look at.
ARTEFACTS = Path(os.environ.get("HOLDFAST_TEST_ARTEFACTS") or REPOSITORY / ".artefacts")

_ROWS = """() => {
  return [...document.querySelectorAll('[data-testid="transcript"] [data-testid]')]
  .filter(row => ['message', 'answer', 'permission', 'question', 'note'].includes(row.dataset.testid))
  .map(row => ({
    kind: row.dataset.testid, seq: row.dataset.seq ? Number(row.dataset.seq) : null,
    status: row.dataset.status ?? null, cid: row.dataset.cid ?? null, role: row.dataset.role ?? null,
    text: words(row),
  }));
  function words(row) {
    const texts = [...row.querySelectorAll('[data-testid$="-text"]')];  // an answer has one before and after each tool
    return texts.length ? texts.map(text => text.textContent).join(' ') : row.textContent;
  }
}"""
_SCREEN = """name => {
  const terminal = window.holdfastTerminals?.get(name);
  if (!terminal) return null;
  const buffer = terminal.buffer.active;
  return [...Array(buffer.length).keys()].map(at => buffer.getLine(at).translateToString(true));
}"""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the conversation as the page shows it."""

    kind: str
    seq: int | None
    status: str | None
    cid: str | None
    role: str | None
    text: str


def built() -> None:
    """Skip, and say so, if the page is not built."""
    if not (REPOSITORY / "gateway" / "page" / "index.html").exists():
        pytest.skip("the page is not built: make page")


class Console:
    """One tab. `problems` are the page's own errors, and violations of its content policy."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        if message.type == "error" and "Content Security Policy" in message.text:
            self.problems.append(message.text)

    def at(self, testid: str) -> Locator:
        return self.page.get_by_test_id(testid)

    async def open(self, session_id: str) -> None:
        """Come to a session, from wherever this is."""
        await self.page.evaluate("id => { location.hash = `#/s/${id}` }", session_id)
        await self.at("composer").wait_for()

    # the conversation

    async def say(self, text: str) -> None:
        await self.at("composer").fill(text)
        await self.at("composer").press("Enter")

    async def rows(self) -> list[Row]:
        return [Row(**row) for row in await self.page.evaluate(_ROWS)]

    async def shows_row(self, holds: Callable[[Row], bool], what: str) -> Row:
        async def look() -> Row | None:
            return next((row for row in reversed(await self.rows()) if holds(row)), None)

        return await self.until(look, what)

    async def shows_answer(self, text: str, *, whole: bool = True) -> Row:
        """An answer with this in it; `whole`: one that is finished and stored."""

        def is_it(row: Row) -> bool:
            return row.kind == "answer" and text in row.text and (not whole or row.status == "complete")

        return await self.shows_row(is_it, f"answer {text!r}")

    # the terminal

    async def screen(self, name: str = "main") -> list[str]:
        """Every line of a terminal, with what has scrolled away, less the empty ones at the end."""
        lines: list[str] | None = await self.page.evaluate(_SCREEN, name)
        lines = lines or []
        while lines and not lines[-1].strip():
            lines.pop()
        return lines

    async def shows_screen(self, text: str, name: str = "main") -> list[str]:
        async def look() -> list[str] | None:
            lines = await self.screen(name)
            return lines if any(text in line for line in lines) else None

        return await self.until(look, f"{text!r} in the terminal")

    async def has_prompt(self, name: str = "main") -> None:
        """Wait until a shell waits for input: before that its terminal may not be connected."""

        async def look() -> bool:
            return "".join(await self.screen(name)).rstrip().endswith(("$", "#"))

        await self.until(look, "a prompt")

    async def type(self, text: str) -> None:
        """Type into the visible terminal, see `has_prompt`."""
        await self.page.locator(".xterm-helper-textarea:visible").first.focus()
        await self.page.keyboard.type(text)

    # waiting and looking

    async def until(self, look: Callable[[], Awaitable[T | None]], what: str, within: float = PATIENCE) -> T:
        """The first result of `look` that is true."""
        try:
            return await until(look, what, within)
        except AssertionError as late:
            await self.picture("never")
            raise AssertionError(f"{late}; problems {self.problems}; rows {await self.rows()}") from late

    async def picture(self, name: str) -> Path:
        ARTEFACTS.mkdir(exist_ok=True)
        path = ARTEFACTS / f"{name}.png"
        await self.page.screenshot(path=path)
        return path


@asynccontextmanager
async def console(
    browser: Browser, gateway: Gateway, *, size: dict[str, int] = DESKTOP, **context: Any
) -> AsyncIterator[Console]:
    """A tab of `ada`'s, in a browser of her own, signed in."""
    async with visitor(browser, size=size, **context) as someone:
        yield await arrive(someone, gateway)


@asynccontextmanager
async def cut_off(browser: Browser, gateway: Gateway) -> AsyncIterator[tuple[Console, CuttingProxy]]:
    """A visitor whose every connection goes through a proxy."""
    async with CuttingProxy(int(gateway.url.rsplit(":", 1)[1])) as proxy, visitor(browser) as someone:
        yield await arrive(someone, gateway, url=f"http://127.0.0.1:{proxy.port}"), proxy


@asynccontextmanager
async def visitor(browser: Browser, *, size: dict[str, int] = DESKTOP, **context: Any) -> AsyncIterator[BrowserContext]:
    """A separate browser: it shares nothing with another."""
    someone = await browser.new_context(viewport=size, **context)  # type: ignore[arg-type]
    try:
        someone.set_default_timeout(PATIENCE * 1000)
        yield someone
    finally:
        await someone.close()


async def arrive(someone: BrowserContext, gateway: Gateway, *, url: str | None = None, user: str = "ada") -> Console:
    """A tab that has come in by a fresh link, at the gateway or at `url`, which leads there."""
    page = await someone.new_page()
    tab = Console(page)
    link = urlsplit(await fresh_link(gateway, user))
    await page.goto(f"{url or gateway.url}{link.path}?{link.query}")
    await tab.at("create").first.wait_for()
    return tab


async def another(tab: Console) -> Console:
    """A second tab of the same visitor, at the same place."""
    page = await tab.page.context.new_page()
    second = Console(page)
    await page.goto(tab.page.url)
    return second


async def fresh_link(gateway: Gateway, user: str = "ada") -> str:
    async with gateway.http(gateway.admin) as client:
        answer = await client.post("/api/links", json={"userId": user, "email": f"{user}@example.com"})
    assert answer.status_code == 201, answer.text
    url: str = answer.json()["url"]
    return url


def as_shown(record: dict[str, Any]) -> str:
    """A record's text as a page shows it: one blank between two words."""
    content = record["content"]
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return " ".join(text.split())
