"""A model that always gives the same answer, in the format of each interface that agents use. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

SAID = "Hello from the model that is built into Holdfast."
MODEL = "holdfast-trial"
Event = dict[str, Any]
_ID = "trial_1"


def answer(path: str, body: Mapping[str, Any]) -> bytes | Event | None:
    """A stream of events, one JSON answer, or None: there is no such path."""
    if path.endswith("/messages"):
        return _named(_messages()) if body.get("stream") else _message([{"type": "text", "text": SAID}], "end_turn")
    if path.endswith("/messages/count_tokens"):
        return {"input_tokens": 10}
    if path.endswith("/responses"):
        return _named(_responses())
    if path.endswith("/chat/completions"):
        return _unnamed(_completions()) + b"data: [DONE]\n\n"
    if path.endswith(":streamGenerateContent"):
        return _unnamed([_content()])
    if path.endswith(":generateContent"):
        return _content()
    if path.endswith(":countTokens"):
        return {"totalTokens": 10}
    if path.endswith("/models"):
        return {"object": "list", "data": [{"id": MODEL, "object": "model"}], "models": []}
    return None


def _named(events: Iterable[Event]) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode()) for event in events
    )


def _unnamed(events: Iterable[Event]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


def _message(content: list[Event], stop: str | None) -> Event:
    usage = {"input_tokens": 10, "output_tokens": 5}
    said = {"content": content, "stop_reason": stop, "stop_sequence": None, "usage": usage}
    return {"id": _ID, "type": "message", "role": "assistant", "model": MODEL, **said}


def _messages() -> list[Event]:
    return [
        {"type": "message_start", "message": _message([], None)},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": SAID}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]


def _responses() -> list[Event]:
    base = {"id": _ID, "object": "response", "created_at": 0, "model": MODEL}
    part = {"type": "output_text", "text": SAID, "annotations": list[Any]()}
    item = {"id": "msg_1", "type": "message", "role": "assistant"}
    whole = {**item, "status": "completed", "content": [part]}
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    usage = {
        **{"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    events: list[Event] = [
        {"type": "response.created", "response": {**base, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "item": {**item, "status": "in_progress", "content": []}},
        {"type": "response.content_part.added", "part": {**part, "text": ""}, **at},
        {"type": "response.output_text.delta", "delta": SAID, **at},
        {"type": "response.output_text.done", "text": SAID, **at},
        {"type": "response.output_item.done", "item": whole},
        {"type": "response.completed", "response": {**base, "status": "completed", "output": [whole], "usage": usage}},
    ]
    return [{"output_index": 0, "sequence_number": number, **event} for number, event in enumerate(events)]


def _completions() -> list[Event]:
    base = {"id": _ID, "object": "chat.completion.chunk", "created": 0, "model": MODEL}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    said = {"index": 0, "delta": {"role": "assistant", "content": SAID}, "finish_reason": None}
    return [
        {**base, "choices": [said]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage},
    ]


def _content() -> Event:
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    said = {"index": 0, "content": {"role": "model", "parts": [{"text": SAID}]}, "finishReason": "STOP"}
    return {"candidates": [said], "usageMetadata": usage, "modelVersion": MODEL}
