"""The vault of a running gateway: made from its secrets, looked after while it runs.

A key is replaced in steps that may be cut off between any two: the new key gets its place and the old one stays beside
it, then what the old one has sealed is sealed anew, then the old one goes. A gateway that starts in between goes on.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from gateway.config.settings import (
    VAULT_KEY_OLD,
    Secrets,
    Settings,
    SettingsError,
    forget_old_vault_key,
    replace_vault_key,
    resolve_secrets,
)
from gateway.vault.oauth import OAuthClient
from gateway.vault.refresh import Refresher
from gateway.vault.rows import CredentialRows
from gateway.vault.sealing import Keyring, VaultKey
from gateway.vault.token_endpoint import ask
from gateway.vault.vault import Vault
from persistence.errors import StoreUnavailable
from persistence.ports import UserStore

log = structlog.get_logger()

KEY_IS_SET = (
    "the vault key is HOLDFAST_VAULT_KEY: set a new one there, the present one as HOLDFAST_VAULT_KEY_OLD, and restart"
)


class KeyIsSet(Exception):
    """The gateway cannot replace a key that a setting holds."""


def keyring(secrets: Secrets) -> Keyring:
    older = [VaultKey(each.get_secret_value()) for each in secrets.old_vault_keys]
    return Keyring(VaultKey(secrets.vault_key.get_secret_value()), older)


class VaultKeeper:
    """`told` hears what came of each refresh of tokens."""

    def __init__(
        self,
        settings: Settings,
        secrets: Secrets,
        users: UserStore,
        clients: Mapping[str, OAuthClient],
        *,
        told: Callable[[str], None] = lambda result: None,
    ) -> None:
        self._settings = settings
        self._home: Path = settings.data_dir / "secrets"
        self._rows = CredentialRows(users, keyring(secrets))
        self.vault = Vault(self._rows, Refresher(self._rows, clients, ask, told=told))
        self._locked = ""

    async def look_after(self) -> None:
        """Say which credentials cannot be opened, and seal anew what an older key has sealed. Until the store answers
        there is nothing to say."""
        try:
            locked = await self.vault.locked()
            if locked and locked != self._locked:
                log.error("vault.wrong_key", text=locked)
            self._locked = locked
            if len(self._rows.keys.ids) > 1 or (self._home / VAULT_KEY_OLD).exists():
                await self._seal_anew()
        except StoreUnavailable as error:
            log.debug("vault.not_looked_after", cause=str(error))

    async def rotate(self) -> int:
        """Replace the file's key, and seal everything with the new one. Returns how many credentials were sealed. What
        is cut off goes on by itself. Raises KeyIsSet, StoreUnavailable, OSError, SettingsError."""
        if self._settings.vault_key is not None:
            raise KeyIsSet(KEY_IS_SET)
        replace_vault_key(self._home)
        self._rows.keys = keyring(resolve_secrets(self._settings))
        log.info("vault.key_replaced", key=self._rows.keys.current.id)
        return await self._seal_anew()

    async def _seal_anew(self) -> int:
        sealed, left = await self.vault.reseal()
        if not left and (self._home / VAULT_KEY_OLD).exists():
            try:
                forget_old_vault_key(self._home)
                self._rows.keys = keyring(resolve_secrets(self._settings))
            except (OSError, SettingsError) as error:
                log.warning("vault.old_key_stays", cause=str(error))
        return sealed
