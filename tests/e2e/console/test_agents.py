"""What the console shows of an agent that works, and what people can say to it meanwhile. The agent is a program of
this file; real ones are tried in tests/agents."""

import sys

from playwright.async_api import Browser, expect

from tests.support.console import PHONE, Console, another, console
from tests.support.gateway import Gateway
from tests.support.usable import serious

EVIL = '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>'
WORKER = f"""
import json, sys
EVIL = {EVIL!r}
def say(kind, **members):
    print(json.dumps({{"type": kind, **members}}), flush=True)
def message(role, *content):
    say("sdk_message", message={{"type": role, "message": {{"content": list(content)}}}})
def text(words):
    return {{"type": "text", "text": words}}
for line in sys.stdin:
    frame = json.loads(line)
    kind = frame.get("type")
    if kind == "message" and frame["content"] == "forget":
        say("agent_status", status="memory_lost")
        say("agent_status", status="notice", message="look here " + EVIL)
        say("done", answers=[frame["seq"]])
    elif kind == "message":
        asked = frame["seq"]
        say("agent_status", name="Worker " + EVIL[:4], version="1.2", model="m1")
        say("thinking", text="What is ")
        say("thinking", text="wanted? " + EVIL)
        say("todo", items=[{{"content": "look " + EVIL, "status": "completed"}}, {{"content": "build"}}])
        say("plan", explanation=EVIL, steps=[{{"step": "begin " + EVIL, "status": "in_progress"}}, 7])
        used = {{"type": "tool_use", "id": "t1", "name": "Bash" + EVIL, "input": {{"command": "ls " + EVIL}}}}
        message("assistant", text("I look."), used)
        say("tool_permission_request", requestId="p%d" % asked, toolName="Bash", toolInput={{"command": "ls"}},
            suggestions=["session"], reason="it is outside " + EVIL)
    elif kind == "permission_response":
        message("user", {{"type": "tool_result", "tool_use_id": "t1", "content": [text("a.py " + EVIL)]}})
        say("file_change", path="a.py " + EVIL, action="created " + EVIL)
        say("agent_status", status="retrying", attempt=1, of=3, error="busy " + EVIL)
        say("chunk", text="Always: %s." % frame.get("always"))
        say("usage", inputTokens=1200, outputTokens=34, costUsd=0.0123)
        say("done", answers=[asked])
"""


async def test_what_an_agent_thinks_plans_uses_and_costs_is_shown_as_text(tab: Console, gateway: Gateway) -> None:
    await gateway.create("works", agent=[sys.executable, "-c", WORKER])
    await tab.open("works")
    await tab.say("go")
    await expect(tab.at("permission")).to_contain_text("it is outside")
    await expect(tab.at("agent")).to_have_text("Worker <img")
    answer = tab.at("answer").last
    await answer.get_by_test_id("thinking").locator("summary").click()
    await expect(answer.get_by_test_id("thinking")).to_contain_text("What is wanted? <img")
    await expect(answer.get_by_test_id("plan").locator("li")).to_contain_text(["begin <img"])
    await expect(answer.get_by_test_id("todo")).to_contain_text("1 of 2")
    await expect(answer.get_by_test_id("tool")).to_contain_text("ls <img")
    unusable = {"at work": await serious(tab)}
    await tab.picture("agent works")
    await tab.at("permission-always").click()
    await tab.shows_answer("Always: True.")
    await expect(tab.at("permission")).to_contain_text("always allowed")
    await answer.get_by_test_id("tool").locator("summary").click()
    await expect(answer.get_by_test_id("tool")).to_contain_text("a.py <img")
    await answer.get_by_test_id("changes").locator("summary").click()
    await expect(answer.get_by_test_id("changes")).to_contain_text("a.py <img")
    await expect(answer.get_by_test_id("usage")).to_have_text("Tokens: 1,200 in, 34 out · $0.0123")
    await expect(tab.at("retrying")).to_have_count(0)
    unusable["at rest"] = await serious(tab)
    await tab.picture("agent worked")
    assert {screen: what for screen, what in unusable.items() if what} == {}
    later = await another(tab)
    await later.shows_answer("Always: True.")
    kept = later.at("answer").last
    await expect(kept.get_by_test_id("todo")).to_contain_text("build")
    await expect(kept.get_by_test_id("usage")).to_contain_text("$0.0123")
    await expect(kept.get_by_test_id("thinking")).to_have_count(0)
    assert await kept.locator("p, pre, [data-testid=tool]").count() > 0
    for each in (tab, later):
        assert await each.at("transcript").locator("img, script").count() == 0
        assert await each.page.evaluate("() => window.harmed") is None


async def test_that_an_agent_forgot_is_said_where_it_forgot(tab: Console, gateway: Gateway) -> None:
    await gateway.create("forgets", agent=[sys.executable, "-c", WORKER])
    await tab.open("forgets")
    await tab.say("forget")
    await expect(tab.page.locator("[data-type=agent_status]")).to_contain_text("has lost its memory")
    await expect(tab.page.locator("[data-type=notice]")).to_contain_text("look here <img")
    await tab.page.reload()
    await expect(tab.page.locator("[data-type=agent_status]")).to_contain_text("has lost its memory")
    await tab.at("agent").click()
    await expect(tab.at("agent-about")).to_contain_text("forgotten an earlier part")


async def test_what_waits_is_cancelled_or_taken_back_into_the_composer(tab: Console, gateway: Gateway) -> None:
    await gateway.create("queue")
    await tab.open("queue")
    async with gateway.http() as ada:
        assert (await ada.post("/api/sandboxes/queue/pause")).status_code == 200
    await expect(tab.at("banner-resume")).to_be_visible()
    for words in ("first", "second", "third"):
        await tab.say(words)
    await expect(tab.at("queued")).to_have_count(3)
    await expect(tab.at("queue-until")).to_be_visible()
    async with gateway.http() as ada:
        before = min(each["expiresAt"] for each in (await ada.get("/api/sandboxes/queue/pending")).json()["messages"])
    await tab.at("queue-extend").click()

    async def extended() -> bool:
        async with gateway.http() as ada:
            waiting = (await ada.get("/api/sandboxes/queue/pending")).json()["messages"]
        return len(waiting) == 3 and all(each["expiresAt"] > before for each in waiting)

    await tab.until(extended, "all of them wait longer")
    assert await serious(tab) == []
    await tab.picture("queue")
    await tab.at("queued-cancel").nth(1).click()
    await expect(tab.at("queued")).to_have_count(2)
    await tab.at("composer").fill("and more")
    await tab.at("queued-edit").nth(1).click()
    await expect(tab.at("composer")).to_have_value("third\n\nand more")
    await expect(tab.at("composer")).to_be_focused()
    await tab.page.reload()
    await expect(tab.at("queued")).to_have_count(1)
    await tab.at("banner-resume").click()
    await tab.shows_answer("first")
    await expect(tab.at("queue")).to_have_count(0)
    told = {
        record["content"]: record["status"] for record in await gateway.messages("queue") if record["role"] == "user"
    }
    assert told == {"first": "delivered", "second": "cancelled", "third": "cancelled"}
    cancelled = tab.page.locator("[data-testid=message][data-status=cancelled]")
    await expect(cancelled.first).to_contain_text("Cancelled before the agent had it.")


async def test_all_of_it_has_room_on_a_phone(browser: Browser, gateway: Gateway) -> None:
    await gateway.create("small", agent=[sys.executable, "-c", WORKER])
    async with console(browser, gateway, size=PHONE, has_touch=True, is_mobile=True, reduced_motion="reduce") as tab:
        await tab.open("small")
        await tab.say("go")
        await expect(tab.at("permission-always")).to_be_in_viewport()
        await tab.picture("phone agent")
        await tab.at("permission-allow").tap()
        await tab.shows_answer("Always: None.")
        await tab.at("agent").tap()
        await expect(tab.at("mode-all")).to_be_in_viewport()
        await tab.page.keyboard.press("Escape")
        wide = await tab.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{wide} px too wide"
        assert await serious(tab) == []
        assert tab.problems == []
        await tab.picture("phone agent worked")


async def test_the_mode_is_chosen_at_create_and_changed_later(tab: Console, gateway: Gateway) -> None:
    await tab.at("create").first.click()
    await tab.at("create-agent").select_option("codex")
    await expect(tab.at("create-agent-help")).to_contain_text("holdfast agents install codex")
    await tab.at("create-mode").select_option("plan")
    assert await serious(tab) == []
    await tab.picture("create agent")
    await tab.at("create-submit").click()
    await expect(tab.at("create-error")).to_contain_text("is not available here")
    await tab.at("create-agent").select_option("none")
    await tab.at("create-submit").click()
    await expect(tab.at("first-words")).to_contain_text("no agent")
    await gateway.create("modes", mode="plan")
    await tab.open("modes")
    await expect(tab.at("agent")).to_have_text("Demo agent · Plan only")
    await tab.at("agent").click()
    await expect(tab.at("mode-plan")).to_have_attribute("aria-checked", "true")
    await tab.picture("modes")
    await tab.at("mode-edits").click()
    await expect(tab.at("agent")).to_have_text("Demo agent · Edit freely")
    async with gateway.http() as ada:
        assert (await ada.get("/api/sandboxes/modes")).json()["agentStatus"]["mode"] == "edits"
