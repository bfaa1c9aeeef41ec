"""Makes the two roots usable directories, before anything mounts them, looks at them or runs in them.

`python -P -s -m sandbox.tree.kept_roots DIRECTORY` makes them; the remains of a program may take any time.
"""

import contextlib
import itertools
import os
import stat
import sys
from pathlib import Path

ROOTS = ("workspace", "agent")
MOST_NAMES = 64


def is_plain(kept: Path) -> bool:
    """Whether `kept` has few names, only roots and trees kept aside: then the roots are made at once."""
    with os.scandir(kept) as found:
        names = [entry.name for entry in itertools.islice(found, MOST_NAMES + 1)]
    return len(names) <= MOST_NAMES and not any(map(_is_odd, names))


def make_roots(kept: Path) -> None:
    """Make both roots usable directories, whatever a program inside has done to them; anything else in their place is
    moved aside. First finishes a restore that was cut short."""
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept.chmod(0o700)
    if any(map(_is_odd, os.listdir(kept))):
        from sandbox.tree.staging import recover_swap  # rarely needed, and slow to load

        recover_swap(kept)
    for root in ROOTS:
        path = kept / root
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(path.lstat().st_mode):
                names = (f".aside-{root}-{number}" for number in itertools.count(1))
                path.rename(kept / next(name for name in names if not os.path.lexists(kept / name)))
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(path.stat().st_mode & 0o777 | 0o700)


def _is_odd(name: str) -> bool:
    return name not in ROOTS and not name.startswith(".aside-")


if __name__ == "__main__":
    make_roots(Path(sys.argv[1]))
