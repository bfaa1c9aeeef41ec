"""The address of the store of conversations, which may carry a password: read strictly, shown with stars. Pure."""

import re
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from gateway.config.postgres_options import check_options, is_hidden, pairs_of
from gateway.config.values import is_loopback

_STORES = "wants sqlite:///path, postgresql://user:password@host/database or https://service"
_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.%]{2,60}\])?(?::(\d{1,20}))?", re.ASCII)


class StoreUrl:
    """The address of the store. Prints with stars for a password; `get_secret_value` is for the code that connects."""

    __slots__ = ("_parts", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._parts = urlsplit(text)

    def get_secret_value(self) -> str:
        return self._text

    @property
    def kind(self) -> str:
        """sqlite, postgresql or http."""
        return {"postgres": "postgresql", "https": "http"}.get(self._parts.scheme, self._parts.scheme)

    @property
    def path(self) -> Path:
        """The file of a `sqlite:///` store: three slashes and a relative path, or four and an absolute one."""
        return Path(self._text.removeprefix("sqlite:///"))

    @property
    def host(self) -> str:
        """The host in the address; several as they are written; "" for a unix socket."""
        return self._parts.netloc.rpartition("@")[2]

    @property
    def is_near(self) -> bool:
        """True if all traffic to the store stays on this machine."""
        named = [_bare_host(each) for each in self.host.split(",")]
        named += [value for name, value in parse_qsl(self._parts.query) if name == "host"]
        return all(name == "" or name.startswith("/") or is_loopback(name) for name in named)

    @property
    def passwords(self) -> list[str]:
        """Every form in which its passwords could be printed, and the values of unknown options."""
        written = [self._parts.password or ""]
        written += [value for name, _, value in pairs_of(self._parts.query) if is_hidden(name)]
        return sorted({form for each in written for form in (each, unquote(each)) if form})

    @property
    def place(self) -> str:
        """Identifies the store, without user, password or options."""
        if self.kind == "sqlite":
            return self._text
        where = [f"{name}={value}" for name, value in parse_qsl(self._parts.query) if name in ("host", "port")]
        end = "?" + "&".join(sorted(where)) if where else ""
        scheme = "postgresql" if self.kind == "postgresql" else self._parts.scheme
        return f"{scheme}://{self.host.lower()}{self._parts.path.rstrip('/')}{end}"

    def __str__(self) -> str:
        user, at, host = self._parts.netloc.rpartition("@")
        name, colon, _ = user.partition(":")
        netloc = f"{name}{colon}{'***' if colon else ''}{at}{host}"
        if self.kind == "sqlite" or not (at or self._parts.query):
            return self._text
        pairs = pairs_of(self._parts.query)
        shown = "&".join(f"{name}{sign}{'***' if is_hidden(name) else value}" for name, sign, value in pairs)
        return f"{self._parts.scheme}://{netloc}{self._parts.path}{'?' if shown else ''}{shown}"

    def __repr__(self) -> str:
        return f"StoreUrl({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreUrl) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def store_url(text: str) -> StoreUrl:
    """Parse the address. No message repeats the value: any part of a mistyped address may be a password."""
    if text.startswith("sqlite:"):
        if not text.startswith("sqlite:///") or not Path(text.removeprefix("sqlite:///")).name or "\0" in text:
            raise ValueError(_STORES)
        return StoreUrl(text)
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError(_STORES) from None
    if not text.isascii() or not text.isprintable() or " " in text or not text.startswith(f"{parts.scheme}://"):
        raise ValueError(_STORES)
    if parts.scheme in ("postgresql", "postgres"):
        _check_postgres(parts)
    elif parts.scheme in ("https", "http"):
        _check_service(parts)
    else:
        raise ValueError(_STORES)
    return StoreUrl(text)


def _check_postgres(parts: SplitResult) -> None:
    user, _, hosts = parts.netloc.rpartition("@")
    if parts.fragment or "@" in user + parts.path + parts.query or not all(map(_HOST.fullmatch, hosts.split(","))):
        raise ValueError("cannot be read: write @ : / ? # in a user or password as %40 %3A %2F %3F %23")
    _check_ports([*hosts.split(","), *(f":{each}" for each in _values(parts, "port"))])
    if not re.fullmatch(r"/[^/]+", parts.path):
        raise ValueError("must name one database: postgresql://user:password@host/database")
    check_options(parts.query)


def _check_service(parts: SplitResult) -> None:
    if parts.scheme == "http" and not is_loopback(_bare_host(parts.netloc)):
        raise ValueError(
            "wants https:// (http:// only on loopback): conversations would go over the network in the clear"
        )
    if "@" in parts.netloc or not _HOST.fullmatch(parts.netloc) or not parts.hostname:
        raise ValueError("wants https://host/path without a user: the service knows us by HOLDFAST_INTERNAL_TOKEN")
    _check_ports([parts.netloc])
    if parts.query or parts.fragment:
        raise ValueError("wants https://host/path without a query: /internal/sessions/... is put after it")


def _values(parts: SplitResult, option: str) -> list[str]:
    """The values of an option that may list several, separated by commas."""
    return [each for name, value in parse_qsl(parts.query) if name == option for each in value.split(",")]


def _check_ports(hosts: list[str]) -> None:
    for host in hosts:
        found = _HOST.fullmatch(host)
        if found is None or (found[1] is not None and not 1 <= int(found[1]) <= 65535):
            raise ValueError("wants a port from 1 to 65535")


def _bare_host(netloc: str) -> str:
    """The host without port and brackets."""
    if netloc.startswith("["):
        return netloc[1:].partition("]")[0]
    return netloc.partition(":")[0]
