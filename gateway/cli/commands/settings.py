"""`holdfast settings`: each setting, its value, where that comes from, its default and a line about it."""

import json

from gateway.cli.console.output import say
from gateway.cli.console.tables import print_table
from gateway.config.descriptions import plain, rows, value_of
from gateway.config.settings import Settings
from gateway.config.sources import ENVIRONMENT, Source
from gateway.protocol.text import visible_line

HEAD = ("SETTING", "VALUE", "FROM", "DEFAULT", "")
_LONGEST = 60


def settings_command(settings: Settings, *, as_json: bool) -> int:
    found = [(name, value_of(settings, name), default, line) for name, default, line in rows()]
    if as_json:
        say(json.dumps([_described(settings, *each) for each in found], indent=2))
        return 0
    table: list[tuple[str, ...]] = [HEAD]
    for name, value, default, line in found:
        source = _place(name, settings.sources.get(name, Source()))
        cells = (visible_line(each, longest=_LONGEST) for each in (value, source, plain(default)))
        table.append((name, *cells, plain(line)))
    print_table(table)
    return 0


def _place(name: str, source: Source) -> str:
    """With the variable's name where it is another than the setting's."""
    return f"{source} ({source.name})" if source.kind == ENVIRONMENT and source.name != name else str(source)


def _described(settings: Settings, name: str, value: str, default: str, line: str) -> dict[str, object]:
    source = settings.sources.get(name, Source())
    place = {"file": str(source.file.absolute()), "line": source.line} if source.line else {}
    called = {"name": source.name} if source.name else {}
    return {
        "setting": name,
        "value": value,
        "from": {"kind": source.kind, **called, **place},
        "default": plain(default),
        "docs": plain(line),
    }
