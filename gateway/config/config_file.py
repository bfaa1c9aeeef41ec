"""The file of settings beside the environment: the one that HOLDFAST_CONFIG names, else ./holdfast.toml.

It names the programs to run, so no other user may be able to write it; and it may hold secrets, which no other user may
read.
"""

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from gateway.config.settings import CONFIG, SettingsError
from gateway.config.sources import ConfigFile, shown_path

USUAL = Path("holdfast.toml")
MOST_BYTES = 256 << 10
_NO_FILE = f"is no regular file: name one with {CONFIG}"
_NOTHING = Path(os.devnull)  # to use no file


def read_config(environ: Mapping[str, str]) -> ConfigFile | None:
    """None if there is no file. Raises SettingsError, with one sentence, if there is one that cannot be used."""
    named = environ.get(CONFIG, "")
    path = Path(named) if named else USUAL
    if path == _NOTHING or (not named and not os.path.lexists(path)):
        return None
    try:
        data, status = _read(path)
    except OSError as exc:
        raise SettingsError([_unreadable(path, exc)]) from exc
    if problem := _problem(path, status, found=not named):
        raise SettingsError([problem])
    from gateway.config.toml_settings import read_toml, secrets_in  # here, because few machines have a file to read

    file = read_toml(data, path)
    secrets = secrets_in(file)
    if secrets and _is_readable_by_others(status):
        shown = shown_path(path)
        raise SettingsError([f"{shown} holds {', '.join(secrets)}, and others may read it: chmod 600 {shown}"])
    return file


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    """Never waits: a FIFO is opened and refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b"", status
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(MOST_BYTES + 1), status
    finally:
        os.close(descriptor)


def _unreadable(path: Path, error: OSError) -> str:
    shown = shown_path(path)
    if error.errno == errno.ENOENT and path.is_symlink():
        return f"{shown} is a link to a file that is not there: make that file, or remove the link"
    match error.errno:
        case errno.ENOENT:
            return f"{CONFIG}: there is no file {shown}"
        case errno.ELOOP:
            return f"{shown} is a link that leads back to itself: remove it, or name another with {CONFIG}"
        case errno.ENXIO:  # a socket
            return f"{shown} {_NO_FILE}"
        case errno.EACCES | errno.EPERM:
            return f"{shown} cannot be read: {error.strerror}; change its permissions, or name another with {CONFIG}"
    return f"{shown} cannot be read: {error.strerror}; name another with {CONFIG}"


def _problem(path: Path, status: os.stat_result, *, found: bool) -> str | None:
    shown = shown_path(path)
    if stat.S_ISDIR(status.st_mode):
        return f"{shown} is a directory: name the file in it with {CONFIG}"
    if not stat.S_ISREG(status.st_mode):
        return f"{shown} {_NO_FILE}"
    if status.st_size > MOST_BYTES:
        return f"{shown} is larger than {MOST_BYTES >> 10} KiB: it is no file of settings; name one with {CONFIG}"
    if status.st_mode & stat.S_IWOTH:
        return f"{shown} says which programs run, and all users may write it: chmod o-w {shown}"
    if found and status.st_uid not in (os.geteuid(), 0):
        return f"{shown} belongs to another user: to use it anyway, set {CONFIG}={shown}"
    return None


def _is_readable_by_others(status: os.stat_result) -> bool:
    """A file of root's with our group is readable by that group: engines give such files to containers."""
    others = stat.S_IRWXO if status.st_uid != os.geteuid() else stat.S_IRWXO | stat.S_IRWXG
    return bool(status.st_mode & others)
