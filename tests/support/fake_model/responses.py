"""The fake model as OpenAI's Responses API: `POST /v1/responses`, streamed."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.support.fake_model.answers import Numbers, flat, key_of, refusal, streamed
from tests.support.fake_model.script import Deed, Talk, decide


class Responses:
    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        talk = _talk(body)
        custom = {tool["name"] for tool in body.get("tools") or () if tool.get("type") == "custom"}
        deed = refusal(key_of(request), body.get("model")) or decide(talk)
        if deed.status != 200:
            error = {"message": f"fake {deed.status}", "type": "server_error", "code": None}
            return JSONResponse({"error": error}, deed.status)
        numbers = count()
        events = self._events(body.get("model"), deed, deed.tool in custom, 10 * len(talk.said))
        return streamed(({**event, "sequence_number": next(numbers)} for event in events), hangs=deed.hangs)

    def _events(self, model: Any, deed: Deed, is_custom: bool, tokens: int) -> Iterator[dict[str, Any]]:
        base = {"id": self._numbers.name("resp"), "object": "response", "created_at": 0, "model": model, "output": []}
        yield {"type": "response.created", "response": {**base, "status": "in_progress"}}
        out: list[dict[str, Any]] = []
        if deed.thought:
            yield from self._thinks(deed, out)
        if deed.tool:
            yield from self._calls(deed, is_custom, out)
        else:
            yield from self._says(deed, len(out), out)
            if deed.hangs:
                return
        usage = {
            "input_tokens": tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens + 5,
        }
        yield {
            "type": "response.completed",
            "response": {**base, "status": "completed", "output": out, "usage": usage},
        }

    def _thinks(self, deed: Deed, out: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        name, at = self._numbers.name("rs"), {"output_index": 0, "summary_index": 0}
        item: dict[str, Any] = {"id": name, "type": "reasoning", "summary": []}
        yield {"type": "response.output_item.added", "output_index": 0, "item": item}
        part = {"type": "summary_text", "text": ""}
        yield {"type": "response.reasoning_summary_part.added", "item_id": name, "part": part, **at}
        for word in deed.thought.split():
            yield {"type": "response.reasoning_summary_text.delta", "item_id": name, "delta": f"{word} ", **at}
        out.append({**item, "summary": [{**part, "text": deed.thought}]})
        yield {"type": "response.output_item.done", "output_index": 0, "item": out[-1]}

    def _calls(self, deed: Deed, is_custom: bool, out: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        index = len(out)
        called = {"call_id": self._numbers.name("call"), "name": deed.tool, "status": "completed"}
        if is_custom:
            item = {"type": "custom_tool_call", "id": self._numbers.name("ctc"), "input": deed.given, **called}
        else:
            given = json.dumps(deed.given)
            item = {"type": "function_call", "id": self._numbers.name("fc"), "arguments": given, **called}
        yield {"type": "response.output_item.added", "output_index": index, "item": {**item, "status": "in_progress"}}
        out.append(item)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}

    def _says(self, deed: Deed, index: int, out: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        name = self._numbers.name("msg")
        at = {"item_id": name, "output_index": index, "content_index": 0}
        item: dict[str, Any] = {"id": name, "type": "message", "role": "assistant", "content": []}
        part = {"type": "output_text", "text": "", "annotations": []}
        yield {"type": "response.output_item.added", "output_index": index, "item": {**item, "status": "in_progress"}}
        yield {"type": "response.content_part.added", "part": part, **at}
        for words in deed.pieces:
            yield {"type": "response.output_text.delta", "delta": words, **at}
        if deed.hangs:
            return
        yield {"type": "response.output_text.done", "text": deed.words, **at}
        out.append({**item, "status": "completed", "content": [{**part, "text": deed.words}]})
        yield {"type": "response.output_item.done", "output_index": index, "item": out[-1]}


def _talk(body: dict[str, Any]) -> Talk:
    talk = Talk(tools={tool["name"]: tool.get("parameters", {}) for tool in body.get("tools") or () if "name" in tool})
    for item in body["input"]:
        if item.get("type") in ("function_call_output", "custom_tool_call_output"):
            talk.said.append(("result", flat(item.get("output"))))
        elif item.get("type", "message") == "message" and item.get("role") == "user":
            talk.said.append(("user", flat(item["content"])))
    return talk
