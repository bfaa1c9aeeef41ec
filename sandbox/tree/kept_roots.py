"""The two roots as directories that can be used, before anything mounts them, looks at them or runs in them."""

import contextlib
import itertools
import os
import stat
from pathlib import Path

ROOTS = ("workspace", "agent")


def make_roots(kept: Path) -> None:
    """Both roots are there, as directories that can be used, whatever a program inside has done to them; what else
    lies in their place is moved aside. A restore that was cut short is finished first."""
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept.chmod(0o700)
    if any(name not in ROOTS and not name.startswith(".aside-") for name in os.listdir(kept)):
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
