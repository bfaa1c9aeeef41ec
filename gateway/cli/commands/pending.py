"""`holdfast sessions pending` and `cancel`: messages that a session's agent does not have yet."""

import json
from collections.abc import Mapping
from typing import Any

from gateway.cli.commands.chat_view import plain_text
from gateway.cli.commands.credentials import service_api
from gateway.cli.commands.sessions import SessionChoice
from gateway.cli.console.output import complain, say
from gateway.cli.console.tables import print_table
from gateway.config.settings import Settings
from gateway.protocol.text import visible_line

HEAD = ("SEQ", "SENT", "WAITS", "TEXT")


async def list_pending(settings: Settings, chosen: SessionChoice, session_id: str) -> int:
    async with service_api(settings, chosen.url, chosen.token) as api:
        found = await api.pending(session_id)
    if chosen.as_json:
        for message in found:
            say(json.dumps(message))
    elif found:
        print_table([HEAD, *map(row, found)])
    else:
        complain("no message waits: the agent has all of them")
    return 0


async def cancel_pending(settings: Settings, chosen: SessionChoice, session_id: str, seq: int) -> int:
    async with service_api(settings, chosen.url, chosen.token) as api:
        message = await api.cancel_pending(session_id, seq)
    say(json.dumps(message) if chosen.as_json else f"#{seq}: cancelled; the agent will not get it")
    return 0


def row(message: Mapping[str, Any]) -> tuple[str, ...]:
    """One that waits, for people. Pure."""
    content = message["content"]
    text = plain_text(content) if isinstance(content, str | list) else json.dumps(content, ensure_ascii=False)
    until = f"until {message['expiresAt']}" if message["expiresAt"] else "as long as it takes"
    where = "in the sandbox" if message["inSandbox"] else until
    shown = "(too long to be listed)" if message.get("omitted") else visible_line(text, longest=60)
    return str(message["seq"]), message["createdAt"], where, shown
