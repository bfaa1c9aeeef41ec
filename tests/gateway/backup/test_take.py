"""A backup while sessions are deleted and objects collected: it is whole in itself, or it says that it is not."""

import asyncio
import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gateway.backup import databases, manifest
from gateway.backup.take import Backup, CannotBackUp
from gateway.cli.commands.backup import restore
from gateway.config.loading import load_settings
from gateway.config.settings import Settings
from persistence.record import Session
from persistence.sqlite.store import SqliteStore
from sync.format.keys import Keys
from sync.objects.files import FileObjects
from tests.support.keeping import USER, MemorySession, push, vault_on

Told = Callable[[str, int], None]


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    """A stopped gateway: two sessions with a generation each, and one with nothing but its disk."""
    settings = Settings(data_dir=tmp_path / "data")
    settings.data_dir.mkdir(mode=0o700)
    async with FileObjects(settings.objects.path) as objects, SqliteStore(settings.store.path) as store:
        for name in ("a", "b"):
            session = MemorySession(name)
            session.roots.files[b"workspace/f"] = name.encode() * 50_000
            await push(vault_on(objects), session)
            await store.create(Session(name, USER, 1.0, b"{}", b'{"generation":1,"clean":true}'))
        await store.create(Session("c", USER, 1.0, b"{}", b'{"generation":0,"fresh":true}'))
    disk = settings.data_dir / "sandboxes" / "c" / "kept" / "workspace"
    disk.mkdir(parents=True)
    (disk / "file").write_text("on its disk alone")
    return settings


async def take(
    settings: Settings, at: Path, told: Told = lambda what, done: None
) -> tuple[manifest.BackupManifest, Backup]:
    backup = Backup(settings, at, told)
    return await asyncio.to_thread(backup.take), backup


def pointer(settings: Settings, session_id: str) -> Path:
    return settings.objects.path / Keys.of_user(USER).pointer(session_id)


async def test_a_stopped_gateway_is_copied_whole(settings: Settings, tmp_path: Path) -> None:
    taken, backup = await take(settings, tmp_path / "backup")
    assert (taken.sessions, taken.store, taken.objects, backup.warnings) == (3, "sqlite", "file", [])
    copy = tmp_path / "backup" / "data"
    assert (copy / "sandboxes" / "c" / "kept" / "workspace" / "file").read_text() == "on its disk alone"
    with closing(sqlite3.connect(copy / "holdfast.db")) as db:
        (state,) = db.execute("SELECT state FROM sessions WHERE id = 'c'").fetchone()
    assert state == b'{"generation":0,"fresh":false}'
    assert not (copy / "objects" / Keys.of_user(USER).marks).exists()


async def test_secrets_that_lie_elsewhere_are_copied(settings: Settings, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    vault.mkdir(mode=0o500)
    (tmp_path / "api_token").write_text("lies alone")
    (vault / "api_token").symlink_to("../api_token")
    (vault / "jwt_secret").write_text("lies there")
    (settings.data_dir / "secrets").symlink_to(vault)
    _, backup = await take(settings, tmp_path / "backup")
    copy = tmp_path / "backup" / "data" / "secrets"
    found = {each.name: (each.is_symlink(), each.read_text()) for each in copy.iterdir()}
    assert found == {"api_token": (False, "lies alone"), "jwt_secret": (False, "lies there")}
    assert (copy.is_symlink(), backup.left_out) == (False, [])


def gone(secrets: Path) -> None:
    secrets.symlink_to("nowhere")


def one_gone(secrets: Path) -> None:
    secrets.mkdir()
    (secrets / "api_token").symlink_to("nowhere")


def no_file(secrets: Path) -> None:
    secrets.mkdir()
    os.mkfifo(secrets / "api_token")


@pytest.mark.parametrize("broken", [gone, one_gone, no_file])
async def test_no_backup_lacks_a_secret(broken: Callable[[Path], None], settings: Settings, tmp_path: Path) -> None:
    broken(settings.data_dir / "secrets")
    with pytest.raises(CannotBackUp, match=f"^{settings.data_dir}/secrets cannot be copied: "):
        await take(settings, tmp_path / "backup")
    assert not (tmp_path / "backup" / manifest.NAME).exists(), "nobody takes it for a backup"


async def test_a_session_that_is_deleted_between_database_and_pointers_is_in_neither(
    settings: Settings, tmp_path: Path
) -> None:
    deleted = False

    def told(what: str, done: int) -> None:
        nonlocal deleted
        if what == "conversations" and not deleted:  # the copy of the database is of a moment before this
            deleted = True
            pointer(settings, "a").unlink()
            with closing(sqlite3.connect(settings.store.path)) as db, db:
                db.execute("DELETE FROM sessions WHERE id = 'a'")

    taken, backup = await take(settings, tmp_path / "backup", told)
    assert (deleted, taken.sessions, backup.warnings) == (True, 2, [])
    named = {each.session_id for each in databases.known_sessions(tmp_path / "backup" / "data" / "holdfast.db")}
    assert named == {"b", "c"}


async def test_a_session_that_is_deleted_and_made_anew_meanwhile_is_copied_as_it_is_now(
    settings: Settings, tmp_path: Path
) -> None:
    again = False
    with closing(sqlite3.connect(settings.store.path)) as db, db:
        db.execute("UPDATE sessions SET state = CAST('{\"generation\":7,\"clean\":true}' AS BLOB) WHERE id = 'a'")

    def told(what: str, done: int) -> None:
        nonlocal again
        if what == "conversations" and not again:  # its pointer, of generation 1, is the new one's
            again = True
            with closing(sqlite3.connect(settings.store.path)) as db, db:
                db.execute("UPDATE sessions SET state = CAST('{\"generation\":1}' AS BLOB) WHERE id = 'a'")

    _, backup = await take(settings, tmp_path / "backup", told)
    assert backup.warnings == []
    named = databases.known_sessions(tmp_path / "backup" / "data" / "holdfast.db")
    assert {each.session_id: each.generation for each in named} == {"a": 1, "b": 1, "c": 0}


async def test_what_was_put_aside_is_copied_also_of_a_session_at_rest(settings: Settings, tmp_path: Path) -> None:
    kept = settings.data_dir / "sandboxes" / "a" / "kept"
    for root in (kept / "workspace", kept / ".aside-1" / "workspace"):
        root.mkdir(parents=True)
        (root / "file").write_text("found on its disk")
    (settings.data_dir / "sandboxes" / "b" / "kept" / "workspace").mkdir(parents=True)
    await take(settings, tmp_path / "backup")
    copies = tmp_path / "backup" / "data" / "sandboxes"
    assert (copies / "a" / "kept" / ".aside-1" / "workspace" / "file").read_text() == "found on its disk"
    assert [each.name for each in (copies / "a" / "kept").iterdir()] == [".aside-1"]
    assert sorted(each.name for each in copies.iterdir()) == ["a", "c"]


async def test_a_restore_names_what_it_could_not_put_back(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await take(settings, tmp_path / "backup")
    os.mkfifo(tmp_path / "backup" / "data" / "sandboxes" / "c" / "kept" / "workspace" / "fifo")
    code = await asyncio.to_thread(restore, settings, tmp_path / "backup", into=tmp_path / "new", as_json=False)
    assert (code, "warning: 1 entries of the backup could not be put back" in capsys.readouterr().out) == (0, True)


async def test_what_the_gateway_itself_lacks_is_warned_of_and_the_rest_is_copied(
    settings: Settings, tmp_path: Path
) -> None:
    pointer(settings, "a").unlink()
    taken, backup = await take(settings, tmp_path / "backup")
    assert (taken.sessions, len(backup.warnings)) == (3, 1)
    assert "session a is not whole in the gateway either" in backup.warnings[0]


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
async def test_objects_that_were_collected_while_it_ran_make_it_fail_in_words(
    store: str, settings: Settings, tmp_path: Path
) -> None:
    if store == "postgresql":  # the conversations are elsewhere, the objects here
        settings = load_settings(
            {"HOLDFAST_DATA_DIR": str(settings.data_dir), "HOLDFAST_STORE": "postgresql://u@127.0.0.1:1/d"}
        )
    packs = settings.objects.path / Keys.of_user(USER).packs
    away = tmp_path / "away"

    def told(what: str, done: int) -> None:
        if what == "pointers" and packs.exists():
            packs.rename(away)
        if what == "disks" and away.exists():  # back, as if the copy had only been slow
            packs.parent.mkdir(exist_ok=True)
            away.rename(packs)

    with pytest.raises(CannotBackUp, match="HOLDFAST_SNAPSHOT_GRACE"):
        await take(settings, tmp_path / "backup", told)
    assert not (tmp_path / "backup" / manifest.NAME).exists(), "nobody takes it for a backup"


async def test_advice_after_a_restore_that_failed_names_only_what_it_wrote_to(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await take(settings, tmp_path / "backup")

    def full(target: int, origin: int, at: int, count: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "sendfile", full)
    code = await asyncio.to_thread(restore, settings, tmp_path / "backup", into=tmp_path / "new", as_json=False)
    said = capsys.readouterr().err
    assert (code, "No space left" in said, f"It wrote to {tmp_path / 'new'}: remove that" in said) == (1, True, True)
    assert str(settings.data_dir) not in said, "the live one"


async def test_a_backup_that_cannot_be_read_is_no_reason_to_empty_anything(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await take(settings, tmp_path / "backup")

    def broken(directory: Path) -> tuple[int, int, int]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("gateway.backup.restore.measure", broken)
    code = await asyncio.to_thread(restore, settings, tmp_path / "backup", into=tmp_path / "new", as_json=False)
    said = capsys.readouterr().err
    assert (code, "cannot be read: " in said, str(settings.data_dir) in said) == (1, True, False)
    assert not (tmp_path / "new").exists()
