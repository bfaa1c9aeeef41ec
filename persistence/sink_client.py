"""One address to which records are posted, over HTTP/1.1.

Our own few lines on top of httptools' parser: a POST with one body and an answer of which the beginning matters needs
nothing of an HTTP library but that, and takes a fraction of its CPU: docs/decisions/0009-http-sink.md.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, cast
from urllib.parse import urlsplit

import httptools

from persistence.answer import Again, Answer, Trouble, Verdict, judge

ANSWER_BYTES = 64 * 2**10
HEAD_BYTES = 64 * 2**10
POST_SECONDS = 10.0
INFORMATIONAL = (100, 102, 103)
HUNG_UP = "the connection was closed before the answer was complete"
IDLE_SECONDS = 30.0  # a connection that was not used so long is not used any more: somebody may have forgotten it


class SinkClient:
    """Posts to `base`, with `token`, which is in nothing that is said, stored or raised. At most `connections` at once;
    who comes then waits.

    Redirects are not followed. Certificates are checked against the system's store (`SSL_CERT_FILE` is OpenSSL's own
    way to name another). Proxies of the environment are not used: a variable that was set for something else must not
    send conversations elsewhere."""

    def __init__(self, base: str, token: str, *, connections: int, post_seconds: float = POST_SECONDS) -> None:
        if not (token.isascii() and token.isprintable() and token.strip() == token != ""):
            raise ValueError("the sink's token must be printable ASCII characters")
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or not _plain(base):
            raise ValueError("the sink's address must be http(s)://host[:port][/path]")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._is_secure = parts.scheme == "https"
        self._prefix = parts.path.rstrip("/")
        self._headers = (
            f"Host: {parts.netloc}\r\nUser-Agent: holdfast\r\nX-Service-Token: {token}\r\n"
            "Accept: application/json\r\nContent-Type: application/json\r\n"
        )
        self._token = token
        self._post_seconds = post_seconds
        self._turnstile = asyncio.Semaphore(connections)
        self._idle: list[_Connection] = []
        self._tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        self._tls = ssl.create_default_context() if self._is_secure else None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._idle:
            self._idle.pop().close()

    async def post(self, path: str, key: str, body: bytes) -> Verdict:
        """Post once. What does not answer in time, or at all, is Again."""
        head = f"POST {self._prefix}{path} HTTP/1.1\r\n{self._headers}Idempotency-Key: {key}\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        try:
            async with self._turnstile, asyncio.timeout(self._post_seconds), self._connection() as connection:
                answer = await connection.ask(request)
        except TimeoutError:
            return Again(Trouble.AWAY, f"no answer within {self._post_seconds:g} seconds")
        except (OSError, EOFError) as error:
            return Again(Trouble.AWAY, f"{type(error).__name__}: {error}".replace(self._token, "***"))
        quiet = answer.body.replace(self._token.encode(), b"***")
        return judge(Answer(answer.status, quiet, answer.retry_after), wall=time.time())

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator["_Connection"]:
        """The one used last, which is the most likely to be still there, or a new one."""
        now = asyncio.get_running_loop().time()
        while self._idle and not self._idle[-1].is_usable(now):
            self._idle.pop().close()
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            yield connection
        finally:
            if connection.is_usable(now):
                connection.used_at = now
                self._idle.append(connection)
            else:
                connection.close()

    async def _connect(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls)
        return connection


def _plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and not set(text) & set(" ?#")


class _Connection(asyncio.Protocol):
    """One request at a time. Usable while each answer came to its end, nobody hung up and nothing came unasked: what
    is said to nobody would be taken for the answer to the next post."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reply: _Reply | None = None
        self.used_at = float("inf")

    def is_usable(self, now: float) -> bool:
        is_open = self._transport is not None and not self._transport.is_closing()
        return is_open and self._reply is None and now - self.used_at < IDLE_SECONDS

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def ask(self, request: bytes) -> Answer:
        if self._transport is None or self._transport.is_closing():
            raise EOFError(HUNG_UP)
        self._reply = _Reply()
        self._transport.write(request)
        answer = await self._reply.answer
        if self._reply.is_clean:
            self._reply = None
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by descent

    def data_received(self, data: bytes) -> None:
        if self._reply is None or self._reply.answer.done():
            self.close()
        else:
            self._reply.feed(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._reply is not None:
            self._reply.end(error)


class _Reply:
    """An answer as it comes. The names of the `on_` methods are the parser's."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.is_clean = False  # whether the connection may be used for another
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._body: bytearray | None = None  # None while the head comes

    def feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.is_clean = False  # perhaps what came after a good answer
            self._fail(OSError(f"this is no HTTP answer: {error}"))
        if self._body is None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._fail(OSError("the answer's head has no end"))

    def end(self, error: Exception | None) -> None:
        """The connection is gone: an answer that names no length ends here, any other has no end."""
        lengths = (b"content-length", b"transfer-encoding")
        if self._body is not None and error is None and not any(name in self._headers for name in lengths):
            self._finish()
        self._fail(error or EOFError(HUNG_UP))

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.answer.done():
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if not self.answer.done():
            self._body = bytearray()

    def on_body(self, data: bytes) -> None:
        if self._body is not None and not self.answer.done():
            self._body += data[: ANSWER_BYTES - len(self._body)]
            if len(self._body) >= ANSWER_BYTES:
                self._finish()

    def on_message_complete(self) -> None:
        if self.answer.done():
            self.is_clean = False
        elif self._parser.get_status_code() in INFORMATIONAL:  # the answer itself is still to come
            self._headers, self._body = {}, None
        else:
            self.is_clean = self._parser.should_keep_alive()
            self._finish()

    def _finish(self) -> None:
        if not self.answer.done():
            waits = self._headers.get(b"retry-after", b"").decode("latin-1")
            self.answer.set_result(Answer(self._parser.get_status_code(), bytes(self._body or b""), waits))

    def _fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
