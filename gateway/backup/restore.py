"""Restores a backup into a data directory that does not exist or is empty, and nowhere else.

While it runs, and if it is cut off, the directory holds a mark, and no gateway starts on it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.backup import manifest
from gateway.backup.copy import Copier, measure
from gateway.config.data_dir import RESTORING, DataDirLock
from gateway.config.settings import Settings


class CannotRestore(Exception):
    """The backup cannot be restored; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class RestorePaths:
    """The target of each part."""

    data: Path
    database: Path
    objects: Path | None  # None: they are in a bucket


def read_note(directory: Path) -> manifest.BackupManifest:
    """The backup's own description. Raises BadBackup if the directory is no backup, or an incomplete one."""
    try:
        text = (directory / manifest.NAME).read_text()
    except (OSError, ValueError):
        if (directory / manifest.UNFINISHED).exists():
            raise manifest.BadBackup(f"{directory} holds a backup that was cut off: take another one") from None
        raise manifest.BadBackup(f"{directory} holds no backup: {manifest.NAME} is not there") from None
    found = manifest.decode(text)
    try:
        files, size, links = measure(directory / manifest.DATA)
    except OSError as error:
        raise manifest.BadBackup(f"{directory} cannot be read: {error}; nothing was written") from error
    if not found.is_whole(files, size, links):
        raise manifest.BadBackup(
            f"{directory} is not whole: it has {files:,} files of {size:,} bytes, and had {found.files:,} of "
            f"{found.bytes:,}; take it from another copy"
        )
    return found


def places(settings: Settings, found: manifest.BackupManifest) -> RestorePaths:
    """The targets. Raises CannotRestore if the settings are for another kind of gateway than the backup's."""
    if settings.store.kind != found.store:
        raise CannotRestore(
            f"the backup is of a gateway with a {found.store} store: set HOLDFAST_STORE to such a store"
        )
    if settings.objects.kind != found.objects:
        raise CannotRestore(f"the backup is of a gateway with {found.objects}:// objects: set HOLDFAST_OBJECTS to that")
    database = settings.store.path if found.store == "sqlite" else settings.data_dir / "holdfast.db"
    return RestorePaths(settings.data_dir, database, settings.objects.path if found.objects == "file" else None)


def put_back(directory: Path, where: RestorePaths, told: Callable[[str, int], None]) -> Copier:
    """Restore a backup. Raises CannotRestore, DataDirBusy, SettingsError; OSError only before anything is written."""
    check_empty(where)
    what = ""
    copier = Copier(lambda done: told(what, done))
    source = directory / manifest.DATA
    with DataDirLock(where.data):
        mark = where.data / RESTORING
        mark.touch(0o600)
        written = [where.data]
        try:
            what = "conversations"
            for name, target in (("holdfast.db", where.database), ("spool.db", where.data / "spool.db")):
                if copier.file(source / name, target):
                    written.append(target)
            what = "snapshots"
            if where.objects is not None:
                written.append(where.objects)
                copier.tree(source / "objects", where.objects)
            what = "disks"
            for name in ("secrets", "sandboxes"):
                copier.tree(source / name, where.data / name)
        except OSError as error:
            remove = " and ".join(str(each) for each in written if where.data not in each.parents)
            failed = f"the restore was not finished: {error}. It wrote to {remove}"
            raise CannotRestore(f"{failed}: remove that, and run it again") from error
        os.sync()
        mark.unlink()
    return copier


NOBODYS = ("lock", "holdfast.db.lock", "lost+found", "agents")  # entries that are in no backup


def check_empty(where: RestorePaths) -> None:
    if os.path.lexists(where.data / RESTORING):
        raise CannotRestore(f"a restore into {where.data} was cut off: empty the directory and restore again")
    for place in (where.data, where.objects):
        if place is not None and os.path.lexists(place) and _holds_something(place):
            raise CannotRestore(
                f"{place} is not empty: nothing is ever restored over it. Move it away, or name a new data directory "
                "with --into"
            )
    if os.path.lexists(where.database):
        raise CannotRestore(f"{where.database} exists: nothing is ever restored over it. Move it away")


def _holds_something(place: Path) -> bool:
    return not place.is_dir() or any(each.name not in NOBODYS for each in place.iterdir())
