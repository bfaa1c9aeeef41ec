"""One address to which records are posted, on kept connections.

The builder of the store passes in the project's own HTTP/1.1 client: docs/decisions/0015-our-own-http-client.md.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import urlsplit

from persistence.http_sink.responses import Again, RetryReason, SinkResponse, Verdict, judge

ANSWER_BYTES = 64 * 2**10
POST_SECONDS = 10.0
IDLE_SECONDS = 30.0  # a connection unused for so long is closed: a device between may have forgotten it


class HttpConnection(Protocol):
    """One connection. `is_idle` is whether it can take a request."""

    @property
    def is_idle(self) -> bool: ...
    async def fetch(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, most: int
    ) -> tuple[int, Mapping[bytes, bytes], bytes]:
        """Status, headers by name in lower case, and the first `most` bytes of the body. Raises OSError; its text has
        nothing from the other end. The head is bounded; the caller bounds the time."""
        ...

    def close(self) -> None:
        """Close at once, even during a request."""
        ...


Connect = Callable[[str, int, ssl.SSLContext | None], Awaitable[HttpConnection]]  # host, port; raises OSError


class SinkClient:
    """Posts to `base`, with `token`, which no text, store or error contains. At most `connections` at once; a further
    post waits.

    Redirects are not followed. Certificates are checked against the system's store (`SSL_CERT_FILE` is OpenSSL's own
    way to name another). Proxies of the environment are not used: a variable that was set for something else must not
    send conversations elsewhere.
    """

    def __init__(
        self, base: str, token: str, connect: Connect, *, connections: int, post_seconds: float = POST_SECONDS
    ) -> None:
        if not (token.isascii() and token.isprintable() and token.strip() == token != ""):
            raise ValueError("the sink's token must be printable ASCII characters")
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or not _plain(base):
            raise ValueError("the sink's address must be http(s)://host[:port][/path]")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._is_secure = parts.scheme == "https"
        self._prefix = parts.path.rstrip("/")
        self._headers = {
            "Host": parts.netloc,
            "User-Agent": "holdfast",
            "X-Service-Token": token,
            "Accept": "application/json",
            "Content-Type": "application/json",
        }
        self._connect = connect
        self._token = token
        self._post_seconds = post_seconds
        self._turnstile = asyncio.Semaphore(connections)
        self._idle: list[tuple[HttpConnection, float]] = []  # with the time of the last use; the newest last
        self._tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        self._tls = ssl.create_default_context() if self._is_secure else None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._idle:
            self._idle.pop()[0].close()

    async def post(self, path: str, key: str, body: bytes) -> Verdict:
        """Post once. No answer, or a late one, is Again."""
        headers = {**self._headers, "Idempotency-Key": key}
        try:
            async with self._turnstile, asyncio.timeout(self._post_seconds), self._connection() as connection:
                target = f"{self._prefix}{path}"
                status, told, answer = await connection.fetch("POST", target, headers, body, most=ANSWER_BYTES)
        except TimeoutError:
            return Again(RetryReason.AWAY, f"no answer within {self._post_seconds:g} seconds")
        except OSError as error:
            return Again(RetryReason.AWAY, f"{type(error).__name__}: {error}".replace(self._token, "***"))
        quiet = answer.replace(self._token.encode(), b"***")
        waits = told.get(b"retry-after", b"").decode("latin-1")
        return judge(SinkResponse(status, quiet, waits), wall=time.time())

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[HttpConnection]:
        """The most recently used connection, which is the most likely to be alive, or a new one."""
        now = asyncio.get_running_loop().time()
        connection: HttpConnection | None = None
        while self._idle and connection is None:
            kept, used_at = self._idle.pop()
            if kept.is_idle and now - used_at < IDLE_SECONDS:
                connection = kept
            else:
                kept.close()
        connection = connection or await self._connect(self._host, self._port, self._tls)
        try:
            yield connection
        finally:
            if connection.is_idle:
                self._idle.append((connection, now))
            else:
                connection.close()


def _plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and not set(text) & set(" ?#")
