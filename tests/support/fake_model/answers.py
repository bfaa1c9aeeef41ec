"""Shared by both APIs of the fake model."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from itertools import count
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from tests.support.fake_model.script import Deed


class Numbers:
    """Names that are the same in each run."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def name(self, kind: str) -> str:
        return f"{kind}_{next(self._numbers)}"


def key_of(request: Request) -> str:
    return request.headers.get("x-api-key") or request.headers.get("authorization", "")


def refusal(key: str, model: Any) -> Deed | None:
    """Why a request is refused: a missing or wrong key, or an unknown model."""
    status = 401 if "bad" in key or not key.removeprefix("Bearer").strip() else 404 if model == "missing" else 200
    return None if status == 200 else Deed(status=status)


def flat(content: Any) -> str:
    """The text of a message or of a result, whatever it is wrapped in."""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or () if isinstance(part, dict))


def streamed(events: Iterable[dict[str, Any]], *, hangs: bool) -> StreamingResponse:
    """Server-sent events. A stream that hangs ends when its reader goes."""

    async def body() -> AsyncIterator[str]:
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            yield f"{name}data: {json.dumps(event)}\n\n"
        if hangs:
            await asyncio.Event().wait()

    return StreamingResponse(body(), media_type="text/event-stream")
