"""What a hostile client may do to a spliced terminal: nothing more than to any other socket of a real gateway."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from sandbox.protocol.values import Position
from tests.contract.sandbox_terminals import PARROT
from tests.support.chat import hear, say
from tests.support.gateway import Gateway
from tests.support.hostile import CLOSE, MIB, PING, PONG, TEXT, memory, send_until_refused
from tests.support.launcher import Launcher, Tampering
from tests.support.raw_client import RawClient, masked, upgrade
from tests.support.waiting import until

BINARY = 2
NUMBERS = count(1)
DIALECTS = pytest.mark.parametrize("dialect", ["native", "plain"])
SHAPES = ("/terminal/s", "/v1/sandbox/s/pty", "/jupyter/s/terminals/websocket/main", "/tty/s/ws")


@pytest.fixture(scope="module")
async def launcher() -> AsyncIterator[Launcher]:
    async with Launcher() as launcher:
        yield launcher


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, launcher: Launcher) -> AsyncIterator[Gateway]:
    """The defaults, but that a user has few connections, and compression is offered where it can be."""
    data = tmp_path_factory.mktemp("hostile") / "data"
    async with opened(data, launcher, MAX_CONNECTIONS_PER_USER=10, COMPRESSION="true") as running:
        yield running


@pytest.fixture(scope="module")
async def impatient(tmp_path_factory: pytest.TempPathFactory, launcher: Launcher) -> AsyncIterator[Gateway]:
    """The defaults in every size, shorter in every time."""
    async with opened(tmp_path_factory.mktemp("impatient") / "data", launcher, patches=("impatient_guard",)) as running:
        yield running


@asynccontextmanager
async def opened(
    data: Path, launcher: Launcher, *, patches: tuple[str, ...] = (), **settings: object
) -> AsyncIterator[Gateway]:
    gateway = Gateway(data, **settings)
    gateway.launcher, gateway.tampering = launcher, Tampering(patches=patches)
    async with gateway:
        await gateway.create("s")
        await terminal(gateway, "main", "cat")
        async with viewer(gateway, "main") as client:  # loads what a terminal needs
            await client.send(masked(BINARY, b"warm\n"))
            await client.shows(b"warm")
        yield gateway


async def terminal(gateway: Gateway, name: str, *command: str, **env: str) -> str:
    async with gateway.http() as ada:
        wish = {"command": list(command), "envVars": env}
        answer = await ada.post(f"/api/sandboxes/s/terminals/{name}", json=wish)
    assert answer.status_code == 201, answer.text
    return name


@dataclass
class Server:
    """A gateway's memory."""

    gateway: Gateway

    @property
    def rss(self) -> int:
        pages = int(Path(f"/proc/{self.gateway.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


class Viewer(RawClient):
    """A client that counts like one of the native dialect, or puts the text of the plain one together."""

    seen = b""
    picture = b""
    painting = False
    at = Position("", 0)

    @property
    def position(self) -> Position:
        return Position(self.at.epoch, self.at.offset + len(self.seen))

    async def shows(self, text: bytes) -> None:
        while text not in self.picture + self.seen:
            self.take(*await self.frame())

    def take(self, opcode: int, payload: bytes) -> None:
        assert opcode != CLOSE, payload
        if opcode == TEXT and payload.startswith(b'{"type":'):
            told = json.loads(payload)
            if told["type"] in ("ready", "reset"):
                self.at, self.seen = Position(told["epoch"], told["offset"]), b""
                self.painting = told["type"] == "reset"
        elif opcode == BINARY and self.painting:
            self.picture, self.painting = payload, False
        elif opcode in (TEXT, BINARY):
            self.seen += payload


def address(gateway: Gateway) -> tuple[str, int]:
    host, _, port = gateway.url.removeprefix("http://").rpartition(":")
    return host, int(port)


@asynccontextmanager
async def raw(gateway: Gateway) -> AsyncIterator[Viewer]:
    async with asyncio.timeout(60), await Viewer.connect(*address(gateway)) as client:
        yield client


def auth(gateway: Gateway, user: str = "ada") -> str:
    return f"Authorization: Bearer {gateway.token(user)}"


@asynccontextmanager
async def viewer(
    gateway: Gateway, name: str, dialect: str = "native", *, after: Position | None = None
) -> AsyncIterator[Viewer]:
    resume = f"&epoch={after.epoch}&offset={after.offset}" if after else ""
    async with raw(gateway) as client:
        yield await client.open(f"/terminal/s?name={name}&dialect={dialect}{resume}", auth(gateway))


@pytest.fixture
async def parrot(gateway: Gateway) -> str:
    """A terminal whose program writes what it reads, byte by byte."""
    return await new_parrot(gateway)


async def new_parrot(gateway: Gateway) -> str:
    name = f"p{next(NUMBERS)}"
    await terminal(gateway, name, sys.executable, "-c", PARROT, PARROT_SAYS="hi")
    async with viewer(gateway, name) as client:
        await client.shows(b"hi")
    return name


@pytest.fixture(autouse=True)
async def _nothing_left(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Every test leaves room for the terminals of the next, and every connection is given back."""
    yield
    for name in ("gateway", "impatient"):
        if name not in request.fixturenames:
            continue
        gateway: Gateway = request.getfixturevalue(name)
        async with gateway.http() as ada:
            for each in (await ada.get("/api/sandboxes/s/terminals")).json()["terminals"]:
                if each["name"] != "main":
                    await ada.delete(f"/api/sandboxes/s/terminals/{each['name']}")
        await at_rest(gateway)


async def viewers(gateway: Gateway) -> float:
    async with gateway.http(gateway.admin) as admin:
        lines = (await admin.get("/metrics")).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("holdfast_terminal_viewers "))


async def at_rest(gateway: Gateway) -> None:
    """Wait until nobody looks at a terminal any more."""

    async def nobody() -> bool:
        return not await viewers(gateway)

    await until(nobody, "nobody looks")


# Frames


@DIALECTS
async def test_a_ping_flood_is_bounded_and_closed(gateway: Gateway, dialect: str) -> None:
    async with memory(Server(gateway), 4 * MIB), viewer(gateway, "main", dialect) as client:
        client.stop_reading()
        await send_until_refused(client, masked(PING, b"x" * 125) * 500, 100)
        client.read_on()
        assert await client.close_code() in (4429, None)


async def test_only_the_newest_of_several_pings_is_answered(gateway: Gateway, parrot: str) -> None:
    async with viewer(gateway, parrot) as client:
        await client.send(b"".join(masked(PING, str(number).encode()) for number in range(50)))
        await client.send(masked(BINARY, b"after"))
        pongs = []
        while b"after" not in client.seen:
            opcode, payload = await client.frame()
            client.take(opcode, payload)
            if opcode == PONG:
                pongs.append(payload)
        assert pongs[-1] == b"49"
        assert len(pongs) < 10


@DIALECTS
async def test_one_byte_fragments_are_bounded_and_joined(gateway: Gateway, parrot: str, dialect: str) -> None:
    async with memory(Server(gateway), 4 * MIB), viewer(gateway, parrot, dialect) as client:
        await client.send(masked(BINARY, b"a", fin=False))
        await send_until_refused(client, masked(0, b"b", fin=False) * 100, 200)
        assert await client.close_code() in (1009, None)
    async with viewer(gateway, parrot, dialect) as client:
        await client.send(masked(BINARY, b"a", fin=False) + masked(0, b"b", fin=False) * 1022 + masked(0, b"c"))
        await client.shows(b"a" + b"b" * 1022 + b"c")


@pytest.mark.parametrize(
    ("dialect", "data", "code"),
    [
        ("native", b"\x82\x02hi", 1002),  # not masked
        ("plain", b"\x81\x02hi", 1002),
        ("native", b"\xc2\x80\0\0\0\0", 1002),  # reserved bits
        ("plain", b"\xa1\x80\0\0\0\0", 1002),
        ("native", b"\x83\x80\0\0\0\0", 1002),  # unknown types
        ("native", b"\x8b\x80\0\0\0\0", 1002),
        ("native", b"\x80\x80\0\0\0\0", 1002),  # a continuation of nothing
        ("native", b"\x09\x80\0\0\0\0", 1002),  # a fragmented ping
        ("native", b"\x89\xfe\x00\x7e\0\0\0\0", 1002),  # a long ping
        ("native", b"\x82\xff" + (MIB + 1).to_bytes(8, "big") + b"\0\0\0\0", 1009),
        ("native", b"\x82\xff" + b"\xff" * 8 + b"\0\0\0\0", 1009),
        ("plain", b"\x81\xff" + (MIB + 1).to_bytes(8, "big") + b"\0\0\0\0", 1009),
        ("native", masked(TEXT, b"\xff\xfe"), 1007),
        ("plain", masked(TEXT, b"\xff\xfe"), 1007),
        ("native", masked(TEXT, b"not json"), 4400),
        ("native", masked(TEXT, b"[" * 1000), 4400),
        ("native", masked(TEXT, b'{"type":"resize","cols":0,"rows":1}'), 4400),
        ("native", masked(TEXT, b'{"type":"resize","cols":1e3,"rows":NaN}'), 4400),
        ("native", masked(TEXT, b'{"type":"auth","token":7}'), 4400),
        ("native", masked(CLOSE, b"\x03\xe8"), 1000),
        ("plain", masked(CLOSE, b"\x0f\xa0bye"), 4000),
        ("native", masked(CLOSE, b""), 0),  # a close without a code is answered likewise
        ("native", masked(CLOSE, b"\x03"), 1002),
        ("plain", masked(CLOSE, b"\x03\xe8\xff"), 1002),
        ("native", masked(CLOSE, b"\x03\xed"), 1002),  # a code that is not to be sent
    ],
)
async def test_a_bad_frame_ends_its_connection_with_the_code_that_says_why(
    gateway: Gateway, dialect: str, data: bytes, code: int
) -> None:
    async with viewer(gateway, "main", dialect) as client:
        await client.send(data)
        assert await client.close_code() == code


async def test_what_came_with_the_handshake_is_typed(gateway: Gateway, parrot: str) -> None:
    """Its first message was once offered to an app that was over by then."""
    for dialect, pieces in (("native", b"one "), ("plain", b"two ")):
        async with raw(gateway) as client:
            path = f"/terminal/s?name={parrot}&dialect={dialect}"
            typed = b"".join(masked(BINARY, pieces + bytes([number])) for number in b"123")
            await client.send(upgrade(path, auth(gateway)) + typed)
            assert (await client.head())[0] == 101
            await client.shows(pieces + b"1" + pieces + b"2" + pieces + b"3")


async def test_of_messages_that_do_not_fit_a_turn_none_is_left_out(gateway: Gateway, parrot: str) -> None:
    """Where a turn ended, the message that was read and not dealt with was once replaced by the next."""
    texts = [b"<%d>" % number for number in range(500)]
    async with raw(gateway) as client:
        await client.open(f"/terminal/s?name={parrot}&dialect=plain", auth(gateway))
        await client.send(b"".join(masked(BINARY, text) for text in texts))
        await client.shows(b"".join(texts))


@pytest.mark.parametrize(
    "place", ["offset=abc", "offset=5", "epoch=a%20b&offset=1", "epoch=" + "x" * 99 + "&offset=0", "epoch=e&offset=-1",
              "epoch=e&offset=99999999999999999999", "epoch=%00&offset=0", "epoch=e"],
)  # fmt: skip
async def test_a_place_that_never_was_is_answered_with_a_picture(gateway: Gateway, place: str) -> None:
    """The bridge once refused to read it, and the viewer waited for ever."""
    async with raw(gateway) as client:
        await client.open(f"/terminal/s?dialect=native&{place}", auth(gateway))
        told = [await client.frame() for _ in range(3)]
        assert [opcode for opcode, _ in told] == [TEXT, TEXT, BINARY]
        assert [json.loads(payload)["type"] for _, payload in told[:2]] == ["ready", "reset"]
        assert b"warm" in told[2][1]


# Much at once


@DIALECTS
async def test_a_paste_of_a_mebibyte_arrives_whole(gateway: Gateway, parrot: str, dialect: str) -> None:
    paste = b"".join(b"%08d" % number for number in range(MIB // 8))
    async with memory(Server(gateway), 16 * MIB), viewer(gateway, parrot, dialect) as client:
        await asyncio.gather(
            client.send(masked(BINARY if dialect == "native" else TEXT, paste)), client.shows(paste[-64:])
        )
        assert paste in client.seen


async def test_a_flood_of_controls_is_bounded_and_harms_nobody(gateway: Gateway, parrot: str) -> None:
    async with memory(Server(gateway), 8 * MIB), viewer(gateway, parrot) as client:
        for type in (b'{"type":"hm"}', b'{"type":"resize","cols":%d,"rows":20}'):
            flood = b"".join(masked(TEXT, type % (50 + number % 50) if b"%" in type else type) for number in range(500))
            typed = masked(BINARY, b"still here")
            await asyncio.gather(client.send(flood * 20 + typed), client.shows(b"still here"))
            client.seen = client.picture = b""


@DIALECTS
async def test_input_that_nobody_reads_is_bounded(gateway: Gateway, dialect: str) -> None:
    name = await terminal(gateway, f"deaf{next(NUMBERS)}", "sleep", "1000")
    async with memory(Server(gateway), 8 * MIB), viewer(gateway, name, dialect) as client:
        client.stop_reading()
        piece = masked(BINARY if dialect == "native" else TEXT, b"x" * 1000) * 64
        sending = asyncio.create_task(send_until_refused(client, piece, 200))
        await asyncio.wait({sending}, timeout=1.5)
        sending.cancel()


async def test_what_several_type_at_once_is_never_mixed(gateway: Gateway, parrot: str) -> None:
    async with (
        viewer(gateway, parrot) as one, viewer(gateway, parrot) as two, viewer(gateway, parrot, "plain") as three
    ):  # fmt: skip

        async def type_slowly(client: Viewer, letter: bytes) -> None:
            for _ in range(10):
                message = masked(BINARY, b"<" + letter * 3000 + b">")
                for start in range(0, len(message), 700):
                    await client.send(message[start : start + 700])
                    await asyncio.sleep(0)

        await asyncio.gather(type_slowly(one, b"a"), type_slowly(two, b"b"), type_slowly(three, b"c"))
        while one.seen.count(b">") < 30:
            one.take(*await one.frame())
        whole = one.seen
        messages = [b"<" + letter * 3000 + b">" for letter in (b"a", b"b", b"c")]
        assert len(whole) == 30 * 3002
        assert all(whole[start : start + 3002] in messages for start in range(0, len(whole), 3002))


# Those who take nothing, say nothing, answer nothing


async def test_a_viewer_that_stops_reading_is_closed_as_too_slow_and_goes_on_where_it_was(impatient: Gateway) -> None:
    name = await terminal(impatient, f"flood{next(NUMBERS)}", "seq", "1", "100000000")
    async with memory(Server(impatient), 8 * MIB):
        async with viewer(impatient, name) as client:
            while len(client.seen) < 10_000:
                client.take(*await client.frame())
            client.stop_reading()

            async def refused() -> bool:
                return "too_slow" in await refusals(impatient)

            await until(refused, "too_slow")
            client.read_on()
            while (got := await client.frame())[0] != CLOSE:
                client.take(*got)
            assert int.from_bytes(got[1][:2], "big") == 4408
        place, last = client.position, client.seen
        async with viewer(impatient, name, after=place) as again:
            await again.shows(b"\n")
            assert again.at == place, "it goes on where it was"
            while len(again.seen) < 1000:
                again.take(*await again.frame())
            joined = (last + again.seen)[len(last) - 100 :].split(b"\r\n")[1:-1]
            first = int(joined[0])
            assert joined == [b"%d" % number for number in range(first, first + len(joined))]


async def refusals(gateway: Gateway) -> str:
    async with gateway.http(gateway.admin) as admin:
        return "\n".join(line for line in (await admin.get("/metrics")).text.splitlines() if "refus" in line)


async def test_a_viewer_that_reads_slowly_is_kept(impatient: Gateway) -> None:
    name = await terminal(impatient, f"flood{next(NUMBERS)}", "seq", "1", "100000000")
    async with viewer(impatient, name) as client:
        for _ in range(90):  # thrice as long as one may take nothing
            client.take(*await client.frame())
            await asyncio.sleep(0.1)
        while (got := await client.frame())[0] == PING:
            pass
        assert got[0] == BINARY


async def test_half_a_frame_and_then_silence_is_cut(impatient: Gateway) -> None:
    async with viewer(impatient, "main") as client:
        await client.send(masked(BINARY, b"never finished")[:-3])
        assert await client.close_code() is None
    await at_rest(impatient)


async def test_a_silent_viewer_is_pinged_and_cut_and_one_that_answers_is_kept(impatient: Gateway) -> None:
    async with viewer(impatient, "main") as silent, viewer(impatient, "main") as lively:
        pings = 0
        while pings < 6:
            opcode, _ = await lively.frame()
            if opcode == PING:
                pings += 1
                await lively.send(masked(PONG, b""))
        assert await silent.close_code() is None
        await lively.send(masked(BINARY, b"still here\n"))
        await lively.shows(b"still here")


async def test_a_viewer_that_does_not_answer_the_close_is_cut(impatient: Gateway) -> None:
    for answers in (True, False):
        name = await terminal(impatient, f"short{next(NUMBERS)}", "sh", "-c", "read line")
        async with viewer(impatient, name, "plain") as client:
            await client.send(masked(BINARY, b"\n"))
            while (got := await client.frame())[0] != CLOSE:
                pass
            assert int.from_bytes(got[1][:2], "big") == 1000
            if answers:
                await client.send(masked(CLOSE, got[1][:2]))
            assert await client.rest() == b""


# Counting, leaving


async def test_connections_are_given_back_after_the_splice(gateway: Gateway) -> None:
    """A user has ten. What was not given back would be missed by the eleventh."""
    for number in range(50):
        async with viewer(gateway, "main", ("native", "plain")[number % 2]) as client:
            if number % 3:
                await client.send(masked(CLOSE, b"\x03\xe8"))
                assert await client.close_code() == 1000
    await at_rest(gateway)
    async with gateway.http(gateway.admin) as admin:
        lines = (await admin.get("/metrics")).text.splitlines()
    connections = next(float(line.split()[1]) for line in lines if line.startswith("holdfast_connections "))
    assert connections <= 3, "this one, and those that HTTP clients keep open"


async def test_a_user_has_only_so_many_terminals_open(gateway: Gateway) -> None:
    async with asyncio.timeout(60):
        clients = [await Viewer.connect(*address(gateway)) for _ in range(11)]
        try:
            for client in clients[:10]:
                await client.open("/terminal/s?dialect=native", auth(gateway))
            await clients[10].send(upgrade("/terminal/s", auth(gateway)))
            assert (await clients[10].head())[0] == 429
        finally:
            for client in clients:
                await client.__aexit__()


async def test_a_drain_sends_viewers_away_and_the_next_gateway_goes_on(tmp_path: Path, launcher: Launcher) -> None:
    async with opened(tmp_path / "data", launcher) as gateway:
        parrot = await new_parrot(gateway)
        async with viewer(gateway, parrot) as client, viewer(gateway, "main", "plain") as other:
            await client.send(masked(BINARY, b"before"))
            await client.shows(b"before")
            gateway.process.send_signal(signal.SIGTERM)
            assert await client.close_code() == await other.close_code() == 1012
            for each in (client, other):
                await each.send(masked(CLOSE, b"\x03\xf4"))
            assert await gateway.wait() == 0
        await gateway.start()
        async with viewer(gateway, parrot, after=client.position) as again:
            await again.send(masked(BINARY, b"after"))
            await again.shows(b"after")
            assert again.at == client.position
            assert again.seen == b"after"


# Before the upgrade


@pytest.mark.parametrize("path", SHAPES)
async def test_nothing_is_compressed_on_a_terminal(gateway: Gateway, path: str) -> None:
    offer = "Sec-WebSocket-Extensions: permessage-deflate"
    async with raw(gateway) as client:
        await client.send(upgrade(path, auth(gateway), offer))
        status, head = await client.head()
        assert status == 101
        assert "permessage-deflate" not in head.lower()
    async with raw(gateway) as client:
        await client.send(upgrade("/ws/v2?sessionId=s", auth(gateway), offer))
        assert "permessage-deflate" in (await client.head())[1].lower()


@pytest.mark.parametrize("path", SHAPES)
async def test_who_may_not_come_is_refused_before_the_upgrade(gateway: Gateway, path: str) -> None:
    cookie = f"Cookie: session={gateway.token()}"
    for headers, status in (
        ((), 401),
        (("Authorization: Bearer x.y.z",), 401),
        ((auth(gateway, "eva"),), 404),
        ((auth(gateway), "Origin: https://evil.example"), 403),
        ((cookie, "Origin: null"), 403),
        ((cookie,), 403),
    ):
        async with raw(gateway) as client:
            await client.send(upgrade(path, *headers))
            got, head = await client.head()
            assert (got, "sec-websocket-accept" in head.lower()) == (status, False), headers
            assert set(json.loads(await client.rest())) == {"error", "code"}


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("name=", "bad_name"), ("name=-x", "bad_name"), ("name=" + "x" * 65, "bad_name"), ("name=a%2Fb", "bad_name"),
        ("cols=80", "bad_size"), ("cols=0&rows=24", "bad_size"), ("cols=80&rows=1001", "bad_size"),
        ("cols=8e1&rows=24", "bad_size"), ("cols=80&cols=81&rows=24", "bad_size"), ("cols=-1&rows=-1", "bad_size"),
        ("cols=%D9%A3&rows=24", "bad_size"), ("role=admin", "bad_role"), ("role=", "bad_role"),
        ("dialect=vt100", "unknown_dialect"), ("dialect=native&dialect=plain", "ambiguous_dialect"),
    ],
)  # fmt: skip
async def test_what_cannot_be_opened_is_refused_before_the_upgrade(gateway: Gateway, query: str, code: str) -> None:
    async with raw(gateway) as client:
        await client.send(upgrade(f"/terminal/s?{query}", auth(gateway)))
        assert (await client.head())[0] == 400
        assert json.loads(await client.rest())["code"] == code


async def test_a_long_frame_behind_the_handshake_leaves_its_room_to_others(gateway: Gateway) -> None:
    """It is begun before the connection is spliced, and once kept its room for ever: after some of them no long message
    of their user was read any more."""
    begun = masked(BINARY, b"x" * MIB)[:1000]
    for _ in range(12):
        async with raw(gateway) as client:
            await client.send(upgrade("/terminal/s?name=main", auth(gateway)) + begun)
            assert (await client.head())[0] == 101
    async with gateway.chat("s") as socket:
        await hear(socket, "welcome")
        await say(socket, "message", cid="long", content="x" * 100_000)
        assert (await hear(socket, lambda frame: frame["type"] in ("ack", "nack")))["type"] == "ack"
