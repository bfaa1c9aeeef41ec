"""What a walk knows of an entry without reading it, and when that can be trusted. Pure.

A stamp is (mode, size, mtime, ctime, inode), times in nanoseconds, the mode with its file type. Every change of a
file changes its ctime, which no program can set. So equal stamps mean an equal entry, with one exception: a clock has
grains, and a file changed twice in one grain has the same times after both. So an entry that was younger than
YOUNG_NS when it was read carries a doubt, a sixth number. Such a stamp equals none that a walk finds, and the entry
is read again. The same holds for a file that a program had mapped when it was read, whatever its age.
"""

from collections.abc import Callable
from operator import attrgetter
from os import stat_result
from typing import Final

from sandbox.protocol.entry import MAX_MTIME_NS

Stamp = tuple[int, ...]

MODE, SIZE, MTIME, CTIME, INODE, DOUBT = range(6)
YOUNG: Final = 1  # it may have changed since, in the same grain
UNSETTLED: Final = 2  # it changed while it was read
MAPPED: Final = 3  # it may change without a trace, see sandbox/system/mapped_files.py
YOUNG_NS: Final = 2_000_000_000
ANY_INODE: Final = -1  # in a stamp from a start with other inode numbers
GRAIN_NS: Final = 100_000_000  # longer than a grain of any clock that shows fractions of a second

stamp_of: Callable[[stat_result], Stamp] = attrgetter("st_mode", "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino")


def read_at(stamp: Stamp, now_ns: int) -> Stamp:
    """The stamp to keep of a file or symlink with `stamp` whose content was read at `now_ns` or later."""
    if stamp[CTIME] > now_ns - YOUNG_NS or abs(stamp[MTIME] - now_ns) < YOUNG_NS:
        return doubted(stamp, YOUNG)
    return possible(stamp)


def written_at(stamp: Stamp, now_ns: int) -> Stamp:
    """The stamp to keep of an entry that only we have written, and that had `stamp` at `now_ns`."""
    grain = GRAIN_NS if stamp[CTIME] % 1_000_000_000 else YOUNG_NS
    return doubted(stamp, YOUNG) if stamp[CTIME] > now_ns - grain else possible(stamp)


def renumbered(stamp: Stamp) -> Stamp:
    """A kept stamp, where files may have another number now."""
    return (*stamp[:INODE], ANY_INODE, *stamp[DOUBT:])


def doubted(stamp: Stamp, doubt: int) -> Stamp:
    return (stamp[MODE], stamp[SIZE], kept_mtime(stamp[MTIME]), stamp[CTIME], stamp[INODE], doubt)


def possible(stamp: Stamp) -> Stamp:
    """`stamp`, doubted if it holds a time that cannot be kept."""
    return stamp if abs(stamp[MTIME]) <= MAX_MTIME_NS else doubted(stamp, YOUNG)


def kept_mtime(mtime_ns: int) -> int:
    """The nearest time that an entry may have; some file systems know times billions of years away."""
    return max(-MAX_MTIME_NS, min(mtime_ns, MAX_MTIME_NS))


def as_kept(kept: Stamp, stamp: Stamp) -> bool:
    """Whether a walk that found `stamp` may take the entry for unchanged."""
    numbers = stamp[CTIME:INODE] + (kept[INODE:DOUBT] if kept[INODE] == ANY_INODE else stamp[INODE:])
    is_equal = kept[:DOUBT] == (*stamp[:MTIME], kept_mtime(stamp[MTIME]), *numbers)
    return is_equal and kept[DOUBT:] in ((), (YOUNG,))
