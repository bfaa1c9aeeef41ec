"""Calls routes in this process, as a service would: their answers, and whether they finish."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import Message

from gateway.auth.tokens import Principal
from gateway.http.responses import EXCEPTION_HANDLERS


@dataclass(slots=True)
class Answer:
    status: int = 0
    body: bytes = b""
    ended: bool = False  # as HTTP asks for: otherwise the server closes the connection


async def ask(routes: Sequence[BaseRoute], path: str, query: str = "") -> Answer:
    """GET, without a server: its buffers would hide which step of the store came before which piece of the answer."""
    app = Starlette(routes=list(routes), exception_handlers=EXCEPTION_HANDLERS)
    answer = Answer()
    scope = {
        "type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": [],
        "asgi": {"spec_version": "2.4"}, "state": {"principal": Principal("internal", via="service")},
    }  # fmt: skip

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
        else:
            answer.body += message["body"]
            answer.ended = not message.get("more_body", False)
        await asyncio.sleep(0)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("nobody goes away here")

    await app(scope, receive, send)
    return answer
