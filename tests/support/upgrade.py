"""A gateway of an earlier release with sessions in many states, ended while they are in use; then one of this tree on
the same data directory.

`Upgrade.left` is the release's state at its end, `Upgrade.found` is what this tree's gateway reports at its start.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from websockets.asyncio.client import ClientConnection

from tests.support.chat import Frame, hear, say
from tests.support.gateway import REPOSITORY, Gateway
from tests.support.releases import install_this_tree, unpack
from tests.support.waiting import PATIENCE, until

# Answers in three words, each when a file `go-WORD` is in its workspace; `said-WORD` shows that the word is out.
COUNTING_AGENT = """
import json, os, sys, time
def say(type, **members):
    print(json.dumps({"type": type, **members}), flush=True)
for raw in sys.stdin:
    frame = json.loads(raw)
    if frame["type"] == "message":
        say("stream_start")
        for word in ("one", "two", "three"):
            while not os.path.exists(f"go-{word}"):
                time.sleep(0.02)
            say("chunk", text=word + ";")
            open(f"said-{word}", "w").close()
        say("done", metadata={"cid": frame["cid"]})
"""
# Typed into a shell. A variable of the shell, then a program that speaks while no gateway runs, then listens.
TYPED = (
    b"mine=kept; echo begun$((40+1)); until [ -e go-terminal ]; do sleep 0.1; done; echo away$((40+2));"
    b' while read line && [ "$line" != end ]; do echo "got $line"; done\r'
)
BUSY, KEPT, ASLEEP, PAUSED = "busy", "kept", "asleep", "paused"
SESSIONS = (BUSY, KEPT, ASLEEP, PAUSED)
LASTING = ["id", "userId", "title", "metadata", "status", "provider", "level", "incarnation", "lastSeq", "hasWorkspace"]
OF_A_RECORD = ["id", "seq", "cid", "role", "type", "content", "createdAt"]
SERVICE_RECORD = {"role": "system", "type": "note", "content": "from a service", "cid": "service-1", "deliver": False}


@dataclass
class TerminalTab:
    """A native client of a terminal: it counts bytes to know its position."""

    socket: ClientConnection
    ready: dict[str, Any] = field(default_factory=dict)
    epoch: str = ""
    offset: int = 0
    resets: int = 0
    shown: bytes = b""  # pictures included
    _pictured: bool = False

    async def shows(self, *any_of: bytes) -> None:
        """Read until one of these is in the output."""
        async with asyncio.timeout(PATIENCE):
            while not any(each in self.shown for each in any_of):
                self._take(await self.socket.recv())

    async def type(self, keys: bytes) -> None:
        await self.socket.send(keys)

    def _take(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            self.shown += message
            self.offset += 0 if self._pictured else len(message)
            self._pictured = False
        elif (control := json.loads(message))["type"] in ("ready", "reset"):
            self.epoch, self.offset = control["epoch"], control["offset"]
            self._pictured = control["type"] == "reset"
            self.resets += self._pictured
            self.ready = self.ready or control


@asynccontextmanager
async def at_terminal(gateway: Gateway, session_id: str, **place: Any) -> AsyncIterator[TerminalTab]:
    async with gateway.socket(f"/terminal/{session_id}", dialect="native", **place) as socket:
        yield TerminalTab(socket)


@dataclass
class Known:
    """Sessions as a gateway describes them, and their records."""

    sessions: dict[str, dict[str, Any]]
    records: dict[str, list[dict[str, Any]]]
    bridges: dict[str, int]  # process ids


class Upgrade:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.left: Known
        self.found: Known
        self.seen: Frame = {}  # the last frame a viewer of BUSY saw
        self.epoch = ""
        self.terminal = ("", 0)
        self.share: dict[str, Any] = {}
        self.posted: dict[str, Any] = {}

    def workspace(self, session_id: str) -> Path:
        return self.gateway.data_dir / "sandboxes" / session_id / "kept/workspace"

    def bridge(self, session_id: str) -> int:
        note = json.loads((self.gateway.data_dir / "sandboxes" / session_id / "bridge.json").read_bytes())
        return int(note["pid"])

    def tell(self, word: str) -> None:
        """Let a program of BUSY go on."""
        (self.workspace(BUSY) / f"go-{word}").touch()

    async def know(self, *running: str) -> Known:
        async with self.gateway.http() as client:
            listed = (await client.get("/api/sandboxes")).json()["sandboxes"]
        records = {session_id: await self.gateway.messages(session_id) for session_id in SESSIONS}
        bridges = {session_id: self.bridge(session_id) for session_id in running}
        return Known({each["id"]: each for each in listed}, records, bridges)

    # The release's part

    async def use(self) -> None:
        """Bring the sessions into the states in which the release is to leave them."""
        gateway = self.gateway
        agent = ["python3", "-c", COUNTING_AGENT]
        await gateway.create(BUSY, agent=agent, title="in use", metadata={"team": "blue"})
        for session_id in (KEPT, ASLEEP, PAUSED):
            await gateway.create(session_id)
        async with gateway.http() as client:
            await self._talk()
            await self._type()
            self.share = (await ok(client.post(f"/api/sandboxes/{BUSY}/shares", json={"ttl": 86400}))).json()
            for session_id in (KEPT, ASLEEP, PAUSED):
                await self.talk(session_id, f"/write notes.txt first of {session_id}")
            await ok(client.post(f"/api/sandboxes/{KEPT}/sync"))
            await self.talk(KEPT, "/write later.txt not synced")
            await ok(client.post(f"/api/sandboxes/{ASLEEP}/sleep"))
            await ok(client.post(f"/api/sandboxes/{PAUSED}/pause"))
        async with gateway.chat(PAUSED) as socket:
            await say(socket, "message", cid="waits", content="/read notes.txt")
            await hear(socket, "ack")
        self.posted = await self.post()
        self.left = await self.know(BUSY, KEPT)

    async def _talk(self) -> None:
        async with self.gateway.chat(BUSY) as socket:
            self.epoch = (await hear(socket, lambda frame: frame["type"] == "welcome" and frame["epoch"]))["epoch"]
            self.tell("one")
            await say(socket, "message", cid="count", content="count")
            self.seen = await hear(socket, "chunk")

    async def _type(self) -> None:
        async with at_terminal(self.gateway, BUSY) as tab:
            await tab.shows(b"$ ", b"# ")
            await tab.type(b"echo $((6*7))up\r")
            await tab.shows(b"42up")
            await tab.type(TYPED)
            await tab.shows(b"begun41")
            self.terminal = (tab.epoch, tab.offset)

    # Any gateway's part

    async def talk(self, session_id: str, content: str) -> tuple[str, Frame]:
        """Say something; the text of the answer, and its `done`."""
        cid = uuid4().hex
        async with self.gateway.chat(session_id) as socket:
            await say(socket, "message", cid=cid, content=content)
            return await answer_to(cid, socket)

    async def post(self) -> dict[str, Any]:
        async with self.gateway.http(self.gateway.internal) as service:
            answer = await ok(service.post(f"/internal/sessions/{ASLEEP}/messages", json=SERVICE_RECORD))
        posted: dict[str, Any] = answer.json()
        return posted

    async def connected(self, *session_ids: str) -> None:
        async def look() -> bool:
            for session_id in session_ids:
                described = (await client.get(f"/api/sandboxes/{session_id}")).json()
                assert described["sandboxStatus"] == "connected", described
            return True

        async with self.gateway.http() as client:
            await until(look, "the sandboxes are found again")


async def answer_to(cid: str, socket: ClientConnection) -> tuple[str, Frame]:
    """The text of the answer to this message, and its `done`; earlier output is skipped."""
    shown: list[Frame] = []
    done = await hear(socket, lambda frame: frame["type"] == "done" and frame["metadata"]["cid"] == cid, passed=shown)
    said: list[str] = []
    for frame in shown:
        if frame["type"] == "stream_start":
            said.clear()
        elif frame["type"] == "chunk":
            said.append(frame["text"])
    return "".join(said), done


async def ok(request: Any) -> httpx.Response:
    answer: httpx.Response = await request
    assert answer.is_success, answer.text
    return answer


@asynccontextmanager
async def upgraded(archive: Path, place: Path, *, level: str, kill: bool, in_place: bool) -> AsyncIterator[Upgrade]:
    """The release's gateway was used, ended (orderly, or by SIGKILL), and one of this tree has taken over: beside the
    release's code, or in its place."""
    gateway = Gateway(place / "data", LOCAL_LEVEL=level)
    gateway.code = unpack(archive, place / "code")
    async with gateway:
        upgrade = Upgrade(gateway)
        await upgrade.use()
        if kill:
            await gateway.kill()
        else:
            assert await gateway.terminate() == 0, gateway.log[-4000:]
        upgrade.tell("two")
        upgrade.tell("terminal")
        await until((upgrade.workspace(BUSY) / "said-two").exists, "the agent goes on without a gateway")
        if in_place:
            install_this_tree(gateway.code)
        else:
            gateway.code = REPOSITORY
        await gateway.start()
        await upgrade.connected(BUSY, KEPT)
        upgrade.found = await upgrade.know(BUSY, KEPT)
        yield upgrade
