"""The agents that are installed on this machine: the content of HOLDFAST_AGENTS_DIR.

    NAME/VERSION/installed.json    written before the directory gets its name: a directory that has it is whole
    NAME/current                   a link to the version that sessions get
    bin/PROGRAM                    a link to the current one's, for people in terminals
    node/VERSION/bin/node          for the agents that need it

Only `holdfast agents install` writes here (gateway/agents/installer.py). A gateway looks at each start of a sandbox, so
a new installation counts at once.
"""

import json
import os
from pathlib import Path

from gateway.agents.catalogue import KNOWN, NODE, NODE_VERSION
from gateway.agents.choice import VERSION
from gateway.agents.launch import InstalledAgent

NOTE = "installed.json"
CURRENT = "current"


class AgentShelf:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def make(self) -> None:
        """Make the directory. Sandboxes mount it, so it is there before any agent is installed. Raises OSError."""
        self.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # often the data directory: it is private
        self.directory.mkdir(mode=0o755, exist_ok=True)

    def find(self, name: str, version: str = "") -> InstalledAgent | None:
        """That version, or the current one; None if it is not installed."""
        version = version or self.current(name)
        if name not in KNOWN or not VERSION.fullmatch(version):
            return None
        try:
            note = json.loads((self.place(name, version) / NOTE).read_bytes())
            return InstalledAgent(name, version, str(note["program"]), str(note["libc"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def current(self, name: str) -> str:
        """The version that sessions get; "" if there is none."""
        try:
            return os.readlink(self.directory / name / CURRENT)
        except OSError:
            return ""

    def versions(self, name: str) -> list[str]:
        """All installed versions."""
        try:
            found = [entry.name for entry in (self.directory / name).iterdir() if entry.name != CURRENT]
        except OSError:
            return []
        return sorted(version for version in found if self.find(name, version) is not None)

    @property
    def has_node(self) -> bool:
        return os.access(self.node, os.X_OK)

    @property
    def node(self) -> Path:
        return self.place(NODE, NODE_VERSION) / "bin" / "node"

    def place(self, name: str, version: str) -> Path:
        return self.directory / name / version
