"""What a backup says about itself, in `holdfast-backup.json`. Pure.

The file gets its name last: a directory without it is no backup, or one that was cut off. It says how many files and
bytes the backup has, so that a copy of it that lacks some is known.
"""

import json
from dataclasses import asdict, dataclass

NAME = "holdfast-backup.json"
UNFINISHED = NAME + ".unfinished"
DATA = "data"  # beside it: a data directory
FORMAT = 2  # 1 counted those symlinks too that led to no directory on the machine where it was taken


class BadBackup(Exception):
    """It cannot be restored; the text says why and what to do."""


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
        """Whether a copy with so many regular files, bytes in them and symlinks has all that was counted."""
        if self.format == 1:
            return files <= self.files <= files + links
        return (files, size) == (self.files, self.bytes)


def encode(note: BackupManifest) -> str:
    return json.dumps(asdict(note), indent=2) + "\n"


def decode(text: str) -> BackupManifest:
    """Raises BadBackup."""
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
