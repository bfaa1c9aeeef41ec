"""The bridge's own memory of taken records: one small file, outside everything that snapshots keep.

The number is written before the agent gets the line, so a bridge killed in between never gives a line twice. The file
is not fsynced: a killed process loses nothing that it wrote, and after a reboot (another boot id) the notes count as
gone, which the gateway sees by the new taker id.
"""

import fcntl
import os
import re
import secrets
from pathlib import Path

_DIGITS = 16
_NOTE = re.compile(rb"([A-Za-z0-9_-]{12}) ([0-9a-f-]{1,64}) ([0-9]{16})\n")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class NotesInUse(Exception):
    """Another bridge runs on the same state directory."""


class TakenNotes:
    """The highest seq taken under the name `taker`. Monotonic; one bridge at a time."""

    def __init__(self, directory: Path, *, boot_id: str = "") -> None:
        """Without a `boot_id` the kernel is asked for it."""
        boot = (boot_id or _BOOT_ID.read_text().strip()).encode()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(directory / "taken", flags, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise NotesInUse(str(directory)) from None
        known = _NOTE.fullmatch(os.pread(self._fd, 256, 0))
        if known and known[2] == boot:
            self.taker, self.taken = known[1].decode(), int(known[3])
        else:
            self.taker, self.taken = secrets.token_urlsafe(9), 0
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, b"%b %b %016d\n" % (self.taker.encode(), boot, 0), 0)
        self._place = len(self.taker) + 1 + len(boot) + 1

    def take(self, seq: int) -> None:
        """Note that everything up to `seq` is taken."""
        os.pwrite(self._fd, b"%016d" % seq, self._place)
        self.taken = seq

    def close(self) -> None:
        os.close(self._fd)
