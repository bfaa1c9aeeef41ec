"""Keys of models for sessions, from a vault that really seals."""

import time
from collections.abc import AsyncIterator

import pytest

from gateway.egress.model_settings import ProviderKey
from gateway.egress.providers import BUILT_IN
from gateway.egress.repositories import GitRepository
from gateway.vault.credential import EVERYBODY, ApiKey, OAuthTokens
from gateway.vault.model_keys import VaultKeys
from gateway.vault.refresh import Refresher
from gateway.vault.rows import CredentialRows
from gateway.vault.sealing import Keyring, VaultKey
from gateway.vault.token_endpoint import ask
from gateway.vault.vault import Vault
from persistence.memory import MemoryStore

GITHUB = next(each for each in BUILT_IN if each.name == "github")
SOON = int(time.time()) + 10_000


@pytest.fixture
async def vault() -> AsyncIterator[Vault]:
    store = MemoryStore()
    async with store:
        rows = CredentialRows(store.users, Keyring(VaultKey("k" * 36)))
        yield Vault(rows, Refresher(rows, {}, ask))


async def test_the_users_own_key_comes_before_everybodys(vault: Vault) -> None:
    keys = VaultKeys(vault)
    assert await keys.find("ann", "anthropic") == ProviderKey()
    assert not await keys.has("ann", "anthropic")
    await vault.put(EVERYBODY, "anthropic", ApiKey("house"))
    assert await keys.find("ann", "anthropic") == ProviderKey("house")
    await vault.put("ann", "anthropic", OAuthTokens("mine", "", SOON))
    assert await keys.find("ann", "anthropic") == ProviderKey("mine", True, float(SOON))
    assert await keys.has("bob", "anthropic")


async def test_a_refused_key_is_replaced_by_the_one_set_since(vault: Vault) -> None:
    keys = VaultKeys(vault)
    assert await keys.renew("ann", "openai") == ProviderKey()
    await vault.put("ann", "openai", ApiKey("old"))
    assert await keys.renew("ann", "openai") == await keys.renew("ann", "openai") == ProviderKey("old")
    await vault.put("ann", "openai", ApiKey("new"))
    assert await keys.renew("ann", "openai") == ProviderKey("new")
    await vault.delete("ann", "openai")
    gone = await keys.renew("ann", "openai")
    assert (gone.key, "it was removed" in gone.why) == ("", True)


async def test_tokens_that_have_ended_say_so(vault: Vault) -> None:
    await vault.put("ann", "anthropic", OAuthTokens("a", "", 1))
    found = await VaultKeys(vault).find("ann", "anthropic")
    assert found.key == ""
    assert "the credential for anthropic cannot be used" in found.why


async def test_a_repository_has_its_hosts_token(vault: Vault) -> None:
    keys, repository = VaultKeys(vault), GitRepository("github.com", "o/r")
    assert await keys.of_repository("ann", GITHUB, repository) == ProviderKey()
    await vault.put("ann", "github", ApiKey("ghp"))
    assert await keys.of_repository("ann", GITHUB, repository, fresh=True) == ProviderKey("ghp")
