"""One browser and one gateway for a file; each test has a session, and a visitor, of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.support.browser import chromium
from tests.support.console import Console, built, console
from tests.support.gateway import Gateway


@pytest.fixture(scope="module", autouse=True)
def page_is_built() -> None:
    built()


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as running:
        yield running


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    home: Path = tmp_path_factory.mktemp("console")
    async with Gateway(
        home / "data", DEMO="true", SYNC_DEBOUNCE="0.2", SHELL="/bin/bash --norc --noprofile"
    ) as running:
        yield running


@pytest.fixture
async def tab(browser: Browser, gateway: Gateway) -> AsyncIterator[Console]:
    """A visitor at the console. The page must have had no trouble of its own by the end of the test."""
    async with console(browser, gateway) as arrived:
        yield arrived
        assert arrived.problems == []
