"""Where settings come from: the environment, a file beside it, or nowhere. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway.protocol.text import visible_line

ENVIRONMENT, FILE, DEFAULT = "environment", "file", "default"
_LONGEST_PATH = 200


def shown_path(path: Path) -> str:
    """On one line of bounded length, in characters that a terminal shows."""
    return visible_line(str(path), longest=_LONGEST_PATH)


@dataclass(frozen=True, slots=True)
class Source:
    """`name` is the setting's name in that source."""

    kind: str = DEFAULT
    name: str = ""
    file: Path = Path()
    line: int = 0

    def __str__(self) -> str:
        return f"{shown_path(self.file)}, line {self.line}" if self.kind == FILE else self.kind


@dataclass(frozen=True, slots=True)
class SettingEntry:
    """A setting in a file; `text` is its value in the environment's form."""

    name: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file of settings, by the names of the environment. `problems` are complete sentences."""

    path: Path
    entries: Mapping[str, SettingEntry] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def source(self, entry: SettingEntry) -> Source:
        return Source(FILE, entry.name, self.path, entry.line)
