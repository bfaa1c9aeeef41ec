"""What `holdfast doctor` says about what is kept of sessions."""

import asyncio
from pathlib import Path

import pytest

from gateway.cli.commands import doctor_snapshots
from gateway.cli.commands.doctor_snapshots import check_snapshots
from gateway.cli.commands.doctor_store import Finding
from gateway.config.settings import Settings
from gateway.config.store_url import StoreUrl
from persistence.ports import MessageStore
from persistence.postgres.store import PostgresStore
from persistence.record import Session
from persistence.sqlite.store import SqliteStore
from sync.format.keys import Keys
from sync.objects.files import FileObjects
from tests.support.keeping import USER, MemorySession, push, vault_on


async def fill(settings: Settings, store: MessageStore) -> None:
    """Two sessions with a generation, and one that was never synced."""
    async with FileObjects(settings.objects.path) as objects, store:
        for name in ("a", "b"):
            session = MemorySession(name)
            session.roots.files[b"workspace/f"] = name.encode() * 50_000
            await push(vault_on(objects), session)
            await store.create(Session(name, USER, 1.0, b"{}", b'{"generation":1}'))
        await store.create(Session("c", USER, 1.0, b"{}", b"{}"))


async def look(settings: Settings) -> Finding | list[Finding]:
    return await asyncio.to_thread(check_snapshots, settings)  # as the command does: no loop runs


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    settings = Settings(data_dir=tmp_path)
    await fill(settings, SqliteStore(settings.store.path))
    return settings


async def test_where_nothing_was_started_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert await look(Settings(data_dir=tmp_path / "new")) == []
    assert not (tmp_path / "new").exists()


async def test_sessions_that_are_whole_are_counted(settings: Settings) -> None:
    assert await look(settings) == Finding("snapshots", "ok", "2 sessions, all that they name is there")


@pytest.mark.parametrize("lost", ["pointer", "manifests", "packs", "objects"])
async def test_whatever_is_missing_is_named(settings: Settings, lost: str) -> None:
    keys, objects = Keys.of_user(USER), settings.objects.path
    if lost == "pointer":
        (objects / keys.pointer("a")).unlink()
    elif lost == "objects":
        objects.rename(objects.with_name("away"))
    else:
        for file in (objects / keys.prefix / lost).iterdir():
            file.unlink()
    found = await look(settings)
    assert isinstance(found, Finding)
    assert found.state == "fail"
    assert found.told.startswith("1 of 2 are not whole: a: " if lost == "pointer" else "2 of 2 are not whole: ")
    assert "{keep:true}" in found.advice


async def test_many_sessions_are_looked_at_for_a_bounded_time(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_snapshots, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(doctor_snapshots, "ENDS_SECONDS", 60.0)
    assert await look(settings) == []


async def test_sessions_in_postgres_are_looked_at_too(tmp_path: Path, postgres_url: str) -> None:
    settings = Settings(data_dir=tmp_path, store=StoreUrl(postgres_url))
    await fill(settings, PostgresStore(postgres_url))
    assert await look(settings) == Finding("snapshots", "ok", "2 sessions, all that they name is there")
