"""What the console makes of reloads, cuts, restarts and lost networks: nothing that anybody has to mend."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, WebSocket, expect

from tests.campaign.size import sized
from tests.support.console import Console, as_shown, console, cut_off, visitor
from tests.support.gateway import Gateway


@pytest.fixture
async def own_gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """One that may be killed."""
    async with Gateway(tmp_path / "data", PENDING_TTL="2", SHELL="/bin/bash --norc --noprofile") as running:
        yield running


async def _equals_history(tab: Console, gateway: Gateway, session_id: str) -> None:
    """All records, each once: a message that waited for an answer stands behind it, out of the order of the numbers."""
    stored = [(record["seq"], as_shown(record)) for record in await gateway.messages(session_id)]

    async def same() -> bool:
        rows = [(row.seq or 0, " ".join(row.text.split())) for row in await tab.rows()]
        return sorted(rows) == stored

    await tab.until(same, f"{stored} shown")


async def test_a_refresh_in_the_middle_of_an_answer_loses_nothing_of_it(tab: Console, gateway: Gateway) -> None:
    await gateway.create("refresh")
    await tab.open("refresh")
    await tab.say("/long 3")
    await tab.shows_answer("tick 5", whole=False)
    await tab.page.reload()
    again = await tab.shows_answer("tick 1 tick 2 tick 3", whole=False)
    assert again.seq is None, "it was over before the page was back"
    await tab.shows_answer("tick 30")
    await _equals_history(tab, gateway, "refresh")


async def test_what_is_written_offline_is_sent_in_order_when_the_network_is_back(
    browser: Browser, gateway: Gateway
) -> None:
    await gateway.create("offline")
    async with cut_off(browser, gateway) as (tab, proxy):
        await tab.open("offline")
        await tab.say("before")
        await tab.shows_answer("before")
        for passage in proxy.passages:
            passage.stall()  # what is under way stays there, as with a network that is gone
        await tab.page.context.set_offline(True)
        await expect(tab.at("connection")).to_have_attribute("data-phase", "offline")
        said = [f"offline {number}" for number in range(5)]
        for words in said:
            await tab.say(words)
            await asyncio.sleep(sized(2, 10) / len(said))
        await tab.at("composer").fill("not sent yet")
        assert [row.text for row in await tab.rows() if row.kind == "message"] == ["before", *said]
        await tab.picture("offline")
        for passage in proxy.passages:
            passage.cut()
        await tab.page.context.set_offline(False)
        await tab.shows_answer(said[-1])
        assert await tab.at("composer").input_value() == "not sent yet"
        await _equals_history(tab, gateway, "offline")
        stored = [record["content"] for record in await gateway.messages("offline") if record["role"] == "user"]
        assert stored == ["before", *said]
        assert tab.problems == []


async def test_what_waits_in_a_page_that_is_closed_is_sent_by_the_next_one(browser: Browser, gateway: Gateway) -> None:
    await gateway.create("outbox")
    async with cut_off(browser, gateway) as (tab, proxy):
        await tab.open("outbox")
        await expect(tab.at("connection")).to_have_attribute("data-phase", "online")
        for passage in proxy.passages:
            passage.swallow()
        await tab.say("left behind")
        await tab.shows_row(lambda row: row.text == "left behind", "it, waiting")
        assert await gateway.messages("outbox") == []
        for passage in proxy.passages:
            passage.cut()
        await tab.page.reload()
        await tab.shows_answer("left behind")
        await _equals_history(tab, gateway, "outbox")


async def test_words_that_cannot_be_taken_stay_where_they_were_written(tab: Console, gateway: Gateway) -> None:
    await gateway.create("too-much")
    await tab.open("too-much")
    alert = tab.at("composer-help").get_by_role("alert")
    quotes = '"' * 600_000  # each is two bytes in a frame
    await tab.say(quotes)
    await expect(alert).to_contain_text("Too long")
    assert await tab.at("composer").input_value() == quotes
    assert await tab.rows() == []
    await tab.at("composer").fill("")
    await expect(alert).to_have_count(0)
    await tab.page.context.set_offline(True)
    await expect(tab.at("connection")).to_have_attribute("data-phase", "offline")
    for number in range(4):
        await tab.say(f"{number}" * 900_000)
        await expect(tab.at("composer")).to_have_value("")
    await tab.say("4" * 900_000)
    await expect(alert).to_contain_text("too many messages wait")
    assert await tab.at("composer").input_value() == "4" * 900_000
    assert len(await tab.rows()) == 4


async def test_a_browser_that_keeps_nothing_says_so_once_and_sends_all_the_same(tab: Console, gateway: Gateway) -> None:
    for session in ("forgets", "forgets-too"):
        await gateway.create(session)
    await tab.page.add_init_script("Object.defineProperty(window, 'indexedDB', { value: undefined })")
    await tab.page.reload()
    await tab.open("forgets")
    told = tab.page.locator(".toast", has_text="a reload loses messages")
    await expect(told).to_have_count(1)
    await told.get_by_role("button", name="Dismiss").click()
    await tab.open("forgets-too")
    await tab.say("all the same")
    await tab.shows_answer("all the same")
    await expect(told).to_have_count(0)


async def test_a_gateway_that_is_killed_under_an_open_page_is_not_missed(
    browser: Browser, own_gateway: Gateway
) -> None:
    gateway = own_gateway
    await gateway.create("killed")
    async with console(browser, gateway) as tab:
        await tab.open("killed")
        await tab.say("before")
        await tab.shows_answer("before")
        await tab.has_prompt()
        await tab.type("i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo tick $i; sleep 0.02; done; echo over$((6*7))\n")
        await tab.shows_screen("tick 3")
        await tab.say("/long 2")
        await tab.shows_answer("tick 2", whole=False)
        await gateway.kill()
        await tab.say("meanwhile")
        await tab.shows_row(lambda row: row.text == "meanwhile" and row.status in ("queued", "sent"), "it, waiting")
        await tab.picture("gateway killed")
        await gateway.start()
        await tab.shows_answer("meanwhile")
        await tab.shows_answer("tick 20")
        screen = await tab.shows_screen("over42")
        ticks = [line for line in screen if line.startswith("tick ")]
        assert ticks == [f"tick {number}" for number in range(1, 301)]
        await _equals_history(tab, gateway, "killed")
        assert tab.problems == []


async def test_a_terminal_goes_on_where_it_was_after_a_cut_and_after_a_reload(
    browser: Browser, gateway: Gateway
) -> None:
    await gateway.create("resumes")
    async with cut_off(browser, gateway) as (tab, proxy):
        await tab.open("resumes")
        await tab.has_prompt()
        await tab.type("PS1=; clear; for i in {1..200}; do echo tick $i; sleep 0.02; done; PS1='that was all> '\n")
        await tab.shows_screen("tick 5")
        for _ in range(3):
            for passage in proxy.passages:
                passage.cut()
            await asyncio.sleep(0.3)
        screen = await tab.shows_screen("that was all")
        assert [line for line in screen if line.startswith("tick")] == [f"tick {n}" for n in range(1, 201)]
        await tab.page.reload()
        again = await tab.shows_screen("that was all")
        assert again[-5:] == screen[-5:]
        await tab.type("echo $((6*7))after\n")
        await tab.shows_screen("42after")


async def test_a_token_that_runs_out_is_renewed_without_a_new_connection(browser: Browser, gateway: Gateway) -> None:
    """The cookie is nearly over, so the short token is, and the gateway warns; then the cookie is renewed."""
    await gateway.create("expires")
    async with visitor(browser) as someone:
        tab = Console(await someone.new_page())
        sent: list[dict[str, object]] = []
        sockets: list[str] = []

        def opened(socket: WebSocket) -> None:
            if "/ws/v2" in socket.url:
                sockets.append(socket.url)
                socket.on("framesent", lambda frame: sent.append(json.loads(frame)))

        tab.page.on("websocket", opened)
        await someone.add_cookies([{"name": "session", "value": gateway.token(ttl=64), "url": gateway.url}])
        await tab.page.goto(f"{gateway.url}/#/s/expires")
        await tab.at("composer").wait_for()
        await someone.add_cookies([{"name": "session", "value": gateway.token(ttl=3600), "url": gateway.url}])

        async def renewed() -> bool:
            return any(frame["type"] == "auth" for frame in sent)

        await tab.until(renewed, "a new token on the old connection")
        await tab.say("still here")
        await tab.shows_answer("still here")
        assert len(sockets) == 1
        assert not any("token" in url or "ticket" in url for url in sockets)


async def test_who_is_signed_out_comes_back_to_what_was_being_written(tab: Console, gateway: Gateway) -> None:
    await gateway.create("draft")
    await tab.open("draft")
    await tab.at("composer").fill("half a thou")
    await tab.page.context.clear_cookies()
    await tab.page.reload()
    await tab.at("token").fill(gateway.token())
    await tab.at("signin-submit").click()
    await expect(tab.at("composer")).to_have_value("half a thou")


async def test_a_session_that_was_purged_and_made_again_is_shown_as_it_is_now(
    browser: Browser, gateway: Gateway
) -> None:
    await gateway.create("phoenix")
    async with cut_off(browser, gateway) as (tab, proxy):
        await tab.open("phoenix")
        for words in ("the first", "the second"):
            await tab.say(words)
            await tab.shows_answer(words)
        for passage in proxy.passages:
            passage.stall()
        async with gateway.http() as client:
            assert (await client.delete("/api/sandboxes/phoenix?purge=1")).is_success
        made = (await gateway.create("phoenix"))["createdAt"]
        async with gateway.http(gateway.internal) as client:
            for number in range(6):  # more than there were, so that no number says it
                said = {"role": "user", "content": f"anew {number}"}
                assert (await client.post("/internal/sessions/phoenix/messages", json=said)).status_code == 201
        for passage in proxy.passages:
            passage.cut()
        await tab.shows_row(lambda row: row.text == "anew 5", "what was said anew")
        await _equals_history(tab, gateway, "phoenix")
        # What is said before the page knows that this is another session goes with the one that is gone.
        await tab.page.locator(f'[data-testid="session"][data-created="{made}"]').wait_for()
        await tab.say("the third")
        await tab.shows_answer("the third")
        await _equals_history(tab, gateway, "phoenix")
        assert tab.problems == []


async def test_a_session_that_comes_to_be_is_shown_where_there_was_none(tab: Console, gateway: Gateway) -> None:
    await tab.page.evaluate("() => { location.hash = '#/s/later' }")
    await tab.at("no-session").wait_for()
    await gateway.create("later")
    await tab.at("composer").wait_for()
    async with gateway.http() as client:
        assert (await client.delete("/api/sandboxes/later?purge=1")).is_success
    await tab.at("no-session").wait_for()
    await gateway.create("later")
    await tab.say("hello again")
    await tab.shows_answer("hello again")


async def test_what_expired_is_marked_and_can_be_sent_again(browser: Browser, own_gateway: Gateway) -> None:
    gateway = own_gateway
    await gateway.create("expiry")
    async with console(browser, gateway) as tab, gateway.http() as client:
        await tab.open("expiry")
        await tab.say("before")
        await tab.shows_answer("before")
        assert (await client.post("/api/sandboxes/expiry/pause")).status_code == 200
        await tab.say("too late")
        await tab.shows_row(lambda row: row.text == "too late" and row.status == "expired", "it, expired")
        await tab.picture("expired")
        assert (await client.post("/api/sandboxes/expiry/resume")).status_code == 200
        await tab.at("send-again").click()
        await tab.shows_answer("too late")
