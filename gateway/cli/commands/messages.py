"""`holdfast messages SESSION`: the stored conversation, as the gateway serves it to services."""

import asyncio
import json
from typing import Any

from gateway.cli.client.api import CommandFailed, GatewayApi, find_gateway
from gateway.cli.commands.chat_view import plain_text
from gateway.cli.console.output import complain, say
from gateway.config.settings import Settings, resolve_secrets
from gateway.protocol.text import visible, visible_line

PAGE = 500
RETRY_SECONDS = 1.0


async def messages(settings: Settings, *, session_id: str, follow: bool, as_json: bool, url: str | None) -> int:
    """Print the stored records and, with `follow`, new ones; wait for a gateway that restarts meanwhile."""
    token = resolve_secrets(settings).internal_token.get_secret_value()
    path = f"/internal/sessions/{session_id}/messages"
    seen = 0
    async with GatewayApi(find_gateway(settings, url), lambda: {"X-Service-Token": token}) as api:
        while True:
            page = await api.page(path, after=seen, limit=PAGE)
            if page["firstSeq"] > seen + 1:
                _tell_trimmed(page["firstSeq"])
            for record in page["messages"]:
                _print(record, as_json=as_json)
            if not page["messages"]:
                break
            seen = page["messages"][-1]["seq"]
        if page.get("stale"):
            complain("the store is behind: the newest of this is safe in the gateway's spool, and follows")
        while follow:
            try:
                async for event, data in api.follow(path, seen):
                    if event == "trimmed":
                        _tell_trimmed(data["firstSeq"])
                    elif event == "message":
                        _print(data, as_json=as_json)
                        seen = data["seq"]
            except CommandFailed as failure:
                complain(f"{failure}; trying again")
            await asyncio.sleep(RETRY_SECONDS)
    return 0


def _tell_trimmed(first: int) -> None:
    complain(f"the messages before #{first} have been removed")


def _print(record: dict[str, Any], *, as_json: bool) -> None:
    say(json.dumps(record, ensure_ascii=True) if as_json else render(record))


def render(record: dict[str, Any]) -> str:
    """A record for people: one heading, then the text, indented so that no text can pass for a heading."""
    kind = "" if record["type"] == "message" else f" {record['type']}"
    heading = visible_line(f"#{record['seq']} {record['role']}{kind} · {record['createdAt']} · {record['status']}")
    content = record["content"]
    text = plain_text(content) if isinstance(content, str | list) else json.dumps(content, ensure_ascii=False)
    body = "\n".join(f"  {line}" for line in visible(text).split("\n")) if text else ""
    return f"{heading}\n{body}" if body else heading
