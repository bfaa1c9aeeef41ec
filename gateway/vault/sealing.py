"""Sealing: AES-256-GCM, with a nonce of its own each time, bound to the user and the provider. Pure: nonces are
arguments.

A sealed value that is moved to another user's row, or to another provider's, does not open. The id of the key that
sealed a value is stored with it, so that a wrong key can be distinguished from a damaged value, and two keys can be in
use while values are sealed again.
"""

from collections.abc import Iterable

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

NONCE_BYTES = 12
FORMAT = b"\x01"
_KEY, _ID = b"holdfast vault key", b"holdfast vault key id"


class CannotUnseal(Exception):
    """The text gives the reason. It contains nothing of the value."""


class UnknownKey(CannotUnseal):
    """Another key has sealed it."""


class DamagedSeal(CannotUnseal):
    """It was changed after sealing, or belongs to another place."""


class VaultKey:
    """A key, derived from a secret text. `id` identifies it, and reveals nothing else."""

    __slots__ = ("_cipher", "id")

    def __init__(self, text: str) -> None:
        secret = text.encode()
        self.id = _derived(secret, _ID, 8).hex()
        self._cipher = AESGCM(_derived(secret, _KEY, 32))

    def __repr__(self) -> str:
        return f"VaultKey({self.id})"

    def seal(self, user_id: str, provider: str, plain: bytes, nonce: bytes) -> bytes:
        return FORMAT + nonce + self._cipher.encrypt(nonce, plain, self._bound_to(user_id, provider))

    def unseal(self, user_id: str, provider: str, sealed: bytes) -> bytes:
        """Raises DamagedSeal."""
        nonce, text = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        if sealed[:1] != FORMAT or len(nonce) < NONCE_BYTES:
            raise DamagedSeal("the stored credential is damaged: set it again")
        try:
            return self._cipher.decrypt(nonce, text, self._bound_to(user_id, provider))
        except InvalidTag:
            raise DamagedSeal("the stored credential is damaged: set it again") from None

    def _bound_to(self, user_id: str, provider: str) -> bytes:
        return orjson.dumps([user_id, provider, self.id])


class Keyring:
    """The key that seals, and older ones that still open."""

    def __init__(self, current: VaultKey, older: Iterable[VaultKey] = ()) -> None:
        self.current = current
        self._by_id = {key.id: key for key in (*older, current)}

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self._by_id)

    def seal(self, user_id: str, provider: str, plain: bytes, nonce: bytes) -> bytes:
        return self.current.seal(user_id, provider, plain, nonce)

    def unseal(self, key_id: str, user_id: str, provider: str, sealed: bytes) -> bytes:
        """Raises UnknownKey, DamagedSeal."""
        key = self._by_id.get(key_id)
        if key is None:
            raise UnknownKey(
                "the stored credential was sealed with another vault key: bring that one back "
                "(HOLDFAST_VAULT_KEY, HOLDFAST_VAULT_KEY_OLD, or secrets/vault_key of the data directory), "
                "or set the credential again"
            )
        return key.unseal(user_id, provider, sealed)


def _derived(secret: bytes, purpose: bytes, size: int) -> bytes:
    return HKDF(SHA256(), size, salt=None, info=purpose).derive(secret)
