"""The stored conversation over HTTP: pages, the live stream, writing; for the owner and for services."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.messages import wanted_range
from tests.support.gateway import Gateway

INTERNAL = "/internal/sessions/{}/messages"
OWN = "/api/sessions/{}/messages"


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("messages") / "data") as running:
        await running.create("long")
        async with running.http(running.internal) as service:
            for number in range(1, 61):
                await note(service, "long", f"note {number}")
        yield running


@pytest.fixture
async def service(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http(gateway.internal) as client:
        yield client


async def note(service: httpx.AsyncClient, session_id: str, content: Any, **members: Any) -> dict[str, Any]:
    body = {"role": "system", "type": "note", "content": content, **members}
    answer = await service.post(INTERNAL.format(session_id), json=body)
    assert answer.status_code == 201, answer.text
    written: dict[str, Any] = answer.json()
    return written


async def seqs(client: httpx.AsyncClient, path: str, **params: int) -> list[int]:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    assert answer.json()["lastSeq"] == 60
    return [record["seq"] for record in answer.json()["messages"]]


@asynccontextmanager
async def following(
    client: httpx.AsyncClient, session_id: str, headers: dict[str, str] | None = None, **params: int
) -> AsyncIterator[AsyncIterator[tuple[int, dict[str, Any]]]]:
    """The stream's events as (id, record)."""
    query = {"follow": 1, **params}
    async with client.stream("GET", INTERNAL.format(session_id), params=query, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")

        async def events() -> AsyncIterator[tuple[int, dict[str, Any]]]:
            number = 0
            async for line in answer.aiter_lines():
                if line.startswith("id: "):
                    number = int(line.removeprefix("id: "))
                elif line.startswith("data: "):
                    yield number, json.loads(line.removeprefix("data: "))

        yield events()


@pytest.mark.parametrize("path", [INTERNAL.format("long"), OWN.format("long")])
async def test_both_routes_page_alike(gateway: Gateway, path: str) -> None:
    async with gateway.http({**gateway.internal} if path.startswith("/internal") else None) as client:
        assert await seqs(client, path) == list(range(1, 61))
        assert await seqs(client, path, limit=3) == [1, 2, 3]
        assert await seqs(client, path, after=57) == [58, 59, 60]
        assert await seqs(client, path, after=60) == []
        assert await seqs(client, path, before=4) == [1, 2, 3]
        assert await seqs(client, path, before=999, limit=2) == [59, 60]
        assert await seqs(client, path, after=10, before=14) == [11, 12, 13]
        assert await seqs(client, path, after=5, before=50, limit=40) == list(range(6, 46))


async def test_a_record_has_the_shape_that_is_promised(service: httpx.AsyncClient) -> None:
    page = (await service.get(INTERNAL.format("long"), params={"limit": 1})).json()
    record = page["messages"][0]
    assert set(record) == {"id", "seq", "cid", "role", "type", "content", "metadata", "createdAt", "status"}
    assert (record["id"], record["seq"], record["role"], record["type"]) == ("long.1", 1, "system", "note")
    assert record["content"] == "note 1"


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"}, {"limit": "1001"}, {"limit": "-1"}, {"limit": "ten"}, {"limit": "1e2"}, {"after": "-1"},
        {"after": "9" * 30}, {"before": "x"}, {"after": "\u0661"}, {"follow": "maybe"}, {"follow": "1", "before": "5"},
    ],
)  # fmt: skip
async def test_a_parameter_that_makes_no_sense_is_refused(service: httpx.AsyncClient, query: dict[str, str]) -> None:
    answer = await service.get(INTERNAL.format("long"), params=query)
    assert answer.status_code == 400
    assert answer.json()["code"] == "bad_parameter"


async def test_the_same_cid_is_stored_once(gateway: Gateway, service: httpx.AsyncClient) -> None:
    await gateway.create("twice")
    first = await note(service, "twice", "a", cid="c-1")
    again = await note(service, "twice", "a", cid="c-1")
    assert first == again == {"messageId": "twice.1", "seq": 1}
    assert len(await gateway.messages("twice")) == 1


async def test_a_delivered_post_reaches_the_agent_and_is_answered(gateway: Gateway, service: httpx.AsyncClient) -> None:
    await gateway.create("deliver")
    await note(service, "deliver", "hello from a service", role="user", type="message", deliver=True)
    async with asyncio.timeout(30), following(service, "deliver", after=1, limit=1) as events:
        (_, answer) = await anext(events)
    assert (answer["role"], answer["content"], answer["status"]) == ("assistant", "hello from a service", "complete")
    assert (await gateway.messages("deliver"))[0]["status"] == "delivered"


@pytest.mark.parametrize(
    "body",
    [
        {}, {"role": "root", "content": "x"}, {"role": "user"}, {"role": "user", "content": "x", "type": "No Type"},
        {"role": "user", "content": "x", "deliver": "yes"}, {"role": "user", "content": "x", "cid": ""},
        {"role": "user", "content": "x", "metadata": 3}, {"role": "user", "content": "x", "seq": 9},
        {"role": "user", "content": 5, "deliver": True}, {"role": "user", "content": [], "deliver": True},
        {"role": "user", "content": "two\nlines", "type": "raw", "deliver": True},
        {"role": "user", "content": {"a": 1}, "type": "raw", "deliver": True},
        {"role": "user", "content": {"requestId": "r"}, "type": "permission_response", "deliver": True},
    ],
)  # fmt: skip
async def test_a_post_that_makes_no_sense_is_refused(service: httpx.AsyncClient, body: dict[str, Any]) -> None:
    answer = await service.post(INTERNAL.format("long"), json=body)
    assert answer.status_code == 400
    assert answer.json()["code"] in ("bad_member", "unknown_member")


async def test_following_gives_what_is_stored_and_then_what_comes(gateway: Gateway, service: httpx.AsyncClient) -> None:
    await gateway.create("follow")
    await note(service, "follow", "one")
    async with asyncio.timeout(30), gateway.http(gateway.internal) as writer, following(service, "follow") as events:
        assert (await anext(events))[1]["content"] == "one"
        for text in ("two", "three"):
            await note(writer, "follow", text)
        got = [await anext(events) for _ in range(2)]
    assert [(number, record["seq"], record["content"]) for number, record in got] == [(2, 2, "two"), (3, 3, "three")]


async def test_a_reader_goes_on_after_its_last_event_id(service: httpx.AsyncClient) -> None:
    async with asyncio.timeout(30), following(service, "long", {"Last-Event-ID": "58"}, after=3, limit=2) as events:
        assert [number async for number, _ in events] == [59, 60]
    answer = await service.get(INTERNAL.format("long"), params={"follow": 1}, headers={"Last-Event-ID": "x"})
    assert answer.status_code == 400


async def test_a_long_history_streams_without_a_gap(service: httpx.AsyncClient) -> None:
    async with asyncio.timeout(30), following(service, "long", limit=60) as events:
        assert [number async for number, _ in events] == list(range(1, 61))


async def test_a_purge_ends_the_stream(gateway: Gateway, service: httpx.AsyncClient) -> None:
    await gateway.create("purged")
    await note(service, "purged", "one")
    async with asyncio.timeout(30), gateway.http() as ada, following(service, "purged") as events:
        await anext(events)
        await ada.delete("/api/sandboxes/purged", params={"purge": "1"})
        assert [number async for number, _ in events] == []


async def test_an_unknown_session_is_404_for_services_too(service: httpx.AsyncClient) -> None:
    for answer in (
        await service.get(INTERNAL.format("nobody")),
        await service.get(INTERNAL.format("nobody"), params={"follow": 1}),
        await service.post(INTERNAL.format("nobody"), json={"role": "user", "content": "x"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_session")


async def test_a_drain_ends_every_stream_and_its_reader_goes_on_afterwards(tmp_path: Any) -> None:
    async with Gateway(tmp_path / "data") as gateway, asyncio.timeout(60):
        await gateway.create("s")
        async with gateway.http(gateway.internal) as service:
            await note(service, "s", "one")
            async with following(service, "s") as events:
                await anext(events)
                ending = asyncio.create_task(gateway.terminate())
                assert [number async for number, _ in events] == []
                assert await ending == 0
        await gateway.start()
        async with gateway.http(gateway.internal) as service:
            await note(service, "s", "two")
            async with following(service, "s", {"Last-Event-ID": "1"}, limit=1) as events:
                assert [record["content"] async for _, record in events] == ["two"]


@given(
    after=st.none() | st.integers(0, 40),
    before=st.none() | st.integers(0, 40),
    limit=st.integers(1, 40),
    last=st.integers(0, 30),
)
def test_the_range_is_what_the_rule_says(after: int | None, before: int | None, limit: int, last: int) -> None:
    """The first `limit` after `after`, or, if only `before` is given, the last `limit` before it."""
    low, high = after or 0, last + 1 if before is None else before
    inside = [seq for seq in range(1, last + 1) if low < seq < high]
    expected = inside[-limit:] if after is None and before is not None else inside[:limit]
    first, end = wanted_range(after, before, limit, last)
    assert list(range(first, end)) == expected
