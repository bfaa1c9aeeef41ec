"""`make pictures`: takes the README's pictures of the real console on a real gateway, into docs/pictures.

The moving one shows what Holdfast is for: an answer streams, a program counts, the gateway is killed, somebody goes
on writing, the gateway is back, and so is everything else.
"""

import asyncio
import io
import itertools
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.async_api import Browser

from tests.support.browser import chromium
from tests.support.console import PHONE, Console, console
from tests.support.gateway import REPOSITORY, Gateway

PICTURES = REPOSITORY / "docs" / "pictures"
SIZE = {"width": 1160, "height": 680}
SHOWN = (870, 510)
EVERY_SECONDS = 0.2
COLOURS = 96
LAST_MILLISECONDS = 3000
Frame = tuple[float, Image.Image]  # when it was taken
SHELL = "/bin/bash --norc --noprofile"
WORDS = """Three things outlive every connection:

1. the **conversation**, stored before it is acknowledged
2. the **terminal**, which goes on while nobody looks
3. the **workspace**, kept after each answer

```sh
holdfast chat first
```"""


async def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        settings = {"DEMO": "true", "SHELL": SHELL, "SYNC_DEBOUNCE": "0.3"}
        async with Gateway(Path(scratch) / "data", **settings) as gateway, chromium() as browser:
            await gateway.create("first", title="First session")
            await gateway.create("second", title="Port the parser")
            for colours in ("light", "dark"):
                async with console(browser, gateway, size=SIZE, color_scheme=colours) as tab:
                    await _session(tab, fresh=colours == "light")
                    await _keep(tab, f"session-{colours}")
                    if colours == "light":
                        await tab.at("tab-sync").click()
                        await tab.at("generations").wait_for()
                        await _keep(tab, "syncs")
            async with console(browser, gateway, size=PHONE, is_mobile=True, has_touch=True) as tab:
                await tab.open("first")
                await tab.at("permission-allow").wait_for()
                await _keep(tab, "phone")
            await _film(browser, gateway)


async def _session(tab: Console, *, fresh: bool) -> None:
    await tab.open("first")
    if fresh:
        await tab.say(WORDS)
        await tab.shows_answer("holdfast chat first")
        await tab.say("/write notes.md Remember the milk.")
        await tab.shows_answer("Wrote")
        await tab.say("/permission read the mail")
        await tab.type("PS1='\\[\\e[36m\\]workspace\\[\\e[m\\] $ '; clear\n")
        await tab.type("ls -la --color=always; cat notes.md; echo; git --version\n")
    await tab.at("permission-allow").wait_for()
    await tab.shows_screen("git version")


async def _keep(tab: Console, name: str) -> None:
    """Keep one frame later: then moving parts have arrived."""
    await asyncio.sleep(0.6)
    shot = Image.open(io.BytesIO(await tab.page.screenshot()))
    shot.quantize(128, dither=Image.Dither.NONE).save(PICTURES / f"{name}.png", optimize=True)
    sys.stdout.write(f"docs/pictures/{name}.png\n")


async def _film(browser: Browser, gateway: Gateway) -> None:
    await gateway.create("film", title="Pull the plug")
    async with console(browser, gateway, size=SIZE) as tab:
        await tab.open("film")
        await tab.type("PS1='$ '; clear\n")
        frames: list[Frame] = []
        camera = asyncio.create_task(_roll(tab, frames), name="camera")
        await tab.type("for i in {1..60}; do echo tick $i; sleep 0.15; done; echo nothing was lost\n")
        await tab.say("/long 7")
        await tab.shows_answer("tick 12", whole=False)
        await gateway.kill()
        await tab.at("composer").press_sequentially("Are you still there?", delay=40)
        await tab.at("composer").press("Enter")
        await asyncio.sleep(2)
        await gateway.start()
        await tab.shows_answer("Are you still there?")
        await tab.shows_screen("tick 60")
        await asyncio.sleep(1.5)
        camera.cancel()
        _develop(frames, PICTURES / "killed.gif")


async def _roll(tab: Console, frames: list[Frame]) -> None:
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        shot = Image.open(io.BytesIO(await tab.page.screenshot(type="jpeg", quality=90)))
        frames.append((loop.time(), shot.resize(SHOWN, Image.Resampling.LANCZOS)))
        due = max(due + EVERY_SECONDS, loop.time())
        await asyncio.sleep(due - loop.time())


def _develop(frames: list[Frame], path: Path) -> None:
    """One palette for all frames, so that unchanged parts cost nothing."""
    palette = frames[len(frames) // 2][1].quantize(COLOURS)
    drawn = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for _, frame in frames]
    times = [time for time, _ in frames]
    shown = [int((after - before) * 1000) for before, after in itertools.pairwise(times)] + [LAST_MILLISECONDS]
    drawn[0].save(path, save_all=True, append_images=drawn[1:], duration=shown, loop=0, optimize=True)
    sys.stdout.write(f"{path.relative_to(REPOSITORY)}: {len(frames)} frames, {path.stat().st_size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    asyncio.run(main())
