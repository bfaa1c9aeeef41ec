"""One request to a bridge over its unix socket, JSON both ways. The answer is untrusted: bounded in size and time."""

import asyncio
import json
from typing import Any

import msgspec

from sandbox.client.http1 import HttpFailed
from sandbox.client.http_client import connect_unix

MAX_ANSWER = 8 * 1024 * 1024


class CallFailed(Exception):
    """The bridge did not answer as it should."""


async def call(path: str, method: str, target: str, *, token: str = "", body: object = None, timeout: float) -> Any:
    """Return the decoded JSON of a 200 answer. `path` is the socket's. Raises CallFailed."""
    status, answer = await ask(path, method, target, token=token, body=body, timeout=timeout)
    if status != 200:
        raise CallFailed(f"the bridge answered {status}")
    return answer


async def ask(
    path: str, method: str, target: str, *, token: str = "", body: object = None, timeout: float
) -> tuple[int, Any]:
    """Return the status and the decoded JSON of any answer. Raises CallFailed."""
    payload = b"" if body is None else msgspec.json.encode(body)
    headers = {"Host": "bridge", "Connection": "close"}
    headers |= {"Content-Type": "application/json"} if payload else {}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with asyncio.timeout(timeout):
            connection = await connect_unix(path)
            try:
                status, _, answer = await connection.fetch(method, target, headers, payload, most=MAX_ANSWER + 1)
            finally:
                connection.close()
    except TimeoutError as exc:
        raise CallFailed(f"no answer within {timeout:g} s") from exc
    except HttpFailed as exc:
        raise CallFailed(str(exc)) from exc
    except OSError as exc:
        raise CallFailed(f"no connection: {exc.strerror or exc}") from exc
    if len(answer) > MAX_ANSWER:
        raise CallFailed("the answer is too long")
    try:
        return status, json.loads(answer) if status != 204 else None
    except (ValueError, RecursionError) as exc:
        raise CallFailed(f"the answer ({status}) is not JSON") from exc
