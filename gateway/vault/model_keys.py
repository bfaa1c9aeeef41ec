"""Keys of models for sessions, from the vault."""

from collections import OrderedDict

from gateway.egress.model_settings import ProviderKey
from gateway.egress.providers import ModelProvider
from gateway.egress.repositories import GitRepository
from gateway.vault.credential import Credential, OAuthTokens
from gateway.vault.errors import CredentialError
from gateway.vault.git_tokens import GitTokens, NoGitToken
from gateway.vault.vault import Vault

MOST_REMEMBERED = 10_000  # credentials that were given out; of others, a refused one is just looked up again


class VaultKeys:
    """Implements gateway.egress.model_gateway.ModelKeys."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._git = GitTokens()
        self._given: OrderedDict[tuple[str, str], Credential] = OrderedDict()

    async def find(self, user_id: str, provider: str) -> ProviderKey:
        try:
            return self._give(user_id, await self._vault.find(user_id, provider))
        except CredentialError as error:
            return ProviderKey(why=str(error))

    async def has(self, user_id: str, provider: str) -> bool:
        return await self._vault.has(user_id, provider)

    async def renew(self, user_id: str, provider: str) -> ProviderKey:
        refused = self._given.get((user_id, provider))
        if refused is None:
            return await self.find(user_id, provider)
        try:
            return self._give(user_id, await self._vault.renew(refused))
        except CredentialError as error:
            return ProviderKey(why=str(error))

    async def of_repository(
        self, user_id: str, provider: ModelProvider, repository: GitRepository, *, fresh: bool = False
    ) -> ProviderKey:
        try:
            found = await self._vault.find(user_id, provider.name)
            return ProviderKey() if found is None else await self._git.token(found, provider, repository, fresh=fresh)
        except (CredentialError, NoGitToken) as error:
            return ProviderKey(why=str(error))

    def _give(self, user_id: str, found: Credential | None) -> ProviderKey:
        if found is None or not found.token:
            return ProviderKey()
        self._given[user_id, found.provider] = found
        self._given.move_to_end((user_id, found.provider))
        if len(self._given) > MOST_REMEMBERED:
            self._given.popitem(last=False)
        value = found.value
        expires = value.expires_at if isinstance(value, OAuthTokens) and value.expires else 0.0
        return ProviderKey(found.token, found.is_oauth, expires)
