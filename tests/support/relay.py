"""A relay in front of a bridge: TLS, a path before the bridge's, and a secret in the head of each request."""

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.client.endpoint import P
from tests.support.tls import self_signed

PREFIX = "/relay/s1/bridge"
SECRET = "a secret of the relay's own"


@dataclass(frozen=True, slots=True)
class RelayEndpoint:
    """Implements sandbox.client.endpoint.Endpoint."""

    port: int
    tls: ssl.SSLContext
    token: str
    secret: str = SECRET
    dialled: list[asyncio.Transport] = field(default_factory=list, repr=False)

    prefix = PREFIX

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}", "X-Relay-Secret": self.secret}

    async def dial(self, factory: Callable[[], P]) -> P:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(factory, "127.0.0.1", self.port, ssl=self.tls)
        self.dialled.append(transport)
        return protocol


class Relay:
    """Passes one request of each connection on, with all that follows it, if it came as it should."""

    def __init__(self, path: str, port: int = 0) -> None:
        self.port = port
        self.path = path
        self._serving: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name="relay")
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def close(self, dialled: Iterable[asyncio.Transport]) -> None:
        """Cut every connection, those of its clients included: a loop that is closed before them fails."""
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        for transport in [*dialled, *(writer.transport for writer in self._writers)]:
            transport.abort()
        for writer in self._writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(OSError, EOFError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            wanted = {f"x-relay-secret: {SECRET}".lower(), f"host: 127.0.0.1:{self.port}"}
            if re.match(rf"[A-Z]+ {PREFIX}/", head) and wanted <= set(head.lower().split("\r\n")):
                far_reader, far_writer = await asyncio.open_unix_connection(self.path)
                self._writers.append(far_writer)
                far_writer.write(head.replace(PREFIX, "", 1).encode())
                await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
            else:
                writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def relayed(path: str, token: str, directory: Path) -> AsyncIterator[RelayEndpoint]:
    """The bridge at `path`, behind a relay."""
    certificate, key = self_signed(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    relay = Relay(path)
    server = await asyncio.start_server(relay.accept, "127.0.0.1", 0, ssl=context)
    relay.port = server.sockets[0].getsockname()[1]
    endpoint = RelayEndpoint(relay.port, ssl.create_default_context(cafile=str(certificate)), token)
    try:
        yield endpoint
    finally:
        server.close()
        await relay.close(endpoint.dialled)
