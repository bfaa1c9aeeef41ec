"""`holdfast backup` and `holdfast restore`: the commands around copying a gateway's data."""

import asyncio
import contextlib
import json
import os
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from gateway.backup import databases, manifest
from gateway.backup.databases import DamagedDatabase
from gateway.backup.restore import CannotRestore, RestorePaths, places, put_back, read_note
from gateway.backup.take import Backup, CannotBackUp
from gateway.cli.console.output import complain, say
from gateway.cli.console.progress import Bar, size_in_words
from gateway.config.data_dir import DataDirBusy
from gateway.config.loading import load_settings
from gateway.config.settings import Settings
from gateway.config.sources import FILE, Source
from sync.objects.files import FileObjects
from sync.snapshots.presence import look

SHOWN = 10  # incomplete sessions


@contextlib.contextmanager
def _owners_alone() -> Iterator[None]:
    """New files on the way belong to the owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@_owners_alone()
def backup(settings: Settings, directory: Path, *, as_json: bool) -> int:
    told, clear = _progress()
    taking = Backup(settings, directory, told)
    try:
        taken = taking.take()
    except CannotBackUp as error:
        return _failed(clear, str(error))
    except (OSError, sqlite3.Error, DamagedDatabase) as error:
        return _failed(clear, f"the backup was not finished: {error}. {directory} is no backup: remove it")
    clear()
    elsewhere = not_copied(settings)
    if as_json:
        more = {"warnings": taking.warnings, "leftOut": taking.left_out, "notCopied": elsewhere}
        say(json.dumps({"directory": str(directory), **asdict(taken), **more}, indent=2))
        return 0
    counted = f"{taken.sessions:,} sessions, {taken.messages:,} messages, {taken.files:,} files"
    say(f"{directory} is a backup: {counted}, {size_in_words(taken.bytes)}")
    for text in taking.warnings:
        say(f"warning: {text}")
    if taken.left_out:
        say(f"left out {taken.left_out:,} entries of disks that cannot be copied, such as {taking.left_out[0]}")
    for text in elsewhere:
        say(f"not in it: {text}")
    return 0


def not_copied(settings: Settings) -> list[str]:
    """The gateway's data that lies elsewhere, with advice for each."""
    file = f", and {settings.config}" if settings.config is not None else ""
    found = [f"the HOLDFAST_* settings themselves{file}: keep them where you keep configuration"]
    if settings.store.kind == "postgresql":
        found.append(
            f"the conversations in {settings.store}: run pg_dump now. After this backup, not before it: records "
            "that waited in the spool may have moved there since"
        )
    if settings.store.kind == "http":
        found.append(f"the messages that {settings.store} keeps; their index, spool.db, is in the backup")
    if settings.objects.kind == "s3":
        found.append(
            f"the workspaces in {settings.objects}: copy the bucket now, every v1/users/*/sessions/ before the rest, "
            "or rely on versions that the bucket keeps"
        )
    if settings.sandbox_env_file is not None:
        found.append(f"HOLDFAST_SANDBOX_ENV_FILE, {settings.sandbox_env_file}")
    return found


@_owners_alone()
def restore(settings: Settings, directory: Path, *, into: Path | None, as_json: bool) -> int:
    told, clear = _progress()
    given = settings
    try:
        found = read_note(directory)
        if into is not None:
            settings = _settings_for(settings, into, found)
        where = places(settings, found)
        copier = put_back(directory, where, told)
        problems = _lacking(where)
        if copier.left_out:
            told_of = f"{copier.left_out:,} entries of the backup could not be put back"
            problems.insert(0, f"{told_of}, such as {copier.left_out_names[0]}")
    except (manifest.BadBackup, CannotRestore) as error:
        return _failed(clear, str(error))
    except DataDirBusy as busy:
        return _failed(clear, f"{busy}; stop it, and restore into an unused directory")
    except OSError as error:
        return _failed(clear, f"nothing was restored: {error}")
    clear()
    if as_json:
        named = {"data": str(where.data), "problems": problems, "restoredBytes": copier.bytes}
        say(json.dumps({**asdict(found), **named}, indent=2))
        return 0
    say(
        f"{where.data} has what the backup of {found.at} held: {found.sessions:,} sessions, {found.messages:,} messages"
    )
    for text in problems[:SHOWN]:
        say(f"warning: {text}")
    if found.store == "postgresql":
        say(f"the conversations are not in it: restore the dump of {settings.store} before you start")
        if into is not None:
            say("while another gateway uses that database, set HOLDFAST_STORE to one with a copy of it")
    if found.objects == "s3":
        say(f"the workspaces are not in it: {settings.objects} must have them before you start")
    names = elsewhere(given, settings)
    if names:
        say(f"{' and '.join(names)} must be unset to use the restored data: it lies in {where.data}, and not there")
    prefix = environment_for(given, names, where.data.absolute())
    say(f"next:  {prefix} holdfast doctor")
    say(f"then:  {prefix} holdfast serve")
    return 0


def elsewhere(given: Settings, used: Settings) -> list[str]:
    """The variables by which a gateway would use other places than those that a restore wrote to."""
    default = Settings(data_dir=given.data_dir)
    chosen = (
        ("HOLDFAST_STORE", given.store != used.store, given.store != default.store),
        ("HOLDFAST_OBJECTS", given.objects != used.objects, given.objects != default.objects),
    )
    return [name for name, differs, is_set in chosen if differs and is_set]


def environment_for(given: Settings, names: list[str], data: Path) -> str:
    """The variables to put before a command that is to use the restored data. A file's value cannot be unset: it is
    overridden with the default."""
    usual = Settings(data_dir=data)
    values = {"HOLDFAST_STORE": usual.store, "HOLDFAST_OBJECTS": usual.objects}
    in_file = [name for name in names if given.sources.get(name, Source()).kind == FILE]
    unset = [f"-u {name}" for name in names if name not in in_file]
    chosen = [f"{name}={shlex.quote(str(values[name]))}" for name in in_file]
    words = [*(["env", *unset] if unset else []), f"HOLDFAST_DATA_DIR={shlex.quote(str(data))}", *chosen]
    return " ".join(words)


def _settings_for(settings: Settings, into: Path, found: manifest.BackupManifest) -> Settings:
    """Settings for a data directory that holds everything; data that was elsewhere stays where the settings say."""
    environ = {"HOLDFAST_DATA_DIR": str(into)}
    if found.store != "sqlite":
        environ["HOLDFAST_STORE"] = settings.store.get_secret_value()
    chosen = load_settings(environ)
    return chosen if found.objects == "file" else replace(chosen, objects=settings.objects)


def _lacking(where: RestorePaths) -> list[str]:
    """The incomplete parts of the restored data, in words."""
    if where.objects is None:
        return []
    try:
        return asyncio.run(_looked_for(where, where.objects))
    except (OSError, sqlite3.Error) as error:
        return [f"it is all there, and could not be checked: {error}"]


async def _looked_for(where: RestorePaths, objects: Path) -> list[str]:
    database = where.database if where.database.exists() else where.data / "spool.db"
    kept = databases.kept(databases.known_sessions(database))
    async with FileObjects(objects) as store:
        return [f"session {each.session_id}: {told}" async for each, told in look(store, kept) if told is not None]


def _progress() -> tuple[Callable[[str, int], None], Callable[[], None]]:
    bars: dict[str, Bar] = {}

    def told(what: str, done: int) -> None:
        bars.setdefault(what, Bar(what, counts_bytes=True)).show(done)

    def clear() -> None:
        for bar in bars.values():
            bar.clear()

    return told, clear


def _failed(clear: Callable[[], None], text: str) -> int:
    clear()
    complain(text)
    return 1
