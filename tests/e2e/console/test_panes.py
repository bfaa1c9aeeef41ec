"""What stands beside the conversation, in a real browser under the page's own policy: terminals, files, syncs, logs."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from tests.support.console import Console
from tests.support.gateway import Gateway
from tests.support.waiting import until

PATIENCE = 40_000
SCREEN = """name => {
    const buffer = window.holdfastTerminals?.get(name)?.buffer.active
    if (!buffer) return ""
    return Array.from({length: buffer.length}, (_, at) => buffer.getLine(at).translateToString(true)).join("\\n")
}"""
COLOURS = """() => [...document.querySelectorAll(".xterm-rows span")]
    .filter(span => span.textContent.startsWith("PURPLE")).map(span => getComputedStyle(span).color)"""
LOSE = """() => {
    for (const canvas of document.querySelectorAll(".terminal-host canvas"))
        canvas.getContext("webgl2")?.getExtension("WEBGL_lose_context").loseContext()
}"""
NOT_THE_DOOR = """() => {
    const entries = Object.entries
    Object.entries = (of) => {
        if (of?.what === "open the door") throw new Error("not the door")
        return entries(of)
    }
}"""
ODD_AGENT = """
import json, sys
def say(**frame): print(json.dumps(frame), flush=True)
for line in sys.stdin:
    frame = json.loads(line)
    if frame.get("type") == "message":
        print(json.dumps({"event": "odd", "time": 1e300}), file=sys.stderr, flush=True)
        used = {"type": "tool_use", "id": "t", "name": {"toString": 1, "valueOf": 1}, "input": {}}
        content = [used, {"type": "text", "text": "Used something odd."}]
        say(type="sdk_message", message={"type": "assistant", "message": {"content": content}})
        say(type="ask_user_question", requestId="q", questions=[{"question": "__proto__", "options": ["yes"]}])
    if "answer" in frame.get("type", ""):
        say(type="sdk_message", message={"type": "assistant", "message": {"content": [{"type": "text", "text": line}]}})
        say(type="done", metadata={})
"""
IN_SIGHT = """name => {
    const host = document.querySelector(`.terminal-host[data-name="${name}"]`)
    const screen = host.querySelector(".xterm-screen").getBoundingClientRect()
    const terminal = window.holdfastTerminals.get(name)
    const bottom = screen.top + (terminal.buffer.active.cursorY + 1) * screen.height / terminal.rows
    const room = host.getBoundingClientRect()
    return bottom > room.top && bottom <= room.bottom + 1
}"""
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def page(tab: Console) -> Page:
    tab.page.set_default_timeout(PATIENCE)
    return tab.page


def at(page: Page, testid: str) -> Locator:
    return page.locator(f"[data-testid='{testid}']")


async def visit(page: Page, gateway: Gateway, session_id: str) -> None:
    """Open the session, with its terminal at hand."""
    await gateway.create(session_id)
    async with gateway.http() as ada:
        assert (await ada.post(f"/api/sandboxes/{session_id}/wake")).status_code == 200
    await page.goto(f"{gateway.url}/#/s/{session_id}")
    await at(page, "tab-terminal").click()
    await prompts(page)
    await at(page, "terminal").click()


async def prompts(page: Page, name: str = "main") -> None:
    await becomes(page, lambda screen: str(screen).rstrip()[-1:] in tuple("$#"), SCREEN, name)


async def shows(page: Page, words: str, name: str = "main") -> None:
    await becomes(page, lambda screen: words in str(screen), SCREEN, name)


async def becomes(page: Page, fine: Callable[[Any], bool], script: str, argument: object = None) -> None:
    """Ask until it is so. Not by `wait_for_function`, which the page's policy forbids."""

    async def look() -> bool:
        found = await page.evaluate(script, argument)
        assert fine(found), found
        return True

    await until(look, script)


async def run(page: Page, command: str) -> None:
    """Type the command into the terminal that has the focus, and wait until it has ended."""
    await page.keyboard.type(f"clear; {command}; echo EN''DED")
    await page.keyboard.press("Enter")
    await shows(page, "ENDED")


async def test_a_terminal_is_drawn_under_the_policy_also_when_the_graphics_card_is_lost(
    page: Page, gateway: Gateway
) -> None:
    await page.evaluate("localStorage.setItem('holdfast.renderer', 'webgl')")
    await visit(page, gateway, "drawn")
    await page.wait_for_selector(".terminal-host canvas.xterm-link-layer")
    await run(page, r"printf '\e[38;2;200;80;200mPURPLE\e[0m\n'")
    await page.evaluate(LOSE)
    await becomes(page, bool, COLOURS)
    (colour,) = await page.evaluate(COLOURS)
    red, green, blue = (int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
    assert red == blue > 2 * green


async def test_what_is_in_a_terminal_is_found_counted_and_left_by_the_keyboard(page: Page, gateway: Gateway) -> None:
    await visit(page, gateway, "searched")
    await run(page, "seq -f 'needle %g' 7")
    await page.keyboard.press("Control+Shift+F")
    await page.keyboard.type("needle")
    found = at(page, "terminal-find-count")
    # The command itself is one of them: it was cleared away, its seven lines were not.
    await expect(found).to_have_text("1 of 7", timeout=PATIENCE)
    await page.keyboard.press("Enter")
    await expect(found).to_have_text("2 of 7")
    await page.keyboard.press("Escape")
    await page.keyboard.press("Control+Shift+L")
    assert await page.evaluate("document.activeElement.dataset.testid") == "terminal-tab-main"


async def test_a_second_terminal_leaves_the_first_as_it_was_and_is_closed_only_when_confirmed(
    page: Page, gateway: Gateway
) -> None:
    await visit(page, gateway, "tabs")
    await run(page, "echo FIR''ST")
    await at(page, "terminal-new").click()
    await prompts(page, "shell-2")
    await shows(page, "FIRST")
    await page.get_by_role("button", name="Close shell-2").click()
    await at(page, "terminal-close-confirm").click()
    await expect(at(page, "terminal-tab-shell-2")).to_have_count(0, timeout=PATIENCE)
    await expect(at(page, "terminal-tab-main")).to_have_attribute("aria-selected", "true")
    async with gateway.http() as ada:
        listed = (await ada.get("/api/sandboxes/tabs/terminals")).json()["terminals"]
    assert [each["name"] for each in listed] == ["main"]


async def test_a_program_that_ended_says_how_and_starts_again_at_a_press(page: Page, gateway: Gateway) -> None:
    await visit(page, gateway, "ended")
    await page.keyboard.type("clear; exit 3")
    await page.keyboard.press("Enter")
    await expect(at(page, "terminal-status")).to_have_text("The program ended with code 3.", timeout=PATIENCE)
    await at(page, "terminal-restart").click()
    await expect(at(page, "terminal-status")).to_have_text("", timeout=PATIENCE)
    await prompts(page)
    await run(page, "echo AG''AIN")
    await shows(page, "AGAIN")


async def test_what_a_program_wants_on_the_clipboard_is_only_offered(page: Page, gateway: Gateway) -> None:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=gateway.url)
    await visit(page, gateway, "offered")
    await page.evaluate("navigator.clipboard.writeText('mine')")
    offered = base64.b64encode(b"rm -rf /").decode()
    await run(page, rf"printf '\e]52;c;{offered}\a\e]52;c;?\a'")
    await expect(at(page, "terminal-offer")).to_contain_text("rm -rf /", timeout=PATIENCE)
    assert await page.evaluate("navigator.clipboard.readText()") == "mine"
    assert "mine" not in await page.evaluate(SCREEN, "main")


async def test_files_are_found_by_the_keyboard_and_shown_without_being_run(page: Page, gateway: Gateway) -> None:
    await visit(page, gateway, "files")
    dot = base64.b64encode(DOT).decode()
    await run(
        page,
        "mkdir -p src/deep; echo 'print(1)' > src/a.py; echo '<script>document.title = \"run\"</script>' > page.html; "
        rf"echo {dot} | base64 -d > dot.png; printf x > $'odd\xff'; ln -s src link; seq 100000 > long.txt",
    )
    await at(page, "tab-files").click()
    rows = at(page, "file-row")
    await expect(rows).to_have_count(6, timeout=PATIENCE)
    await at(page, "files-refresh").focus()
    for key in ("Tab", "ArrowRight", "ArrowRight", "ArrowDown", "Enter"):
        if key == "ArrowDown":
            await expect(page.locator("[data-path='src/deep']")).to_be_focused()
        await page.keyboard.press(key)
        if key == "ArrowRight":
            await expect(page.locator("[data-path='src/a.py']")).to_be_visible()
    await expect(at(page, "preview-text")).to_have_text("print(1)\n", timeout=PATIENCE)
    await page.locator("[data-path='page.html']").click()
    await expect(at(page, "preview-text")).to_contain_text("<script>", timeout=PATIENCE)
    assert await page.title() != "run"
    await page.locator("[data-path='dot.png']").click()
    await becomes(page, lambda width: width == 1, "document.querySelector('[data-testid=preview-image]')?.naturalWidth")
    await page.locator("[data-path='odd\ufffd']").click()
    await expect(at(page, "preview-text")).to_have_text("x", timeout=PATIENCE)
    await page.locator("[data-path='long.txt']").click()
    await expect(at(page, "preview-cut")).to_contain_text("256 KiB", timeout=PATIENCE)
    await page.locator("[data-path='link']").click()
    await expect(page.locator("[data-path='link/a.py']")).to_be_visible(timeout=PATIENCE)


def in_order(lit: list[str]) -> bool:
    """Whether the stations were lit from one to the next, back to `idle`. What follows quickly is drawn at once: a page
    that is busy shows fewer of them."""
    order = ["idle", "pending", "syncing", "flushing"]
    rounds = " ".join(state for state, before in zip(lit, ["", *lit], strict=False) if state != before).split("idle")
    shown = [[order.index(state) for state in each.split()] for each in rounds]
    return lit[-1:] == ["idle"] and any(shown) and all(each == sorted(each) for each in shown)


async def test_a_sync_is_watched_from_station_to_station_and_leaves_a_generation(page: Page, gateway: Gateway) -> None:
    await visit(page, gateway, "synced")
    await at(page, "tab-sync").click()
    stations = at(page, "sync-stations")
    await expect(stations).to_have_attribute("data-state", "idle", timeout=PATIENCE)
    await page.evaluate(
        """() => {
            const stations = document.querySelector("[data-testid=sync-stations]")
            window.lit = []
            new MutationObserver(() => window.lit.push(stations.dataset.state)).observe(stations, {attributes: true})
        }"""
    )
    await at(page, "tab-terminal").click()
    await at(page, "terminal").click()
    await run(page, "echo one > one.txt")
    await at(page, "tab-sync").click()
    kept = page.locator("[data-testid=sync-round][data-outcome=kept]").first
    await expect(kept).to_be_visible(timeout=PATIENCE)
    await expect(stations).to_have_attribute("data-state", "idle", timeout=PATIENCE)
    await becomes(page, in_order, "window.lit")
    async with gateway.http() as ada:
        newest = (await ada.get("/api/sandboxes/synced/snapshots")).json()["newest"]
    await expect(at(page, f"generation-{newest}")).to_be_visible(timeout=PATIENCE)
    await at(page, f"generation-diff-{newest}").click()
    await expect(at(page, "comparison")).to_contain_text("workspace/one.txt", timeout=PATIENCE)


async def test_the_log_is_filtered_and_followed(page: Page, gateway: Gateway) -> None:
    await visit(page, gateway, "logged")
    await at(page, "tab-logs").click()
    await expect(at(page, "logs-lines")).to_contain_text("agent.started", timeout=PATIENCE)
    await at(page, "logs-filter").fill("terminal.started later")
    await expect(at(page, "logs-empty")).to_be_visible()
    async with gateway.http() as ada:
        await ada.post("/api/sandboxes/logged/terminals/later", json={})
    await expect(at(page, "logs-lines")).to_contain_text("name=later", timeout=PATIENCE)


@pytest.mark.parametrize("plug", ["cut", "kill-agent", "kill-bridge", "pause-store"])
async def test_a_plug_is_pulled_and_the_page_counts_that_nothing_is_lost(
    page: Page, gateway: Gateway, plug: str
) -> None:
    session_id = f"plug-{plug}"
    await visit(page, gateway, session_id)
    await run(page, "echo HE''RE")
    await at(page, "demo-menu").click()
    await at(page, f"demo-{plug}").click()
    await at(page, "demo-pull").click()
    verdict = at(page, "demo-verdict")
    await expect(verdict).to_have_attribute("data-clean", "true", timeout=2 * PATIENCE)
    await expect(verdict).to_contain_text("Messages sent 3, stored 3, lost 0.")
    said = [record["content"] for record in await gateway.messages(session_id) if record["role"] == "user"]
    assert [text.split(",")[0] for text in said] == [f"Message {number} of 3" for number in (1, 2, 3)]
    if plug == "cut":
        await expect(verdict).to_contain_text("Terminal main resumed exactly at byte")
        await shows(page, "HERE")


async def test_what_an_agent_says_never_takes_the_page_down(tab: Console, gateway: Gateway) -> None:
    await gateway.create("odd", agent=["python3", "-c", ODD_AGENT])
    await tab.open("odd")
    await tab.say("go on")
    await tab.shows_answer("Used something odd.", whole=False)
    await tab.page.reload()
    await expect(tab.page.locator("summary")).to_contain_text("toString", timeout=PATIENCE)
    await tab.page.get_by_label("yes").check()
    await tab.at("question-answer").click()
    await tab.shows_answer('"answers":{"proto":"yes"}', whole=False)  # in bold
    await tab.at("tab-logs").click()
    await expect(tab.at("logs-lines")).to_contain_text("odd", timeout=PATIENCE)
    await expect(tab.at("unshown")).to_have_count(0)


async def test_what_cannot_be_drawn_leaves_the_rest_in_view(tab: Console, gateway: Gateway) -> None:
    await gateway.create("undrawn")
    await tab.open("undrawn")
    await tab.say("before")
    await tab.shows_answer("before")
    await tab.page.evaluate(NOT_THE_DOOR)
    await tab.say("/permission open the door")
    await expect(tab.at("unshown")).to_have_text("This could not be shown.", timeout=PATIENCE)
    await expect(tab.at("answer").first).to_contain_text("before")


async def test_the_chosen_terminal_is_in_sight_among_many(page: Page, gateway: Gateway) -> None:
    await visit(page, gateway, "many")
    for _ in range(9):
        await at(page, "terminal-new").click()
    await expect(at(page, "terminal-tab-shell-10")).to_be_in_viewport(ratio=0.9)
    await at(page, "terminal-tab-shell-10").focus()
    await page.keyboard.press("Home")
    await expect(at(page, "terminal-tab-main")).to_be_in_viewport(ratio=0.9)


async def test_a_terminal_of_somebody_elses_size_says_so_and_keeps_its_prompt_in_sight(
    page: Page, gateway: Gateway
) -> None:
    await page.set_viewport_size({"width": 900, "height": 420})
    await visit(page, gateway, "sized")
    other = await page.context.new_page()
    await other.set_viewport_size({"width": 1600, "height": 1100})
    await other.goto(page.url)
    await prompts(other)
    await at(other, "terminal").click()
    await run(other, "seq 200")
    await shows(page, "ENDED")
    await expect(at(page, "terminal-size")).to_contain_text("sized by another viewer:", timeout=PATIENCE)
    await becomes(page, bool, IN_SIGHT, "main")
    await other.close()
