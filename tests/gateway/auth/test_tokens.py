"""The identity corpus, tokens: each row is something an attacker or a careless issuer has sent."""

import asyncio
import base64
import hashlib
import hmac
import json
import math
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.tokens import (
    LEEWAY_SECONDS,
    LONGEST_TOKEN,
    Principal,
    SharedSecret,
    TokenError,
    TokenVerifier,
    VerifyKey,
    mint,
    principal_of,
)
from gateway.config.settings import SecretStr

NOW = 1_800_000_000.0
SECRET = SecretStr("the-secret-of-this-test-0123456789abcdef")
GOOD: dict[str, Any] = {"userId": "ada", "email": "ada@example.com", "exp": NOW + 600}
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
RSA_PEM = RSA_KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


class OneKey:
    def __init__(self, key: VerifyKey) -> None:
        self.key = key

    async def find(self, key_id: str | None) -> VerifyKey | None:
        return self.key


def shared(**options: Any) -> TokenVerifier:
    return TokenVerifier(SharedSecret(SECRET), utcnow=lambda: NOW, **options)


def by_rsa() -> TokenVerifier:
    return TokenVerifier(OneKey(VerifyKey("RS256", RSA_KEY.public_key())), utcnow=lambda: NOW)


def segment(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def forge(header: Any, claims: Any = GOOD, *, key: bytes | None = SECRET.get_secret_value().encode()) -> str:
    """A token made by hand, signed with HMAC-SHA256 whatever its header says; key None leaves the signature empty."""
    signed = f"{segment(header)}.{segment(claims)}"
    mac = b"" if key is None else hmac.new(key, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{segment(mac) if mac else ''}"


def signed(**changes: Any) -> str:
    claims = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    return forge({"alg": "HS256", "typ": "JWT"}, claims)


async def refusal(verifier: TokenVerifier, token: str) -> str:
    with pytest.raises(TokenError) as caught:
        await verifier.verify(token)
    assert not token or token not in caught.value.message
    return caught.value.code


async def test_a_good_token_says_who_it_is() -> None:
    assert await shared().verify(signed(), via="header") == Principal(
        "user", "ada", "ada@example.com", NOW + 600, "header"
    )


FORGERIES: dict[str, tuple[str, str]] = {
    "three letters": ("x.y.z", "token_invalid"),
    "empty": ("", "token_invalid"),
    "two parts": ("a.b", "token_invalid"),
    "four parts": (signed() + ".x", "token_invalid"),
    "no signature": (forge({"alg": "HS256"}, key=None), "token_invalid"),
    "another secret": (forge({"alg": "HS256"}, key=b"z" * 40), "token_invalid"),
    "one bit of the signature": (signed()[:-2] + ("A" if signed()[-2] != "A" else "B") + signed()[-1], "token_invalid"),
    "alg none": (forge({"alg": "none"}, key=None), "token_algorithm"),
    "alg nOnE": (forge({"alg": "nOnE"}, key=None), "token_algorithm"),
    "alg none with a signature": (forge({"alg": "none"}), "token_algorithm"),
    "alg HS512": (forge({"alg": "HS512"}), "token_algorithm"),
    "alg RS256 with an HS body": (forge({"alg": "RS256"}), "token_algorithm"),
    "alg missing": (forge({"typ": "JWT"}), "token_algorithm"),
    "alg a list": (forge({"alg": ["HS256"]}), "token_algorithm"),
    "header a list": (forge([1]), "token_invalid"),
    "header no JSON": (f"{segment(b'{')}.{segment(GOOD)}.{segment(b'x')}", "token_invalid"),
    "unknown crit": (forge({"alg": "HS256", "crit": ["x"], "x": 1}), "token_invalid"),
    "known crit": (forge({"alg": "HS256", "crit": ["b64"], "b64": True}), "token_invalid"),
    "empty crit": (forge({"alg": "HS256", "crit": []}), "token_invalid"),
    "detached payload": (forge({"alg": "HS256", "b64": False}), "token_invalid"),
    "kid a number": (forge({"alg": "HS256", "kid": 7}), "token_invalid"),
    "claims a list": (forge({"alg": "HS256"}, [1]), "token_invalid"),
    "claims no JSON": (forge({"alg": "HS256"}, b"{"), "token_invalid"),
    "not ASCII": (signed() + "ä", "token_invalid"),
    "a line break": (signed() + "\n", "token_invalid"),
    "padding junk": (signed() + "!!!!", "token_invalid"),
    "8 KiB and a byte": ("a" * (LONGEST_TOKEN + 1), "token_too_long"),
    "10 MiB": (signed() + "x" * (10 << 20), "token_too_long"),
    "10 MiB of detached payload": (f"{segment({'alg': 'HS256', 'b64': False})}." + "x" * (10 << 20), "token_too_long"),
}


@pytest.mark.parametrize(("token", "code"), FORGERIES.values(), ids=FORGERIES.keys())
async def test_a_forged_token_is_refused(token: str, code: str) -> None:
    assert await refusal(shared(), token) == code


@pytest.mark.parametrize("key", [RSA_PEM, RSA_PEM.strip(), b"", b"\0" * 32], ids=["pem", "stripped", "empty", "zeros"])
async def test_the_public_key_is_no_shared_secret(key: bytes) -> None:
    """The classic confusion: an HS256 token signed with the bytes of the RSA public key."""
    assert await refusal(by_rsa(), forge({"alg": "HS256"}, key=key)) == "token_algorithm"
    assert await refusal(by_rsa(), forge({"alg": "RS256"}, key=key)) == "token_invalid"


async def test_an_rsa_token_is_taken_by_its_key_and_by_no_other() -> None:
    token = jwt.encode(GOOD, RSA_KEY, "RS256")
    assert (await by_rsa().verify(token)).user_id == "ada"
    assert await refusal(shared(), token) == "token_algorithm"
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert await refusal(by_rsa(), jwt.encode(GOOD, other, "RS256")) == "token_invalid"
    assert await refusal(by_rsa(), jwt.encode(GOOD, RSA_KEY, "RS512")) == "token_algorithm"
    assert await refusal(by_rsa(), jwt.encode(GOOD, RSA_KEY, "PS256")) == "token_algorithm"


def test_a_short_secret_is_no_secret() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        SharedSecret(SecretStr("abcde"))


CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "no exp": ({"exp": None}, "token_claims"),
    "exp a text": ({"exp": str(NOW + 600)}, "token_claims"),
    "exp true": ({"exp": True}, "token_claims"),
    "exp a list": ({"exp": [NOW + 600]}, "token_claims"),
    "exp negative": ({"exp": -1}, "token_claims"),
    "exp huge": ({"exp": 10**30}, "token_claims"),
    "exp past": ({"exp": NOW - LEEWAY_SECONDS}, "token_expired"),
    "exp in the year 3000": ({"exp": 32_503_680_000}, "token_claims"),
    "nbf +31 s": ({"nbf": NOW + 31}, "token_not_yet_valid"),
    "nbf a text": ({"nbf": "soon"}, "token_claims"),
    "iat +31 s": ({"iat": NOW + 31}, "token_not_yet_valid"),
    "no userId": ({"userId": None}, "token_claims"),
    "userId empty": ({"userId": ""}, "token_claims"),
    "userId a number": ({"userId": 7}, "token_claims"),
    "userId an object": ({"userId": {"$ne": ""}}, "token_claims"),
    "userId too long": ({"userId": "x" * 257}, "token_claims"),
    "userId with NUL": ({"userId": "ada\0"}, "token_claims"),
    "userId with a line break": ({"userId": "ada\nroot"}, "token_claims"),
    "userId with a direction mark": ({"userId": "ada\u202e"}, "token_claims"),
    "no email": ({"email": None}, "token_claims"),
    "email a list": ({"email": ["ada@example.com"]}, "token_claims"),
    "iss missing": ({"iss": None}, "token_claims"),
    "iss a prefix": ({"iss": "https://issuer.exampl"}, "token_claims"),
    "iss longer": ({"iss": "https://issuer.example.evil.tld"}, "token_claims"),
    "iss a list": ({"iss": ["https://issuer.example"]}, "token_claims"),
    "aud missing": ({"aud": None}, "token_claims"),
    "aud another": ({"aud": "holdfast-2"}, "token_claims"),
    "aud a prefix": ({"aud": "holdfas"}, "token_claims"),
    "aud an object": ({"aud": {"holdfast": 1}}, "token_claims"),
}


@pytest.mark.parametrize(("changes", "code"), CLAIMS.values(), ids=CLAIMS.keys())
async def test_a_wrong_claim_is_refused(changes: dict[str, Any], code: str) -> None:
    verifier = shared(issuer="https://issuer.example", audience="holdfast")
    good = {"iss": "https://issuer.example", "aud": "holdfast"}
    assert (await verifier.verify(signed(**good))).user_id == "ada"
    assert await refusal(verifier, signed(**{**good, **changes})) == code


@pytest.mark.parametrize(
    "changes", [{"exp": NOW - 29}, {"nbf": NOW + 30}, {"iat": NOW + 30}, {"aud": "any"}, {"sub": 5}]
)
async def test_clocks_may_differ_by_the_leeway_and_unused_claims_do_not_matter(changes: dict[str, Any]) -> None:
    assert (await shared().verify(signed(**changes))).user_id == "ada"


async def test_one_of_several_audiences_is_enough() -> None:
    assert (await shared(audience="holdfast").verify(signed(aud=["x", "holdfast"]))).user_id == "ada"


async def test_a_minted_token_is_accepted_where_it_was_made() -> None:
    token = mint(SECRET, "ada", "ada@example.com", 60, now=NOW, issuer="i", audience="a")
    who = await shared(issuer="i", audience="a").verify(token)
    assert (who.user_id, who.email, who.expires_at) == ("ada", "ada@example.com", NOW + 60)


@pytest.mark.parametrize("mistake", [("", "e@x", 60.0), ("u", "", 60.0), ("u", "e@x", -60.0), ("u", "e@x", 1e12)])
def test_a_token_nobody_would_accept_is_not_minted(mistake: tuple[str, str, float]) -> None:
    with pytest.raises(TokenError):
        mint(SECRET, *mistake, now=NOW)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(["exp", "nbf", "iat", "userId", "email", "iss", "aud"], json_values)
    )
)
def test_claims_of_any_shape_give_a_user_or_a_token_error(claims: dict[str, Any]) -> None:
    try:
        who = principal_of(claims, NOW, issuer="i", audience="a")
    except TokenError:
        return
    assert who.kind == "user"
    assert math.isfinite(who.expires_at)
    assert claims["iss"] == "i"


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: f"{segment(raw)}.{segment(raw)}.{segment(raw)}"))
def test_any_other_text_is_refused_in_an_orderly_way(token: str) -> None:
    with pytest.raises(TokenError):
        asyncio.run(shared().verify(token))
