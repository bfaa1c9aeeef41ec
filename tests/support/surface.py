"""The routes for files and snapshots behind the real policy, on sessions in memory. Requests are ASGI messages, so a
path arrives as it was written, and a test sees whether an answer was ended."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import Message, Scope

from gateway.auth.identity import Identity
from gateway.auth.origin import Origins
from gateway.auth.policy import PolicyMiddleware
from gateway.auth.tickets import Tickets
from gateway.auth.tokens import SharedSecret, TokenVerifier, mint
from gateway.http.responses import EXCEPTION_HANDLERS
from gateway.http.workspace.files import FileRoutes
from gateway.http.workspace.snapshots import SnapshotRoutes
from gateway.routing.route import served
from gateway.server.admission import Admission
from persistence.record import Session
from sandbox.protocol.tree import ScanAsk
from sandbox.providers.memory.tree import MemoryRoots, MemoryTree
from sync.format.pointer import Generation
from sync.objects.memory import MemoryObjects
from sync.ports import Found, Got
from tests.support.gatehouse import ADMIN, JWT_SECRET, RELAY, SECRETS
from tests.support.sessions import AT_MEMORY, World

WHO = {"admin": {"authorization": f"Bearer {ADMIN}"}, "relay": {"x-relay-secret": RELAY}, "nobody": {}}


class FaultyObjects(MemoryObjects):
    """Every read of a key that contains `at` raises `fault`; `read` lists the keys that were read."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: Exception | None = None
        self.at = ""
        self.read: list[str] = []

    async def get(self, key: str) -> Got | None:
        self.read.append(key)
        if self.fault is not None and self.at in key:
            raise self.fault
        return await super().get(key)

    async def list(self, prefix: str) -> AsyncIterator[Found]:
        if self.fault is not None and not self.at:
            raise self.fault
        async for found in super().list(prefix):
            yield found

    async def damage(self, part: str) -> int:
        """Flip a bit near the beginning and one in the middle of every object whose key contains `part`; how many these
        are."""
        keys = [found.key async for found in super().list("") if part in found.key]
        for key in keys:
            got = await super().get(key)
            assert got is not None
            content = bytearray(got.content)
            for place in (24, len(content) // 2):
                content[place] ^= 1
            await self.put(key, bytes(content))
        return len(keys)


@dataclass(slots=True)
class Reply:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False  # as HTTP asks for: otherwise the server closes the connection

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[dict[str, Any]]:
        assert self.body.endswith(b"\n")
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def refusal(self) -> tuple[int, str]:
        """Status and code, of a refusal in the one shape that all have."""
        assert self.headers["content-type"] == "application/json"
        assert set(self.json) == {"error", "code"}
        return self.status, self.json["code"]


class Surface:
    def __init__(self, world: World, objects: FaultyObjects) -> None:
        self.world = world
        self.objects = objects
        self.vault = world.vault()
        sessions = world.sessions
        self.snapshots = SnapshotRoutes(
            sessions.registry, sessions.catalogue, sessions.branching, sessions.drain, self.vault
        )
        routes = served(FileRoutes(sessions.catalogue, self.vault), self.snapshots)
        guard = Middleware(
            PolicyMiddleware,
            routes=routes,
            identity=Identity(TokenVerifier(SharedSecret(JWT_SECRET)), SECRETS, Tickets()),
            origins=Origins(()),
            counters=Admission(100, 100, 100),
        )
        self._app = Starlette(routes=routes, middleware=[guard], exception_handlers=EXCEPTION_HANDLERS)

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator["Surface"]:
        world = World()
        world.objects = objects = FaultyObjects()
        async with world:
            yield cls(world, objects)

    async def session(self, session_id: str = "s", user: str = "ada") -> None:
        """A session that is stored, and neither loaded nor running."""
        await self.world.kept.create(Session(session_id, user, 1.0, AT_MEMORY))

    async def keep(self, roots: MemoryRoots, session_id: str = "s", user: str = "ada") -> Generation:
        """A new generation of the session from the present files of `roots`."""
        pushed = await self.vault.push(user, session_id, MemoryTree(lambda: roots), ScanAsk(), lambda: None)
        return pushed.generation

    async def get(self, target: str, who: str = "ada", **headers: str) -> Reply:
        return await self.ask("GET", target, who, headers)

    async def post(self, target: str, who: str = "ada", body: Any = None) -> Reply:
        return await self.ask("POST", target, who, body=b"" if body is None else json.dumps(body).encode())

    async def ask(
        self,
        method: str,
        target: str,
        who: str = "ada",
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        reads: asyncio.Event | None = None,
    ) -> Reply:
        """`target` is sent unchanged. `who` is a user, `admin`, `relay` or `nobody`; _ in a header's name is a dash.
        The body of the answer is read when `reads` is set."""
        path, _, query = target.partition("?")
        given = WHO.get(who) or ({} if who == "nobody" else {"authorization": f"Bearer {_token(who)}"})
        named = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        scope: Scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in {**given, **named}.items()],
            "scheme": "https",
            "client": ("127.0.0.1", 1),
            "root_path": "",
            "asgi": {"spec_version": "2.4"},
        }
        reply = Reply()
        asked = False

        async def receive() -> Message:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()
            asked = True
            return {"type": "http.request", "body": body}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
            else:
                if reads is not None:
                    await reads.wait()
                reply.body += message["body"]
                reply.ended = not message.get("more_body", False)

        await self._app(scope, receive, send)
        return reply


def _token(user: str) -> str:
    return mint(JWT_SECRET, user, f"{user}@example.com", 86_400)
