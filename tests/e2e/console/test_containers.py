"""Sessions in containers, from the page: chosen at create, named by a badge, looked at while they run."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.console.test_looks import serious
from tests.support.console import PHONE, Console, console
from tests.support.engine import DockerEngine, busybox
from tests.support.gateway import Gateway

OTHER = "holdfast-test/other:2"


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, docker_engine: DockerEngine) -> AsyncIterator[Gateway]:
    docker_engine.load(OTHER, busybox())
    home: Path = tmp_path_factory.mktemp("containers")
    there = {"DOCKER": f"unix://{docker_engine.socket}", "DOCKER_IMAGE": docker_engine.image}
    async with Gateway(
        home / "data", PROVIDERS="local,docker", IMAGES="holdfast-test/*", LIMIT_MEMORY="512m", SHELL="/bin/sh", **there
    ) as running:
        yield running
        async with running.http() as ada:
            for each in (await ada.get("/api/sandboxes")).json()["sandboxes"]:
                assert (await ada.delete(f"/api/sandboxes/{each['id']}?purge=1")).status_code == 200


async def use(tab: Console, what: str, words: str) -> None:
    await expect(tab.at(f"use-{what}")).to_contain_text(words)


@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_a_session_is_started_in_an_image_of_ones_own_and_looked_at(
    browser: Browser, gateway: Gateway, colours: str
) -> None:
    async with console(browser, gateway, color_scheme=colours, reduced_motion="reduce") as tab:
        await tab.at("create").first.click()
        await expect(tab.at("create-provider-local")).to_be_checked()
        await expect(tab.at("create-image")).to_have_count(0)
        await expect(tab.at("create-network-outbound")).to_have_count(1)
        await tab.at("create-provider-docker").check()
        await expect(tab.at("create-provider-docker")).to_be_checked()
        await expect(tab.at("create-network-outbound")).to_have_count(0)
        await expect(tab.at("create-image-help")).to_contain_text("These may be named: holdfast-test/*.")
        await tab.at("create-image").fill(OTHER)
        found = {"create": await serious(tab)}
        await tab.picture(f"create in a container {colours}")
        await tab.at("create-submit").click()
        await expect(tab.at("session").get_by_test_id("provider")).to_have_text("docker container")
        await expect(tab.at("session").get_by_test_id("status")).to_have_text("running")
        await tab.say("hello")
        await tab.shows_answer("hello")
        await tab.at("session").get_by_test_id("provider").click()
        await use(tab, "memory", "of 512 MiB")
        await use(tab, "processors", "of 2")
        await use(tab, "processes", "of 1024")
        await expect(tab.at("place-image")).to_have_text(OTHER)
        found["place"] = await serious(tab)
        await tab.picture(f"place {colours}")
        await tab.page.keyboard.press("Escape")
        await expect(tab.at("session").get_by_test_id("provider")).to_be_focused()
        assert tab.problems == []
    assert {screen: what for screen, what in found.items() if what} == {}


async def test_with_keys_alone_and_what_users_may_not_name_is_said(browser: Browser, gateway: Gateway) -> None:
    async with console(browser, gateway) as tab:
        await tab.at("create").first.focus()
        await tab.page.keyboard.press("Enter")
        await tab.at("create-title").wait_for()
        await tab.at("create-provider-local").focus()
        await tab.page.keyboard.press("ArrowRight")
        await expect(tab.at("create-provider-docker")).to_be_focused()
        await tab.page.keyboard.press("Tab")
        await expect(tab.at("create-image")).to_be_focused()
        await tab.page.keyboard.type("debian:12")
        await tab.page.keyboard.press("Enter")
        await expect(tab.at("create-error")).to_contain_text("HOLDFAST_IMAGES")
        assert tab.problems == []


async def test_a_phone_shows_where_a_session_runs_and_what_it_uses(browser: Browser, gateway: Gateway) -> None:
    await gateway.create("phone", provider="docker")
    async with console(browser, gateway, size=PHONE, has_touch=True, is_mobile=True, reduced_motion="reduce") as tab:
        await tab.at("create").first.tap()
        await tab.at("create-provider-docker").tap()
        await tab.at("create-image").wait_for()
        found = {"create": await serious(tab)}
        await tab.picture("phone create in a container")
        await tab.page.keyboard.press("Escape")
        await tab.open("phone")
        await expect(tab.at("session").get_by_test_id("status")).to_have_text("running")
        await tab.at("session-menu").tap()
        await tab.at("action-place").tap()
        await use(tab, "memory", "of 512 MiB")
        wide = await tab.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{wide} px too wide"
        found["place"] = await serious(tab)
        await tab.picture("phone place")
        assert tab.problems == []
    assert {screen: what for screen, what in found.items() if what} == {}


async def test_an_engine_that_is_away_is_told_before_a_session_is_started_there(
    browser: Browser, gateway: Gateway, docker_engine: DockerEngine
) -> None:
    async with console(browser, gateway) as tab:
        await tab.at("create").first.click()
        await tab.at("create-provider-docker").check()
        await tab.at("create-image").wait_for()
        docker_engine.kill()
        try:
            await expect(tab.at("create-provider-problem")).to_contain_text("docker can start nothing right now")
            await tab.picture("an engine is away")
        finally:
            docker_engine.start()
        await expect(tab.at("create-provider-problem")).to_have_count(0)
        assert tab.problems == []
