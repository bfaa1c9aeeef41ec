"""The stored conversation over HTTP: pages, the live stream, writing; for the owner and for services."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.messages.messages import MessageRoutes, PageQuery, wanted_range
from gateway.protocol.chat_frames import RESERVED_CIDS
from gateway.routing.route import served
from gateway.session.store_events import StoreEvents
from persistence.record import Record, Session, Write
from tests.support.asgi import ask
from tests.support.faults import Fault
from tests.support.gateway import Gateway
from tests.support.replaced import ReplacedStore
from tests.support.sessions import World

INTERNAL = "/internal/sessions/{}/messages"
OWN = "/api/sessions/{}/messages"


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("messages") / "data") as running:
        await running.create("long")
        async with running.http(running.internal) as service:
            for number in range(1, 61):
                kind = {"role": "tool", "type": "tenth"} if number % 10 == 0 else {}
                await note(service, "long", f"note {number}", **kind)
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


async def seqs(client: httpx.AsyncClient, path: str, **params: int | str) -> list[int]:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    assert answer.json()["lastSeq"] == 60
    return [record["seq"] for record in answer.json()["messages"]]


@asynccontextmanager
async def following(
    client: httpx.AsyncClient, session_id: str, headers: dict[str, str] | None = None, **params: int | str
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


@pytest.mark.parametrize("path", [INTERNAL.format("long"), OWN.format("long")])
async def test_records_of_one_kind_are_paged_like_all(gateway: Gateway, path: str) -> None:
    async with gateway.http({**gateway.internal} if path.startswith("/internal") else None) as client:
        tenths = [10, 20, 30, 40, 50, 60]
        assert await seqs(client, path, type="tenth") == await seqs(client, path, role="tool") == tenths
        assert await seqs(client, path, type="tenth", role="system") == []
        assert await seqs(client, path, type="tenth", after=0, limit=2) == [10, 20]
        assert await seqs(client, path, type="tenth", after=10, before=50, limit=3) == [20, 30, 40]
        assert await seqs(client, path, type="tenth", before=50, limit=3) == [20, 30, 40]
        assert await seqs(client, path, role="system", before=60, limit=40) == [n for n in range(16, 60) if n % 10]
        assert await seqs(client, path, role="system") == [n for n in range(1, 60) if n % 10]
        assert await seqs(client, path, type="never") == []


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
        {"role": ""}, {"type": "a b"}, {"type": "x" * 65}, {"role": "\u00e9"}, {"follow": "1", "type": "*"},
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
    assert first == again == {"messageId": "twice.1", "seq": 1, "stage": "stored"}
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
        *({"role": "user", "content": "x", "cid": f"{prefix}1"} for prefix in RESERVED_CIDS),
        {"role": "user", "content": "x", "type": "rejected"}, {"role": "user", "content": "x", "type": "duplicate"},
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


async def test_following_one_kind_passes_over_the_others(gateway: Gateway, service: httpx.AsyncClient) -> None:
    async with asyncio.timeout(30), following(service, "long", type="tenth", after=15, limit=5) as events:
        assert [number async for number, _ in events] == [20, 30, 40, 50, 60]


async def test_a_head_is_answered_and_nothing_is_read(service: httpx.AsyncClient) -> None:
    async with asyncio.timeout(30):
        answer = await service.head(INTERNAL.format("long"), params={"follow": 1})
    assert (answer.status_code, answer.content) == (200, b"")


async def test_reading_loads_no_session_and_takes_it_from_nobody(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data", AGENT="true") as gateway, asyncio.timeout(60):
        await gateway.create("s")
        async with gateway.http(gateway.internal) as service:
            await note(service, "s", "one")
            (await service.get("/health")).raise_for_status()
        async with gateway.http() as ada:
            await ada.post("/api/sandboxes/s/sleep")
        await gateway.terminate()
        fence = fence_of(gateway.data_dir, "s")
        await gateway.start()
        async with (
            gateway.http(gateway.internal) as service,
            gateway.http() as ada,
            gateway.http(gateway.admin) as admin,
        ):
            assert await gateway.messages("s")
            assert (await ada.get(OWN.format("s"))).json()["lastSeq"] == 1
            async with following(service, "s", limit=1) as events:
                assert [number async for number, _ in events] == [1]
            assert (await service.get("/internal/sessions")).json()["sessions"][0]["lastSeq"] == 1
            assert (await service.get("/internal/sessions/s/export")).text.count("\n") == 1
            assert "holdfast_sessions_loaded 0.0" in (await admin.get("/metrics")).text
        assert fence_of(gateway.data_dir, "s") == fence


def fence_of(data_dir: Path, session_id: str) -> int:
    with closing(sqlite3.connect(data_dir / "holdfast.db")) as db:
        (fence,) = db.execute("SELECT fence FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return int(fence)


async def test_after_a_trim_pages_begin_where_the_conversation_does(gateway: Gateway) -> None:
    await gateway.create("trimmed")
    async with gateway.http(gateway.internal) as service:
        for number in range(1, 41):
            await note(service, "trimmed", f"note {number}", type="even" if number % 2 == 0 else "odd")
        with closing(sqlite3.connect(gateway.data_dir / "holdfast.db")) as db, db:
            ((no,),) = db.execute("SELECT no FROM sessions WHERE id = 'trimmed'").fetchall()
            db.execute("DELETE FROM messages WHERE session_no = ? AND seq < 31", (no,))
            db.execute("UPDATE sessions SET first_seq = 31 WHERE no = ?", (no,))

        async def read(**params: int | str) -> list[int]:
            page = (await service.get(INTERNAL.format("trimmed"), params=params)).json()
            assert (page["firstSeq"], page["lastSeq"]) == (31, 40)
            return [record["seq"] for record in page["messages"]]

        assert await read() == list(range(31, 41))
        assert await read(limit=2) == [31, 32]
        assert await read(after=5, limit=2) == [31, 32]
        assert await read(before=33) == [31, 32]
        assert await read(before=20) == []
        assert await read(after=5, before=20) == []
        assert await read(type="even", limit=2) == [32, 34]
        assert await read(type="even", before=35) == [32, 34]
        listed = (await service.get("/internal/sessions", params={"limit": 1000})).json()["sessions"]
        (mine,) = [session for session in listed if session["id"] == "trimmed"]
        assert (mine["messages"], mine["firstSeq"], mine["lastSeq"]) == (10, 31, 40)


async def test_sessions_are_listed_in_pages(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data", AGENT="true") as gateway, gateway.http(gateway.internal) as service:
        for number in range(7):
            await gateway.create(f"s{number}", user="eve" if number == 3 else "ada", title=f"title {number}")
        await note(service, "s2", "one")
        seen: list[str] = []
        after: dict[str, str] = {}
        while True:
            page = (await service.get("/internal/sessions", params={"limit": 3, "userId": "ada", **after})).json()
            seen += [session["id"] for session in page["sessions"]]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert seen == ["s6", "s5", "s4", "s2", "s1", "s0"]
        (eve,) = (await service.get("/internal/sessions", params={"userId": "eve"})).json()["sessions"]
        assert (eve["id"], eve["userId"], eve["title"], eve["messages"]) == ("s3", "eve", "title 3", 0)
        everything = (await service.get("/internal/sessions")).json()
        assert everything["next"] is None
        (second,) = [session for session in everything["sessions"] if session["id"] == "s2"]
        assert (second["messages"], second["firstSeq"], second["lastSeq"]) == (1, 1, 1)
        async with gateway.http() as ada:
            assert (await ada.get("/internal/sessions")).status_code == 401


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


async def test_history_says_that_the_store_is_behind(tmp_path: Path) -> None:
    """An HTTP sink that nobody serves: what is said is durable here, and readable, and not yet where it belongs."""
    async with Gateway(tmp_path / "data", STORE="http://127.0.0.1:9", AGENT="true") as gateway:
        await gateway.create("s")
        async with gateway.http(gateway.internal) as service:
            assert "stale" not in (await service.get(INTERNAL.format("s"))).json(), "nothing was said yet"
            assert (await note(service, "s", "one"))["stage"] == "accepted"
            page = (await service.get(INTERNAL.format("s"))).json()
            assert page["stale"] is True
            assert [record["content"] for record in page["messages"]] == ["one"]
            for _ in range(20):
                await note(service, "s", "more")
            page = (await service.get(INTERNAL.format("s"))).json()
            assert (page["stale"], len(page["messages"]), page["firstSeq"]) == (True, 21, 1)


async def test_a_store_that_cannot_be_read_is_told_as_such(tmp_path: Path) -> None:
    address = "postgresql://holdfast@127.0.0.1:9/holdfast"
    async with Gateway(tmp_path / "data", STORE=address) as gateway, gateway.http(gateway.internal) as service:
        for path in (INTERNAL.format("s"), "/internal/sessions", "/internal/export", "/internal/sessions/s/export"):
            answer = await service.get(path)
            assert answer.status_code == 503
            assert (answer.json()["code"], answer.json()["stale"]) == ("storage_unavailable", True)


async def test_a_page_that_the_store_does_not_finish_is_not_ended(world: World) -> None:
    await world.kept.create(Session("s", "ada", 0.0))
    records = [Record("s", seq, f"c{seq}", "user", "message", b"{}", 0.0) for seq in range(1, 61)]
    await world.kept.commit([Write("s", record) for record in records])
    routes = served(MessageRoutes(world.registry, world.catalogue, world.store, StoreEvents()))
    whole = await ask(routes, INTERNAL.format("s"))
    assert whole.ended
    assert len(json.loads(whole.body)["messages"]) == 60
    world.store.faults = {world.store.calls + 6: Fault.AWAY}
    cut = await ask(routes, INTERNAL.format("s"))
    assert (cut.status, cut.ended) == (200, False)
    with pytest.raises(json.JSONDecodeError):
        json.loads(cut.body)


@pytest.mark.parametrize("then", [None, Session("s", "eve", 1.0)])
async def test_a_page_does_not_go_on_with_another_session(world: World, then: Session | None) -> None:
    """Purged, and made again by somebody else: before the head is sent that is a 404, afterwards half an answer."""
    answers = []
    for step in range(2, 10):  # the first read is the look by which the reader is let in
        world.store.inner = store = ReplacedStore(step, then)
        await store.fill(Session("s", "ada", 0.0), 60)
        routes = served(MessageRoutes(world.registry, world.catalogue, world.store, StoreEvents()))
        cut = await ask(routes, INTERNAL.format("s"))
        assert b'"eve' not in cut.body
        answers.append((cut.status, cut.ended))
    assert answers == [(404, True)] * 4 + [(200, False)] * 4


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
    trimmed=st.integers(0, 30),
)
def test_the_range_is_what_the_rule_says(
    after: int | None, before: int | None, limit: int, last: int, trimmed: int
) -> None:
    """The first `limit` after `after`, or, if only `before` is given, the last `limit` before it."""
    first_seq = min(trimmed, last) + 1
    low, high = after or 0, last + 1 if before is None else before
    inside = [seq for seq in range(first_seq, last + 1) if low < seq < high]
    expected = inside[-limit:] if after is None and before is not None else inside[:limit]
    first, end = wanted_range(PageQuery(after, before, limit), first_seq, last)
    assert list(range(first, end)) == expected
