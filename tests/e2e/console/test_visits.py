"""What somebody does with the console on a good day."""

import re
from functools import partial

from playwright.async_api import Browser, WebSocketRoute, expect

from tests.support.console import LINK, Console, Row, another, fresh_link, visitor
from tests.support.gateway import Gateway


async def test_the_printed_link_leads_to_an_answer_and_a_terminal(browser: Browser, gateway: Gateway) -> None:
    """Nothing but the link is known to this visitor, and nothing is typed but what the page asks for."""
    link = LINK.search(gateway.printed)
    assert link is not None, gateway.printed
    async with visitor(browser) as someone:
        tab = Console(await someone.new_page())
        await tab.page.goto(link[0])
        await tab.at("start").click()
        await expect(tab.at("composer")).to_be_focused()
        await tab.page.keyboard.type("hello")
        await tab.page.keyboard.press("Enter")
        await tab.shows_answer("hello")
        await tab.has_prompt()
        await tab.type("echo $((6*7))\n")
        await tab.shows_screen("42")
        await tab.picture("first visit")
        assert tab.problems == []
        assert "link=" not in tab.page.url
        # Used up: somebody else gets nowhere with it.
        async with visitor(browser) as stranger:
            page = await stranger.new_page()
            await page.goto(link[0])
            await expect(page.get_by_test_id("signin-over")).to_be_visible()


async def test_a_pasted_token_signs_in_and_a_bad_one_is_explained(browser: Browser, gateway: Gateway) -> None:
    async with visitor(browser) as someone:
        tab = Console(await someone.new_page())
        await tab.page.goto(gateway.url)
        await tab.at("token").fill("x.y.z")
        await tab.at("signin-submit").click()
        await expect(tab.page.get_by_role("alert")).to_be_visible()
        await tab.at("token").fill(gateway.token())
        await tab.at("signin-submit").click()
        await tab.at("create").first.wait_for()
        await tab.at("account").click()
        await tab.at("sign-out").click()
        await tab.at("token").wait_for()
        assert [cookie["name"] for cookie in await someone.cookies()] == []


async def test_receipts_go_from_waiting_to_delivered_and_the_answer_streams(tab: Console, gateway: Gateway) -> None:
    await gateway.create("streams")
    await tab.open("streams")
    await tab.say("/long 2")
    growing = await tab.shows_answer("tick 2", whole=False)
    assert growing.seq is None, "it was shown only when it was over"
    answer = await tab.shows_answer("tick 20")
    assert [row.status for row in await tab.rows()] == ["delivered", "complete"]
    assert answer.seq == 2


async def test_what_was_said_elsewhere_is_unread_until_it_is_looked_at(tab: Console, gateway: Gateway) -> None:
    for session in ("here", "there"):
        await gateway.create(session)
    await tab.open("there")
    await tab.say("seen")
    await tab.shows_answer("seen")
    await tab.open("here")
    async with gateway.http(gateway.internal) as client:
        said = {"role": "user", "content": "psst", "deliver": True}
        assert (await client.post("/internal/sessions/there/messages", json=said)).status_code == 201
    row = tab.page.locator('[data-testid="session-row"][data-id="there"]')
    await expect(row.get_by_test_id("unread")).to_contain_text("2")
    await tab.open("there")
    await tab.shows_answer("psst")
    await expect(row.get_by_test_id("unread")).to_have_count(0)


async def test_the_list_shows_every_session_as_it_is_now(tab: Console, gateway: Gateway) -> None:
    await gateway.create("moves", title="It moves")
    row = tab.page.locator('[data-testid="session-row"][data-id="moves"]')
    await expect(row).to_contain_text("It moves")
    await expect(row).to_have_attribute("data-status", "running", timeout=30_000)
    await expect(row.get_by_test_id("provider")).to_contain_text("local")
    for step, status in (("pause", "paused"), ("resume", "running"), ("sleep", "sleeping"), ("wake", "running")):
        await row.get_by_test_id("row-menu").click()
        await tab.at(f"action-{step}").click()
        await expect(row).to_have_attribute("data-status", status, timeout=30_000)
    await row.get_by_test_id("row-menu").click()
    await tab.at("action-delete").click()
    await tab.at("delete-purge").check()
    await tab.at("delete-confirm").click()
    await expect(row).to_have_count(0, timeout=30_000)
    async with gateway.http() as client:
        assert (await client.get("/api/sandboxes/moves")).status_code == 404


async def test_a_permission_asked_in_one_tab_is_answered_in_the_other(tab: Console, gateway: Gateway) -> None:
    await gateway.create("asks")
    await tab.open("asks")
    await tab.say("/permission open the safe")
    second = await another(tab)
    await second.at("permission-allow").click()
    for each in (tab, second):
        await each.shows_answer("Allowed: open the safe")

        def answered(row: Row) -> bool:
            return row.kind == "permission" and row.status == "answered"

        await each.shows_row(answered, "the permission answered")
    await second.say("/ask Which colour?")
    await tab.at("question-option").nth(1).check()
    await tab.at("question-answer").click()
    for each in (tab, second):
        await each.shows_answer("green")
    await tab.until(partial(_alike, tab, second), "the same rows in both")


async def _alike(one: Console, other: Console) -> bool:
    return await one.rows() == await other.rows()


async def test_two_tabs_show_the_same_conversation_and_the_same_terminal(tab: Console, gateway: Gateway) -> None:
    await gateway.create("twice")
    await tab.open("twice")
    second = await another(tab)
    await second.at("composer").wait_for()
    await tab.say("from the first")
    await second.shows_answer("from the first")
    await second.say("from the second")
    await tab.shows_answer("from the second")
    await tab.has_prompt()
    await tab.type("echo $((6*7))first\n")
    await second.shows_screen("42first")
    await second.type("echo $((6*7))second\n")
    await tab.shows_screen("42second")
    await tab.until(partial(_alike, tab, second), "the same rows in both")


async def test_files_can_be_seen_and_their_syncs_watched(tab: Console, gateway: Gateway) -> None:
    await gateway.create("writes")
    await tab.open("writes")
    await tab.at("tab-sync").click()
    await tab.say("/write notes/a.txt the first line")
    await tab.shows_answer("Wrote")
    await tab.at("generation-1").wait_for(timeout=30_000)
    await expect(tab.at("sync-round").first).to_be_visible()
    await tab.picture("syncs")
    await tab.at("tab-files").click()
    await tab.page.get_by_role("treeitem", name="notes").click()
    await tab.page.get_by_role("treeitem", name="a.txt").click()
    await expect(tab.at("preview-text")).to_contain_text("the first line")
    async with tab.page.expect_download() as download:
        await tab.at("preview-download").click()
    assert (await (await download.value).path()).read_text() == "the first line"
    await tab.picture("files")
    await tab.at("tab-logs").click()
    await expect(tab.at("logs-lines")).to_contain_text("agent.started")


async def test_agents_words_are_text_whatever_they_say(tab: Console, gateway: Gateway) -> None:
    await gateway.create("evil")
    await tab.open("evil")
    evil = (
        '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script> [a](javascript:window.harmed=1) '
        "[b](data:text/html,x) ![c](https://example.com/c.png) <a href='javascript:window.harmed=1'>d</a> said it"
    )
    await tab.say(evil)
    await tab.shows_answer("said it")
    answer = tab.at("answer").last
    assert await answer.locator("img, script, iframe, style").count() == 0
    targets = await answer.locator("a").evaluate_all("links => links.map(link => link.protocol)")
    assert set(targets) <= {"https:", "http:", "mailto:"}
    assert await tab.page.evaluate("() => window.harmed") is None


async def test_a_link_of_another_user_shows_nothing_of_this_one(browser: Browser, gateway: Gateway) -> None:
    await gateway.create("private")
    async with visitor(browser) as someone:
        tab = Console(await someone.new_page())
        await tab.page.goto(await fresh_link(gateway, "eve"))
        await tab.at("start").wait_for()
        assert await tab.at("session-row").count() == 0
        await tab.page.goto(f"{gateway.url}/#/s/private")
        await expect(tab.page.get_by_test_id("no-session")).to_be_visible()


async def test_who_signs_in_after_somebody_sees_and_sends_nothing_of_theirs(tab: Console, gateway: Gateway) -> None:
    """Not even in a session of the same name. What was not sent is what only this browser has."""
    await gateway.create("shared")
    deaf = True

    def take(socket: WebSocketRoute) -> None:
        if not deaf:
            socket.connect_to_server()

    await tab.page.context.route_web_socket(re.compile("/ws/v2"), take)
    await tab.open("shared")
    await tab.say("ada's message")
    await tab.shows_row(lambda row: row.text == "ada's message" and row.status == "queued", "it, waiting")
    await tab.at("composer").fill("ada's draft")
    await tab.at("account").click()
    await tab.at("sign-out").click()
    await tab.at("token").wait_for()
    deaf = False
    async with gateway.http() as client:
        assert (await client.delete("/api/sandboxes/shared?purge=1")).is_success
    await gateway.create("shared", user="bob")
    kept = await tab.page.evaluate("() => JSON.stringify([{...sessionStorage}, {...localStorage}])")
    assert "ada's draft" not in kept
    assert "#/s/shared" not in kept
    await tab.at("token").fill(gateway.token("bob"))
    await tab.at("signin-submit").click()
    await tab.at("create").first.wait_for()
    await tab.open("shared")
    await expect(tab.at("connection")).to_have_attribute("data-phase", "online")
    await expect(tab.at("composer")).to_have_value("")
    await tab.say("bob's message")
    await tab.shows_answer("bob's message")
    assert [row.text for row in await tab.rows() if row.kind == "message"] == ["bob's message"]
    stored = [record["content"] for record in await gateway.messages("shared") if record["role"] == "user"]
    assert stored == ["bob's message"]


async def test_what_was_not_sent_waits_for_who_wrote_it(tab: Console, gateway: Gateway) -> None:
    await gateway.create("waits")
    deaf = True

    def take(socket: WebSocketRoute) -> None:
        if not deaf:
            socket.connect_to_server()

    await tab.page.context.route_web_socket(re.compile("/ws/v2"), take)
    await tab.open("waits")
    await tab.say("for later")
    await tab.shows_row(lambda row: row.text == "for later" and row.status == "queued", "it, waiting")
    await tab.at("account").click()
    await tab.at("sign-out").click()
    deaf = False
    await tab.at("token").fill(gateway.token())
    await tab.at("signin-submit").click()
    await tab.at("create").first.wait_for()
    await tab.open("waits")
    await tab.shows_answer("for later")


async def test_signing_in_as_somebody_else_makes_every_tab_theirs(tab: Console, gateway: Gateway) -> None:
    await gateway.create("of-ada")
    await gateway.create("of-carol", user="carol")
    await tab.open("of-ada")
    await tab.at("composer").fill("ada's draft")
    second = await tab.page.context.new_page()
    await second.goto(await fresh_link(gateway, "carol"))
    for page in (second, tab.page):
        await expect(page.get_by_test_id("account")).to_have_accessible_name("Signed in as carol@example.com")
        rows = page.get_by_test_id("session-row")
        await expect(rows).to_have_count(1)
        await expect(rows).to_have_attribute("data-id", "of-carol")
    await tab.open("of-carol")
    await expect(tab.at("composer")).to_have_value("")
    assert "of-ada" not in tab.page.url


async def test_a_tab_that_nobody_told_sends_nothing_as_somebody_else(tab: Console, gateway: Gateway) -> None:
    """The cookie is another's when the line comes back: it is not used for what this tab still shows."""
    await gateway.create("stays-adas")
    await gateway.create("is-dans", user="dan")
    await tab.open("stays-adas")
    await expect(tab.at("connection")).to_have_attribute("data-phase", "online")
    cookie = {"name": "session", "value": gateway.token("dan"), "url": gateway.url}
    await tab.page.context.add_cookies([cookie])  # type: ignore[list-item]
    async with gateway.http() as client:
        assert (await client.post("/api/sandboxes/stays-adas/demo/cut", json={})).is_success
    await expect(tab.at("account")).to_have_accessible_name("Signed in as dan@example.com")
    await expect(tab.at("session-row")).to_have_count(1)
