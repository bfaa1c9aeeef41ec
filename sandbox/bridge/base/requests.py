"""What every route of the bridge does with a request: read its JSON, refuse it, notice that the asker has gone."""

import json
from typing import Any

from starlette.requests import Request

MAX_BODY = 2 * 1024 * 1024


class Refused(Exception):
    def __init__(self, status: int, code: str, error: str) -> None:
        super().__init__(error)
        self.status, self.code, self.error = status, code, error


async def read_json(request: Request, default: Any) -> Any:
    """The body, or `default` (unless None) if there is none. Raises Refused."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise Refused(413, "too_large", f"at most {MAX_BODY} bytes")
    if not body and default is not None:
        return default
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "bad_request", "the body must be JSON") from None


async def gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
