"""A sandbox is put to sleep under those who watch its terminals: they stay, are told, and wake it by typing."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection

from tests.support.gateway import Gateway


async def hear_until(socket: ClientConnection, met: Callable[[list[str | bytes]], object]) -> list[str | bytes]:
    """Everything the socket said, up to what `met` waits for."""
    heard: list[str | bytes] = []
    async with asyncio.timeout(60):
        while not met(heard):
            heard.append(await socket.recv())
    return heard


def controls(heard: list[str | bytes]) -> list[dict[str, object]]:
    return [json.loads(each) for each in heard if isinstance(each, str)]


def shows(text: str) -> Callable[[list[str | bytes]], bool]:
    return lambda heard: text in "".join(each if isinstance(each, str) else each.decode() for each in heard)


def prompts(heard: list[str | bytes]) -> bool:
    """Whether a shell waits: what is typed before may go to nobody."""
    return any(shows(prompt)(heard) for prompt in ("$ ", "# "))


def says(**members: object) -> Callable[[list[str | bytes]], bool]:
    return lambda heard: any(members.items() <= control.items() for control in controls(heard))


@pytest.mark.parametrize("level", ["trusted", "contained"])
async def test_viewers_of_a_terminal_outlast_a_sleep_and_wake_it_by_typing(tmp_path: Path, level: str) -> None:
    async with Gateway(tmp_path / "data", LOCAL_LEVEL=level) as gateway:
        await gateway.create("s1")
        async with (
            gateway.http() as client,
            gateway.socket("/terminal/s1", dialect="native") as native,
            gateway.socket("/terminal/s1") as plain,
        ):
            await hear_until(native, prompts)
            await native.send(b"echo $((6*7))up\r")
            await hear_until(plain, shows("42up"))
            await hear_until(native, shows("42up"))
            assert (await client.post("/api/sandboxes/s1/sleep")).status_code == 200
            heard = controls(await hear_until(native, says(type="status", status="sleeping")))
            assert [each["type"] for each in heard] == ["status"], "no exit: it sleeps"
            await plain.send("echo $((6*7))woken\r")  # wakes, and is typed
            heard = controls(await hear_until(native, says(type="status", status="running")))
            assert "reset" in [each["type"] for each in heard]
            await hear_until(plain, shows("42woken"))
            await plain.send("echo $((6*7))again\r")
            await hear_until(native, shows("42again"))
            await hear_until(plain, shows("42again"))
            status = (await client.get("/api/sandboxes/s1/status")).json()
            assert (status["viewers"], status["terminals"][0]["viewers"]) == (2, 2)
            assert (await client.delete("/api/sandboxes/s1")).status_code == 200
            for socket in (native, plain):
                await asyncio.wait_for(socket.wait_closed(), 30)
                assert socket.close_code == 1000
