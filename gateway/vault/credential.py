"""The kinds of credentials: a key, the tokens of an OAuth grant, or an app of a git host. Pure.

None of these shows a value when it is printed. A client's input is checked here, so that a value can stand in a
request's head as it is. A refusal names the member and never repeats a value.
"""

import math
import re
from typing import Any

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from persistence.record import NO_USER

EVERYBODY = NO_USER  # the `user_id` of the operator's credential, which all users' sessions may use
LONGEST_KEY = 8 * 1024
LONGEST_PRIVATE_KEY = 16 * 1024
MOST_PER_USER = 64
KINDS = ("api", "oauth", "app")
A_KEY = f"1 to {LONGEST_KEY} printable ASCII characters without spaces"
AN_APP_ID = "the number of the app, or its client id"
A_PRIVATE_KEY = f"an RSA key in PEM, not encrypted, of at most {LONGEST_PRIVATE_KEY} characters"
AN_EXPIRY = "when `access` ends, in milliseconds or seconds since 1970"
_MILLISECONDS = 10**11  # a larger number counts those: as seconds it would lie beyond the year 5000
_LATEST = 253402300799 * 1000  # the end of the year 9999
_WORD = re.compile(rf"[!-~]{{1,{LONGEST_KEY}}}", re.ASCII)
_APP_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


class BadCredential(Exception):
    """`member` must be `wanted`."""

    def __init__(self, member: str, wanted: str) -> None:
        super().__init__(f"{member} must be {wanted}")
        self.member = member
        self.wanted = wanted


class _Secret(msgspec.Struct, frozen=True, tag_field="type", repr_omit_defaults=True):
    def __repr__(self) -> str:
        return f"{type(self).__name__}(**********)"


class ApiKey(_Secret, frozen=True, tag="api"):
    key: str


class OAuthTokens(_Secret, frozen=True, tag="oauth"):
    """`expires` is kept in the unit that it came in; 0: unknown."""

    access: str
    refresh: str = ""
    expires: int = 0

    @property
    def expires_at(self) -> float:
        """Seconds since 1970; infinity if unknown."""
        if self.expires == 0:
            return math.inf
        return self.expires / 1000 if self.expires >= _MILLISECONDS else float(self.expires)


class GitApp(_Secret, frozen=True, tag="app"):
    """An app of a git host: tokens for single repositories are made with its key."""

    app_id: str
    private_key: str


Value = ApiKey | OAuthTokens | GitApp
_DECODER: msgspec.json.Decoder[Value] = msgspec.json.Decoder(Value)


class Credential(msgspec.Struct, frozen=True):
    """A user's credential, or the operator's for all users. `number` is that of the stored row: a caller whose
    credential was refused asks for another one by it."""

    user_id: str
    provider: str
    value: Value
    number: int = 0

    @property
    def is_for_everybody(self) -> bool:
        return self.user_id == EVERYBODY

    @property
    def is_oauth(self) -> bool:
        return isinstance(self.value, OAuthTokens)

    @property
    def token(self) -> str:
        """The token for a request: the key, or the access token. An app has none."""
        match self.value:
            case ApiKey(key):
                return key
            case OAuthTokens(access):
                return access
        return ""


def kind_of(value: Value) -> str:
    return str(type(value).__struct_config__.tag)


def encode(value: Value) -> bytes:
    return msgspec.json.encode(value)


def decode(plain: bytes) -> Value:
    """Raises ValueError for a value that a newer version wrote."""
    try:
        return _DECODER.decode(plain)
    except msgspec.MsgspecError as error:
        raise ValueError("this version of Holdfast cannot read it") from error


def read_value(
    kind: str,
    *,
    key: str | None = None,
    access: str | None = None,
    refresh: str | None = None,
    expires: float | None = None,
    app_id: str | None = None,
    private_key: str | None = None,
) -> Value:
    """The credential of that kind. Raises BadCredential, also for members of other kinds."""
    given: dict[str, Any] = {
        "key": key, "access": access, "refresh": refresh, "expires": expires,
        "appId": app_id, "privateKey": private_key,
    }  # fmt: skip
    if kind not in KINDS:
        raise BadCredential("type", f"one of {', '.join(KINDS)}")
    takes = {"api": ("key",), "oauth": ("access", "refresh", "expires"), "app": ("appId", "privateKey")}[kind]
    if alien := [name for name, value in given.items() if value is not None and name not in takes]:
        raise BadCredential(alien[0], f"left out: type {kind} takes {', '.join(takes)}")
    if kind == "api":
        return ApiKey(_word("key", key))
    if kind == "oauth":
        tokens = OAuthTokens(_word("access", access), _word("refresh", refresh) if refresh else "")
        return msgspec.structs.replace(tokens, expires=_expiry(expires))
    if app_id is None or not _APP_ID.fullmatch(app_id):
        raise BadCredential("appId", AN_APP_ID)
    return GitApp(app_id, _private_key(private_key))


def _word(member: str, text: str | None) -> str:
    if text is None or not _WORD.fullmatch(text):
        raise BadCredential(member, A_KEY)
    return text


def _expiry(value: float | None) -> int:
    if value is None:
        return 0
    if not 0 <= value <= _LATEST:
        raise BadCredential("expires", AN_EXPIRY)
    return int(value)


def _private_key(text: str | None) -> str:
    if text is None or len(text) > LONGEST_PRIVATE_KEY or not text.isascii():
        raise BadCredential("privateKey", A_PRIVATE_KEY)
    try:
        key = load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadCredential("privateKey", A_PRIVATE_KEY) from None
    if not isinstance(key, RSAPrivateKey):
        raise BadCredential("privateKey", A_PRIVATE_KEY)
    return text
