"""The vault's keys in the data directory: made once, replaced in steps that may be cut off anywhere."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.config.settings import SecretStr, Settings, SettingsError, resolve_secrets
from gateway.vault.credential import ApiKey
from gateway.vault.keeper import KeyIsSet, VaultKeeper
from persistence.memory import MemoryStore

FIRST, SECOND = SecretStr("first" * 8), SecretStr("second" * 8)


def opened(settings: Settings, store: MemoryStore) -> VaultKeeper:
    """As the next start of the gateway does it."""
    return VaultKeeper(settings, resolve_secrets(settings), store.users, {})


async def values(keeper: VaultKeeper, count: int = 3) -> list[str]:
    found = [await keeper.vault.find(f"user{number}", "openai") for number in range(count)]
    return [each.token for each in found if each is not None]


async def filled(settings: Settings) -> tuple[VaultKeeper, MemoryStore]:
    store = MemoryStore()
    keeper = opened(settings, store)
    for number in range(3):
        await keeper.vault.put(f"user{number}", "openai", ApiKey(f"k{number}"))
    return keeper, store


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


async def test_the_key_is_made_once_for_its_owner_alone(settings: Settings) -> None:
    _, store = await filled(settings)
    path = settings.data_dir / "secrets" / "vault_key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert await values(opened(settings, store)) == ["k0", "k1", "k2"]
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        opened(settings, store)


async def test_a_key_is_replaced_and_the_old_one_goes(settings: Settings) -> None:
    keeper, store = await filled(settings)
    before = (settings.data_dir / "secrets" / "vault_key").read_text()
    assert await keeper.rotate() == 3
    assert await values(keeper) == ["k0", "k1", "k2"]
    names = os.listdir(settings.data_dir / "secrets")
    assert [name for name in names if "vault" in name] == ["vault_key"]
    assert (settings.data_dir / "secrets" / "vault_key").read_text() != before
    assert await values(opened(settings, store)) == ["k0", "k1", "k2"]
    assert await keeper.rotate() == 3


class CutOff(BaseException):
    """What a kill is to the steps before it: nothing after it happens."""


STEPS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "before the new key is written": lambda patch: patch.setattr("gateway.config.settings._write_secret", _cut),
    "before the old key is set aside": lambda patch: patch.setattr("os.link", _cut),
    "before the new key has its place": lambda patch: patch.setattr(Path, "rename", _cut),
    "before anything is sealed anew": lambda patch: patch.setattr(VaultKeeper, "_seal_anew", _cut),
    "before the old key goes": lambda patch: patch.setattr("gateway.vault.keeper.forget_old_vault_key", _cut),
}


def _cut(*args: Any, **more: Any) -> None:
    raise CutOff


@pytest.mark.parametrize("step", STEPS)
async def test_cut_off_anywhere_everything_opens_and_the_next_start_ends_it(settings: Settings, step: str) -> None:
    keeper, store = await filled(settings)
    with pytest.MonkeyPatch.context() as patch:
        STEPS[step](patch)
        with pytest.raises(CutOff):
            await keeper.rotate()
    keeper = opened(settings, store)
    assert await values(keeper) == ["k0", "k1", "k2"]
    await keeper.look_after()
    assert await values(keeper) == ["k0", "k1", "k2"]
    assert not (settings.data_dir / "secrets" / "vault_key.old").exists()
    assert len(await store.users.key_ids()) == 1
    assert await values(opened(settings, store)) == ["k0", "k1", "k2"]


async def test_while_an_old_key_is_needed_no_third_one_takes_its_place(settings: Settings) -> None:
    keeper, store = await filled(settings)
    with pytest.MonkeyPatch.context() as patch:
        STEPS["before anything is sealed anew"](patch)
        for _ in range(3):
            with pytest.raises(CutOff):
                await keeper.rotate()
    assert await values(opened(settings, store)) == ["k0", "k1", "k2"]


async def test_a_key_of_a_setting_takes_the_place_of_the_files_and_of_the_one_before(tmp_path: Path) -> None:
    data = tmp_path / "data"
    _, store = await filled(Settings(data_dir=data))
    for chosen in (
        Settings(data_dir=data, vault_key=FIRST),
        Settings(data_dir=data, vault_key=SECOND, vault_key_old=FIRST),
    ):
        keeper = opened(chosen, store)
        assert await values(keeper) == ["k0", "k1", "k2"]
        await keeper.look_after()
        with pytest.raises(KeyIsSet, match="HOLDFAST_VAULT_KEY_OLD"):
            await keeper.rotate()
    (data / "secrets" / "vault_key").unlink()
    assert await values(opened(Settings(data_dir=data, vault_key=SECOND), store)) == ["k0", "k1", "k2"]


async def test_a_wrong_key_is_told_once_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, store = await filled(Settings(data_dir=tmp_path / "one"))
    before = await store.users.credentials("user0")
    keeper = opened(Settings(data_dir=tmp_path / "two"), store)
    await keeper.look_after()
    await keeper.look_after()
    assert capsys.readouterr().out.count("vault.wrong_key") == 1
    assert await store.users.credentials("user0") == before
