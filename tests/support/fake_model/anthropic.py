"""The fake model as Anthropic's Messages API: `POST /v1/messages`, streamed or whole."""

import json
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.support.fake_model.answers import Numbers, flat, key_of, refusal, streamed
from tests.support.fake_model.script import Deed, Talk, decide

KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error"}


class Messages:
    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        talk = _talk(body)
        deed = refusal(key_of(request), body.get("model")) or decide(talk)
        if deed.status != 200:
            error = {"type": KINDS.get(deed.status, "api_error"), "message": f"fake {deed.status}"}
            return JSONResponse({"type": "error", "error": error}, deed.status)
        head = {
            "id": self._numbers.name("msg"),
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 10 * len(talk.said), "output_tokens": 1},
        }
        stop = "tool_use" if deed.tool else "end_turn"
        if not body.get("stream"):
            return JSONResponse({**head, "content": [{"type": "text", "text": deed.words}], "stop_reason": stop})
        return streamed(self._events(head, deed, stop), hangs=deed.hangs)

    def _events(self, head: dict[str, Any], deed: Deed, stop: str) -> Iterator[dict[str, Any]]:
        yield {"type": "message_start", "message": head}
        blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        if deed.thought:
            deltas = [{"type": "thinking_delta", "thinking": f"{word} "} for word in deed.thought.split()]
            signed = {"type": "signature_delta", "signature": "c2ln"}
            blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]))
        blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in deed.pieces]))
        if deed.tool:
            call = {"type": "tool_use", "id": self._numbers.name("toolu"), "name": deed.tool, "input": {}}
            blocks.append((call, [{"type": "input_json_delta", "partial_json": json.dumps(deed.given)}]))
        for index, (block, deltas) in enumerate(blocks):
            yield {"type": "content_block_start", "index": index, "content_block": block}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            if deed.hangs:
                return
            yield {"type": "content_block_stop", "index": index}
        ended = {"stop_reason": stop, "stop_sequence": None}
        yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}}
        yield {"type": "message_stop"}


def _talk(body: dict[str, Any]) -> Talk:
    talk = Talk(tools={tool["name"]: tool.get("input_schema", {}) for tool in body.get("tools", []) if "name" in tool})
    for message in body["messages"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts:
            if part.get("type") == "tool_result":
                talk.said.append(("result", flat(part.get("content"))))
            elif part.get("type") == "text" and message["role"] == "user":
                talk.said.append(("user", part["text"]))
    return talk
