"""Signing in with a real browser: what the link leaves there, what scripts see of it, and what other sites can do."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route

from tests.support.browser import chromium
from tests.support.gateway import Gateway

ELSEWHERE = "http://elsewhere.test"
CALL = """async ([address, method, body]) => {
    const asked = fetch(address, {method, body, credentials: "include"})
    const answer = await asked.catch(error => ({status: String(error)}))
    return {status: answer.status, told: await answer.json?.().catch(() => null)}
}"""


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("signing-in") / "data") as running:
        yield running


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest.fixture
async def page(browser: Browser, gateway: Gateway) -> AsyncIterator[Page]:
    """A visitor's own. `/blank` is a page of the gateway without anything in it, and so is all of `ELSEWHERE`, but for
    what it links to."""
    context = await browser.new_context()
    page = await context.new_page()

    async def blank(route: Route) -> None:
        await route.fulfill(body="<!doctype html><title>blank</title><a>on</a>", content_type="text/html")

    await page.route(f"{gateway.url}/blank", blank)
    await page.route(f"{ELSEWHERE}/**", blank)
    yield page
    await context.close()


async def link(gateway: Gateway, user: str) -> str:
    async with gateway.http(gateway.admin) as operator:
        made = await operator.post("/api/links", json={"userId": user, "email": f"{user}@example.com"})
    url: str = made.json()["url"]
    return url


async def call(page: Page, address: str, method: str = "GET", body: str | None = None) -> Any:
    return await page.evaluate(CALL, [address, method, body])


async def who(page: Page, gateway: Gateway) -> str | None:
    """Whom a script of the gateway's own page finds signed in."""
    await page.goto(f"{gateway.url}/blank")
    me = await call(page, "/api/me")
    return str(me["told"]["userId"]) if me["status"] == 200 else None


async def test_the_printed_link_signs_in_and_leaves_nothing_in_the_address(gateway: Gateway, page: Page) -> None:
    assert await who(page, gateway) is None
    (printed,) = re.findall(r"http://\S+link=\w+", gateway.printed)
    await page.goto(printed)
    assert page.url.startswith(f"{gateway.url}/")
    assert "link=" not in page.url
    assert await page.evaluate("document.cookie") == ""
    assert await page.evaluate("document.referrer") == ""
    assert f"you are {await who(page, gateway)} there" in gateway.printed
    (cookie,) = await page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("session", True, "Strict")
    made = await call(page, "/api/token", "POST")
    assert (made["status"], made["told"]["token"].count(".")) == (201, 2)
    assert (await call(page, "/api/sandboxes/mine", "POST"))["status"] == 201


async def test_the_link_followed_from_another_site_signs_in_and_a_used_one_does_not(
    gateway: Gateway, page: Page
) -> None:
    address = await link(gateway, "ann")
    for end in ("/", "/#signin=over"):
        await page.goto(f"{ELSEWHERE}/mail")
        await page.evaluate("address => { document.querySelector('a').href = address }", address)
        async with page.expect_navigation(url=re.compile(re.escape(f"{gateway.url}/") + "(?!signin)")) as going:
            await page.click("a")
        request = (await going.value).request
        assert request.redirected_from is not None
        location = (await (await request.redirected_from.response()).all_headers())["location"]  # type: ignore[union-attr]
        assert location == end, "a Strict cookie does not come along from elsewhere: the page asks by itself"
        assert await who(page, gateway) == "ann"
    await page.goto(address)
    assert "over" not in page.url, "opened by its owner again, it just leads to the page"


async def test_another_site_neither_signs_in_nor_out_nor_reads_anything(gateway: Gateway, page: Page) -> None:
    await page.goto(await link(gateway, "ann"))
    await page.goto(f"{ELSEWHERE}/")
    body = f'{{"token":"{gateway.token("eva")}"}}'
    for method, path in (("POST", "signin"), ("DELETE", "signin"), ("POST", "token"), ("GET", "me")):
        answer = await call(page, f"{gateway.url}/api/{path}", method, body if path == "signin" else None)
        assert "TypeError" in str(answer["status"]), "there is nothing that it may read"
    assert await who(page, gateway) == "ann"


async def test_a_pasted_token_signs_in_and_signing_out_takes_it_away(gateway: Gateway, page: Page) -> None:
    await page.goto(f"{gateway.url}/blank")
    refused = await call(page, "/api/signin", "POST", '{"token":"x.y.z"}')
    assert (refused["status"], refused["told"]["code"]) == (401, "token_invalid")
    signed = await call(page, "/api/signin", "POST", f'{{"token":"{gateway.token("bob")}"}}')
    assert (signed["status"], signed["told"]["userId"]) == (200, "bob")
    assert await page.evaluate("document.cookie") == ""
    assert await who(page, gateway) == "bob"
    assert (await call(page, "/api/signin", "DELETE"))["status"] == 204
    assert await page.context.cookies() == []
    assert await who(page, gateway) is None
