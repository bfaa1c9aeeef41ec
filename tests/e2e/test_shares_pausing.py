"""Somebody with a share, who wants no output: it gets none, and the program goes on."""

import asyncio
import json
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect

from tests.support.gateway import Gateway
from tests.support.waiting import until

STEPS = 100
STEP = 60_000
WRITES = f"for i in $(seq {STEPS}); do head -c {STEP} /dev/zero | tr '\\0' x; done; echo the end; exec sleep 1000"


async def pause_again_and_again(viewer: ClientConnection) -> None:
    while True:
        await viewer.send('{"type":"pause"}')
        await asyncio.sleep(0.5)
        await viewer.send('{"type":"resume"}')


async def shows(viewer: ClientConnection, words: bytes) -> None:
    seen = b""
    while words not in seen:
        message = await viewer.recv()
        seen = seen[-100:] + (message if isinstance(message, bytes) else b"")


async def test_a_share_that_pauses_never_holds_the_program_and_is_shown_the_screen_when_it_goes_on(
    tmp_path: Path,
) -> None:
    async with Gateway(tmp_path / "data") as gateway, gateway.http() as ada:
        await gateway.create("s")
        share = (await ada.post("/api/sandboxes/s/shares")).json()["token"]

        async def run(name: str, *command: str) -> None:
            made = await ada.post(f"/api/sandboxes/s/terminals/{name}", json={"command": command})
            assert made.status_code == 201, made.text

        await run("work", "sh", "-c", "until [ -e go ]; do sleep 0.05; done; " + WRITES)
        url = gateway.url.replace("http", "ws", 1) + "/terminal/s?name=work&dialect=native"

        async def written() -> bool:
            terminals = (await ada.get("/api/sandboxes/s/terminals")).json()["terminals"]
            return any(each["name"] == "work" and each["offset"] > STEPS * STEP for each in terminals)

        headers = {"Authorization": f"Bearer {share}"}
        async with connect(
            url, additional_headers=headers, compression=None, proxy=None, max_size=None, ping_interval=None
        ) as viewer:
            assert json.loads(await viewer.recv())["type"] == "ready"
            reading = asyncio.create_task(shows(viewer, b"the end"))
            pausing = asyncio.create_task(pause_again_and_again(viewer))
            await run("go", "touch", "go")
            await until(written, "the end of what the program writes")
            pausing.cancel()
            await viewer.send('{"type":"pause"}')
            await viewer.send('{"type":"resume"}')
            async with asyncio.timeout(60):
                await reading
