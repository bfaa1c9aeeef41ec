"""A real browser, headless, for pages that stand in tests/clients."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page, Route, async_playwright, expect

from tests.support.node import CLIENTS
from tests.support.waiting import PATIENCE

expect.set_options(timeout=PATIENCE * 1000)  # else 5 s, which a browser on a busy machine may need for one click
ARGUMENTS = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    # A page that a test served itself counts as one from far away, which may not reach loopback unasked.
    "--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets",
]


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """The machine's own Chromium; without one the test is skipped and says so."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("no chromium on this machine")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


async def open_page(browser: Browser, origin: str, path: str) -> Page:
    """Open a file of tests/clients at `origin`, as if that server had it: then its sockets have an allowed origin."""
    page = await (await browser.new_context()).new_page()

    async def serve(route: Route) -> None:
        await route.fulfill(path=CLIENTS / route.request.url.split("#")[0].removeprefix(f"{origin}/clients/"))

    await page.route(f"{origin}/clients/**", serve)
    await page.goto(f"{origin}/clients/{path}")
    return page
