"""A token endpoint of an identity provider: a real HTTP server on loopback."""

import asyncio
import json
from collections import deque
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

from gateway.vault.oauth import OAuthClient


class TokenEndpoint:
    """Gives the answers of `answers`, then fresh tokens, numbered as the requests. `asked` has the body of each.
    While `gate` is clear it waits before it answers."""

    def __init__(self, *, expires_in: int = 3600) -> None:
        self.expires_in = expires_in
        self.answers: deque[tuple[int, Any]] = deque()
        self.asked: list[dict[str, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.gate.set()
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/token"

    @property
    def client(self) -> OAuthClient:
        return OAuthClient(self.url, "holdfast-test")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().lower().split("\r\n")[1:] if line)
        body = (await reader.readexactly(int(lines["content-length"]))).decode()
        self.asked.append({name: value[0] for name, value in parse_qs(body).items()})
        number = len(self.asked)
        await self.gate.wait()
        fresh = {
            "access_token": f"access-{number}",
            "refresh_token": f"refresh-{number}",
            "expires_in": self.expires_in,
        }
        status, answer = self.answers.popleft() if self.answers else (200, fresh)
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        more = b"location: http://127.0.0.1:1/\r\n" if status == 302 else b""
        writer.write(
            b"HTTP/1.1 %d X\r\n%scontent-length: %d\r\nconnection: close\r\n\r\n" % (status, more, len(content))
        )
        writer.write(content)
        await writer.drain()
        writer.close()
