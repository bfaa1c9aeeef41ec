"""Replaces the two roots by a finished tree.

A sandbox's home holds the roots `workspace` and `agent`, and beside them, while a tree is being made,

    .staging-<name>/new/<root>    the future tree
    .staging-<name>/old/<root>    the former roots, once the new ones are in
    .swap                         the intent: from here on the swap will be done, whoever crashes
    .aside-<number>/<root>        old trees that were kept
    .trash                        old trees that are being removed

Each new root changes places with the old one, in one step if the file system can, else in two. A new root that is not
in place carries the sticky bit, which no kept mode has; so after a crash it can be told from the old one, under
either name. Before the intent is on the disk nothing has happened to the roots; after it, `recover_swap` goes on
where the swap stopped. So nobody who looks after that finds a new and an old root side by side.

A hostile program may have put anything at any of these names, and taken any right away: nothing here is followed, and
a name in the way is removed.
"""

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from sandbox.protocol.entry import ROOTS
from sandbox.system.kernel import exchange
from sandbox.system.safe_remove import emptying, remove_tree, throw_away
from sandbox.tree.builder import DIRECTORY, unlock

KEPT_ASIDE = 2
NEW, OLD = b"new", b"old"
TRASH = ".trash"
_INTENT, _DRAFT = ".swap", ".swap.new"
_STAGING = re.compile(r"\.staging-[0-9a-f]{32}")
_ASIDE = re.compile(r"\.aside-([0-9]+)")
_MOST_DIGITS = 100  # of an aside of ours; one more still makes a name
_WAITING = stat.S_ISVTX  # on a new root that is not in place yet
_NOT_OURS = (errno.ENOTDIR, errno.ELOOP, errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.EACCES, errno.EPERM)


def staging_name(token: str) -> str:
    return f".staging-{sha256(token.encode()).hexdigest()[:32]}"


def swap_in(home: Path, staging: str, *, aside: bool, tidy: bool = True) -> None:
    """Replace the roots of `home` by those under `staging`/new; both are there, finished and durable. The old ones
    are kept aside, or removed; empty ones are always removed, by `emptying_trash` later unless `tidy`. Returns when
    it is durable. Raises OSError; then the swap has not begun, or `recover_swap` completes it."""
    recover_swap(home)
    discard(home, f"{staging}/{os.fsdecode(OLD)}")
    with open_home(home) as at:
        with _open_in(at, staging) as within, _open_in(within, NEW) as new:
            for root in ROOTS:
                with _open_in(new, root) as fresh:
                    os.fchmod(fresh, 0o700 | _WAITING)
                    os.fsync(fresh)
            os.fsync(new)
        _write_intent(at, staging, aside=aside)
        try:
            _complete(home, at, staging, aside=aside)
        except OSError:
            with contextlib.suppress(OSError):
                _withdraw(at, staging)
            raise
    if tidy:
        with contextlib.suppress(OSError):  # the new tree is in place: remains of the old one are in nobody's way
            for _ in emptying_trash(home):
                pass


def recover_swap(home: Path) -> None:
    """Finish an interrupted swap; does nothing if there is none. Call it before anybody looks at the roots. If the
    staging makes an intent impossible, the intent is dropped. Raises OSError."""
    with open_home(home) as at:
        intent = _read_intent(at)
        if intent is not None:
            try:
                _complete(home, at, intent[0], aside=intent[1])
            except OSError as exc:
                if exc.errno not in _NOT_OURS:  # the disk is full, or broken: the next one may go on
                    raise
    for name in (_INTENT, _DRAFT):  # the one is not ours, or done with; the other never became one
        discard(home, name)


def begin_empty(home: Path) -> None:
    """Make both roots empty; the old content is kept aside. Raises OSError; then as after `swap_in`."""
    name = staging_name("")
    clear_stagings(home)
    for root in ROOTS:
        os.makedirs(home / name / os.fsdecode(NEW) / os.fsdecode(root), mode=0o700)
    swap_in(home, name, aside=True)


def clear_stagings(home: Path, keep: str | None = None) -> None:
    """Finish a swap that was interrupted, then remove every staging but `keep`. Raises OSError."""
    recover_swap(home)
    for name in os.listdir(home):
        if name.startswith(".staging-") and name != keep:
            discard(home, name)


def discard(home: Path, name: str) -> None:
    """Remove `name` of `home`, whatever it is and whoever made it; no error if it is missing. Raises OSError."""
    trash = _usable_trash(home)
    remove_tree(home / name, trash)
    with contextlib.suppress(OSError):
        os.rmdir(trash)


def emptying_trash(home: Path) -> Iterator[None]:
    """Remove the remains of a swap, in small steps. Every other removal here removes the trash as well, so others
    need not wait for it: in that case, or if nothing is there, it raises OSError."""
    yield from emptying(home / TRASH)
    os.rmdir(home / TRASH)


def _usable_trash(home: Path) -> Path:
    trash = home / TRASH
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(trash).st_mode):
            os.chmod(trash, 0o700)
        else:
            os.unlink(trash)
    return trash


# The swap itself


def _complete(home: Path, at: int, staging: str, *, aside: bool) -> None:
    """Every step may have been done already, also in part."""
    if _is_directory(at, staging):
        with _open_in(at, staging) as within:
            _place_roots(at, within)
            if aside and _is_worth_keeping(within):
                os.rename(OLD, _next_aside(at), src_dir_fd=within, dst_dir_fd=at)
        _throw_away(home, staging)
    for name in sorted(_asides(at), key=_number)[:-KEPT_ASIDE]:
        _throw_away(home, name)
    os.unlink(_INTENT, dir_fd=at)
    os.fsync(at)


def _place_roots(home: int, staging: int) -> None:
    if not _is_directory(staging, NEW):
        return
    with contextlib.suppress(FileExistsError):
        os.mkdir(OLD, 0o700, dir_fd=staging)
    with _open_in(staging, NEW) as new, _open_in(staging, OLD) as old:
        for root in ROOTS:
            _place(root, home, new, old)
        os.fsync(old)
        os.fsync(new)
    os.fsync(home)


def _withdraw(home: int, staging: str) -> None:
    """After a failure: drop the intent, unless something was moved already. Then it is for `recover_swap` to go on."""
    with _open_in(home, staging) as within, _open_in(within, NEW) as new, _open_in(within, OLD) as old:
        if all(_waits(root, new) for root in ROOTS) and not os.listdir(old):
            os.unlink(_INTENT, dir_fd=home)


def _place(root: bytes, home: int, new: int, old: int) -> None:
    if _waits(root, new):
        _unlock(root, home)  # without rights it could not be moved; and an old root must not seem to wait
        if not _exchange(root, home, new):
            _put_away(root, home, old)
            os.rename(root, root, src_dir_fd=new, dst_dir_fd=home)
    _put_away(root, new, old)
    _unlock(root, home)


def _waits(root: bytes, new: int) -> bool:
    try:
        found = os.stat(root, dir_fd=new, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found) and bool(found & _WAITING)


def _exchange(root: bytes, home: int, new: int) -> bool:
    try:
        return exchange(new, root, home, root)
    except FileNotFoundError:
        return False  # no old root is there


def _put_away(root: bytes, source: int, old: int) -> None:
    """Move an unwanted root to the old ones; no error if it is missing."""
    name, taken = root, set(map(os.fsencode, os.listdir(old)))
    # After a crash between the two steps somebody may have made the missing root anew: it is one more old one.
    while name in taken:
        name += b".more"
    with contextlib.suppress(FileNotFoundError):
        os.rename(root, name, src_dir_fd=source, dst_dir_fd=old)


def _unlock(root: bytes, directory: int) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        unlock(root, directory)


def _is_directory(directory: int, name: str | bytes) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _is_worth_keeping(staging: int) -> bool:
    """Whether anything but empty directories was in the place of the roots."""
    if not _is_directory(staging, OLD):
        return False
    with _open_in(staging, OLD) as old:
        for name in os.listdir(old):
            if not _is_directory(old, name):
                return True
            with _open_in(old, name) as root, os.scandir(root) as found:
                if next(found, None) is not None:
                    return True
    return False


def _asides(home: int) -> list[str]:
    return [name for name in os.listdir(home) if _ASIDE.fullmatch(name)]


def _number(aside: str) -> int:
    """Newer ones have larger numbers. A name without a proper number is older than all."""
    digits = aside.removeprefix(".aside-")
    return int(digits) if len(digits) <= _MOST_DIGITS else 0


def _next_aside(home: int) -> str:
    taken = _asides(home)
    number = max(map(_number, taken), default=0) + 1
    while (name := f".aside-{number}") in taken:
        number += 1
    return name


def _throw_away(home: Path, name: str) -> None:
    """Of an old tree. The new one is in place: remains are in nobody's way."""
    with contextlib.suppress(OSError):
        throw_away(home / name, _usable_trash(home))


# The intent


def _write_intent(home: int, staging: str, *, aside: bool) -> None:
    fd = os.open(_DRAFT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=home)
    try:
        os.write(fd, json.dumps({"staging": staging, "aside": aside}).encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(_DRAFT, _INTENT, src_dir_fd=home, dst_dir_fd=home)
    os.fsync(home)


def _read_intent(home: int) -> tuple[str, bool] | None:
    """The staging and whether to keep the old tree; None if there is no intent of ours."""
    try:
        fd = os.open(_INTENT, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=home)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.EACCES):
            return None
        raise
    try:
        members = json.loads(os.read(fd, 4096)) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    except (ValueError, RecursionError):
        return None
    finally:
        os.close(fd)
    if not isinstance(members, dict):
        return None
    staging, aside = members.get("staging"), members.get("aside")
    if not isinstance(staging, str) or not _STAGING.fullmatch(staging) or not isinstance(aside, bool):
        return None
    return staging, aside


# Descriptors


@contextlib.contextmanager
def open_home(home: Path) -> Iterator[int]:
    """The home, as a directory we have every right in if it is ours. Raises OSError."""
    with contextlib.suppress(OSError):  # if it is not ours to change, it has to do as it is
        if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
            os.chmod(home, 0o700)
    fd = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _open_in(directory: int, name: str | bytes) -> Iterator[int]:
    """A directory of ours, with every right in it, whatever its mode was. Raises OSError."""
    with contextlib.suppress(OSError):
        unlock(os.fsencode(name), directory)
    fd = os.open(name, DIRECTORY, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)
