"""Everybody comes back at once: whoever is already there hardly notices."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from tests.campaign.size import SOAK, report
from tests.support.gateway import Gateway
from tests.support.waiting import until

CONNECTS, AT_ONCE = (2000, 100) if SOAK else (300, 50)


@pytest.mark.soak
async def test_a_session_goes_on_answering_while_everybody_reconnects(tmp_path: Path) -> None:
    bounds = {"MAX_CONNECTIONS_PER_ADDRESS": 5000, "MAX_CONNECTIONS_PER_USER": 5000}
    async with Gateway(tmp_path / "data", **bounds) as gateway:
        await gateway.create("busy")
        await gateway.create("crowded")
        over, welcomed, echoes = asyncio.Event(), 0, list[float]()

        async def talk() -> None:
            async with gateway.chat("busy") as socket:
                while not over.is_set():
                    began = time.monotonic()
                    await socket.send(json.dumps({"type": "message", "content": "still here?"}))
                    async for raw in socket:
                        if json.loads(raw)["type"] == "done":
                            break
                    echoes.append(time.monotonic() - began)

        async def come_back(turnstile: asyncio.Semaphore) -> None:
            nonlocal welcomed
            async with turnstile, gateway.chat("crowded") as socket:
                assert json.loads(await socket.recv())["type"] == "welcome"
                welcomed += 1

        talking = asyncio.create_task(talk(), name="talk")
        try:
            await until(lambda: echoes, "an echo")
            before, began = len(echoes), time.monotonic()
            turnstile = asyncio.Semaphore(AT_ONCE)
            async with asyncio.TaskGroup() as storm:
                for _ in range(CONNECTS):
                    storm.create_task(come_back(turnstile))
            seconds, during = time.monotonic() - began, sorted(echoes[before:])
        finally:
            over.set()
            await talking
        assert welcomed == CONNECTS
        assert during, "the busy session was answered while the others came"
        p99 = during[int(len(during) * 0.99)] * 1000
        report(f"reconnect storm: {CONNECTS} connects in {seconds:.1f} s, {len(during)} echoes, p99 {p99:.0f} ms")
