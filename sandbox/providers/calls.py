"""One HTTP request to a bridge over its unix socket. The answer is untrusted: bounded in size and time."""

import asyncio
import json
from typing import Any

MAX_ANSWER = 8 * 1024 * 1024


class CallFailed(Exception):
    """The bridge did not answer as it should."""


async def call(path: str, method: str, target: str, *, token: str = "", body: Any = None, timeout: float) -> Any:
    """Return the decoded JSON of a 200 answer. `path` is the socket's. Raises CallFailed."""
    status, answer = await ask(path, method, target, token=token, body=body, timeout=timeout)
    if status != 200:
        raise CallFailed(f"the bridge answered {status}")
    return answer


async def ask(
    path: str, method: str, target: str, *, token: str = "", body: Any = None, timeout: float
) -> tuple[int, Any]:
    """Return the status and the decoded JSON of any answer. Raises CallFailed."""
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


def _decode(answer: bytes) -> tuple[int, Any]:
    head, separator, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if not separator or not status:
        raise CallFailed("the connection ended before an answer")
    if len(answer) > MAX_ANSWER:
        raise CallFailed("the answer is too long")
    if not status[0].isdigit() or len(status[0]) != 3:
        raise CallFailed("the answer has no status")
    try:
        return int(status[0]), json.loads(body) if status != [b"204"] else None
    except (ValueError, RecursionError) as exc:
        raise CallFailed(f"the answer ({int(status[0])}) is not JSON") from exc
