"""The vault's rows: read from the store, sealed and opened.

While the store is away, a row is served as it was last read. Tokens that were refreshed while it was away are kept here
until it takes them: their provider has forgotten the earlier ones.

Bound: REMEMBERED rows; above, the longest unused one is forgotten, unless it has not been stored yet. A crash loses
those that were not stored.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from gateway.vault.credential import EVERYBODY, Credential, Value, decode, encode, kind_of
from gateway.vault.errors import NeedsCredential
from gateway.vault.sealing import NONCE_BYTES, CannotUnseal, Keyring
from persistence.errors import StoreUnavailable
from persistence.ports import UserStore
from persistence.user_record import SealedCredential

log = structlog.get_logger()

REMEMBERED = 10_000

Place = tuple[str, str]  # a user and a provider


class CredentialRows:
    """`nonce` makes fresh random bytes."""

    def __init__(
        self,
        users: UserStore,
        keys: Keyring,
        *,
        utcnow: Callable[[], float] = time.time,
        nonce: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.users = users
        self.keys = keys
        self.utcnow = utcnow
        self._nonce = nonce
        self._seen: OrderedDict[Place, SealedCredential | None] = OrderedDict()
        self._unsaved: dict[Place, SealedCredential] = {}  # each with the number of the row that it replaces

    async def read(self, place: Place) -> SealedCredential | None:
        """Raises StoreUnavailable for one that was never read."""
        try:
            if place in self._unsaved:
                await self._save(place)
            row = await self.users.credential(*place)
        except StoreUnavailable:
            if place in self._unsaved:
                return self._unsaved[place]
            if place not in self._seen:
                raise
            row = self._seen[place]
        self._remember(place, row)
        return row

    async def of_user(self, user_id: str) -> list[SealedCredential]:
        return await self.users.credentials(user_id)

    async def put(self, place: Place, value: Value) -> SealedCredential:
        """Store it, in place of any earlier one. Raises StoreUnavailable, ValueError for names that are not text."""
        row = self._sealed(place, value, self.utcnow())
        number = await self.users.put_credential(row)
        if number is None:
            raise ValueError("a user id and a provider are texts")
        self._unsaved.pop(place, None)
        return self._remembered(row, number)

    async def delete(self, place: Place) -> bool:
        found = await self.users.delete_credential(*place)
        self._unsaved.pop(place, None)
        self._remember(place, None)
        return found

    async def put_refreshed(self, before: SealedCredential, value: Value) -> SealedCredential | None:
        """Store fresh tokens in place of `before`, and return the present row: another one, if it was set again
        meanwhile; None if it was deleted. A row that the store does not take now is stored later."""
        place = (before.user_id, before.provider)
        self._unsaved[place] = replace(self._sealed(place, value, before.set_at), number=before.number)
        try:
            await self._save(place)
        except StoreUnavailable as error:
            log.warning("vault.not_stored_yet", provider=before.provider, cause=str(error))
        return await self.read(place)

    async def mark(self, row: SealedCredential, trouble: str) -> None:
        """Note why it cannot be used, if it is still the present row. Raises StoreUnavailable."""
        marked = replace(row, trouble=trouble)
        number = await self.users.put_credential(marked, expected=row.number)
        if number is not None:
            self._remembered(marked, number)

    async def reseal(self, row: SealedCredential) -> bool:
        """Seal it again with the present key. False: it was changed meanwhile. Raises NeedsCredential,
        StoreUnavailable."""
        value = self.opened(row).value
        fresh = self._sealed((row.user_id, row.provider), value, row.set_at)
        return await self.users.put_credential(replace(fresh, trouble=row.trouble), expected=row.number) is not None

    async def save_all(self) -> None:
        """Store the unsaved rows once more, before the end."""
        for place in list(self._unsaved):
            try:
                await self._save(place)
            except StoreUnavailable:
                log.error("vault.refresh_lost", provider=place[1])

    def opened(self, row: SealedCredential) -> Credential:
        """Raises NeedsCredential."""
        try:
            plain = self.keys.unseal(row.key_id, row.user_id, row.provider, row.sealed)
            return Credential(row.user_id, row.provider, decode(plain), row.number)
        except (CannotUnseal, ValueError) as error:
            raise needed(row, str(error)) from None

    async def _save(self, place: Place) -> None:
        row = self._unsaved[place]
        await self.users.put_credential(row, expected=row.number)
        if self._unsaved.get(place) is row:  # stored; or a person has changed it meanwhile, which counts
            del self._unsaved[place]

    def _sealed(self, place: Place, value: Value, set_at: float) -> SealedCredential:
        sealed = self.keys.seal(*place, encode(value), self._nonce(NONCE_BYTES))
        return SealedCredential(*place, kind_of(value), self.keys.current.id, sealed, set_at)

    def _remembered(self, row: SealedCredential, number: int) -> SealedCredential:
        kept = replace(row, number=number)
        self._remember((row.user_id, row.provider), kept)
        return kept

    def _remember(self, place: Place, row: SealedCredential | None) -> None:
        self._seen[place] = row
        self._seen.move_to_end(place)
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)


def needed(row: SealedCredential, why: str) -> NeedsCredential:
    return NeedsCredential(row.provider, why, is_for_everybody=row.user_id == EVERYBODY)
