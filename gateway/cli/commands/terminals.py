"""`holdfast terminals SESSION`: which terminals a session has."""

import json
import shlex
from typing import Any

from gateway.cli.commands.terminal_access import TerminalAccess, TerminalChoice
from gateway.cli.console.exits import in_words
from gateway.cli.console.output import as_typed, complain, say
from gateway.cli.console.tables import in_short, print_table
from gateway.config.settings import Settings
from gateway.protocol.text import visible_line
from sandbox.protocol.terminal import Exit

HEAD = ("NAME", "SIZE", "VIEWERS", "IDLE", "STATE", "WHAT")


async def terminals(settings: Settings, chosen: TerminalChoice, *, as_json: bool) -> int:
    door = TerminalAccess(settings, chosen)
    async with door.api() as api:
        listed = await door.terminals(api)
    if as_json:
        for each in listed:
            say(json.dumps(each))
    elif not listed:
        complain(f"no terminals yet; the first is made by: {as_typed('attach', chosen.session_id)}")
    else:
        print_table([HEAD, *map(_row, listed)])
    return 0


def _row(terminal: dict[str, Any]) -> tuple[str, ...]:
    size = f"{terminal['cols']}x{terminal['rows']}"
    what = terminal.get("title") or shlex.join(terminal.get("command") or [])
    return (
        visible_line(str(terminal["name"])),
        size,
        str(terminal["viewers"]),
        in_short(float(terminal["idleSeconds"])),
        "running" if terminal["alive"] else _ended(terminal.get("exit")),
        visible_line(str(what), longest=80),
    )


def _ended(exit: dict[str, Any] | None) -> str:
    return "ended" if exit is None else visible_line(f"ended, {in_words(Exit(exit.get('code'), exit.get('signal')))}")
