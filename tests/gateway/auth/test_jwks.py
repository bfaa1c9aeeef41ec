"""Keys by JWKS: what a key set may hold, and how often it is asked for."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from gateway.auth import jwks
from gateway.auth.jwks import BadKeySet, KeySet, parse_keys
from gateway.auth.tokens import TokenError, TokenVerifier

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
KEYS: dict[str, Any] = {"RS256": RSA, "ES256": EC, "EdDSA": ED}


def public(algorithm: str, kid: str | None, **members: Any) -> dict[str, Any]:
    shape = jwt.get_algorithm_by_name(algorithm)
    text = shape.to_jwk(KEYS[algorithm].public_key())
    return {**json.loads(text), **({"kid": kid} if kid is not None else {}), **members}


def document(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def token(algorithm: str, kid: str | None, user: str = "ada") -> str:
    claims = {"userId": user, "email": "a@x", "exp": int(time.time()) + 60, "iss": "i", "aud": "a"}
    return jwt.encode(claims, KEYS[algorithm], algorithm, headers={"kid": kid} if kid is not None else None)


class KeyServer:
    """A small HTTP server; `answer` is what it says next."""

    def __init__(self) -> None:
        self.answer = b""
        self.asked = 0
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        writer.write(self.answer)
        await writer.drain()
        writer.close()

    def says(self, body: bytes, status: str = "200 OK", more: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n"
        self.answer = head.encode() + body


@asynccontextmanager
async def key_server() -> AsyncIterator[KeyServer]:
    keys = KeyServer()
    server = await asyncio.start_server(keys._serve, "127.0.0.1", 0)
    keys.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/jwks"
    try:
        yield keys
    finally:
        server.close()
        await server.wait_closed()


def verifier(keys: KeySet) -> TokenVerifier:
    return TokenVerifier(keys, issuer="i", audience="a")


async def refused(check: TokenVerifier, text: str) -> str:
    with pytest.raises(TokenError) as caught:
        await check.verify(text)
    return caught.value.code


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_each_algorithm_is_verified_by_its_key(algorithm: str) -> None:
    async with key_server() as server:
        server.says(document(*(public(name, name) for name in KEYS)))
        check = verifier(KeySet(server.url))
        assert (await check.verify(token(algorithm, algorithm))).user_id == "ada"
        other = "ES256" if algorithm == "RS256" else "RS256"
        assert await refused(check, token(algorithm, other)) == "token_algorithm"
        assert server.asked == 1


async def test_a_token_without_kid_uses_the_only_key_and_none_of_several() -> None:
    async with key_server() as server:
        server.says(document(public("ES256", "one")))
        assert (await verifier(KeySet(server.url)).verify(token("ES256", None))).user_id == "ada"
        server.says(document(public("ES256", "one"), public("RS256", "two")))
        assert await refused(verifier(KeySet(server.url)), token("ES256", None)) == "token_key"


async def test_ten_thousand_unknown_kids_cause_one_request_and_good_tokens_still_work() -> None:
    async with key_server() as server:
        server.says(document(public("ES256", "good")))
        keys = KeySet(server.url)
        check = verifier(keys)
        good = token("ES256", "good")
        for kid in ["../../x", "' OR 1=1", "", "\x00", "https://evil.example/jwks"]:
            assert await refused(check, token("ES256", kid)) == "token_key"
        found = await asyncio.gather(*(keys.find(f"random-{n}") for n in range(10_000)))
        assert set(found) == {None}
        assert (await check.verify(good)).user_id == "ada"
        assert server.asked == keys.fetches == 1


async def test_a_new_key_is_found_a_minute_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with key_server() as server:
        server.says(document(public("ES256", "old")))
        keys = KeySet(server.url)
        assert await keys.find("old") is not None
        server.says(document(public("ES256", "old"), public("RS256", "new")))
        assert await keys.find("new") is None
        monkeypatch.setattr(jwks, "FETCH_EVERY", 0.0)
        assert await keys.find("new") is not None
        assert server.asked == 2


FAILURES: dict[str, Callable[[KeyServer], None]] = {
    "500": lambda server: server.says(b"no", "500 Internal Server Error"),
    "a redirect": lambda server: server.says(b"", "302 Found", "Location: http://169.254.169.254/\r\n"),
    "no JSON": lambda server: server.says(b"<html>"),
    "an empty set": lambda server: server.says(document()),
    "a set too long": lambda server: server.says(b" " * (jwks.LARGEST_SET + 1)),
    "a secret key": lambda server: server.says(document({"kty": "oct", "k": "c2VjcmV0", "kid": "x"})),
    "nothing at all": lambda server: setattr(server, "answer", b""),
}


@pytest.mark.parametrize("fail", FAILURES.values(), ids=FAILURES.keys())
async def test_a_fetch_that_fails_keeps_the_keys(
    fail: Callable[[KeyServer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "FETCH_EVERY", 0.0)
    async with key_server() as server:
        server.says(document(public("EdDSA", "kept")))
        check = verifier(KeySet(server.url))
        assert (await check.verify(token("EdDSA", "kept"))).user_id == "ada"
        fail(server)
        assert await refused(check, token("EdDSA", "unknown")) == "token_key"
        assert server.asked == 2
        assert (await check.verify(token("EdDSA", "kept"))).user_id == "ada"


async def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "FETCH_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and is never accepted
        keys = KeySet(f"http://127.0.0.1:{silent.getsockname()[1]}/")
        assert await keys.find("x") is None
        assert keys.fetches == 1


async def test_an_old_set_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with key_server() as server:
        server.says(document(public("ES256", "a")))
        keys = KeySet(server.url)
        assert await keys.find("a") is not None
        monkeypatch.setattr(jwks, "FETCH_EVERY", 0.0)
        monkeypatch.setattr(jwks, "FRESH_SECONDS", -1.0)
        server.says(document(public("ES256", "b")))
        assert await keys.find("a") is None  # the provider took the key back


BAD_SETS: dict[str, bytes] = {
    "no object": b"[]",
    "keys no list": b'{"keys": {}}',
    "a key no object": b'{"keys": [1]}',
    "too many": document(*({"kty": "RSA", "kid": str(n)} for n in range(101))),
    "duplicate kid": document(public("ES256", "a"), public("RS256", "a")),
    "duplicate kid of an unused key": document(public("ES256", "a"), {"kty": "RSA", "use": "enc", "kid": "a"}),
    "two keys without kid": document(public("ES256", None), public("RS256", None)),
    "kid a number": document({**public("ES256", None), "kid": 7}),
    "symmetric": document(public("ES256", "a"), {"kty": "oct", "k": "c2VjcmV0", "kid": "b", "alg": "HS256"}),
    "private": document(public("ES256", "a", d="secret")),
    "unreadable": document({"kty": "RSA", "n": "!", "e": "AQAB", "kid": "a"}),
    "weak RSA": document(
        {
            **json.loads(
                jwt.get_algorithm_by_name("RS256").to_jwk(
                    rsa.generate_private_key(public_exponent=65537, key_size=1024).public_key()
                )
            ),
            "kid": "a",
        }
    ),
    "only keys of other kinds": document({"kty": "EC", "crv": "P-521", "x": "a", "y": "b", "kid": "a"}),
    "only another algorithm": document(public("RS256", "a", alg="RS512")),
}


@pytest.mark.parametrize("text", BAD_SETS.values(), ids=BAD_SETS.keys())
def test_a_key_set_that_could_confuse_is_refused(text: bytes) -> None:
    with pytest.raises(BadKeySet):
        parse_keys(text)


def test_keys_for_other_purposes_are_passed_over() -> None:
    found = parse_keys(document(public("ES256", "a"), public("RS256", "b", use="enc"), {"kty": "weird", "kid": "c"}))
    assert {name: key.algorithm for name, key in found.items()} == {"a": "ES256"}
