"""A provider's server, over TLS, which says what it was asked and answers as it is told."""

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gateway.agents.trial.answers import answer
from gateway.egress.budget import SpendLimit, Spent
from gateway.egress.keeper import EgressKeeper
from gateway.egress.model_gateway import ModelGateway
from gateway.egress.model_settings import ProviderKey
from gateway.egress.policy import Policy
from gateway.egress.providers import ModelProvider, ModelProviders, read_providers
from gateway.egress.repositories import GitRepository
from tests.gateway.egress.proxies import HERE, Proxied, host
from tests.support.tls import self_signed
from tests.support.waiting import until

Script = Callable[["AskedOrigin", asyncio.StreamWriter], Awaitable[bool]]


@dataclass
class AskedOrigin:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body or b"{}")


@dataclass
class ModelOrigin:
    """`script` may answer in the model's place: then it returns True."""

    port: int = 0
    certificate: str = ""
    asked: list[AskedOrigin] = field(default_factory=list)
    connections: int = 0
    script: Script | None = None
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(writer)
        try:
            while True:
                await self._answer(reader, writer)
        except asyncio.IncompleteReadError:  # hung up
            pass
        finally:
            self.open.discard(writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = lines[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = AskedOrigin(method, target, headers, body)
        self.asked.append(asked)
        if self.script is None or not await self.script(asked, writer):
            said = answer(target.partition("?")[0], asked.json)
            if isinstance(said, bytes):
                await stream(writer, said)
            else:
                await whole(writer, 404 if said is None else 200, said or {"error": {}})

    def providers(self, *names: str) -> ModelProviders:
        """Those names at this origin; all others where they are."""
        if not self.port:
            return ModelProviders()
        lines = [f'[{name}]\norigin = "https://{HERE}:{self.port}"\nca_file = "{self.certificate}"' for name in names]
        return read_providers("\n".join(lines).encode())


async def whole(writer: asyncio.StreamWriter, status: int, said: Any) -> None:
    body = json.dumps(said).encode()
    writer.write(
        b"HTTP/1.1 %d Said\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (status, len(body), body)
    )
    await writer.drain()


async def stream(writer: asyncio.StreamWriter, *pieces: bytes) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for piece in pieces:
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


@asynccontextmanager
async def model_origin(directory: Path) -> AsyncIterator[ModelOrigin]:
    certificate, key = self_signed(directory, HERE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    origin = ModelOrigin(certificate=str(certificate))
    async with host(origin.serve, ssl=context) as port:
        origin.port = port
        try:
            yield origin
        finally:
            for writer in list(origin.open):
                writer.transport.abort()
            await until(lambda: not origin.open)


@dataclass
class KeptKeys:
    """Implements gateway.egress.model_gateway.ModelKeys: keys by user and provider, and what a renewed one is."""

    keys: dict[tuple[str, str], ProviderKey] = field(default_factory=dict)
    renewed: dict[tuple[str, str], ProviderKey] = field(default_factory=dict)
    renewals: int = 0
    away: bool = False  # the store that has them
    found: Counter[tuple[str, str]] = field(default_factory=Counter)  # how often each was looked for
    held: asyncio.Event | None = None  # what is looked for by the user `slow` waits for it

    async def find(self, user_id: str, provider: str) -> ProviderKey:
        self.found[user_id, provider] += 1
        if self.held is not None and user_id == "user of slow":
            await self.held.wait()
        if self.away:
            raise ConnectionError("the store is away")
        return self.keys.get((user_id, provider), ProviderKey())

    async def of_repository(
        self, user_id: str, provider: ModelProvider, repository: GitRepository, *, fresh: bool = False
    ) -> ProviderKey:
        return await (self.renew if fresh else self.find)(user_id, provider.name)

    async def has(self, user_id: str, provider: str) -> bool:
        return (user_id, provider) in self.keys

    async def renew(self, user_id: str, provider: str) -> ProviderKey:
        self.renewals += 1
        place = user_id, provider
        self.keys |= {place: self.renewed.get(place, self.keys[place])}
        return self.keys.get(place, ProviderKey())


class Models:
    """What a gateway does for its sessions' models, without the rest of it."""

    def __init__(self, proxy: Proxied, origin: ModelOrigin, keys: KeptKeys | None = None, **settings: Any) -> None:
        self.proxy = proxy
        self.keys = keys or KeptKeys({("user of ann", "anthropic"): ProviderKey("canary-key")})
        providers = origin.providers("anthropic", "openai", "google")
        self.told: dict[str, Spent] = {}
        self.gateway = ModelGateway(
            proxy.keeper,
            providers,
            self.keys,
            journal=proxy.run / "spent.journal",
            on_spent=self.told.__setitem__,
            **settings,
        )

    async def session(self, name: str, **limits: Any) -> int:
        """Its port."""
        routes: dict[str, msgspec.Raw] = self.gateway.routes(name, f"user of {name}", SpendLimit(**limits))
        return self.proxy.session(name, "none", routes=routes)

    @property
    def keeper(self) -> EgressKeeper:
        return self.proxy.keeper

    def policy(self, name: str) -> Policy | None:
        return self.keeper.policy(name)


def asking(path: str, body: Any = None, *headers: str, method: str = "POST") -> bytes:
    said = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1:3128", *headers, f"Content-Length: {len(said)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + said
