"""Somebody chats and types in a real browser while connections are cut, links are lost and the gateway is killed.
They do nothing about it. At the end the page shows the stored conversation, and the terminal the input of its
program."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.campaign.size import seeded, sized
from tests.campaign.terminal.arena import PATIENCE, SESSION, TerminalArena, terminal_arena
from tests.support.browser import chromium
from tests.support.console import Console, arrive, as_shown, built, visitor
from tests.support.waiting import until, whole_lines

KINDS = ("browser", "browser", "browser", "browser", "link", "gateway")


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    built()
    async with chromium() as running:
        yield running


@pytest.mark.soak
async def test_a_page_that_is_cut_off_again_and_again_shows_what_was_said_and_typed(
    tmp_path: Path, browser: Browser
) -> None:
    seed, rng = seeded()
    typed = tmp_path / "typed"
    async with terminal_arena(tmp_path, seed, rng, agent=None) as arena, visitor(browser) as someone:
        tab = await arrive(someone, arena.gateway, url=arena.url)
        await tab.open(SESSION)
        await tab.has_prompt()
        await tab.type(f"PS1=; clear; cat > {typed}\n")
        await _cat_runs(tab, typed)
        leaving = asyncio.Event()
        user = asyncio.create_task(_chat_and_type(tab, arena, leaving), name="user")
        for _ in range(sized(8, 100)):
            await asyncio.sleep(rng.uniform(0, 1.0))
            await arena.fault(KINDS)
            assert not user.done(), user.exception()
        leaving.set()
        said, lines = await user
        await tab.say("the last words")
        await tab.shows_answer("the last words")
        await tab.type("the end\n")
        await tab.shows_screen("the end")
        problems = await _conversation_problems(tab, arena, [*said, "the last words"])
        problems += await _terminal_problems(tab, typed, lines)
        problems += [f"the page: {problem}" for problem in tab.problems]
        await tab.picture("cut off again and again")
        arena.acquit("page, chat and terminal", problems, said=len(said), typed=lines)


async def _cat_runs(tab: Console, typed: Path) -> None:
    """Further input is for `cat`."""
    await until(typed.exists, "the shell makes the file")
    await tab.type("begin\n")
    await tab.shows_screen("begin")


async def _chat_and_type(tab: Console, arena: TerminalArena, leaving: asyncio.Event) -> tuple[list[str], int]:
    """Returns the sent messages, and the number of typed lines."""
    said: list[str] = []
    while not leaving.is_set():
        said.append(f"word{len(said)}")
        await tab.say(said[-1])
        await tab.type(f"line{len(said)}\n")
        await asyncio.sleep(arena.rng.uniform(0, 0.3))
    return said, len(said)


async def _conversation_problems(tab: Console, arena: TerminalArena, said: list[str]) -> list[str]:
    """The page must show the stored records, and those must be the sent messages. A message that waited for an answer
    stands behind it, so rows have the order of their numbers within each kind."""

    async def settled() -> bool:
        rows = await tab.rows()
        asked, answered = ([row for row in rows if row.kind == kind] for kind in ("message", "answer"))
        return len(answered) >= len(said) and all(row.status == "delivered" for row in asked)

    try:
        await tab.until(settled, "every message delivered and answered", within=PATIENCE)
    except AssertionError as error:
        return [str(error)[:2000]]
    stored = [(record["seq"], as_shown(record)) for record in await arena.gateway.messages(SESSION)]
    rows = await tab.rows()
    shown = sorted((row.seq or 0, " ".join(row.text.split())) for row in rows)
    problems = [f"shown {one}, stored {other}" for one, other in zip(shown, stored, strict=False) if one != other]
    if len(shown) != len(stored):
        problems.append(f"{len(shown)} rows are shown, {len(stored)} are stored")
    for kind in ("message", "answer"):
        numbers = [row.seq or 0 for row in rows if row.kind == kind]
        if numbers != sorted(numbers):
            problems.append(f"{kind}s are shown in the order {numbers}")
    kept = [record["content"] for record in await arena.gateway.messages(SESSION) if record["role"] == "user"]
    if kept != said:
        problems.append(
            f"said {len(said)}, stored {len(kept)}: lost {set(said) - set(kept)}, or doubled, or out of order"
        )
    return problems


async def _terminal_problems(tab: Console, typed: Path, lines: int) -> list[str]:
    """The program's input was echoed, and the echo must be on the screen: each line once, in order."""
    # The terminal echoes a line before the program has it.
    await until(lambda: whole_lines(typed)[-1:] == ["the end"], lambda: f"the last line; typed: {whole_lines(typed)}")
    got = whole_lines(typed)
    screen = await tab.screen()
    shown = screen[screen.index("begin") :]
    problems = [f"screen {one!r}, program {other!r}" for one, other in zip(shown, got, strict=False) if one != other]
    if len(shown) != len(got):
        problems.append(f"{len(shown)} lines are on the screen, the program got {len(got)}")
    if not lines // 4 <= len(got):
        problems.append(f"of {lines} lines only {len(got)} arrived")
    return problems
