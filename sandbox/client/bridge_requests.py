"""One request to a bridge, JSON both ways. The answer is untrusted: bounded in size and time."""

import asyncio
import json
from typing import Any

import msgspec

from sandbox.client.endpoint import Endpoint
from sandbox.client.http1 import HttpFailed
from sandbox.client.http_client import connect

MAX_ANSWER = 8 * 1024 * 1024


class CallFailed(Exception):
    """The bridge did not answer as it should."""


async def call(endpoint: Endpoint, method: str, target: str, *, body: object = None, timeout: float) -> Any:
    """Return the decoded JSON of a 200 answer. Raises CallFailed."""
    status, answer = await ask(endpoint, method, target, body=body, timeout=timeout)
    if status != 200:
        raise CallFailed(f"the bridge answered {status}")
    return answer


async def ask(endpoint: Endpoint, method: str, target: str, *, body: object = None, timeout: float) -> tuple[int, Any]:
    """Return the status and the decoded JSON of any answer. Raises CallFailed."""
    payload = b"" if body is None else msgspec.json.encode(body)
    headers = {"Host": endpoint.host, "Connection": "close", **endpoint.headers}
    headers |= {"Content-Type": "application/json"} if payload else {}
    try:
        async with asyncio.timeout(timeout):
            connection = await connect(endpoint)
            try:
                whole = endpoint.prefix + target
                status, _, answer = await connection.fetch(method, whole, headers, payload, most=MAX_ANSWER + 1)
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
