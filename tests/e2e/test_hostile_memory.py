"""What one user's long messages may cost in memory, however many sockets and sessions they come by."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from persistence.record import Session
from persistence.sqlite.store import SqliteStore
from tests.support.chat import hear
from tests.support.gateway import Gateway, GatewayByCommandLine
from tests.support.hostile import MIB, TEXT, memory
from tests.support.raw_client import RawClient, masked
from tests.support.waiting import until

DEAF = ["python3", "-c", "import time; time.sleep(10**6)"]
LONG = "y" * 1_000_000
FLOOD = 12  # messages of each socket


@dataclass
class Server:
    """A gateway's memory."""

    gateway: Gateway

    @property
    def rss(self) -> int:
        pages = int(Path(f"/proc/{self.gateway.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with GatewayByCommandLine(tmp_path_factory.mktemp("memory") / "data") as running:
        for session_id in ("busy", "other"):
            await running.create(session_id, agent=DEAF)
        async with running.chat("busy") as socket:
            await hear(socket, lambda frame: frame.get("sandboxStatus") == "connected")
        yield running


async def chat(gateway: Gateway, stack: AsyncExitStack, session_id: str) -> RawClient:
    host, port = gateway.url.removeprefix("http://").split(":")
    client = await stack.enter_async_context(await RawClient.connect(host, int(port)))
    return await client.open(f"/ws/v2?sessionId={session_id}", bearer(gateway))


def bearer(gateway: Gateway) -> str:
    return f"Authorization: Bearer {gateway.token('ada')}"


async def answer(client: RawClient) -> str:
    """How the next message is answered."""
    while (told := json.loads((await client.frame())[1]))["type"] not in ("ack", "nack"):
        pass
    return str(told.get("reason", told["type"]))


async def flood(client: RawClient, frame: bytes, times: int) -> set[str]:
    """Send it again and again, as fast as it is taken; how it was answered."""

    async def send() -> None:
        for _ in range(times):
            await client.send(frame)

    async def read() -> set[str]:
        return {await answer(client) for _ in range(times)}

    return (await asyncio.gather(read(), send()))[0]


# The inbox was bounded in events alone, and each held its frame twice: 2 GB for one session.
async def test_twenty_sockets_of_long_messages_to_a_busy_session_cost_little_and_all_are_answered(
    gateway: Gateway,
) -> None:
    server, frame = Server(gateway), masked(TEXT, json.dumps({"type": "message", "content": LONG}).encode())
    async with AsyncExitStack() as stack, memory(server, 100 * MIB) as seen:
        clients = [await chat(gateway, stack, "busy") for _ in range(20)]
        answers = await asyncio.gather(*(flood(client, frame, FLOOD) for client in clients))
    assert set().union(*answers) <= {"ack", "busy"}
    await until(lambda: server.rss - seen.before < 48 * MIB, lambda: f"{(server.rss - seen.before) / MIB:.0f} MiB stay")


# Each socket held what it had of its message, up to 1 MiB, whatever the user's others held.
async def test_a_hundred_half_messages_of_a_user_cost_no_more_than_a_few_and_each_can_be_finished(
    gateway: Gateway,
) -> None:
    padding = "x" * (MIB - 100)
    whole = masked(TEXT, json.dumps({"type": "nonsense", "cid": "c", "padding": padding}).encode())
    async with AsyncExitStack() as stack, memory(Server(gateway), 40 * MIB):
        clients = [await chat(gateway, stack, "other") for _ in range(100)]
        sending = [asyncio.create_task(client.send(whole[:-1])) for client in clients]
        async with gateway.http(gateway.bearer("eva")) as eva:
            for _ in range(20):  # turns of the gateway's loop: it has read what it will read
                assert (await eva.get("/api/me")).status_code == 200
        answers = await asyncio.gather(
            *(finish(client, task, whole[-1:]) for client, task in zip(clients, sending, strict=True))
        )
    assert answers == ["invalid"] * 100


async def finish(client: RawClient, sending: asyncio.Task[None], rest: bytes) -> str:
    """Send the rest of a message; why it is refused."""
    await sending
    await client.send(rest)
    return await answer(client)


# Each reader held 16 records of 1 MiB, several times over, before it had taken any, and readers were not counted.
async def test_fifty_readers_of_long_messages_that_never_read_cost_little_and_another_user_is_served(
    gateway: Gateway,
) -> None:
    await gateway.create("evas", "eva", agent=DEAF)
    async with gateway.http(gateway.internal) as service:
        for _ in range(30):
            written = {"role": "user", "content": "z" * 900_000}
            assert (await service.post("/internal/sessions/other/messages", json=written)).status_code == 201
        assert (await service.post("/internal/sessions/evas/messages", json=written)).status_code == 201
    host, port = gateway.url.removeprefix("http://").split(":")
    head = f"GET /api/sessions/other/messages?limit=1000 HTTP/1.1\r\nHost: x\r\n{bearer(gateway)}\r\n\r\n"
    async with AsyncExitStack() as stack, memory(Server(gateway), 150 * MIB):
        for _ in range(50):
            reader = await stack.enter_async_context(await RawClient.connect(host, int(port)))
            reader.stop_reading()
            await reader.send(head.encode())
        async with gateway.http() as ada, gateway.http(gateway.bearer("eva")) as eva:
            asking = asyncio.create_task(ada.get("/api/sessions/other/messages"))
            for _ in range(20):
                served = await eva.get("/api/sessions/evas/messages")
                assert len(served.json()["messages"]) == 1
            refused = await asking
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_readers")
        assert refused.headers["retry-after"] == "5"


@contextlib.asynccontextmanager
async def lying_bridge(gateway: Gateway, session_id: str, listing: bytes) -> AsyncIterator[None]:
    """Whoever looks at the session's live files is answered with this listing, whatever is there."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(listing)

    async def lie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head + listing)
            await writer.drain()
        writer.close()

    note = gateway.data_dir / "sandboxes" / session_id / "bridge.json"
    truth = note.read_text()
    server = await asyncio.start_unix_server(lie, gateway.data_dir / "run" / "liar.sock")
    note.write_text(json.dumps({**json.loads(truth), "socket": "liar.sock"}))
    try:
        yield
    finally:
        note.write_text(truth)
        server.close()


def listing(name: str, times: int) -> bytes:
    item = json.dumps({"name": name, "kind": "file", "mode": 420, "mtimeNs": 0, "size": 0})
    return b'{"truncated":false,"entries":[' + b",".join([item.encode()] * times) + b"]}"


# A list of 30 MB was read whole and decoded for each request, and live looks were not counted: 2 GB for forty.
@pytest.mark.parametrize("entries", [400_000, 100_000], ids=["more than is read", "as long as is read"])
async def test_forty_looks_at_a_lying_bridges_list_cost_little(gateway: Gateway, entries: int) -> None:
    async with (
        lying_bridge(gateway, "other", listing("a", entries)),
        gateway.http() as ada,
        memory(Server(gateway), 150 * MIB),
    ):
        looks = await asyncio.gather(*(ada.get("/files/other/?source=live") for _ in range(40)))
    assert {look.status_code for look in looks} <= {502, 429}


# An answer counted as over when it was made, not when it was read.
async def test_fifty_readers_of_a_long_list_that_never_read_cost_little_and_another_user_is_served(
    gateway: Gateway,
) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    head = f"GET /files/other/?source=live HTTP/1.1\r\nHost: x\r\n{bearer(gateway)}\r\n\r\n"
    await gateway.create("looked", "eva", agent=DEAF)
    async with (
        lying_bridge(gateway, "other", listing("\1" * 100, 10_000)),
        gateway.http() as ada,
        gateway.http(gateway.bearer("eva")) as eva,
        AsyncExitStack() as stack,
        memory(Server(gateway), 150 * MIB),
    ):
        for _ in range(50):
            reader = await stack.enter_async_context(await RawClient.connect(host, int(port)))
            reader.stop_reading()
            await reader.send(head.encode())
        asking = asyncio.create_task(ada.get("/files/other/?source=live"))
        for _ in range(20):
            assert (await eva.get("/files/looked/")).status_code in (200, 404)
        refused = await asking
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_readers")
        assert refused.headers["retry-after"] == "5"


# At its start the gateway read every session of every user, each with its whole `start`, and a list all of its user's.
@pytest.mark.parametrize("start_bytes", [64 << 10, MIB], ids=["as long as may be", "as the version before took it"])
async def test_many_sessions_with_the_longest_start_cost_a_restarted_gateway_little(
    tmp_path: Path, start_bytes: int
) -> None:
    count = 500 if os.environ.get("HOLDFAST_TEST_SOAK") else 200
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    spec = b'{"title":"t","start":{"type":"start","x":"%s"}}' % (b"s" * (start_bytes - 100))
    async with SqliteStore(data / "holdfast.db") as store:
        for number in range(count):
            await store.create(Session(f"s{number}", "ada", float(number), spec))
    async with GatewayByCommandLine(data) as gateway:
        await until(lambda: "registry.ready" in gateway.log)
        server = Server(gateway)
        assert server.rss < 150 * MIB
        async with memory(server, 40 * MIB), gateway.http() as ada:
            for _ in range(4):
                listed = (await ada.get("/api/sandboxes")).json()["sandboxes"]
        assert [each["id"] for each in listed] == [f"s{number}" for number in reversed(range(count))]
        assert {each["title"] for each in listed} == {"t"}
