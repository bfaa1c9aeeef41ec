"""The vault: credentials of users by provider, sealed in the store.

`find` is for code that calls a provider on behalf of a session. It falls back to the operator's credential, which all
users share, and returns OAuth tokens that are valid for some minutes. Values leave by `find` and `renew` alone.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

import msgspec
import structlog

from gateway.vault.credential import EVERYBODY, MOST_PER_USER, Credential, OAuthTokens, Value
from gateway.vault.errors import NeedsCredential, TooManyCredentials
from gateway.vault.refresh import REMOVED, Refresher
from gateway.vault.rows import CredentialRows, needed
from persistence.user_record import SealedCredential

log = structlog.get_logger()

PAGE = 100


def wrong_key(alien: Mapping[str, int]) -> str:
    """What to do about credentials that keys have sealed which are not here: how many, by key."""
    count, keys = sum(alien.values()), ", ".join(sorted(alien))
    return (
        f"{count} credentials are sealed with another vault key ({keys}) and cannot be used; "
        "nothing of them was changed. Bring that key back: HOLDFAST_VAULT_KEY, HOLDFAST_VAULT_KEY_OLD, or "
        "secrets/vault_key of the data directory. Or set them again"
    )


class ListedCredential(msgspec.Struct, frozen=True):
    """A credential as lists show it. `trouble`: why it cannot be used; "" while it can."""

    provider: str
    kind: str
    set_at: float
    trouble: str


class Vault:
    """Open while it is entered, and while the store is."""

    def __init__(self, rows: CredentialRows, refresher: Refresher) -> None:
        self._rows = rows
        self._refresher = refresher

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._refresher.close()
        await self._rows.save_all()

    # -- for callers of a provider ------------------------------------------------------------------------------------

    async def find(self, user_id: str, provider: str) -> Credential | None:
        """The user's own credential, or the operator's; None if there is neither. Raises NeedsCredential for one that
        cannot be used, RefreshUnavailable if its tokens have ended and cannot be refreshed now, StoreUnavailable."""
        row = await self._meant(user_id, provider)
        return None if row is None else await self._usable(row)

    async def renew(self, used: Credential) -> Credential:
        """A credential in place of one that its provider has refused: the one that was set since, or refreshed tokens.
        If there is no other, the same one comes back. Raises as `find` does."""
        row = await self._rows.read((used.user_id, used.provider))
        if row is None:
            raise NeedsCredential(used.provider, REMOVED, is_for_everybody=used.is_for_everybody)
        if row.number != used.number or row.trouble:
            return await self._usable(row)
        found = self._rows.opened(row)
        return await self._refresher.fresh(found) if found.is_oauth else found

    async def trouble(self, user_id: str, provider: str) -> str:
        """Why the credential that `find` would return cannot be used; "" if there is none, or it can. Only the store is
        asked."""
        row = await self._meant(user_id, provider)
        return "" if row is None else self._trouble_of(row)

    async def troubles(self, user_id: str) -> dict[str, str]:
        """Why credentials that `find` would give cannot be used, by provider."""
        rows = {row.provider: row for user in (EVERYBODY, user_id) for row in await self._rows.of_user(user)}
        told = {provider: self._trouble_of(row) for provider, row in rows.items()}
        return {provider: trouble for provider, trouble in told.items() if trouble}

    async def has(self, user_id: str, provider: str) -> bool:
        """True if there is one to find, usable or not."""
        return await self._meant(user_id, provider) is not None

    async def _meant(self, user_id: str, provider: str) -> SealedCredential | None:
        for owner in dict.fromkeys((user_id, EVERYBODY)):
            if (row := await self._rows.read((owner, provider))) is not None:
                return row
        return None

    async def _usable(self, row: SealedCredential) -> Credential:
        if row.trouble:
            raise needed(row, row.trouble)
        found = self._rows.opened(row)
        if isinstance(found.value, OAuthTokens) and self._refresher.is_due(found.value):
            return await self._refresher.fresh(found)
        return found

    # -- for people ---------------------------------------------------------------------------------------------------

    async def put(self, user_id: str, provider: str, value: Value) -> ListedCredential:
        """Store it in place of an earlier one: durable when this returns. Raises TooManyCredentials,
        StoreUnavailable."""
        kept = {each.provider for each in await self._rows.of_user(user_id)}
        if provider not in kept and len(kept) >= MOST_PER_USER:
            raise TooManyCredentials(f"a user may have {MOST_PER_USER} credentials: delete one first")
        return self._listed(await self._rows.put((user_id, provider), value))

    async def list(self, user_id: str) -> list[ListedCredential]:
        return [self._listed(row) for row in await self._rows.of_user(user_id)]

    async def delete(self, user_id: str, provider: str) -> bool:
        """False: there is none. Raises StoreUnavailable."""
        return await self._rows.delete((user_id, provider))

    def _listed(self, row: SealedCredential) -> ListedCredential:
        return ListedCredential(row.provider, row.kind, row.set_at, self._trouble_of(row))

    def _trouble_of(self, row: SealedCredential) -> str:
        if row.trouble:
            return row.trouble
        try:
            self._rows.opened(row)
        except NeedsCredential as error:
            return error.why
        return ""

    # -- keys ---------------------------------------------------------------------------------------------------------

    async def locked(self) -> str:
        """The credentials that no key here opens, in words; "" if there are none. Raises StoreUnavailable."""
        alien = {
            key: count for key, count in (await self._rows.users.key_ids()).items() if key not in self._rows.keys.ids
        }
        return wrong_key(alien) if alien else ""

    async def reseal(self) -> tuple[int, int]:
        """Seal again, with the present key, the values that an older one has sealed. Continues where it was cut off.
        Returns how many were sealed, and how many could not be opened. Raises StoreUnavailable."""
        sealed = left = after = 0
        while rows := await self._rows.users.sealed_otherwise(self._rows.keys.current.id, after=after, limit=PAGE):
            after = rows[-1].number
            for row in rows:
                try:
                    sealed += await self._rows.reseal(row)
                except NeedsCredential:
                    left += 1
        if sealed or left:
            log.info("vault.resealed", sealed=sealed, left=left)
        return sealed, left
