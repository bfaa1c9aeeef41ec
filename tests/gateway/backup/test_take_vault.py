"""Backups and credentials: none is in clear, and what is restored opens them, whatever happened meanwhile."""

import asyncio
from pathlib import Path

import pytest

from gateway.backup.take import Backup
from gateway.cli.commands.backup import restore
from gateway.config.settings import SecretStr, Settings, resolve_secrets
from gateway.vault.credential import ApiKey
from gateway.vault.keeper import VaultKeeper
from persistence.sqlite.store import SqliteStore
from persistence.user_record import UserConfig

CANARY = "sk-canary-0123456789-abcdefghij"


async def fill(settings: Settings) -> None:
    settings.data_dir.mkdir(mode=0o700)
    async with SqliteStore(settings.store.path) as store:
        keeper = VaultKeeper(settings, resolve_secrets(settings), store.users, {})
        await keeper.vault.put("ann", "openai", ApiKey(CANARY))
        await store.users.put_config(UserConfig("ann", b'{"agents_md":"be kind"}', 1.0))


async def rotate(settings: Settings) -> None:
    async with SqliteStore(settings.store.path) as store:
        assert await VaultKeeper(settings, resolve_secrets(settings), store.users, {}).rotate() == 1


async def found(settings: Settings) -> str:
    async with SqliteStore(settings.store.path) as store:
        keeper = VaultKeeper(settings, resolve_secrets(settings), store.users, {})
        kept, config = await keeper.vault.find("ann", "openai"), await store.users.config("ann")
    assert kept is not None
    assert config is not None
    assert config.body == b'{"agents_md":"be kind"}'
    return kept.token


def in_clear(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


@pytest.mark.parametrize("moment", ["never", "before the databases", "after the databases"])
async def test_what_is_restored_opens_credentials_also_if_the_key_was_replaced_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    await fill(settings)
    copy_databases = Backup._take_databases

    def meanwhile(backup: Backup) -> None:
        if moment == "before the databases":
            asyncio.run(rotate(settings))
        copy_databases(backup)
        if moment == "after the databases":
            asyncio.run(rotate(settings))

    monkeypatch.setattr(Backup, "_take_databases", meanwhile)
    backup = Backup(settings, tmp_path / "backup", lambda what, done: None)
    await asyncio.to_thread(backup.take)
    assert in_clear(tmp_path / "backup") == in_clear(settings.data_dir) == []
    new = Settings(data_dir=tmp_path / "new")
    assert await asyncio.to_thread(restore, new, tmp_path / "backup", into=None, as_json=True) == 0
    assert await found(new) == CANARY
    assert await found(settings) == CANARY


async def test_with_a_key_of_the_settings_no_backup_has_what_opens_it(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data", vault_key=SecretStr("kept-elsewhere-" * 3))
    await fill(settings)
    await asyncio.to_thread(Backup(settings, tmp_path / "backup", lambda what, done: None).take)
    names = {path.name for path in (tmp_path / "backup").rglob("*")}
    assert "vault_key" not in names
    new = Settings(data_dir=tmp_path / "new", vault_key=settings.vault_key)
    assert await asyncio.to_thread(restore, new, tmp_path / "backup", into=None, as_json=True) == 0
    assert await found(new) == CANARY
