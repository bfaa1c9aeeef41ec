"""A real bridge, a real link, and an agent that is a real HTTP server."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sandbox.agents.core import Http
from sandbox.bridge.agent.http_reach import AGAIN_SECONDS, MAX_BODIES, MAX_REFUSED, MAX_REQUESTS, HttpReach
from sandbox.client.agent_link import BridgeLink
from tests.sandbox.bridge.agent.test_cores import ABORT, frames, message
from tests.support.bridge import BridgeProcess, Owner, running_bridge
from tests.support.served_core import NAME, SERVER
from tests.support.waiting import until

# It does what a message says: `event TEXT`, `long N`, `numbers N`, `cut` its streams, `wait` for an abort with its
# answer, answer with `big N`, `break` without an answer, `die`. The first question for its health is never answered.
AGENT = """
import base64, json, os, queue, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

password = os.environ["SERVED_PASSWORD"]
open("passwords", "a").write(password + "\\n")
wanted = "Basic " + base64.b64encode(f"ada:{password}".encode()).decode()
streams, asked, aborted = [], [], threading.Event()

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_): ...

    def respond(self, status, body=b"{}"):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.headers["authorization"] != wanted:
            return self.respond(401)
        if self.path == "/health":
            asked.append(self.path)
            if len(asked) == 1:
                threading.Event().wait()
            return self.respond(200 if len(asked) > 2 else 503)
        if self.path == "/begun":
            return self.respond(200)
        mine = queue.Queue()
        streams.append(mine)
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        mine.put(b"connected")
        while (said := mine.get()) is not None:
            if said == b"die":
                os._exit(3)
            said = b"data: " + said + b"\\n\\n"
            self.wfile.write(b"%x\\r\\n" % len(said) + said + b"\\r\\n")
            self.wfile.flush()
        self.close_connection = True

    def do_POST(self):
        if self.headers["authorization"] != wanted:
            return self.respond(401)
        said = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with open("told", "a") as told:
            told.write(json.dumps([self.path, said.get("content")]) + "\\n")
        if self.path == "/abort":
            aborted.set()
            return self.respond(200)
        word, _, rest = said["content"].partition(" ")
        events = {"event": rest.encode(), "long": b'"%b"' % (b"x" * int(rest or 0) if word == "long" else b""),
                  "numbers": b"1," * (int(rest) if word == "numbers" else 0), "cut": None}
        if word in events:
            for each in list(streams):
                each.put(events[word])
            if word == "cut":
                streams.clear()
        elif word == "wait":
            aborted.wait()
        elif word == "big":
            return self.respond(200, b'["%b"]' % (b"y" * int(rest)))
        elif word == "break":
            self.close_connection = True
            self.connection.close()
            return
        elif word == "die":
            streams[0].put(b"last words")
            streams[0].put(b"die")
            threading.Event().wait()
        self.respond(200)

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print("not the address yet", flush=True)
print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[BridgeProcess]:
    agent = [sys.executable, "-u", "-c", AGENT]
    with running_bridge(tmp_path, agent, module="tests.support.served_core", core=NAME) as running:
        yield running


class Heard:
    """What a reach without a bridge tells."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.answers: list[str] = []
        self.failed: list[str] = []
        self.done: list[bool] = []

    def reach(self, **settings: Any) -> HttpReach:
        return HttpReach(
            SERVER,
            "secret",
            on_events=self.events.extend,
            on_answer=lambda tag, status, body: self.answers.append(tag),
            on_left_out=lambda: None,
            on_failed=self.failed.append,
            on_done=lambda: self.done.append(True),
            **settings,
        )


class Served:
    """A link to a bridge whose agent runs and is reached."""

    def __init__(self, bridge: BridgeProcess, owner: Owner, link: BridgeLink) -> None:
        self._bridge = bridge
        self.owner = owner
        self.link = link
        self._seq = 0

    def say(self, content: str) -> None:
        self._seq += 1
        self.link.deliver(self._seq, message(content))

    @property
    def told(self) -> list[Any]:
        return [json.loads(line) for line in (self._bridge.workspace / "told").read_text().splitlines()]

    @property
    def events(self) -> list[str]:
        return [frame["text"] for frame in frames(self.owner) if frame["type"] == "chunk"]

    @property
    def answers(self) -> dict[str, tuple[int, int]]:
        """Status and size, by what was asked."""
        told = [frame for frame in frames(self.owner) if frame["type"] == "answer"]
        return {frame["tag"]: (frame["status"], frame["size"]) for frame in told}


@pytest.fixture
async def agent(bridge: BridgeProcess) -> AsyncIterator[Served]:
    owner = Owner()
    link = await bridge.link(owner)
    link.start(None)
    found = Served(bridge, owner, link)
    await until(lambda: owner.epochs and found.answers == {"begin": (200, 2)}, "the first answer")
    yield found
    link.close()


async def test_requests_wait_for_health_and_events(agent: Served) -> None:
    assert agent.events == ["connected"]
    for n in range(20):
        agent.say(f"event {n}")
    await until(lambda: len(agent.events) == 21)
    assert agent.events[0] == "connected"
    assert sorted(agent.events[1:], key=int) == [*map(str, range(20))]
    assert sorted(agent.told) == sorted(["/said", f"event {n}"] for n in range(20))
    await until(lambda: len(agent.answers) == 21)
    assert agent.owner.taken == 20


async def test_an_answer_may_take_as_long_as_it_likes_while_others_come(agent: Served) -> None:
    agent.say("wait")
    agent.say("event 1")
    await until(lambda: "/said 2" in agent.answers)
    assert "/said 1" not in agent.answers
    agent.link.inject(ABORT)
    await until(lambda: agent.answers.get("/said 1") == (200, 2))
    assert agent.answers["/abort 3"] == (200, 2)


async def test_a_stream_that_breaks_is_opened_anew(agent: Served) -> None:
    agent.say("cut")
    await until(lambda: agent.events == ["connected", "connected"])
    agent.say("event again")
    await until(lambda: agent.events[2:] == ["again"])


async def test_long_events_and_answers_arrive_cut_and_what_is_too_long_is_told(agent: Served) -> None:
    agent.say("long 2000000")
    await until(lambda: len(agent.events) == 2)
    agent.say("big 2000000")
    agent.say("numbers 1000000")
    await until(lambda: agent.owner.problems)
    agent.say("event end")
    await until(lambda: len(agent.events) == 3)
    _, long, _ = agent.events
    assert "bytes left out" in long
    assert len(long) < 70_000
    assert [problem for problem in agent.owner.problems if "was left out" in problem]
    await until(lambda: "/said 2" in agent.answers)
    status, size = agent.answers["/said 2"]
    assert (status, 60_000 < size < 70_000) == (200, True)


async def test_a_request_without_an_answer_is_told_of(agent: Served) -> None:
    agent.say("break")
    await until(lambda: agent.answers.get("/said 1") == (0, 0))
    agent.say("event on")
    await until(lambda: agent.events[-1] == "on")


async def test_the_server_s_end_is_the_agent_s_and_its_last_words_are_read(
    bridge: BridgeProcess, agent: Served
) -> None:
    agent.say("die")
    await until(lambda: agent.owner.exits)
    assert agent.owner.exits[0].code == 3
    assert agent.events == ["connected", "last words"]
    assert frames(agent.owner)[-1]["type"] == "over"
    agent.link.start(None)
    await until(lambda: len(agent.owner.epochs) == 2 and agent.events == ["connected"], "the next process is reached")
    passwords = (bridge.workspace / "passwords").read_text().split()
    assert len(set(passwords)) == 2
    assert not [word for word in passwords if word in bridge.log]


async def test_a_server_that_says_no_port_is_given_up() -> None:
    heard = Heard()
    reach = heard.reach(start_seconds=0.01)
    reach.said(b"no port, yet")
    await until(lambda: heard.done)
    assert heard.failed == ["the agent's server did not answer within 0.01 s"]
    assert reach.done


async def test_nothing_is_read_while_nobody_has_room_for_it_and_all_of_it_is_read_at_the_end() -> None:
    connected = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        if head.startswith(b"GET /events"):
            writer.write(b"data: 1\n\ndata: 2\n\n")
            connected.set()
        await writer.drain()
        writer.close()

    heard = Heard()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reach = heard.reach()
        reach.pause()
        reach.said(b"http://127.0.0.1:%d" % server.sockets[0].getsockname()[1])
        await connected.wait()
        reach.end(60.0)
        await asyncio.sleep(0)
        assert (heard.events, heard.done) == ([], [])
        reach.resume()
        await until(lambda: heard.done)
    assert heard.events == [b"1", b"2"]
    assert heard.failed == []


def under_way() -> list[str]:
    return [name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("agent.")]


async def test_a_server_s_end_is_the_end_of_what_waits_behind_a_request() -> None:
    posted, over = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"POST"):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        if not head.startswith(b"GET /health"):
            if head.startswith(b"POST"):
                posted.set()  # and its body is never read
            await over.wait()
        writer.close()

    heard = Heard()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reach = heard.reach()
        reach.said(b"http://127.0.0.1:%d" % server.sockets[0].getsockname()[1])
        reach.ask(Http("POST", "/said", "never read", b"x" * (MAX_BODIES - 1024)))
        reach.ask(Http("POST", "/said", "waits behind it"))
        await posted.wait()
        server.close()
        reach.end(0.1)
        over.set()
        await until(lambda: heard.done)
        await until(lambda: not under_way(), "nothing is under way any more")
    assert heard.answers == []


async def test_requests_beyond_the_bound_are_refused_and_without_end_end_the_server() -> None:
    heard = Heard()
    reach = heard.reach()
    for n in range(MAX_REQUESTS + 2):
        reach.ask(Http("POST", "/said", str(n)))
    await until(lambda: heard.answers == [str(MAX_REQUESTS), str(MAX_REQUESTS + 1)], "the refused ones are told of")
    for _ in range(3 * MAX_REFUSED):
        reach.ask(Http("POST", "/said", "more"))
    assert len(under_way()) < MAX_REQUESTS
    await until(lambda: heard.failed)
    assert heard.failed == ["the agent's server made the bridge ask it for too much at once"]
    reach.end(0.1)
    await until(lambda: heard.done)


async def test_a_stream_that_ends_at_once_is_opened_less_and_less_often() -> None:
    loop, opened = asyncio.get_running_loop(), list[float]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /events"):
            opened.append(loop.time())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    heard = Heard()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reach = heard.reach()
        reach.said(b"http://127.0.0.1:%d" % server.sockets[0].getsockname()[1])
        await until(lambda: len(opened) > 4)
        reach.end(0.1)
        await until(lambda: heard.done)
    pauses = [later - earlier for earlier, later in pairwise(opened)]
    for number, pause in enumerate(pauses):
        assert pause > AGAIN_SECONDS * 2**number * 0.9, pauses
