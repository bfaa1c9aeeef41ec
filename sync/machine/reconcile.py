"""What to do with the files that a sandbox finds on its disk when it starts. Pure.

The owner knows whether the sandbox's last end was *clean*: a sleep or a pause ends every program, syncs, and only then
stops it. So after a clean end the disk must equal the newest generation. If a walk finds a difference, something else
has changed the disk, or it is another disk: the store is right, and the files found are kept aside.

After any other end the disk is newer than the store: it has what was written since the last sync. It stays, and
becomes the next generation. The exception is a disk that is empty, or has lost most of its files: it was lost rather
than worked on, so the store is right again.

What never happens: a file that was found is thrown away; a tree is restored although no generation was ever stored; a
disk that is not known to equal the newest generation is kept without being synced.
"""

from dataclasses import dataclass
from enum import StrEnum

from sandbox.protocol.tree import Survey


class Decision(StrEnum):
    KEEP = "keep"  # as it is: nothing to restore, nothing to sync
    KEEP_AND_SYNC = "keep_and_sync"  # it is newer than what is stored
    RESTORE = "restore"  # there is nothing on the disk
    RESTORE_ASIDE = "restore_aside"  # what is on the disk is kept beside it


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest generation stored. `files` are its regular files and symlinks, as a survey counts them."""

    token: str
    files: int

    def is_noted_in(self, survey: Survey) -> bool:
        """Whether what lies on the disk was put there as this generation, or kept as it, and is unchanged."""
        return survey.known == self.token and survey.changed == 0


def decide(survey: Survey, newest: Newest | None, clean: bool) -> Decision:
    """What to do with what `survey` found; `clean` if the sandbox ended by a sleep or a pause."""
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
    """Whether a tree that had `before` files and has `after` now has lost more than half of them."""
    return after * 2 < before
