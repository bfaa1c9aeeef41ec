"""Files in the agent's HOME that the bridge reads and writes: the notes of its core, and files before a start.

The home belongs to the agent: it may have put a link, a pipe or a directory anywhere. So the bridge follows no link
and waits for nothing that is no plain file, every read has a bound, and a new file replaces the old one by a rename.
A directory may be a link to another one in the home; one that leads out of the home counts as missing.
"""

import contextlib
import errno
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
CONFIGURED = ".holdfast/configured.json"
MAX_NOTES = 64 * 1024
MOST_ASIDE = 100  # files moved aside for one name
MAX_LOOKED_AT = 10_000  # names that one pattern may make the bridge look at


class AgentNotes:
    """The memory of the cores of one session: a few short strings for each core, by its name."""

    def __init__(self, home: Path | None, core: str) -> None:
        """Without a home the notes are in memory only."""
        self._home = home
        self._core = core
        self._known: dict[str, str] = {}

    def read(self) -> Mapping[str, str]:
        """The notes in the home now: a restore may have brought another generation of them."""
        if self._home is not None:
            self._known = _strings(self._everything().get(self._core))
        return dict(self._known)

    def note(self, members: Mapping[str, str | None]) -> None:
        """Raises nothing: notes that cannot be written cost the agent's memory, not an answer."""
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


def write_missing(home: Path, files: Mapping[str, str]) -> None:
    """Configuration of programs, below `home`, where there is none. Raises nothing: without it a program asks for its
    settings, as it would anywhere."""
    for path, content in files.items():
        try:
            if not os.path.lexists(home / path):
                write(home, HomeFile(path, content.encode()))
        except OSError as exc:
            log("agent.file_not_written", path=path, cause=exc.strerror or str(exc))


def write(home: Path, file: HomeFile) -> None:
    """Raises OSError."""
    path = PurePosixPath(file.path)
    directory = _open_directory(home, path.parent)
    try:
        beside = f"{path.name}.{secrets.token_hex(4)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(beside, flags, 0o600, dir_fd=directory)
        try:
            with os.fdopen(descriptor, "wb") as target:
                target.write(file.content)
            os.replace(beside, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(beside, dir_fd=directory)
            raise
    finally:
        os.close(directory)


def listed(home: Path | None) -> set[str]:
    """Paths of the configuration's files that were written last."""
    try:
        names = json.loads(_read(home / CONFIGURED)) if home is not None else []
    except (OSError, ValueError, RecursionError):
        return set()
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def list_of(files: Sequence[HomeFile]) -> HomeFile:
    """Written before the files: one that is half written is removed all the same."""
    return HomeFile(CONFIGURED, json.dumps([each.path for each in files]).encode())


def remove(home: Path | None, paths: Collection[str]) -> None:
    """Raises nothing: a file that cannot be removed stays. The list lies in the home, where programs write, too: what
    leads out of the home is left alone."""
    if home is None:
        return
    for path in map(PurePosixPath, paths):
        if path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
            continue
        with contextlib.suppress(OSError, ValueError):
            directory = _open_directory(home, path.parent)
            try:
                os.unlink(path.name, dir_fd=directory)
            finally:
                os.close(directory)


def _open_directory(home: Path, below: PurePosixPath) -> int:
    """A directory of the home, created if it is missing. Raises OSError, also for a link that leads out of the home."""
    top = _real(home)
    real = _real(top / below)
    if not real.is_relative_to(top):
        raise OSError(errno.ELOOP, "it is a link out of the home")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
    directory = os.open(top, flags)
    for part in real.relative_to(top).parts:  # one at a time: a link that has taken a directory's place is not followed
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=directory)
            inner = os.open(part, flags, dir_fd=directory)
        finally:
            os.close(directory)
        directory = inner
    return directory


def found(home: Path | None, patterns: Sequence[str]) -> Collection[str]:
    """The patterns that match a file below `home`."""
    return () if home is None else tuple(pattern for pattern in patterns if any(_fitting(home, pattern)))


def move(home: Path | None, wanted: HomeMove) -> None:
    """Raises nothing: a file that cannot be moved stays."""
    for path in sorted(_fitting(home, wanted.pattern)) if home is not None else ():
        named = path.with_name(wanted.name)
        if path != named and (free := _aside(path) if os.path.lexists(named) else named) is not None:
            with contextlib.suppress(OSError):
                path.rename(free)


def _aside(path: Path) -> Path | None:
    """A free name beside the file; None if too many files are aside."""
    names = (path.with_name(f"{path.name}.aside{number}") for number in ("", *range(2, MOST_ASIDE + 1)))
    return next((each for each in names if not os.path.lexists(each)), None)


def _fitting(home: Path, pattern: str) -> Iterator[Path]:
    *above, last = PurePosixPath(pattern).parts
    directories = [home]
    for part in above:
        if part == "*":
            directories = [path for directory in directories for path in _directories(directory)]
        else:
            directories = [directory / part for directory in directories]
    top = _real(home)
    for directory in directories:
        if _real(directory).is_relative_to(top):
            yield from _files(directory, last)


def _real(path: Path) -> Path:
    """The path without links; a link in a circle stays."""
    return Path(os.path.realpath(path))


def _directories(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            return [Path(entry.path) for entry in islice(entries, MAX_LOOKED_AT) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _files(directory: Path, name: str) -> list[Path]:
    """Plain files of this name. One `*` stands for any characters, at the beginning, the end or in between."""
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
