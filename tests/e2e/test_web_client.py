"""web/client against a real gateway: whatever is cut, killed or drained, its transcript is the history, it has heard
each frame of the agent once, and its terminal was given every byte once.
"""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from functools import partial
from itertools import count
from typing import Any

import pytest

from tests.campaign.size import sized
from tests.support.gateway import Gateway
from tests.support.proxy import CuttingProxy
from tests.support.web_client import WebClient, web_client

NUMBERS = count(1)


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("web-client") / "data") as running:
        yield running


@pytest.fixture
async def session(gateway: Gateway) -> str:
    session = f"page-{next(NUMBERS)}"
    await gateway.create(session)
    return session


def shown(report: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What of the items is in a history."""
    return [
        (item["seq"], item["kind"], item["text"], item["status"])
        for item in report["items"]
        if item["kind"] in ("message", "answer") and "seq" in item
    ]


async def kept(gateway: Gateway, session: str) -> list[tuple[Any, ...]]:
    kinds = {"user": "message", "assistant": "answer"}
    return [
        (record["seq"], kinds[record["role"]], record["content"], record["status"])
        for record in await gateway.messages(session)
        if record["type"] == "message"
    ]


async def shows_history(client: WebClient, gateway: Gateway, session: str, messages: int) -> dict[str, Any]:
    """The client's report, once every message has its answer and everything is as the history has it."""

    def answered(report: dict[str, Any]) -> bool:
        return [item[1] for item in shown(report)].count("answer") == messages and not report["outbox"]

    report = await client.shows(answered, f"{messages} answers")
    history = await kept(gateway, session)
    report = await client.shows(lambda seen: shown(seen) == history, f"the history {history}")
    assert len({item["key"] for item in report["items"]}) == len(report["items"])
    assert report["counts"]["repeated"] == 0
    assert report["counts"]["errors"] == []
    return report


async def was_given_every_byte(client: WebClient, gateway: Gateway, session: str) -> None:
    """Compared with what another viewer reads from the first byte on. The first screen was a picture, none later."""
    report = await client.report()
    output, position = base64.b64decode(report["output"]), report["position"]
    assert report["counts"]["resets"] <= 1
    assert output == client.printed
    assert len(output) == position["offset"] - report["from"]
    assert output == (await printed(gateway, session, position))[report["from"] :]


async def printed(gateway: Gateway, session: str, position: dict[str, Any]) -> bytes:
    """What the terminal has printed up to `position`."""
    query = {"dialect": "native", "name": "main", "role": "view", "epoch": position["epoch"], "offset": 0}
    read = b""
    async with gateway.socket(f"/terminal/{session}", **query) as viewer:
        ready = json.loads(await viewer.recv())
        assert (ready["type"], ready["offset"]) == ("ready", 0)
        while len(read) < position["offset"]:
            frame = await viewer.recv()
            assert isinstance(frame, bytes), frame
            read += frame
    return read[: position["offset"]]


async def open_terminal(client: WebClient, gateway: Gateway, session: str) -> None:
    """With its program: what is typed at a sandbox that does not run wakes it, and is not typed."""
    async with gateway.http() as http:
        assert (await http.post(f"/api/sandboxes/{session}/terminals/main", json={})).status_code == 201
    await client.do("terminal")
    await client.tells(lambda told: "ready" in told)


def has_printed(client: WebClient, size: int) -> bool:
    return len(client.printed) > size


def has_gone_on(client: WebClient, times: int) -> bool:
    return client.told.count({"ready": True}) >= times


async def test_a_message_goes_through_its_stages_and_is_answered(gateway: Gateway, session: str) -> None:
    async with web_client(gateway.url, session, gateway.token()) as client:
        cid = await client.send("hello there")
        await client.tells(lambda told: told.get("stored") == cid)
        await client.tells(lambda told: told.get("delivered") == cid)
        report = await shows_history(client, gateway, session, 1)
    assert shown(report) == [(1, "message", "hello there", "delivered"), (2, "answer", "hello there", "complete")]


async def test_with_tickets_and_a_permission(gateway: Gateway, session: str) -> None:
    async with web_client(gateway.url, session, gateway.token(), tickets=True) as client:
        await client.send("/permission dance")

        def asked(report: dict[str, Any]) -> bool:
            return [item["status"] for item in report["items"] if item["kind"] == "permission"] == ["open"]

        await client.shows(asked, "an open permission")
        await client.do("allow")
        report = await shows_history(client, gateway, session, 1)
    (permission,) = (item for item in report["items"] if item["kind"] == "permission")
    assert permission["status"] == "answered"
    assert permission["answer"]["allow"] is True
    assert shown(report)[-1][2] == "Allowed: dance"


async def test_nothing_is_lost_or_doubled_when_the_gateway_is_killed_in_the_middle_of_an_answer(
    gateway: Gateway, session: str
) -> None:
    async with web_client(gateway.url, session, gateway.token()) as client:
        await client.send("/long 3")
        await client.shows(
            lambda report: any("tick 3" in item.get("text", "") for item in report["items"]), "some ticks"
        )
        await gateway.kill()
        await client.send("said while nobody listens")
        await gateway.start()
        report = await shows_history(client, gateway, session, 2)
    assert report["counts"]["connections"] == 2
    assert [text for _, kind, text, _ in shown(report) if kind == "message"] == ["/long 3", "said while nobody listens"]


async def test_a_terminal_goes_on_at_the_very_byte_after_every_cut(gateway: Gateway, session: str) -> None:
    async with (
        CuttingProxy(int(gateway.url.rsplit(":", 1)[1])) as proxy,
        web_client(f"http://127.0.0.1:{proxy.port}", session, gateway.token()) as client,
    ):
        await open_terminal(client, gateway, session)
        await client.do("type", text="for n in $(seq 1 3000); do echo line-$n-$((n*n)); sleep 0.001; done\r")
        for cuts, size in enumerate((2_000, 8_000, 20_000), 1):
            await client.until(partial(has_printed, client, size), f"{size} bytes")
            for passage in proxy.passages:
                passage.cut()
            # What is typed into a connection that has just ended, and is not known to have, is lost.
            await client.until(partial(has_gone_on, client, cuts), "it is back")
        await client.do("type", text="echo $((6*7))done\r")
        await client.until(lambda: b"42done\r\n" in client.printed, "the end")
        await was_given_every_byte(client, gateway, session)
    assert b"line-3000-9000000\r\n" in client.printed


@pytest.mark.soak
async def test_drained_and_restarted_again_and_again_it_shows_the_history_and_every_byte(
    gateway: Gateway, session: str
) -> None:
    restarts, sent, typed = sized(3, 20), 0, 0
    async with web_client(gateway.url, session, gateway.token()) as client:
        await open_terminal(client, gateway, session)
        over = asyncio.Event()

        async def chat() -> None:
            nonlocal sent
            while not over.is_set():
                sent += 1
                await client.send(f"message {sent} of a long talk")
                await asyncio.sleep(0.15)

        async def type_lines() -> None:
            """What was typed into a connection that ended may be lost; what was echoed may not."""
            nonlocal typed
            while not over.is_set():
                typed += 1
                wanted = re.compile(rb"[\r\n]%d-typed\r\n" % typed)
                while not wanted.search(client.printed):
                    await client.do("type", text=f"echo $(({typed}))-typed\r")
                    for _ in range(20):
                        await asyncio.sleep(0.1)
                        if wanted.search(client.printed):
                            break

        async with asyncio.TaskGroup() as group:
            group.create_task(chat())
            group.create_task(type_lines())
            for restart in range(restarts):
                await client.connected(restart + 1)
                before = sent, typed
                await client.until(lambda: sent >= before[0] + 3 and typed >= before[1] + 2, "somebody talks")  # noqa: B023
                assert await gateway.restart() < 60
            over.set()
        report = await shows_history(client, gateway, session, sent)
        await was_given_every_byte(client, gateway, session)
    assert report["counts"]["connections"] >= restarts + 1
    said = [text for _, kind, text, _ in shown(report) if kind == "message"]
    assert said == [f"message {n} of a long talk" for n in range(1, sent + 1)]


async def test_who_watches_hears_of_every_session_and_comes_back(gateway: Gateway, session: str) -> None:
    async with web_client(gateway.url, session, gateway.token()) as client:
        await client.do("watch")
        listed = await client.tells(lambda told: "sandboxes" in told)
        assert session in listed["sandboxes"]
        await gateway.restart()
        await gateway.create("made-later")
        await client.tells(lambda told: "made-later" in (told.get("sandbox"), *told.get("sandboxes", [])))
