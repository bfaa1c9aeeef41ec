"""The keys of an external identity provider, by JWKS. `parse_keys` and `Refetch` are pure; `KeySet` fetches.

A `kid` is only a name to look up. Unknown names cause at most one fetch a minute, however many tokens carry them, and a
fetch that fails or returns an invalid set leaves the keys as they are.
"""

import asyncio
from typing import Any

import jwt
import orjson

from gateway.auth.tokens import VerifyKey
from gateway.telemetry.telemetry import Repeating

LARGEST_SET = 256 * 1024
MOST_KEYS = 100
FETCH_SECONDS = 5.0
FETCH_EVERY = 60.0
FRESH_SECONDS = 3600.0
_ALGORITHMS = {("RSA", None): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}


class BadKeySet(Exception):
    """The document is refused as a whole."""


def parse_keys(document: bytes) -> dict[str | None, VerifyKey]:
    """The usable keys by `kid`. Keys for other purposes are skipped; an ambiguous or dangerous one refuses the whole
    set."""
    try:
        keys = orjson.loads(document)["keys"]
    except (ValueError, TypeError, KeyError):
        raise BadKeySet("it is no JWKS") from None
    if not isinstance(keys, list) or len(keys) > MOST_KEYS or not all(isinstance(key, dict) for key in keys):
        raise BadKeySet("it is no JWKS, or too long")
    found: dict[str | None, VerifyKey] = {}
    seen: set[Any] = set()
    for key in keys:
        if key.get("kty") == "oct" or "k" in key or "d" in key:
            raise BadKeySet("it holds a secret key")
        name = key.get("kid")
        if name is not None and not isinstance(name, str):
            raise BadKeySet("a kid is no text")
        if name in seen:
            raise BadKeySet("two keys have the same kid")
        seen.add(name)
        usable = _read_key(key)
        if usable is not None:
            found[name] = usable
    if not found:
        raise BadKeySet("it has no key for RS256, ES256 or EdDSA")
    return found


def _read_key(key: dict[str, Any]) -> VerifyKey | None:
    kind, curve = key.get("kty"), key.get("crv")
    algorithm = _ALGORITHMS.get((str(kind), None if kind == "RSA" else str(curve)))
    if algorithm is None or key.get("alg", algorithm) != algorithm or key.get("use", "sig") != "sig":
        return None
    try:
        loaded = jwt.PyJWK(key, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        raise BadKeySet("a key cannot be read") from None
    if algorithm == "RS256" and loaded.key.key_size < 2048:
        raise BadKeySet("an RSA key is shorter than 2048 bits")
    return VerifyKey(algorithm, loaded)


class KeySet:
    """A JWKS address and the keys last read from it. Needs no closing: each fetch has its own connection."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._keys: dict[str | None, VerifyKey] = {}
        self._read_at = self._asked_at = float("-inf")
        self._fetching = asyncio.Lock()
        self._trouble = Repeating("jwks.unavailable")
        self.fetches = 0

    async def find(self, key_id: str | None) -> VerifyKey | None:
        """See KeySource. Waits for a fetch, at most FETCH_SECONDS, and only if the key is unknown or the set is old."""
        now = asyncio.get_running_loop().time()
        key = self._lookup(key_id)
        if key is None or (now - self._read_at > FRESH_SECONDS and not self._fetching.locked()):
            await self._refresh()
            key = self._lookup(key_id)
        return key

    def _lookup(self, key_id: str | None) -> VerifyKey | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    async def _refresh(self) -> None:
        async with self._fetching:  # a caller that waited here finds the minute's fetch used
            now = asyncio.get_running_loop().time()
            if now - self._asked_at < FETCH_EVERY:
                return
            self._asked_at = now
            try:
                async with asyncio.timeout(FETCH_SECONDS):
                    self._keys = parse_keys(await self._fetch())
            except (OSError, TimeoutError, BadKeySet) as exc:
                self._trouble.failed(now=now, cause=str(exc) or type(exc).__name__)
                return
            self._read_at = now
            self._trouble.worked()

    async def _fetch(self) -> bytes:
        import httpx  # here, because it takes longer to import than the whole gateway without it

        self.fetches += 1
        body = bytearray()
        try:
            async with (
                httpx.AsyncClient(follow_redirects=False, trust_env=False, timeout=FETCH_SECONDS) as client,
                client.stream("GET", self._url, headers={"accept": "application/json"}) as response,
            ):
                if response.status_code != 200:
                    raise BadKeySet(f"it answers {response.status_code}")
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > LARGEST_SET:
                        raise BadKeySet("it is too long")
        except httpx.HTTPError as exc:
            raise OSError(str(exc) or type(exc).__name__) from exc
        return bytes(body)
