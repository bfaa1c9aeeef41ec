"""`holdfast providers`: where sessions can run, through the running gateway."""

import json
from collections.abc import Mapping
from typing import Any

from gateway.cli.commands.credentials import service_api
from gateway.cli.console.output import say
from gateway.cli.console.tables import print_table
from gateway.config.settings import Settings
from gateway.protocol.text import visible_line

HEAD = ("PROVIDER", "LEVEL", "RUNNING", "MACHINE", "IMAGE", "STATE")


async def providers(settings: Settings, *, url: str | None, token: str | None, as_json: bool) -> int:
    """Raises CommandFailed."""
    async with service_api(settings, url, token) as api:
        found = await api.ask("GET", "/api/providers")
    if as_json:
        say(json.dumps(found))
    else:
        print_table([HEAD, *(row(each, str(found["default"])) for each in found["providers"])])
    return 0


def row(provider: Mapping[str, Any], default: str) -> tuple[str, ...]:
    """One provider on one line of a table. Pure."""
    state = "ok" if provider["healthy"] else provider["problem"]
    return (
        visible_line(provider["name"]) + (" (default)" if provider["name"] == default else ""),
        visible_line(provider["level"]),
        str(provider.get("running", "-")),
        _machine(provider.get("capacity") or {}),
        visible_line(provider["image"] or "-", longest=60),
        visible_line(str(state), longest=200),
    )


def _machine(capacity: Mapping[str, Any]) -> str:
    cpus, memory = capacity.get("cpus"), capacity.get("memory")
    known = (f"{cpus} CPUs" if cpus else "", f"{memory / (1 << 30):.1f} GiB" if memory else "")
    return ", ".join(filter(None, known)) or "-"
