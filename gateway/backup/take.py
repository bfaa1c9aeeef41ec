"""Takes a backup of a gateway that may be running.

The order makes the backup consistent although the gateway goes on writing:

    databases    as of one moment: every message that was acknowledged before is in them
    pointers     after the databases: a session that has a generation there has at least that one here
    the rest     manifests and packs, after the pointers that name them. They are never changed, and no object that
                 was named is removed before a grace (HOLDFAST_SNAPSHOT_GRACE) has passed
    disks        the files in sandboxes now, which are not in any snapshot yet

A session that is deleted between the databases and the pointers is in the one and not in the other, or has an older
generation there if it was created again: then both are copied again. A session with a snapshot gets that back when it
wakes; its disk, which programs change while it is read, is put beside as an `.aside-<n>` tree, and left out where it
holds nothing else. A session without one keeps its disk.
"""

import asyncio
import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from gateway.backup import databases, manifest
from gateway.backup.copy import Copier, measure
from gateway.backup.databases import Known
from gateway.config.settings import VAULT_KEY, VAULT_KEY_OLD, Settings
from gateway.config.version import version
from sync.errors import Damaged
from sync.format import pointer as pointers
from sync.format.keys import ROOT, Keys
from sync.objects.files import FileObjects
from sync.snapshots.presence import Kept, look

ROUNDS = 5
ROOTS = ("workspace", "agent")
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_ASIDE = re.compile(r"\.aside-([0-9]{1,9})")


class CannotBackUp(Exception):
    """The backup cannot be taken; the text says why and what to do."""


class Backup:
    """One run. `told` is called with the present step and the number of bytes done. Raises CannotBackUp,
    DamagedDatabase, sqlite3.Error and OSError: then the directory has no note, and is no backup."""

    def __init__(self, settings: Settings, directory: Path, told: Callable[[str, int], None]) -> None:
        self._settings = settings
        self._directory = directory
        self._data = directory / manifest.DATA
        self._told = told
        self._what = ""
        self._copier = Copier(lambda done: told(self._what, done), changes=True)
        self._known: dict[str, Known] = {}
        self._pointed: dict[str, Keys] = {}  # sessions whose pointer is in the copy
        self.warnings: list[str] = []

    @property
    def left_out(self) -> list[str]:
        return self._copier.left_out_names

    def take(self) -> manifest.BackupManifest:
        check_place(self._settings, self._directory)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = self._directory / manifest.UNFINISHED
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        began = datetime.now(UTC).isoformat(timespec="seconds")
        self._data.mkdir(mode=0o700)
        self._take_secrets()
        self._take_databases_and_pointers()
        self._take_vault_key_again()
        self._take_content()
        self._take_disks()
        self._what = "checking"
        asyncio.run(self._check())
        return self._finish(unfinished, began)

    def _take_secrets(self) -> None:
        """Secrets are the operator's, not a sandbox's: links are followed, and none is left out."""
        self._what = "secrets"
        secrets, target = self._settings.data_dir / "secrets", self._data / "secrets"
        if not os.path.lexists(secrets):
            return
        try:
            lie = secrets.resolve(strict=True)
            links = {each.name: each.resolve(strict=True) for each in lie.iterdir() if each.is_symlink()}
            for name, leads_to in links.items():
                if not leads_to.is_dir():
                    self._copier.file(leads_to, target / name)
            self._copier.tree(lie, target, lambda name: name not in links)
            if self.left_out:
                raise OSError(self.left_out[0])
        except OSError as error:
            raise CannotBackUp(f"{secrets} cannot be copied: {error}. Fix that, and take the backup again") from error

    def _take_vault_key_again(self) -> None:
        """The key may have been replaced since it was copied: then the databases have credentials that the new one has
        sealed, or still the old one. The backup gets both."""
        live, copied = self._settings.data_dir / "secrets" / VAULT_KEY, self._data / "secrets" / VAULT_KEY
        if not live.exists() or (copied.exists() and copied.read_bytes() == live.read_bytes()):
            return
        if copied.exists():
            copied.replace(copied.with_name(VAULT_KEY_OLD))
        self._copier.file(live.resolve(), copied)

    # -- databases and pointers ---------------------------------------------------------------------------------------

    def _take_databases_and_pointers(self) -> None:
        missing: set[str] = set()
        for _ in range(ROUNDS):
            self._take_databases()
            self._take_pointers()
            before, missing = missing, {each.session_id for each in self._known.values() if self._lacks_pointer(each)}
            if missing <= before:  # missing for good: the check reports them
                return
            for path in (self._data / "holdfast.db", self._data / "spool.db", self._objects):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        raise CannotBackUp("sessions are deleted faster than they can be copied: try again")

    def _take_databases(self) -> None:
        self._what = "conversations"
        settings = self._settings
        if settings.store.kind == "sqlite":
            databases.copy_database(settings.store.path, self._database, lambda done, of: self._told(self._what, done))
        if settings.spool_path.exists():
            databases.copy_database(
                settings.spool_path, self._data / "spool.db", lambda done, of: self._told(self._what, done)
            )
        self._known = {each.session_id: each for each in databases.known_sessions(self._database)}

    @property
    def _database(self) -> Path:
        """The copy that lists the sessions; it does not exist if Postgres has them."""
        return self._data / ("spool.db" if self._settings.store.kind == "http" else "holdfast.db")

    @property
    def _objects(self) -> Path:
        return self._data / "objects"

    def _take_pointers(self) -> None:
        self._what = "pointers"
        self._pointed = {}
        for user in self._users():
            target = self._objects / ROOT / user.name / "sessions"
            self._copier.tree(user / "sessions", target)
            if target.is_dir():
                keys = Keys(f"{ROOT}{user.name}/")
                self._pointed |= {each.name: keys for each in target.iterdir() if (each / "pointer").exists()}

    def _users(self) -> list[Path]:
        if self._settings.objects.kind != "file":
            return []
        root = self._settings.objects.path / ROOT
        return sorted(each for each in root.iterdir() if each.is_dir()) if root.is_dir() else []

    def _lacks_pointer(self, session: Known) -> bool:
        """True also if its pointer is older than the database: then the session was deleted, and created again."""
        if not session.generation or self._settings.objects.kind != "file":
            return False
        try:
            content = (self._objects / Keys.of_user(session.user_id).pointer(session.session_id)).read_bytes()
            return pointers.decode(session.session_id, content).newest.number < session.generation
        except FileNotFoundError:
            return True
        except Damaged:  # the check reports it
            return False

    # -- content and disks --------------------------------------------------------------------------------------------

    def _take_content(self) -> None:
        self._what = "snapshots"
        for kind in ("manifests", "packs"):
            for user in self._users():
                self._copier.tree(user / kind, self._objects / ROOT / user.name / kind)

    def _take_disks(self) -> None:
        self._what = "disks"
        sandboxes = self._settings.data_dir / "sandboxes"
        if not sandboxes.is_dir():
            return
        for home in sorted(sandboxes.iterdir()):
            if _SESSION.fullmatch(home.name) and not home.is_symlink() and home.is_dir():
                self._take_disk(home)

    def _take_disk(self, home: Path) -> None:
        known = self._known.get(home.name)
        in_bucket = self._settings.objects.kind != "file" and known is not None and known.generation > 0
        stored = home.name in self._pointed or in_bucket
        clean = stored and known is not None and known.clean
        kept, target = home / "kept", self._data / "sandboxes" / home.name / "kept"
        if clean and not any(_ASIDE.fullmatch(each) for each in _names(kept)):
            return  # its files are in the newest generation
        self._copier.tree(kept, target, lambda name: _ASIDE.fullmatch(name) is not None)
        if target.is_dir():
            target.chmod(0o700)  # whatever rights the sandbox gave its own
        if clean:
            return
        numbers = [int(found[1]) for each in _names(target) if (found := _ASIDE.fullmatch(each))]
        place = target / f".aside-{max(numbers, default=0) + 1}" if stored else target
        for root in ROOTS:
            lies = kept / root if os.path.lexists(kept / root) else home / root  # where an earlier version had it
            self._copier.tree(lies, place / root)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        """Every object that the copy refers to must be in it. An object that the gateway itself lacks is a warning, not
        a failure."""
        if self._settings.objects.kind != "file":
            return
        if self._settings.store.kind == "postgresql":  # it lists the sessions; only their pointers are here
            named = [Kept(session_id, keys, 0) for session_id, keys in self._pointed.items()]
        else:
            named = list(databases.kept(iter(sorted(self._known.values(), key=lambda each: each.user_id))))
        if not named:
            return
        async with FileObjects(self._objects) as copy, FileObjects(self._settings.objects.path) as live:
            lacking = [(kept, told) async for kept, told in look(copy, named) if told is not None]
            async for kept, told in look(live, [kept for kept, _ in lacking]):
                if told is None:
                    raise CannotBackUp(
                        f"objects of session {kept.session_id} were garbage-collected while the backup ran: take the "
                        "backup again, to a faster disk, or raise HOLDFAST_SNAPSHOT_GRACE"
                    )
                self.warnings.append(f"session {kept.session_id} is not whole in the gateway either: {told}")

    def _finish(self, unfinished: Path, began: str) -> manifest.BackupManifest:
        sessions, messages = databases.count(self._database)
        files, size, _ = measure(self._data)
        settings, left_out = self._settings, self._copier.left_out
        taken = manifest.BackupManifest(
            version(), began, settings.store.kind, settings.objects.kind, sessions, messages, files, size, left_out
        )
        os.sync()  # before the note says that it is all there
        with unfinished.open("w") as file:
            file.write(manifest.encode(taken))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self._directory / manifest.NAME)
        os.sync()
        return taken


def check_place(settings: Settings, directory: Path) -> None:
    """Raises CannotBackUp if there is nothing to back up, or no place to put it."""
    if settings.store.kind == "sqlite" and not settings.store.path.is_file():
        raise CannotBackUp(f"there is no database {settings.store.path}: check HOLDFAST_DATA_DIR and HOLDFAST_STORE")
    if not settings.data_dir.is_dir():
        raise CannotBackUp(f"there is no data directory {settings.data_dir}: check HOLDFAST_DATA_DIR")
    wanted = directory.resolve()
    taken = [settings.data_dir, *([settings.objects.path] if settings.objects.kind == "file" else [])]
    for place in (each.resolve() for each in taken):
        if wanted == place or place in wanted.parents:
            raise CannotBackUp(f"{directory} is inside {place}, which the backup copies: name a directory elsewhere")
    if os.path.lexists(directory) and (not directory.is_dir() or any(directory.iterdir())):
        unfinished = (directory / manifest.UNFINISHED).exists()
        told = "holds a backup that was cut off, or is under way" if unfinished else "is not empty"
        raise CannotBackUp(f"{directory} {told}: name a new or empty directory")


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:  # there is none, or a program made it unreadable: copying it reports that
        return []
