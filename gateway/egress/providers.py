"""Providers: the APIs that a sandbox may use without holding their keys, and the allowed paths of each. Pure.

A provider has one origin. A sandbox asks for `http://127.0.0.1:3128/<provider>/<path>`; the proxy asks the origin for
`<path>` and adds the key. The allowed paths are listed by the kind of the API: the paths that agents need to talk to a
model, and none with which an account could be read or changed. Parameters that carry keys do not pass, nor those that
hide from the meter what an answer cost.

The operator's file (TOML) adds providers and replaces members of those that are built in:

    [anthropic]
    origin = "https://models.example.com/anthropic"

    [house]
    origin = "http://10.0.0.7:8000"
    apis = ["openai-chat"]

An origin of that file may use plain HTTP and a private address: the operator has named it. A built-in one uses TLS and
a public address.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

NAME = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
RESERVED = ("git", "holdfast", "proxy")  # paths of the proxy's own
MOST_PROVIDERS = 100
# Parameters of an address that do not pass: those with keys, those that change what is asked, and those that change the
# answer's form or leave out the counts of its tokens.
_NO_PARAMETERS = frozenset(
    (
        *("key", "api_key", "api-key", "apikey", "access_token", "oauth_token", "token"),
        *("$httpmethod", "fields", "$fields", "callback", "$callback", "$alt"),
    )
)
_PATH = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)+", re.ASCII)
_BASE = re.compile(r"(?:/[A-Za-z0-9._~-]+)*", re.ASCII)
_MODEL = r"[A-Za-z0-9._~@%-][A-Za-z0-9._~@:%/-]*"
_USER = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


class Api(StrEnum):
    """The known kinds of API."""

    ANTHROPIC = "anthropic-messages"
    RESPONSES = "openai-responses"
    CHAT = "openai-chat"
    GOOGLE = "google-generative"
    GIT = "git"


class KeyHeader(StrEnum):
    """The header that carries a key."""

    X_API_KEY = "x-api-key"
    BEARER = "bearer"
    GOOGLE = "x-goog-api-key"
    BASIC = "basic"


@dataclass(frozen=True, slots=True)
class ApiPath:
    """`metered`: an answer costs tokens."""

    api: Api
    method: str
    pattern: re.Pattern[str]
    metered: bool = False


def _path(api: Api, method: str, pattern: str, *, metered: bool = False) -> ApiPath:
    return ApiPath(api, method, re.compile(pattern, re.ASCII), metered)


PATHS = (
    _path(Api.ANTHROPIC, "POST", "/v1/messages", metered=True),
    _path(Api.ANTHROPIC, "POST", "/v1/messages/count_tokens"),
    _path(Api.ANTHROPIC, "GET", f"/v1/models(/{_MODEL})?"),
    _path(Api.RESPONSES, "POST", "(/v1)?/responses(/compact)?", metered=True),
    _path(Api.RESPONSES, "GET", f"(/v1)?/models(/{_MODEL})?"),
    _path(Api.CHAT, "POST", "(/v1)?/chat/completions", metered=True),
    _path(Api.CHAT, "GET", f"(/v1)?/models(/{_MODEL})?"),
    _path(Api.GOOGLE, "POST", f"/v1[a-z0-9]*/models/{_MODEL}:(streamG|g)enerateContent", metered=True),
    _path(Api.GOOGLE, "POST", f"/v1[a-z0-9]*/models/{_MODEL}:countTokens"),
    _path(Api.GOOGLE, "GET", f"/v1[a-z0-9]*/models(/{_MODEL})?"),
)
_GOOGLE_MODEL = re.compile(rf"/v1[a-z0-9]*/models/({_MODEL}):[A-Za-z]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ModelProvider:
    """`origin` has a scheme, a host, perhaps a port and a path, and no slash at its end. `key_user` is the name beside
    a key that is sent by Basic. `ca_file` has the certificates to check its own with; "": the system's. `of_operator`:
    it was named in the operator's file. `token_api` is the address where a git host makes tokens for an app."""

    name: str
    origin: str
    apis: tuple[Api, ...]
    key: KeyHeader = KeyHeader.BEARER
    key_user: str = ""
    ca_file: str = ""
    of_operator: bool = False
    token_api: str = ""
    oauth_headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_git_host(self) -> bool:
        return Api.GIT in self.apis

    @property
    def host(self) -> str:
        return urlsplit(self.origin).hostname or ""

    @property
    def port(self) -> int:
        parts = urlsplit(self.origin)
        return parts.port or (443 if parts.scheme == "https" else 80)

    @property
    def is_tls(self) -> bool:
        return self.origin.startswith("https:")

    @property
    def base_path(self) -> str:
        return urlsplit(self.origin).path

    @property
    def authority(self) -> str:
        """In the form of the header Host."""
        return urlsplit(self.origin).netloc


@dataclass(frozen=True, slots=True)
class Passage:
    """An allowed request, as it goes to the origin. `model` is the model in the path; "": the body names it."""

    target: str
    api: Api
    metered: bool
    model: str = ""


BUILT_IN = (
    ModelProvider(
        "anthropic",
        "https://api.anthropic.com",
        (Api.ANTHROPIC,),
        KeyHeader.X_API_KEY,
        oauth_headers={"anthropic-beta": "oauth-2025-04-20"},
    ),
    ModelProvider("openai", "https://api.openai.com", (Api.RESPONSES, Api.CHAT)),
    ModelProvider("google", "https://generativelanguage.googleapis.com", (Api.GOOGLE,), KeyHeader.GOOGLE),
    ModelProvider("openrouter", "https://openrouter.ai/api", (Api.CHAT, Api.RESPONSES, Api.ANTHROPIC)),
    ModelProvider(
        "github",
        "https://github.com",
        (Api.GIT,),
        KeyHeader.BASIC,
        key_user="x-access-token",
        token_api="https://api.github.com",
    ),
    ModelProvider("gitlab", "https://gitlab.com", (Api.GIT,), KeyHeader.BASIC, key_user="oauth2"),
)


class ModelProviders:
    """All providers, by name and, for git, by host."""

    def __init__(self, known: tuple[ModelProvider, ...] = BUILT_IN) -> None:
        self.by_name = {provider.name: provider for provider in known}
        self._git = {_git_host(provider): provider for provider in known if provider.is_git_host}

    def get(self, name: str) -> ModelProvider | None:
        return self.by_name.get(name)

    def git_host(self, host: str) -> ModelProvider | None:
        """The provider whose repositories are at `host`, which has the port where it is not the usual one."""
        return self._git.get(host.lower())


def passage(provider: ModelProvider, method: str, target: str) -> Passage | None:
    """The request for the origin; None: it is not allowed. `target` begins after the provider's name."""
    path, mark, query = target.partition("?")
    if not _PATH.fullmatch(path) or _climbs(path):
        return None
    for each in PATHS:
        if each.api in provider.apis and each.method == method and each.pattern.fullmatch(path):
            found = _GOOGLE_MODEL.fullmatch(path) if each.api is Api.GOOGLE else None
            kept = _without_keys(query) if mark else ""
            model = unquote(found[1]) if found else ""
            return Passage(provider.base_path + path + (f"?{kept}" if kept else ""), each.api, each.metered, model)
    return None


def key_headers(provider: ModelProvider, key: str, *, oauth: bool = False) -> dict[str, str]:
    """The headers that carry the credential. An OAuth access token is sent as Bearer, whatever the header of a key;
    Basic is for `basic`."""
    if oauth:
        return {"authorization": f"Bearer {key}", **provider.oauth_headers}
    if provider.key is KeyHeader.BEARER:
        return {"authorization": f"Bearer {key}"}
    return {str(provider.key): key}


def read_providers(data: bytes) -> ModelProviders:
    """The built-in ones, changed by the operator's file. Raises ValueError, with a line for each problem."""
    try:
        tables = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"is no TOML: {error}") from None
    known = {provider.name: provider for provider in BUILT_IN}
    problems: list[str] = []
    if len(tables) > MOST_PROVIDERS:
        problems.append(f"names more than {MOST_PROVIDERS} providers")
    for name, members in list(tables.items())[:MOST_PROVIDERS]:
        try:
            known[name] = _read_one(name, members, known.get(name))
        except ValueError as error:
            problems.append(f"[{name[:40]}] {error}")
    if problems:
        raise ValueError("\n".join(problems))
    return ModelProviders(tuple(known.values()))


def _read_one(name: str, members: Any, known: ModelProvider | None) -> ModelProvider:
    if not NAME.fullmatch(name) or name in RESERVED:
        raise ValueError(f"wants a name of small letters, digits and -, at most 32, and none of {', '.join(RESERVED)}")
    if not isinstance(members, dict):
        raise ValueError('wants a section: a line [name], and origin = "https://..." below it')
    if unknown := [each for each in members if each not in _MEMBERS]:
        raise ValueError(f"has no {unknown[0][:40]}: it takes {', '.join(_MEMBERS)}")
    if known is None and not {"origin", "apis"} <= members.keys():
        raise ValueError("is a new provider: it wants origin and apis")
    base = known or ModelProvider(name, "", ())
    read = {each: _MEMBERS[each](value) for each, value in members.items()}
    made = replace(base, **read, of_operator=True)
    if made.is_git_host and len(made.apis) > 1:
        raise ValueError("is a git host or has models: give each a provider of its own")
    if made.is_git_host and made.key is not KeyHeader.BASIC:
        made = replace(made, key=KeyHeader.BASIC)
    return made


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= 1000:
        raise ValueError("wants texts of at most 1,000 characters, in quotes")
    return value


def _origin(value: Any) -> str:
    wanted = ValueError("wants an origin such as https://models.example.com, perhaps with a port and a path")
    try:
        parts = urlsplit(_text(value))
        port = parts.port
    except ValueError:
        raise wanted from None
    path = parts.path.rstrip("/")
    is_plain = not (parts.query or parts.fragment or "@" in parts.netloc) and "?" not in value and "#" not in value
    if parts.scheme not in ("https", "http") or not parts.hostname or not is_plain or not _BASE.fullmatch(path):
        raise wanted
    if _climbs(path) or port == 0:
        raise wanted
    if not re.fullmatch(r"[A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\]", parts.netloc.removesuffix(f":{port}")):
        raise wanted
    return f"{parts.scheme}://{parts.netloc}{path}"


def _apis(value: Any) -> tuple[Api, ...]:
    wanted = f"wants apis as a list of {', '.join(Api)}"
    if not isinstance(value, list) or not value or not all(each in tuple(Api) for each in value):
        raise ValueError(wanted)
    return tuple(dict.fromkeys(map(Api, value)))


def _key(value: Any) -> KeyHeader:
    if value not in tuple(KeyHeader):
        raise ValueError(f"wants key as one of {', '.join(KeyHeader)}")
    return KeyHeader(value)


def _key_user(value: Any) -> str:
    if not _USER.fullmatch(_text(value)):
        raise ValueError("wants key_user as a name, such as x-access-token")
    return str(value)


_MEMBERS: Mapping[str, Any] = {
    "origin": _origin,
    "apis": _apis,
    "key": _key,
    "key_user": _key_user,
    "ca_file": _text,
    "token_api": _origin,
}


def _git_host(provider: ModelProvider) -> str:
    usual = 443 if provider.is_tls else 80
    return provider.host if provider.port == usual else f"{provider.host}:{provider.port}"


def _climbs(path: str) -> bool:
    """True if some server could read a part of it as `..`, as a slash, as the path's end or as another encoding."""
    small = path.lower()
    return any(each in small for each in ("%2f", "%5c", "%0", "%1", "%23", "%25", "%3f", "//")) or any(
        part.replace("%2e", ".") in (".", "..") for part in small.split("/")
    )


def _without_keys(query: str) -> str:
    return urlencode(list(_kept(query)))


def _kept(query: str) -> Iterator[tuple[str, str]]:
    for name, value in parse_qsl(query, keep_blank_values=True):
        small = name.lower().strip()
        if small not in _NO_PARAMETERS and (small != "alt" or value in ("sse", "json")):
            yield name, value
