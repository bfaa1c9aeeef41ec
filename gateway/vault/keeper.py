"""The vault of a running gateway: made from its secrets, maintained while it runs.

A key is replaced in steps that may be cut off between any two: the new key takes its place and the old one stays beside
it, then the values that the old one sealed are sealed again, then the old one is removed. A gateway that starts in
between continues.
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
    """`told` is called with the result of each refresh of tokens."""

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
        """Report the credentials that cannot be opened, and seal again those that an older key has sealed. Does nothing
        until the store answers."""
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
        """Replace the file's key, and seal everything with the new one. Returns how many credentials were sealed. A
        rotation that is cut off continues by itself. Raises KeyIsSet, StoreUnavailable, OSError, SettingsError."""
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
