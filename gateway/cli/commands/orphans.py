"""`holdfast orphans`: lists and removes leftovers of sandboxes that no session can use, through the running gateway."""

import json
from collections.abc import Mapping
from typing import Any

from gateway.cli.commands.credentials import service_api
from gateway.cli.console.output import say
from gateway.cli.console.tables import print_table
from gateway.config.settings import Settings
from gateway.protocol.text import visible_line

HEAD = ("PROVIDER", "SESSION", "NAME", "WHY")
NONE = "no orphans"


async def orphans(settings: Settings, *, url: str | None, remove: bool, as_json: bool) -> int:
    """List or remove them. Raises CommandFailed."""
    async with service_api(settings, url, None) as api:
        found = await api.ask("DELETE" if remove else "GET", "/internal/orphans")
    if as_json:
        say(json.dumps(found))
    elif found["orphans"]:
        print_table([HEAD, *map(row, found["orphans"])])
    else:
        say(NONE)
    return 0


def row(orphan: Mapping[str, Any]) -> tuple[str, ...]:
    """One orphan on one line of a table. Pure."""
    short = orphan["name"][:12]  # as engines show ids
    return tuple(map(visible_line, (orphan["provider"], orphan["sessionId"] or "-", short, orphan["why"])))
