"""Sessions in containers, from the page: chosen at create, named by a badge, looked at while they run."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest
from playwright.async_api import Browser, expect

from tests.support.console import PHONE, Console, console
from tests.support.engine import DockerEngine, busybox
from tests.support.gateway import Gateway
from tests.support.image_registry import ImageRegistry
from tests.support.proxy import CuttingProxy, Passage
from tests.support.usable import serious

OTHER = "holdfast-test/other:2"


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, docker_engine: DockerEngine) -> AsyncIterator[Gateway]:
    docker_engine.load(OTHER, busybox())
    home: Path = tmp_path_factory.mktemp("containers")
    there = {"DOCKER": f"unix://{docker_engine.socket}", "DOCKER_IMAGE": docker_engine.image}
    there |= {"PROVIDERS": "local,docker", "IMAGES": "holdfast-test/*,127.0.0.1:*/**", "LIMIT_MEMORY": "512m"}
    async with Gateway(home / "data", SHELL="/bin/sh", **there) as running:
        yield running
        async with running.http() as ada:
            for each in (await ada.get("/api/sandboxes")).json()["sandboxes"]:
                assert (await ada.delete(f"/api/sandboxes/{each['id']}?purge=1")).status_code == 200


class SlowPassage(Passage):
    """Lets little through after the first MANY bytes, until `gate` is set: minutes would not do."""

    MANY, LITTLE, PAUSE = 256 << 10, 4 << 10, 0.3
    gate: ClassVar[asyncio.Event]

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passed = 0
        try:
            while data := await reader.read(self.LITTLE if passed > self.MANY else 65536):
                if passed > self.MANY:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self.PAUSE):
                            await self.gate.wait()
                passed += len(data)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self.cut()


class SlowProxy(CuttingProxy):
    """In front of a registry: what is fetched through it comes slowly until `gate` is set."""

    passage = SlowPassage

    def __init__(self, port: int) -> None:
        super().__init__(port)
        SlowPassage.gate = self.gate = asyncio.Event()


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
        await expect(tab.at("create-network-outbound")).to_have_count(1)
        await expect(tab.at("create-image-help")).to_contain_text("named: holdfast-test/*, 127.0.0.1:*/**.")
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


async def test_how_far_an_image_is_fetched_is_shown_until_the_session_runs(
    browser: Browser, gateway: Gateway, docker_engine: DockerEngine, image_registry: ImageRegistry
) -> None:
    pushed = f"{image_registry.address}/team/large:1"
    docker_engine.load(pushed, busybox(large=secrets.token_hex(2 << 20)))
    docker_engine.client("push", pushed)
    docker_engine.client("rmi", pushed)
    async with (
        SlowProxy(int(image_registry.address.rsplit(":", 1)[1])) as proxy,
        console(browser, gateway, color_scheme="dark", reduced_motion="reduce") as tab,
        console(browser, gateway, size=PHONE, has_touch=True, is_mobile=True, reduced_motion="reduce") as phone,
    ):
        await tab.at("create").first.click()
        await tab.at("create-provider-docker").check()
        await tab.at("create-image").fill(f"127.0.0.1:{proxy.port}/team/large:1")
        await tab.at("create-title").fill("fetches its image")
        await tab.at("create-submit").click()
        found = {}
        for name, each in {"dark": tab, "phone": phone}.items():
            if each is phone:
                session_id = await tab.at("session").get_attribute("data-id")
                await phone.open(session_id or "")
            await expect(each.at("banner")).to_contain_text("Fetching the image 127.0.0.1:")
            await expect(each.at("banner")).to_contain_text("MiB.")
            assert 0 < int(await each.at("pull").get_attribute("aria-valuenow") or 0) < 100
            found[name] = await serious(each)
            await each.picture(f"an image is fetched {name}")
        wide = await phone.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{wide} px too wide"
        proxy.gate.set()
        for each in (tab, phone):
            await expect(each.at("session").get_by_test_id("status")).to_have_text("running")
            await expect(each.at("pull")).to_have_count(0)
            assert each.problems == []
    assert {screen: what for screen, what in found.items() if what} == {}
