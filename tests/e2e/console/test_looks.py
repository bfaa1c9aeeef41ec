"""How the console looks, and whether everybody can use it: screens of every kind are looked through by axe, and kept as
pictures."""

import pytest
from playwright.async_api import Browser, expect

from tests.support.console import DESKTOP, PHONE, Console, console, visitor
from tests.support.gateway import Gateway
from tests.support.usable import serious

WORDS = "# A title\n\nSome **bold** words, `code`, a [link](https://example.com).\n\n```sh\nls -l\n```\n\n- one\n- two"


@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_nobody_is_shut_out_of_any_screen(browser: Browser, gateway: Gateway, colours: str) -> None:
    session = f"looks-{colours}"
    await gateway.create(session)
    await gateway.create(f"beside-{session}")
    async with visitor(browser, color_scheme=colours, reduced_motion="reduce") as someone:
        nobody = Console(await someone.new_page())
        await nobody.page.goto(gateway.url)
        await nobody.at("token").wait_for()
        found = {"sign-in": await serious(nobody)}
    async with console(browser, gateway, color_scheme=colours, reduced_motion="reduce") as tab:
        await tab.open(session)
        await tab.say(WORDS)
        await tab.shows_answer("bold")
        await tab.say("/write hello.py print('hello')")
        await tab.shows_answer("Wrote")
        await tab.say("/permission run a command")
        await tab.at("permission-allow").wait_for()
        await tab.has_prompt()
        await tab.type("ls --color=always -la /etc | head -20\n")
        await tab.shows_screen("total")
        await tab.page.locator("[data-testid=session-row]:not(.open)").first.hover()
        found["session"] = await serious(tab)
        await tab.picture(f"session {colours}")
        for pane in ("files", "sync", "logs"):
            await tab.at(f"tab-{pane}").click()
            await tab.at(f"pane-{pane}").wait_for()
            found[pane] = await serious(tab)
            await tab.picture(f"{pane} {colours}")
        await tab.at("create").first.click()
        await tab.at("create-title").wait_for()
        await expect(tab.page.locator("[name=provider], [data-testid=create-image]")).to_have_count(0)
        found["create"] = await serious(tab)
        await tab.picture(f"create {colours}")
        assert tab.problems == []
    assert {screen: what for screen, what in found.items() if what} == {}


async def test_a_phone_shows_one_thing_at_a_time_and_all_of_them(browser: Browser, gateway: Gateway) -> None:
    await gateway.create("phone")
    async with console(browser, gateway, size=PHONE, has_touch=True, is_mobile=True, reduced_motion="reduce") as tab:
        await tab.open("phone")
        await tab.say("hello from a phone")
        await tab.shows_answer("hello from a phone")
        found = {"chat": await serious(tab)}
        await tab.picture("phone chat")
        for pane in ("terminal", "files", "sync", "logs"):
            await tab.at(f"tab-{pane}").tap()
            await expect(tab.at(f"pane-{pane}")).to_be_visible()
            await expect(tab.at("composer")).not_to_be_visible()
            wide = await tab.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{pane} is {wide} px too wide"
            found[pane] = await serious(tab)
            await tab.picture(f"phone {pane}")
        await tab.at("drawer").tap()
        await expect(tab.at("session-row").first).to_be_visible()
        await expect(tab.page.locator("[data-drawer-close]")).to_be_focused()
        await tab.picture("phone sessions")
        await tab.page.keyboard.press("Escape")
        await expect(tab.at("drawer")).to_be_focused()
        assert {screen: what for screen, what in found.items() if what} == {}


async def test_a_session_is_started_and_talked_to_by_keyboard_alone(browser: Browser, gateway: Gateway) -> None:
    async with console(browser, gateway, size=DESKTOP) as tab:
        keys = tab.page.keyboard

        async def tab_to(testid: str) -> None:
            for _ in range(60):
                if await tab.page.evaluate("() => document.activeElement?.dataset.testid") == testid:
                    return
                await keys.press("Tab")
            raise AssertionError(f"{testid} cannot be reached")

        await tab_to("create")
        await keys.press("Enter")
        await expect(tab.at("create-title")).to_be_focused()
        await keys.type("By keyboard")
        await keys.press("Enter")
        await expect(tab.at("composer")).to_be_focused()
        await keys.type("hello")
        await keys.press("Enter")
        await tab.shows_answer("hello")
        await tab_to("tab-terminal")
        await keys.press("ArrowRight")
        await expect(tab.at("pane-files")).to_be_visible()
