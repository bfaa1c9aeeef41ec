"""Finds files that programs have mapped for writing.

A write through a mapping changes the file's times only now and then: the first write to a page does, and later ones
do not until the page was written to the disk. So the timestamp of such a file means nothing while it is mapped. Files
are identified by their inodes, and by the device that the kernel lists here for the files of the tree. Some file
systems list another device for their files, so it is found by mapping a file. If that fails, or something else is
mounted within the tree, any device counts; a false suspicion costs one reading.

The mappings of a program that may not be inspected (it is another user's, or closes its memory) are unknown. But its
first write to a page did change the times of the file, and did so after the program was started: so each file that
has changed since then is in doubt. File systems in memory do not note even that first write; there, writes of such a
program through a mapping may be missed.

A program's list is text of some tens of kilobytes, and hardly any program shares writable memory with a file. So the
kernel is asked for that first, if it can answer (Linux 6.11 and later).
"""

import errno
import fcntl
import mmap
import os
import re
import struct
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.system.child import descendants, start_ticks

MOST_BYTES: Final = 64 << 20  # of the lists of all programs together
_PIECE: Final = 64 << 10
_MARGIN_NS: Final = 60_000_000_000  # the clock may have been set by so much since a program was started
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
# linux/fs.h: struct procmap_query and PROCMAP_QUERY. The first mapping from address 0 on that is all of this is found.
_QUERY: Final = struct.Struct("=9Q4I2Q")
_WRITABLE, _SHARED, _OR_NEXT, _FILE_BACKED = 0x2, 0x8, 0x10, 0x20
_FIRST: Final = _QUERY.pack(_QUERY.size, _WRITABLE | _SHARED | _OR_NEXT | _FILE_BACKED, *[0] * 13)
_PROCMAP_QUERY: Final = 3 << 30 | _QUERY.size << 16 | ord("f") << 8 | 17  # _IOWR
_MAPPED: Final = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ .w.s [0-9a-f]+ ([0-9a-f]+:[0-9a-f]+) ([1-9][0-9]*) +"
    rb"(?!/memfd:|/dev/zero|/SYSV|/anon_hugepage|anon_inode:)",  # memory, which has numbers of its own
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class MappedFile:
    inodes: frozenset[int] = frozenset()  # of files that programs share as writable memory
    doubt_since_ns: float = float("inf")  # a file that has changed since may be such a file, too


NOTHING: Final = MappedFile()


def find_mapped(home: Path) -> MappedFile:
    """The mappings that other programs have of the tree below `home`. Of those that may not be inspected, only
    descendants of this process count: others have no business in the tree."""
    device = _device_of(home)
    found: set[int] = set()
    closed: list[int] = []
    left, own = MOST_BYTES, str(os.getpid())
    for name in os.listdir("/proc"):
        if name.isdecimal() and name != own and left > 0:
            try:
                left -= _look_into(f"/proc/{name}/maps", left, device, found)
            except PermissionError:
                closed.append(int(name))
    return MappedFile(frozenset(found), _started_ns(closed))


def _look_into(path: str, most: int, device: bytes | None, found: set[int]) -> int:
    """Add the inodes of one program; returns how much was read. A program that ends meanwhile has no more mappings.
    Raises PermissionError."""
    count, rest = 0, b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        raise
    except OSError:
        return 0
    try:
        if _shares_nothing(fd):
            return 0
        while count < most and (piece := os.read(fd, _PIECE)):  # the kernel gives a page or so at a time
            count += len(piece)
            whole, _, rest = (rest + piece).rpartition(b"\n")
            if b"w-s " in whole or b"wxs " in whole:  # hardly ever
                found.update(int(inode) for on, inode in _MAPPED.findall(whole) if device in (None, on))
    except PermissionError:
        raise
    except OSError:
        pass
    finally:
        os.close(fd)
    return count


def _shares_nothing(maps: int) -> bool:
    """Whether the kernel knows that this program has no file as writable, shared memory."""
    try:
        fcntl.ioctl(maps, _PROCMAP_QUERY, _FIRST)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ESRCH)  # no such mapping, or no memory at all
    return False


def _started_ns(closed: Collection[int]) -> float:
    """When the first of those programs that are below this one was started, at the latest."""
    if not closed:
        return NOTHING.doubt_since_ns
    booted_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    ticks = [start_ticks(pid) for pid in set(closed).intersection(descendants())]
    return min((booted_ns + each * _TICK_NS - _MARGIN_NS for each in ticks if each is not None), default=float("inf"))


def _device_of(home: Path) -> bytes | None:
    """The device that the kernel lists for mapped files below `home`; None if there may be several."""
    try:
        inside = os.fsencode(home.resolve()).rstrip(b"/") + b"/"
        if any(_unescaped(line.split()[4]).startswith(inside) for line in _lines("/proc/self/mountinfo")):
            return None
        fd = os.open(home, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, 1)
            with mmap.mmap(fd, 1):
                lines, inode = _lines("/proc/self/maps"), os.fstat(fd).st_ino
        finally:
            os.close(fd)
    except (OSError, IndexError):
        return None
    devices = {found[1] for line in lines if (found := _MAPPED.match(line)) and int(found[2]) == inode}
    return devices.pop() if len(devices) == 1 else None


def _lines(path: str) -> list[bytes]:
    return Path(path).read_bytes().splitlines()


def _unescaped(path: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), path)
