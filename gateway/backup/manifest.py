"""The description of a backup, in its file `holdfast-backup.json`. Pure.

The file gets its name last: a directory without it is no backup, or one that was cut off. It has the number of the
backup's files and bytes, so that an incomplete copy of it is noticed.
"""

import json
from dataclasses import asdict, dataclass

NAME = "holdfast-backup.json"
UNFINISHED = NAME + ".unfinished"
DATA = "data"  # beside it: a data directory
FORMAT = 2  # 1 counted those symlinks too that led to no directory on the machine where it was taken


class BadBackup(Exception):
    """The backup cannot be restored; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class BackupManifest:
    version: str
    at: str
    store: str  # sqlite, postgresql or http
    objects: str  # file or s3
    sessions: int
    messages: int
    files: int
    bytes: int
    left_out: int
    format: int = FORMAT

    def is_whole(self, files: int, size: int, links: int) -> bool:
        """True if a copy with so many regular files, bytes in them and symlinks is complete."""
        if self.format == 1:
            return files <= self.files <= files + links
        return (files, size) == (self.files, self.bytes)


def encode(note: BackupManifest) -> str:
    return json.dumps(asdict(note), indent=2) + "\n"


def decode(text: str) -> BackupManifest:
    """Parse the file. Raises BadBackup."""
    try:
        members = json.loads(text)
        format = members["format"]
        if not isinstance(format, int) or format < 1:
            raise ValueError("format")
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadBackup(f"{NAME} cannot be read: take the backup from another copy") from None
    if format > FORMAT:
        told = f"the backup has format {format}, which is of a newer version: restore it with that one"
        raise BadBackup(f"{told} ({str(members.get('version'))[:40]})")
    try:
        note = BackupManifest(**members)
    except TypeError:
        raise BadBackup(f"{NAME} lacks something: take the backup from another copy") from None
    numbers = (note.sessions, note.messages, note.files, note.bytes, note.left_out)
    words = (note.version, note.at, note.store, note.objects)
    if not all(isinstance(each, int) for each in numbers) or not all(isinstance(each, str) for each in words):
        raise BadBackup(f"{NAME} cannot be read: take the backup from another copy")
    return note
