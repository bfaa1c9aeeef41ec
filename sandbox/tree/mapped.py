"""Which files are mapped by programs that may write to them.

Writing to a file through a mapping changes its times only now and then: the first write to a page does, and those that
follow do not until the page was written to the disk. So the stamp of such a file says nothing, for as long as it is
mapped. Files are told by their inodes alone, as some file systems give their files another device than the kernel lists
here; a doubt for nothing costs one reading.
"""

import os
import re
from typing import Final

MOST_BYTES: Final = 64 << 20  # of the lists of all programs together
_PIECE: Final = 64 << 10
_MAPPED: Final = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ .w.s [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ ([1-9][0-9]*) +"
    rb"(?!/memfd:|/dev/zero|/SYSV|/anon_hugepage|anon_inode:)",  # memory, which has numbers of its own
    re.MULTILINE,
)


def mapped_inodes() -> frozenset[int]:
    """The inodes of all files that programs we may look into, other than this one, share as writable memory."""
    found: set[int] = set()
    left, own = MOST_BYTES, str(os.getpid())
    for name in os.listdir("/proc"):
        if name.isdecimal() and name != own and left > 0:
            left -= _look_into(f"/proc/{name}/maps", left, found)
    return frozenset(found)


def _look_into(path: str, most: int, found: set[int]) -> int:
    """Add the inodes of one program; how much was read. A program that ends meanwhile has no more mappings."""
    count, rest = 0, b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        while count < most and (piece := os.read(fd, _PIECE)):  # the kernel gives a page or so at a time
            count += len(piece)
            whole, _, rest = (rest + piece).rpartition(b"\n")
            if b"w-s " in whole or b"wxs " in whole:  # hardly ever
                found.update(map(int, _MAPPED.findall(whole)))
    except OSError:
        pass
    finally:
        os.close(fd)
    return count
