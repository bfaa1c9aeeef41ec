"""What to do with the files that a starting sandbox finds on its disk. Pure.

The owner knows whether the sandbox's last end was *clean*: a sleep or a pause ends every program, syncs, and only
then stops it. So after a clean end the disk must equal the newest generation. If a walk finds a difference, something
else has changed the disk, or it is another disk: the store is right, and the files on the disk are moved aside.

After any other end the disk is newer than the store: it has everything written since the last sync. It stays, and
becomes the next generation. The exception is a disk that is empty, or has lost most of its files: such a disk was
lost, so the store is right again.

What never happens: a found file is thrown away; a tree is restored although no generation was ever stored; a disk
that may differ from the newest generation is kept without a sync.
"""

from dataclasses import dataclass
from enum import StrEnum

from sandbox.protocol.tree import Survey


class Decision(StrEnum):
    KEEP = "keep"  # as it is: nothing to restore, nothing to sync
    KEEP_AND_SYNC = "keep_and_sync"  # it is newer than what is stored
    RESTORE = "restore"  # there is nothing on the disk
    RESTORE_ASIDE = "restore_aside"  # restore; the files on the disk stay beside it


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest generation stored. `files` are its regular files and symlinks, as a survey counts them."""

    token: str
    files: int

    def is_noted_in(self, survey: Survey) -> bool:
        """Whether the disk's files were put there as this generation, or kept as it, and are unchanged."""
        return survey.known == self.token and survey.changed == 0


def decide(survey: Survey, newest: Newest | None, clean: bool) -> Decision:
    """What to do with the result of `survey`. `clean`: the sandbox ended by a sleep or a pause."""
    if newest is None:
        return Decision.KEEP_AND_SYNC if survey.files else Decision.KEEP
    unchanged = newest.is_noted_in(survey)
    if clean and unchanged:
        return Decision.KEEP
    lost = lost_most(newest.files, survey.files) or (survey.files == 0 and not unchanged)
    if not clean and not lost:
        return Decision.KEEP_AND_SYNC
    return Decision.RESTORE_ASIDE if survey.files else Decision.RESTORE


def lost_most(before: int, after: int) -> bool:
    """Whether a tree that had `before` files and has `after` files now has lost more than half of them."""
    return after * 2 < before
