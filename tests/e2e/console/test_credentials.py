"""A user's credentials in the console: set, listed without their values, and removed."""

import pytest
from playwright.async_api import expect

from tests.support.console import Console
from tests.support.gateway import Gateway

KEY = "sk-canary-0123456789-abcdefghij"


@pytest.fixture
async def opened(tab: Console) -> Console:
    await tab.at("account").click()
    await tab.at("credentials").click()
    await expect(tab.at("credentials-dialog")).to_be_visible()
    return tab


async def test_a_key_is_set_listed_and_removed(opened: Console, gateway: Gateway) -> None:
    await expect(opened.at("credential-none")).to_be_visible()
    await opened.at("credential-provider").select_option("openai")
    await opened.at("credential-key").fill(KEY)
    await opened.at("credential-submit").click()
    await expect(opened.at("credential")).to_have_attribute("data-provider", "openai")
    await expect(opened.at("credential-key")).to_have_value("")
    assert KEY not in await opened.page.content()
    await opened.picture("credentials")
    await opened.at("credential-delete").click()
    await expect(opened.at("credential-none")).to_be_visible()
    assert KEY not in gateway.log


async def test_a_key_that_is_none_is_refused_with_its_reason(opened: Console) -> None:
    await opened.at("credential-key").fill("two words")
    await opened.at("credential-submit").click()
    await expect(opened.page.get_by_text("printable ASCII characters without spaces")).to_be_visible()
    await expect(opened.at("credential-none")).to_be_visible()
    opened.problems.clear()


async def test_the_operators_are_shown_and_not_for_the_user_to_remove(tab: Console, gateway: Gateway) -> None:
    async with gateway.http(gateway.admin) as admin:
        assert (await admin.put("/api/credentials/anthropic", json={"type": "api", "key": KEY})).status_code == 200
        try:
            await tab.at("account").click()
            await tab.at("credentials").click()
            await expect(tab.at("credential")).to_contain_text("the operator's")
            await expect(tab.at("credential-delete")).to_have_count(0)
        finally:
            await admin.delete("/api/credentials/anthropic")
