"""What the console says of limits: when they are near, when one is met, and what may not be asked for."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, expect

from tests.support.console import console
from tests.support.gateway import Gateway
from tests.support.waiting import until


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    home = tmp_path_factory.mktemp("limits")
    async with Gateway(home / "data", MAX_RUNNING_PER_USER=1, NETWORK_MAX="none", SYNC_DEBOUNCE="0.2") as running:
        yield running


async def test_a_limit_is_told_when_it_is_near_and_where_it_is_met(browser: Browser, gateway: Gateway) -> None:
    async with gateway.http() as ada:

        async def runs(session_id: str) -> bool:
            return bool((await ada.get(f"/api/sandboxes/{session_id}")).json()["status"] == "running")

        for session_id in ("waits", "runs"):
            await gateway.create(session_id)
            await until(lambda session_id=session_id: runs(session_id), f"{session_id} runs")  # type: ignore[misc]
            if session_id == "waits":
                assert (await ada.post("/api/sandboxes/waits/sleep")).status_code == 200
        async with console(browser, gateway) as tab:
            await expect(tab.at("limits")).to_contain_text("1 of 1 sandboxes run (HOLDFAST_MAX_RUNNING_PER_USER)")
            await tab.at("create").click()
            await expect(tab.at("create-network-none")).to_be_checked()
            await expect(tab.at("create-network-outbound")).to_have_count(0)
            await expect(tab.at("create-network-help")).to_contain_text("HOLDFAST_NETWORK_MAX")
            await tab.at("create-submit").click()
            await expect(tab.at("create-error")).to_contain_text("HOLDFAST_MAX_RUNNING_PER_USER")
            await tab.picture("at a limit")
            await tab.page.keyboard.press("Escape")
            await tab.open("waits")
            await tab.say("hello")
            await expect(tab.at("banner")).to_contain_text("next to start")
            await expect(tab.at("banner")).to_contain_text("HOLDFAST_MAX_RUNNING_PER_USER")
            await tab.picture("waits for a place")
            assert (await ada.post("/api/sandboxes/runs/sleep")).status_code == 200
            await tab.shows_answer("hello")
            assert tab.problems == []
