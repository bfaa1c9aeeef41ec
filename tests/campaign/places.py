"""Where a campaign's sandboxes run: as processes of this machine, or in containers of an engine of the tests' own."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.providers.container.document import KIT
from sandbox.providers.container.kit_maker import start_line
from sandbox.providers.container.note import read_note
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.processes import Process
from sandbox.system.interpreter import PYTHON
from tests.sandbox.containers import UID
from tests.support.engine import DockerEngine


@dataclass(frozen=True, slots=True)
class Place:
    """Processes, unless a subclass says otherwise. `settings` are those of a gateway whose sessions run here; `python`
    is an agent's."""

    settings: Mapping[str, object] = field(default_factory=dict)
    python: str = "python3"

    def prepare(self, data_dir: Path) -> None:
        """Before a gateway's first start there."""

    def program(self, source: Path, workspace: Path) -> list[str]:
        """The interpreter that runs a test's program in a sandbox."""
        return [sys.executable, str(source)]

    def inside(self, path: Path, workspace: Path) -> str:
        """The name of a workspace file inside the sandbox."""
        return str(path)

    def give(self, path: Path) -> None:
        """Give a file made from outside to the sandbox's user, and everything below it."""

    def first_inside(self, home: SandboxHome) -> Process | None:
        """The process that everything else in the sandbox dies with, dead or alive; None if there is none."""
        note = home.read_note()
        return Process(note.init_pid, note.init_started) if note is not None else None


TRUSTED = Place()
CONTAINED = Place({"LOCAL_LEVEL": "contained"})


@dataclass(frozen=True, slots=True)
class Containers(Place):
    """`kits` is a directory with a finished kit: gateways need not make it again."""

    kits: Path = Path()

    @classmethod
    def of(cls, engine: DockerEngine, kits: Path) -> "Containers":
        there = {"SANDBOX": "docker", "DOCKER": f"unix://{engine.socket}", "DOCKER_IMAGE": engine.image}
        return cls(there, PYTHON, kits)

    def prepare(self, data_dir: Path) -> None:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data_dir / "kit").symlink_to(self.kits)

    def program(self, source: Path, workspace: Path) -> list[str]:
        copy = workspace / source.name
        copy.write_bytes(source.read_bytes())
        self.give(copy)
        return [*start_line(KIT), self.inside(copy, workspace)]

    def inside(self, path: Path, workspace: Path) -> str:
        return f"/workspace/{path.relative_to(workspace)}"

    def give(self, path: Path) -> None:
        _give_one(os.fsencode(path))
        for above, directories, files in os.walk(os.fsencode(path)):
            for name in (*directories, *files):
                _give_one(os.path.join(above, name))

    def first_inside(self, home: SandboxHome) -> Process | None:
        note = read_note(home)
        return note.first_inside if note is not None else None


def _give_one(path: bytes) -> None:
    with suppress(FileNotFoundError):  # the sandbox has removed it
        if os.lstat(path).st_uid != UID:
            os.chown(path, UID, UID, follow_symlinks=False)
