"""Readers on a real Postgres: woken by another gateway's writes, and no trouble to whoever writes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from tests.support.gateway import Gateway
from tests.support.postgres import PostgresServer
from tests.support.waiting import until

MESSAGES = "/internal/sessions/s/messages"


async def note(gateway: Gateway, content: Any, type: str = "note") -> dict[str, Any]:
    async with gateway.http(gateway.internal) as service:
        answer = await service.post(MESSAGES, json={"role": "system", "type": type, "content": content})
    assert answer.status_code == 201, answer.text
    written: dict[str, Any] = answer.json()
    return written


async def records_of(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    rest = b""
    async for chunk in answer.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


async def caught_up(service: httpx.AsyncClient) -> None:
    async def fresh() -> bool:
        return "stale" not in (await service.get(MESSAGES)).json()

    await until(fresh, "not stale")


async def test_a_reader_at_another_gateway_hears_of_every_record_and_takes_nothing(
    tmp_path: Path, postgres_url: str
) -> None:
    async with (
        asyncio.timeout(120),
        Gateway(tmp_path / "a", STORE=postgres_url, AGENT="true") as writer,
        Gateway(tmp_path / "b", STORE=postgres_url, AGENT="true") as reader,
        reader.http(reader.internal) as service,
    ):
        await writer.create("s")
        async with (
            service.stream("GET", MESSAGES, params={"follow": 1}) as answer,
            service.stream("GET", MESSAGES, params={"follow": 1, "type": "rare"}) as rare,
        ):
            every, some = records_of(answer), records_of(rare)
            for number in range(1, 31):
                written = await note(writer, number, "rare" if number % 10 == 0 else "note")
                assert written["seq"] == number, "the writer was not fenced by those who read"
                assert (await anext(every))["content"] == number
            assert [(await anext(some))["seq"] for _ in range(3)] == [10, 20, 30]
        page = (await service.get(MESSAGES, params={"type": "rare", "before": 30, "limit": 1})).json()
        assert [record["seq"] for record in page["messages"]] == [20]
        assert (page["firstSeq"], page["lastSeq"]) == (1, 30)
        exported = (await service.get("/internal/export")).content.split(b"\n")[:-1]
        assert [json.loads(line)["seq"] for line in exported] == list(range(1, 31))
        (listed,) = (await service.get("/internal/sessions")).json()["sessions"]
        assert (listed["id"], listed["messages"], listed["lastSeq"]) == ("s", 30, 30)


async def test_a_stream_outlives_the_database_and_misses_nothing(tmp_path: Path) -> None:
    with PostgresServer() as server:
        async with (
            asyncio.timeout(120),
            Gateway(tmp_path / "data", STORE=server.create_database(), AGENT="true") as gateway,
            gateway.http(gateway.internal) as service,
        ):
            await gateway.create("s")
            await note(gateway, 1)
            await caught_up(service)
            async with service.stream("GET", MESSAGES, params={"follow": 1}) as answer:
                every = records_of(answer)
                assert (await anext(every))["content"] == 1
                server.stop()
                for number in range(2, 12):
                    assert (await note(gateway, number))["stage"] == "accepted"
                page = (await service.get(MESSAGES, params={"after": 1})).json()
                assert page["stale"] is True
                assert [record["content"] for record in page["messages"]] == list(range(2, 12))
                assert [(await anext(every))["content"] for _ in range(10)] == list(range(2, 12))
                server.start()
                await caught_up(service)
                await note(gateway, 12)
                assert (await anext(every))["content"] == 12
