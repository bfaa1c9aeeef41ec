"""A process that is killed in the middle of replacing the vault's key: the next one goes on, and nothing is lost."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config.settings import Settings, resolve_secrets
from gateway.vault.credential import ApiKey
from gateway.vault.keeper import VaultKeeper
from persistence.sqlite.store import SqliteStore
from tests.support.gateway import REPOSITORY

USERS = 12
# Replaces the key, and dies by SIGKILL before or after the n-th credential is stored.
ROTATES = """
import asyncio, os, signal, sys
from pathlib import Path
from gateway.config.settings import Settings, resolve_secrets
from gateway.vault.keeper import VaultKeeper
from persistence.sqlite.store import SqliteStore
from persistence.sqlite.users import SqliteUsers

settings, left, moment = Settings(data_dir=Path(sys.argv[1])), [int(sys.argv[2])], sys.argv[3]
put = SqliteUsers.put_credential

async def dying(self, row, **more):
    left[0] -= 1
    if left[0] == 0 and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    number = await put(self, row, **more)
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return number

async def main():
    async with SqliteStore(settings.store.path) as store:
        keeper = VaultKeeper(settings, resolve_secrets(settings), store.users, {})
        SqliteUsers.put_credential = dying
        await keeper.rotate()

asyncio.run(main())
"""


@pytest.mark.parametrize(("nth", "moment"), [(1, "before"), (1, "after"), (7, "before"), (USERS, "after")])
async def test_killed_at_the_nth_credential_the_next_start_goes_on(tmp_path: Path, nth: int, moment: str) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    settings.data_dir.mkdir()
    async with SqliteStore(settings.store.path) as store:
        keeper = VaultKeeper(settings, resolve_secrets(settings), store.users, {})
        for number in range(USERS):
            await keeper.vault.put(f"user{number}", "openai", ApiKey(f"k{number}"))
    words = [sys.executable, "-c", ROTATES, str(settings.data_dir), str(nth), moment]
    assert subprocess.run(words, cwd=REPOSITORY).returncode == -signal.SIGKILL
    for _ in range(2):  # the second one needs the new key alone
        async with SqliteStore(settings.store.path) as store:
            keeper = VaultKeeper(settings, resolve_secrets(settings), store.users, {})
            found = [await keeper.vault.find(f"user{number}", "openai") for number in range(USERS)]
            assert [each.token for each in found if each is not None] == [f"k{number}" for number in range(USERS)]
            await keeper.look_after()
            assert len(await store.users.key_ids()) == 1
        assert not (settings.data_dir / "secrets" / "vault_key.old").exists()
