"""What a bridge reads and writes in the agent's HOME: the notes of its core, and files before a start.

The home is the agent's: it may have put a link, a pipe or a directory anywhere. So nothing is followed or waited for
that is no plain file, everything read has a bound, and a file takes its place by a rename.
"""

import contextlib
import json
import os
import secrets
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath

from sandbox.agents.core import HomeFile, HomeMove
from sandbox.system.log import log

NOTES = ".holdfast/agent.json"
MAX_NOTES = 64 * 1024
MAX_LOOKED_AT = 10_000  # names in the home that one pattern may make the bridge look at


class AgentNotes:
    """What the cores of one session remember: of each core, by its name, a few short strings."""

    def __init__(self, home: Path | None, core: str) -> None:
        """Without a home they are kept in memory only."""
        self._home = home
        self._core = core
        self._known: dict[str, str] = {}

    def read(self) -> Mapping[str, str]:
        """As they are in the home now: another generation of it may have come."""
        if self._home is not None:
            self._known = _strings(self._everything().get(self._core))
        return dict(self._known)

    def note(self, members: Mapping[str, str | None]) -> None:
        """Nothing is raised: notes that cannot be kept cost a memory, no answer."""
        self._known = {name: text for name, text in ({**self._known, **members}).items() if text is not None}
        if self._home is None:
            return
        content = json.dumps({**self._everything(), self._core: self._known}).encode()
        try:
            if len(content) > MAX_NOTES:
                raise OSError(f"more than {MAX_NOTES} bytes")
            write(self._home, HomeFile(NOTES, content))
        except OSError as exc:
            log("agent.notes_failed", cause=exc.strerror or str(exc))

    def _everything(self) -> dict[str, object]:
        assert self._home is not None
        try:
            notes = json.loads(_read(self._home / NOTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return notes if isinstance(notes, dict) else {}


def _strings(members: object) -> dict[str, str]:
    if not isinstance(members, dict):
        return {}
    return {name: text for name, text in members.items() if isinstance(text, str)}


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("no plain file")
        return os.read(descriptor, MAX_NOTES)
    finally:
        os.close(descriptor)


def write(home: Path, file: HomeFile) -> None:
    """Raises OSError."""
    path = home / PurePosixPath(file.path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as target:
            target.write(file.content)
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def found(home: Path | None, patterns: Sequence[str]) -> Collection[str]:
    """Those patterns which a file below `home` fits."""
    return () if home is None else tuple(pattern for pattern in patterns if any(_fitting(home, pattern)))


def move(home: Path | None, wanted: HomeMove) -> None:
    """Nothing is raised: a file that cannot be moved stays."""
    for path in sorted(_fitting(home, wanted.pattern)) if home is not None else ():
        named = path.with_name(wanted.name)
        if path != named:
            with contextlib.suppress(OSError):
                path.rename(path.with_name(f"{path.name}.aside") if named.exists() else named)


def _fitting(home: Path, pattern: str) -> Iterator[Path]:
    *above, last = PurePosixPath(pattern).parts
    directories = [home]
    for part in above:
        if part == "*":
            directories = [path for directory in directories for path in _directories(directory)]
        else:
            directories = [directory / part for directory in directories]
    for directory in directories:
        yield from _files(directory, last)


def _directories(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            return [Path(entry.path) for entry in islice(entries, MAX_LOOKED_AT) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _files(directory: Path, name: str) -> list[Path]:
    """Plain files of this name, which may begin, end, or be cut in the middle by one `*`."""
    if "*" not in name:
        with contextlib.suppress(OSError):
            return [directory / name] if stat.S_ISREG(os.lstat(directory / name).st_mode) else []
        return []
    begin, _, end = name.partition("*")
    try:
        with os.scandir(directory) as entries:
            return [
                Path(entry.path)
                for entry in islice(entries, MAX_LOOKED_AT)
                if entry.name.startswith(begin) and entry.name.endswith(end) and entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
