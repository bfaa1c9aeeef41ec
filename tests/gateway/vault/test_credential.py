"""Credentials as clients write them, as they are kept, and as they are shown."""

import math
import re

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from gateway.vault.credential import (
    EVERYBODY,
    LONGEST_KEY,
    ApiKey,
    BadCredential,
    Credential,
    GitApp,
    OAuthTokens,
    Value,
    decode,
    encode,
    kind_of,
    read_value,
)

WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=50)
VALUES = (
    st.builds(ApiKey, WORDS)
    | st.builds(OAuthTokens, WORDS, st.just("") | WORDS, st.integers(0, 10**14))
    | st.builds(GitApp, WORDS, WORDS)
)


def pem(key: PrivateKeyTypes | None = None) -> str:
    made = key or generate_private_key(65537, 2048)
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@given(VALUES)
def test_what_is_kept_comes_back_and_shows_nothing(value: Value) -> None:
    assert decode(encode(value)) == value
    shown = repr(value) + repr(Credential("ann", "openai", value))
    assert re.fullmatch(
        r"(\w+)\(\*{10}\)Credential\(user_id='ann', provider='openai', value=\1\(\*{10}\), number=0\)", shown
    )


@pytest.mark.parametrize("plain", [b"", b"{}", b'{"type":"later"}', b'{"type":"api"}', b"\xff"])
def test_what_a_newer_version_wrote_is_said_to_be_unreadable(plain: bytes) -> None:
    with pytest.raises(ValueError, match="this version of Holdfast cannot read it"):
        decode(plain)


def test_each_kind_is_read_from_its_own_members() -> None:
    private_key = pem()
    assert read_value("api", key="sk-1") == ApiKey("sk-1")
    assert read_value("oauth", access="a") == OAuthTokens("a")
    assert read_value("oauth", access="a", refresh="r", expires=1234.5) == OAuthTokens("a", "r", 1234)
    assert read_value("app", app_id="12", private_key=private_key) == GitApp("12", private_key)
    assert [kind_of(each) for each in (ApiKey("k"), OAuthTokens("a"), GitApp("1", "k"))] == ["api", "oauth", "app"]


@pytest.mark.parametrize(
    ("kind", "members", "member"),
    [
        ("password", {}, "type"),
        ("api", {}, "key"),
        ("api", {"key": ""}, "key"),
        ("api", {"key": "sk canary"}, "key"),
        ("api", {"key": "sk-canary\n"}, "key"),
        ("api", {"key": "sk-canary\0"}, "key"),
        ("api", {"key": "sk-canärie"}, "key"),
        ("api", {"key": "\ud800"}, "key"),
        ("api", {"key": "x" * (LONGEST_KEY + 1)}, "key"),
        ("api", {"key": "sk-canary", "access": "a"}, "access"),
        ("oauth", {}, "access"),
        ("oauth", {"access": "a", "key": "sk-canary"}, "key"),
        ("oauth", {"access": "a", "refresh": "b c"}, "refresh"),
        ("oauth", {"access": "a", "expires": -1}, "expires"),
        ("oauth", {"access": "a", "expires": math.inf}, "expires"),
        ("oauth", {"access": "a", "expires": math.nan}, "expires"),
        ("oauth", {"access": "a", "expires": 1e30}, "expires"),
        ("app", {}, "appId"),
        ("app", {"app_id": "a b"}, "appId"),
        ("app", {"app_id": "1"}, "privateKey"),
        ("app", {"app_id": "1", "private_key": "canary"}, "privateKey"),
        ("app", {"app_id": "1", "private_key": "-----BEGIN ü"}, "privateKey"),
        ("app", {"app_id": "1", "private_key": "x" * 20_000}, "privateKey"),
        ("app", {"app_id": "1", "private_key": pem(Ed25519PrivateKey.generate())}, "privateKey"),
    ],
)
def test_what_is_none_is_refused_by_the_name_of_its_member(kind: str, members: dict[str, object], member: str) -> None:
    with pytest.raises(BadCredential) as refused:
        read_value(kind, **members)  # type: ignore[arg-type]
    assert refused.value.member == member
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("expires", "at"), [(0, math.inf), (1_800_000_000, 1.8e9), (1_800_000_000_500, 1_800_000_000.5)]
)
def test_an_end_is_in_seconds_whichever_way_it_was_written(expires: int, at: float) -> None:
    assert OAuthTokens("a", "r", expires).expires_at == at


def test_a_request_carries_the_key_or_the_access_token() -> None:
    tokens = [Credential("ann", "x", each).token for each in (ApiKey("k"), OAuthTokens("a", "r"), GitApp("1", "k"))]
    assert tokens == ["k", "a", ""]
    assert [Credential("ann", "x", each).is_oauth for each in (ApiKey("k"), OAuthTokens("a"))] == [False, True]
    assert [Credential(user, "x", ApiKey("k")).is_for_everybody for user in ("ann", EVERYBODY)] == [False, True]
