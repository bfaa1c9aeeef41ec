"""The note by which a later gateway finds a bridge in a container again."""

import json
from dataclasses import asdict, dataclass, fields

from sandbox.providers.local.layout import SandboxHome, write_private
from sandbox.providers.local.processes import Process


@dataclass(frozen=True, slots=True)
class ContainerNote:
    """A container as noted in `bridge.json` (0600: the token is in it), before it runs. `pid` is its first process, as
    this host counts, once that has knocked; 0 before, and where this gateway cannot see it."""

    session_id: str
    incarnation: int
    container: str
    socket: str
    token: str
    boot: str
    pid: int = 0
    started: int = 0
    door: str = ""  # its directory, where connections are handed in one by one

    @property
    def first_inside(self) -> Process | None:
        return Process(self.pid, self.started) if self.pid else None


def read_note(home: SandboxHome) -> ContainerNote | None:
    """The container noted last; None if there is none, or the note is another provider's."""
    try:
        members = json.loads(home.note.read_bytes())
        known = [each.name for each in fields(ContainerNote)]
        return ContainerNote(**{name: members[name] for name in known if name in members})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_note(home: SandboxHome, note: ContainerNote) -> None:
    write_private(home.note, asdict(note))
