"""Control groups of this host's sandboxes: checks the host, makes, joins, reads and removes groups.

A sandbox's group lies below one directory of this installation, `holdfast-<tag>`, in the gateway's own group: the
gateway's limits hold for them, too. The tag tells two data directories of one host apart. A group outlives the
gateway, and the next gateway knows it by the bridge's note; a group without a note is found by its path.
"""

import contextlib
import hashlib
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.ports.resources import ResourceLimits
from sandbox.providers.cgroups.files import (
    CONTROLLERS,
    Reading,
    Version,
    files_read,
    lacking,
    own_path,
    reading,
    settings,
    words,
)

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
LEAF = "gateway"  # where the gateway itself goes, in the second version: a group with members has no groups below it
_LONGEST = 64 * 1024  # of a file of a group's
_ROUNDS = 50
_PAUSE = 0.02
_DELEGATE = "run the gateway by systemd with Delegate=yes and DelegateSubgroup=gateway, in a unit of its own"


class NoGroups(Exception):
    """No control groups can be made here. The text says why, and what to change."""


@dataclass(frozen=True, slots=True)
class Group:
    """One sandbox's: the directory in the tree of each controller. In the second version all are the same."""

    version: Version
    paths: Mapping[str, str] = field(default_factory=dict)

    def note(self) -> dict[str, object]:
        return {"version": self.version, "paths": dict(self.paths)}

    @classmethod
    def noted(cls, note: object) -> "Group | None":
        """The result of `note`; None for anything else."""
        if not isinstance(note, dict) or note.get("version") not in CONTROLLERS:
            return None
        paths = note.get("paths")
        if not isinstance(paths, dict) or not all(isinstance(each, str) for pair in paths.items() for each in pair):
            return None
        return cls(note["version"], paths)

    @classmethod
    def of(cls, pid: int, *, root: Path = ROOT, proc: Path = Path("/proc")) -> "Group | None":
        """The group of a process that somebody else has put it into, for reading; None if it is invisible from here."""
        version: Version = 2 if (root / "cgroup.controllers").exists() else 1
        paths = {}
        with contextlib.suppress(OSError):
            membership = _text(proc / str(pid) / "cgroup")
            for controller in CONTROLLERS[version]:
                path = own_path(membership, "" if version == 2 else controller)
                top = root if version == 2 else root / controller
                # Of another namespace of groups, a path leads up or elsewhere.
                if path is not None and ".." not in path.split("/") and (top / path.lstrip("/")).is_dir():
                    paths[controller] = str(top / path.lstrip("/"))
        return cls(version, paths) if paths else None

    @property
    def directories(self) -> list[Path]:
        return [Path(path) for path in dict.fromkeys(self.paths.values())]

    def join(self, pids: Iterable[int]) -> None:
        """Move processes, with all their threads, into the group. One that is gone is fine. Raises OSError."""
        for pid in pids:
            for directory in self.directories:
                with contextlib.suppress(ProcessLookupError):
                    (directory / "cgroup.procs").write_text(str(pid))

    def members(self) -> set[int]:
        found: set[int] = set()
        for directory in self.directories:
            found |= _members(directory)
        return found

    def read(self) -> Reading | None:
        """None if the group is gone."""
        texts = {}
        for controller, name in files_read(self.version):
            with contextlib.suppress(OSError, KeyError):
                texts[name] = _text(Path(self.paths[controller]) / name)
        return reading(self.version, texts) if texts else None

    def try_remove(self) -> bool:
        """Whether it is gone. Not while processes are in it."""
        left = [directory for directory in self.directories if not _remove(directory)]
        return not left


class Groups:
    """Makes groups. `controllers`: the available ones."""

    def __init__(self, version: Version, parents: Mapping[str, Path]) -> None:
        self.version = version
        self._parents = dict(parents)
        self.controllers = frozenset(parents)

    def lacking(self, limits: ResourceLimits) -> list[str]:
        return lacking(limits, self.controllers)

    def named(self, name: str) -> Group:
        return Group(self.version, {controller: str(parent / name) for controller, parent in self._parents.items()})

    def make(self, name: str, limits: ResourceLimits) -> Group:
        """A new group with these `limits`. Raises OSError."""
        group = self.named(name)
        for parent in set(self._parents.values()):
            parent.mkdir(exist_ok=True)
            if self.version == 2:
                _enable(parent, self.controllers)
        for directory in group.directories:
            directory.mkdir(exist_ok=True)
        for setting in settings(self.version, limits):
            try:
                (Path(group.paths[setting.controller]) / setting.file).write_text(setting.value)
            except OSError:
                if not setting.optional:
                    raise
        return group

    def names(self) -> set[str]:
        """Of all existing groups, whoever made them."""
        found: set[str] = set()
        for parent in self._parents.values():
            with contextlib.suppress(FileNotFoundError):
                found |= {entry.name for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False)}
        return found

    def close(self) -> None:
        """Leave nothing behind, unless sandboxes go on."""
        for parent in set(self._parents.values()):
            _remove(parent)


def end(group: Group) -> bool:
    """Kill the processes of the group and remove it; returns whether it is gone. Blocks for a second at most."""
    for _ in range(_ROUNDS):
        if group.try_remove():
            return True
        for pid in group.members():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)
    return False


def tag(data_dir: Path) -> str:
    """Tells this data directory from all others of the host, even from one at the same path in another container."""
    found = data_dir.stat()
    return hashlib.sha256(f"{data_dir.resolve()}:{found.st_dev}:{found.st_ino}".encode()).hexdigest()[:12]


def find(tag: str, *, root: Path = ROOT, membership: Path = MEMBERSHIP) -> Groups:
    """Raises NoGroups. In the second version this moves the gateway into a leaf of its own group, if it is alone in
    it."""
    try:
        own = membership.read_text()
        if (root / "cgroup.controllers").exists():
            found = _second(root, own, f"holdfast-{tag}")
        else:
            found = _first(root, own, f"holdfast-{tag}")
        probe = found.named("probe")
        for directory in probe.directories:
            directory.mkdir(parents=True, exist_ok=True)
        probe.try_remove()
        found.close()  # a gateway that never needs a group leaves none, however it ends
    except OSError as exc:
        raise NoGroups(f"{exc.filename or root}: {exc.strerror or exc}: {_DELEGATE}, or as root") from exc
    return found


def _first(root: Path, own: str, name: str) -> Groups:
    parents = {}
    for controller in CONTROLLERS[1]:
        path = own_path(own, controller)
        if path is not None and (root / controller).is_dir():
            inside = root / controller / path.lstrip("/")
            # In a container the path may be the host's, and the mount begins at the container's own group.
            parents[controller] = (inside if inside.is_dir() else root / controller) / name
    if not parents:
        raise NoGroups(f"no controllers are mounted below {root}")
    return Groups(1, parents)


def _second(root: Path, own: str, name: str) -> Groups:
    path = own_path(own, "")
    top = root / (path or "").lstrip("/")
    if path is None or not top.is_dir():
        top = root
    if top.name == LEAF and top != root:
        top = top.parent
    there = words(_text(top / "cgroup.controllers")) & frozenset(CONTROLLERS[2])
    if not there:
        raise NoGroups(f"{top} has none of the controllers memory, pids and cpu: {_DELEGATE}")
    _enable(top, there)
    return Groups(2, dict.fromkeys(there, top / name))


def _enable(directory: Path, controllers: frozenset[str]) -> None:
    """Give groups below `directory` these controllers. This works only while no process is in it."""
    switch = directory / "cgroup.subtree_control"
    if words(_text(switch) if switch.exists() else "") >= controllers:
        return
    # The root of all groups may have members; only there the kernel has no such file.
    inside = _members(directory) if (directory / "cgroup.type").exists() else set()
    if inside - {os.getpid()}:
        raise NoGroups(f"{directory} has other processes than the gateway: {_DELEGATE}")
    if inside:
        (directory / LEAF).mkdir(exist_ok=True)
        (directory / LEAF / "cgroup.procs").write_text(str(os.getpid()))
    switch.write_text(" ".join(f"+{each}" for each in sorted(controllers)))


def _members(directory: Path) -> set[int]:
    try:
        return {int(pid) for pid in (directory / "cgroup.procs").read_text().split()}
    except OSError:
        return set()


def _remove(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return not directory.is_dir()
    return True


def _text(path: Path) -> str:
    with open(path, "rb") as file:
        return file.read(_LONGEST).decode(errors="replace")
