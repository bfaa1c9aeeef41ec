"""A real agent in the console, in a real browser, over the fake model: everything that people do with it there."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from gateway.agents.catalogue import KNOWN
from tests.support.browser import chromium
from tests.support.chat import hear, say
from tests.support.console import Console, Row, console
from tests.support.fake_model.serving import INNER, fake_model
from tests.support.fake_model.settings import opencode_config
from tests.support.gateway import Gateway
from tests.support.usable import serious

AGENTS = (
    "claude-code",
    "codex",
    "opencode",
)  # those that are led to a model by variables, which is what the page can give


def variables(agent: str, model: str) -> dict[str, str]:
    match agent:
        case "claude-code":
            return {"ANTHROPIC_BASE_URL": model, "ANTHROPIC_API_KEY": "good"}
        case "codex":
            return {"OPENAI_BASE_URL": f"{model}/v1", "OPENAI_API_KEY": "good"}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(opencode_config(model, "good"))}


@pytest.fixture(params=AGENTS)
def agent(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def model() -> AsyncIterator[str]:
    async with fake_model() as address:
        yield address


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as running:
        yield running


@pytest.fixture
async def gateway(agents_dir: Path, tmp_path: Path) -> AsyncIterator[Gateway]:
    settings = {"AGENTS_DIR": agents_dir, "LOCAL_LEVEL": "contained", "NETWORK_INNER": INNER}
    async with Gateway(tmp_path / "data", **settings) as running:
        yield running


async def create(tab: Console, agent: str, model: str) -> str:
    """Make a session with the page's dialog; its id."""
    await tab.at("create").first.click()
    await tab.at("create-agent").select_option(agent)
    await expect(tab.at("create-agent-help")).to_contain_text("It needs")
    await tab.at("create-network-outbound").check(force=True)
    await tab.page.locator("summary", has_text="Advanced").click()
    for at, (name, value) in enumerate(variables(agent, model).items()):
        await tab.at("env-add").click()
        await tab.at("env-name").nth(at).fill(name)
        await tab.at("env-value").nth(at).fill(value)
    await tab.picture(f"{agent} create")
    await tab.at("create-submit").click()
    await expect(tab.at("first-words")).to_contain_text("reads what you write here")
    return tab.page.url.rsplit("/", 1)[1]


async def asked(tab: Console, kind: str, words: str) -> None:
    """An open permission or question with this in it."""
    card = tab.page.locator(f"[data-testid={kind}][data-status=open]")
    await expect(card).to_contain_text(words)
    await expect(card).to_be_in_viewport()


async def test_a_real_agent_is_worked_with_in_the_console(
    browser: Browser, gateway: Gateway, model: str, agent: str
) -> None:
    async with console(browser, gateway) as tab, gateway.http() as ada:
        session = await create(tab, agent, model)
        if agent == "codex":  # gives a model that it knows tools of another kind
            async with gateway.chat(session) as socket:
                await hear(socket, "welcome")
                await say(socket, "start", model="m1")
                await say(socket, "ping")
                await hear(socket, "pong")
            # What runs has begun without it: the next message begins another process, which reads it first.
            assert (await ada.post(f"/api/sandboxes/{session}/sleep")).status_code == 200

        await tab.say("@@run touch made.txt")
        await asked(tab, "permission", "touch made.txt")
        unusable = {"permission": await serious(tab)}
        await tab.picture(f"{agent} permission")
        await tab.at("permission-allow").click()
        await tab.shows_answer("The tool said")
        tool = tab.at("answer").last.get_by_test_id("tool")
        await expect(tool.first).to_contain_text("touch made.txt")
        assert (await ada.get(f"/files/{session}/made.txt")).status_code == 200

        await tab.say("@@run touch never.txt")
        await asked(tab, "permission", "touch never.txt")
        await tab.at("permission-deny").click()
        await expect(tab.at("answer")).to_have_count(2)
        await expect(tab.at("answer").last).to_have_attribute("data-status", "complete")
        assert (await ada.get(f"/files/{session}/never.txt")).status_code == 404

        await tab.say("@@ask")
        await asked(tab, "question", "Which colour?")
        await tab.picture(f"{agent} question")
        await tab.page.get_by_label("blue").check()
        await tab.at("question-answer").click()
        await tab.shows_answer("blue")

        await tab.say("@@think it is so")
        await tab.shows_answer("it is so")
        if agent == "claude-code":  # the others tell of what this model does not say
            thinking = tab.at("answer").last.get_by_test_id("thinking")
            await thinking.locator("summary").click()
            await expect(thinking).to_contain_text("Let me think about it.")

        await tab.say("@@hang I go on and on ")
        await tab.shows_answer("I go on", whole=False)
        await tab.picture(f"{agent} at work")
        await tab.at("stop").click()
        await tab.shows_row(lambda row: row.status == "aborted" and "I go on" in row.text, "the stopped answer")

        await tab.say("@@run touch first.txt")
        await asked(tab, "permission", "touch first.txt")
        await tab.say("@@say second")
        await tab.say("@@say third")
        await expect(tab.at("queued")).to_have_count(2)
        unusable["queue"] = await serious(tab)
        await tab.picture(f"{agent} queue")
        await tab.at("queued-cancel").first.click()
        await expect(tab.at("queued")).to_have_count(1)
        await tab.page.reload()
        await asked(tab, "permission", "touch first.txt")
        await expect(tab.at("queued")).to_contain_text(["third"])
        await tab.picture(f"{agent} reloaded")
        await tab.at("permission-allow").click()
        await tab.shows_answer("third")
        await expect(tab.at("queue")).to_have_count(0)

        await tab.say("@@run touch again.txt")
        await asked(tab, "permission", "touch again.txt")
        await tab.at("composer").fill("@@say steered")
        await tab.at("composer").press("Control+Enter")
        await tab.shows_row(lambda row: row.text == "@@say steered" and row.status == "delivered", "it, with the agent")
        await tab.at("permission-allow").click()
        await expect(tab.at("stop")).to_have_count(0)
        *_, last = await gateway.messages(session)
        assert len(last["metadata"]["answers"]) == 2, "one answer to both"

        await tab.at("agent").click()
        await expect(tab.at("agent-about")).to_contain_text(KNOWN[agent].version)
        await tab.picture(f"{agent} menu")
        await tab.at("mode-all").click()
        await expect(tab.at("agent")).to_contain_text("Do everything")
        unusable["at rest"] = await serious(tab)
        await tab.picture(f"{agent} in the end")
        assert {screen: what for screen, what in unusable.items() if what} == {}
        assert tab.problems == []

        rows = await tab.rows()
        queued = ["message delivered", "permission answered", "message cancelled", "message delivered"]
        steered = ["message delivered", "permission answered", "message delivered"]
        assert [said(row) for row in rows if row.kind != "answer"][-7:] == [*queued, *steered]
        records = await gateway.messages(session)
        told = {
            each["content"]: each["status"] for each in records if each["role"] == "user" and each["type"] == "message"
        }
        assert told["@@say second"] == "cancelled"
        assert {told[words] for words in told if words != "@@say second"} == {"delivered"}
        assert len([row for row in rows if row.kind != "note"]) == len([row for row in records if row["type"] in SHOWN])


async def test_a_session_without_a_key_says_what_is_missing(browser: Browser, gateway: Gateway) -> None:
    await gateway.create("keyless", agent="claude-code")
    async with console(browser, gateway) as tab:
        await tab.open("keyless")
        await tab.say("hello")
        await expect(tab.page.locator("[data-type=error]")).to_contain_text("ANTHROPIC_API_KEY")
        await expect(tab.at("answer")).to_contain_text("ended with an error")
        await tab.picture("no key")


SHOWN = ("message", "permission_request", "question")


def said(row: Row) -> str:
    return f"{row.kind} {row.status}"
