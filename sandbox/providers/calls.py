"""One HTTP request to a bridge over its unix socket. The answer is untrusted: bounded in size and time."""

import asyncio
import json
from typing import Any

MAX_ANSWER = 8 * 1024 * 1024


class CallFailed(Exception):
    """The bridge did not answer as it should."""


async def call(path: str, method: str, target: str, *, token: str = "", body: Any = None, timeout: float) -> Any:
    """Return the decoded JSON of a 200 answer. `path` is the socket's. Raises CallFailed."""
    payload = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {target} HTTP/1.1\r\nHost: bridge\r\nConnection: close\r\nContent-Length: {len(payload)}\r\n"
    if payload:
        head += "Content-Type: application/json\r\n"
    if token:
        head += f"Authorization: Bearer {token}\r\n"
    try:
        async with asyncio.timeout(timeout):
            answer = await _exchange(path, head.encode() + b"\r\n" + payload)
    except TimeoutError as exc:
        raise CallFailed(f"no answer within {timeout:g} s") from exc
    except OSError as exc:
        raise CallFailed(f"no connection: {exc.strerror or exc}") from exc
    return _decode(answer)


async def _exchange(path: str, request: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(request)
        await writer.drain()
        answer = bytearray()
        while len(answer) <= MAX_ANSWER and (piece := await reader.read(65536)):
            answer += piece
        return bytes(answer)
    finally:
        writer.transport.abort()


def _decode(answer: bytes) -> Any:
    head, separator, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if not separator or not status:
        raise CallFailed("the connection ended before an answer")
    if len(answer) > MAX_ANSWER:
        raise CallFailed("the answer is too long")
    if status != [b"200"]:
        raise CallFailed(f"the bridge answered {status[0][:3].decode(errors='replace')}")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise CallFailed("the answer is not JSON") from exc
