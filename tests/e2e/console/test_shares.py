"""Sharing a session from the console, taking it back there, and what the page says about itself."""

import json

import httpx
from playwright.async_api import expect
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from gateway.config.version import version
from tests.support.console import Console
from tests.support.gateway import Gateway


async def test_a_share_is_made_listed_and_taken_back(tab: Console, gateway: Gateway) -> None:
    await gateway.create("shown", title="what is shown")
    await tab.open("shown")
    await tab.at("session-menu").click()
    await tab.at("action-shares").click()
    await expect(tab.at("share-none")).to_be_visible()
    await tab.at("share-label").fill("for eva")
    await tab.at("share-ttl").select_option("86400")
    await tab.at("share-submit").click()
    await expect(tab.at("share-made")).to_have_attribute("data-number", "1")
    token = await tab.at("share-token").input_value()
    await expect(tab.at("share")).to_contain_text("for eva")
    await tab.picture("shares")
    url = gateway.url.replace("http", "ws", 1) + "/ws/v2?sessionId=shown"
    async with connect(url, additional_headers={"Authorization": f"Bearer {token}"}, proxy=None) as guest:
        assert json.loads(await guest.recv())["type"] == "welcome"
        await tab.at("share-take-back").click()
        await expect(tab.at("share-none")).to_be_visible()
        await expect(tab.at("share-made")).to_have_count(0)
        try:
            while True:
                await guest.recv()
        except ConnectionClosed:
            assert guest.close_code == 4401


async def test_about_names_the_version_and_leads_to_the_licences(tab: Console, gateway: Gateway) -> None:
    await tab.at("account").click()
    await tab.at("about").click()
    await expect(tab.at("about-dialog")).to_contain_text(f"Version {version()}")
    address = await tab.at("about-licences").get_attribute("href")
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False) as anybody:
        notices = (await anybody.get(address or "")).text
    for name in ("preact", "@preact/signals", "@preact/signals-core", "@xterm/xterm", "@xterm/addon-webgl", "marked"):
        assert f"\n{name} " in f"\n{notices}", name
    assert notices.count("Permission is hereby granted, free of charge") >= 6
