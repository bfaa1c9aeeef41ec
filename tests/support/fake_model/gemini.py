"""The fake model as Gemini's API: `POST /v1beta/models/NAME:METHOD`, streamed or whole."""

import json
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.support.fake_model.answers import streamed
from tests.support.fake_model.script import Deed, Talk, decide


async def answer(request: Request) -> Response:
    body, method = await request.json(), request.url.path.rpartition(":")[2]
    talk = _talk(body)
    key = request.headers.get("x-goog-api-key") or request.query_params.get("key", "")
    found = "missing" not in request.url.path
    deed = Deed(status=400) if "bad" in key else decide(talk) if found else Deed(status=404)
    if method == "countTokens":
        return JSONResponse({"totalTokens": 10})
    if deed.status != 200:
        told = "API key not valid. Please pass a valid API key." if deed.status == 400 else f"fake {deed.status}"
        return JSONResponse({"error": {"code": deed.status, "message": told, "status": "INTERNAL"}}, deed.status)
    if method == "generateContent":
        return JSONResponse(_part({"text": _structured(body) or deed.words}, 10, "STOP"))
    return streamed(_events(deed, 10 * len(talk.said)), hangs=deed.hangs)


def _structured(body: dict[str, Any]) -> str:
    """Gemini asks a model which model to ask, and wants an object."""
    config = body.get("generationConfig") or {}
    schema = config.get("responseJsonSchema") or config.get("responseSchema") or {}
    names = schema.get("properties", {})
    return json.dumps({name: "flash" if name == "model_choice" else "ok" for name in names}) if names else ""


def _events(deed: Deed, tokens: int) -> Iterator[dict[str, Any]]:
    if deed.thought:
        yield _part({"text": f"**Thinking** {deed.thought}", "thought": True}, tokens)
    for words in deed.pieces:
        yield _part({"text": words}, tokens)
    if deed.tool:
        yield _part({"functionCall": {"name": deed.tool, "args": deed.given}}, tokens, "STOP")
    elif not deed.hangs:
        yield _part({"text": ""}, tokens, "STOP")


def _part(part: dict[str, Any], tokens: int, finish: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": [part]}}
    if finish:
        candidate["finishReason"] = finish
    usage = {"promptTokenCount": tokens, "candidatesTokenCount": 5, "totalTokenCount": tokens + 5}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"}


def _talk(body: dict[str, Any]) -> Talk:
    talk = Talk()
    for group in body.get("tools") or ():
        for tool in group.get("functionDeclarations", ()):
            talk.tools[tool["name"]] = tool.get("parametersJsonSchema") or tool.get("parameters") or {}
    for message in body.get("contents", ()):
        for part in message.get("parts", ()):
            if "functionResponse" in part:
                talk.said.append(("result", json.dumps(part["functionResponse"].get("response"))))
            elif "text" in part and message.get("role") != "model":
                talk.said.append(("user", part["text"]))
    return talk
