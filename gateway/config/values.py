"""How the text of a setting is read: durations, sizes, lists, addresses. A reader raises ValueError with its wish."""

import math
import re
import shlex
from collections.abc import Callable, Sequence
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from gateway.egress import addresses, policy

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_BYTES = {"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mib": 1 << 20, "g": 1 << 30, "gib": 1 << 30}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(ms|s|m|h|d|)", re.ASCII)
_SIZE = re.compile(r"(\d{1,15})\s*([a-z]*)", re.ASCII)
_NAME = re.compile(r"[a-z0-9_-]{1,64}", re.ASCII)
_LOOPBACK_NAMES = {"localhost", "127.0.0.1", "::1"}


class SecretStr:
    """A value that prints as stars wherever it is shown."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def get_secret_value(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "SecretStr('**********')"

    def __str__(self) -> str:
        return "**********"

    def __len__(self) -> int:
        return len(self._value)


def duration(text: str) -> float:
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError("wants seconds, or a duration such as 500ms, 30s, 10m, 1h")
    return float(match[1]) * _SECONDS[match[2]]


def positive_duration(text: str) -> float:
    seconds = duration(text)
    if seconds <= 0 or not math.isfinite(seconds):
        raise ValueError("wants a duration above 0")
    return seconds


def duration_from(shortest: float, told: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        seconds = duration(text)
        if not shortest <= seconds < math.inf:
            raise ValueError(f"wants at least {told}")
        return seconds

    return read


def whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,15}", text.strip(), re.ASCII) or not low <= int(text) <= high:
            raise ValueError(f"wants a whole number from {low} to {high}")
        return int(text)

    return read


def number(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text.strip(), re.ASCII) or not low <= float(text) <= high:
            raise ValueError(f"wants a number from {low:g} to {high:g}")
        return float(text)

    return read


def size(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        match = _SIZE.fullmatch(text.strip().lower())
        unit = _BYTES.get(match[2]) if match else None
        if match is None or unit is None or not low <= int(match[1]) * unit <= high:
            raise ValueError(f"wants bytes from {low} to {high}, or a size such as 64KiB, 8MiB")
        return int(match[1]) * unit

    return read


def switch(text: str) -> bool:
    answer = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    try:
        return answer[text.strip().lower()]
    except KeyError:
        raise ValueError("wants true or false") from None


def choice(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"wants one of {', '.join(words)}")
        return word

    return read


def patterns(text: str) -> tuple[str, ...]:
    """Patterns as in a .gitignore file, separated by commas; `-` alone is none."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if found == ("-",):
        return ()
    if len(found) > 100 or any(len(part) > 200 or not part.isprintable() for part in found):
        raise ValueError("wants at most 100 patterns, separated by commas, each of at most 200 printable characters")
    from sandbox.tree.ignore import check_patterns  # here, because few commands have patterns to read

    check_patterns(found)
    return found


def command(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as exc:
        raise ValueError(f"is no command: {exc}") from None


def secret(shortest: int) -> Callable[[str], SecretStr]:
    def read(text: str) -> SecretStr:
        if len(text.encode("utf-8", "surrogateescape")) < shortest:
            raise ValueError(f"is too short: at least {shortest} bytes")
        if not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError("wants printable ASCII without spaces")
        return SecretStr(text)

    return read


def host(text: str) -> str:
    name = text.strip().removeprefix("[").removesuffix("]")
    if not re.fullmatch(r"[A-Za-z0-9._:%-]{1,255}", name):
        raise ValueError("wants an address or a host name")
    return name


def origins(text: str) -> tuple[str, ...]:
    return tuple(_origin(part.strip()) for part in text.split(",") if part.strip())


def _origin(text: str) -> str:
    """Origins are compared as browsers send them: lower-case scheme and host, no default port, nothing after it."""
    parts = urlsplit(text)
    try:
        port = parts.port
    except ValueError:
        port = -1
    wrong = parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.username is not None
    plain = f"{parts.scheme}://{parts.netloc}" == text and text == text.lower() and "*" not in text
    if wrong or not plain or (parts.scheme, port) in (("http", 80), ("https", 443)) or text.endswith("."):
        raise ValueError("wants origins as browsers send them, such as https://app.example.com, separated by commas")
    return text


def names(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not all(_NAME.fullmatch(part) for part in found):
        raise ValueError("wants names of lower-case letters, digits, - and _, separated by commas")
    return found


def unix_address(text: str) -> str:
    if not re.fullmatch(r"unix:///[^\0\s]{1,1000}", text):
        raise ValueError("wants a container engine of this host, such as unix:///var/run/docker.sock")
    return text


def image(text: str) -> str:
    """The name of an image, as an engine takes it."""
    return _engine_name(text, "debian:bookworm")


def runtime(text: str) -> str:
    """The name of a runtime, as an engine takes it."""
    return _engine_name(text, "runc")


def _engine_name(text: str, example: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}", text):
        raise ValueError(f"wants a name such as {example}")
    return text


def network(text: str) -> str:
    """`none`, `outbound`, or hosts with commas between them."""
    try:
        return policy.text(policy.read_text(text.strip()))
    except policy.BadHost as exc:
        raise ValueError(f"wants none, outbound or a list of hosts: {exc}") from None


def inner_networks(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        addresses.parse_inner(found)
    except policy.BadHost as exc:
        raise ValueError(
            f"wants networks such as 10.0.0.0/8, addresses and hosts, separated by commas: {exc}"
        ) from None
    return found


def networks(text: str) -> tuple[str, ...]:
    found = [part.strip() for part in text.split(",") if part.strip()]
    for part in found:
        try:
            ip_network(part, strict=False)
        except ValueError:
            raise ValueError("wants addresses or networks such as 10.0.0.0/8, separated by commas") from None
    return tuple(found)


def widest(trusted: Sequence[str]) -> list[str]:
    """Of these networks those that hold more than any one operator's machines: strangers come from them, too."""
    found = [(text, ip_network(text, strict=False)) for text in trusted]
    return [text for text, network in found if network.prefixlen < (8 if network.version == 4 else 7)]


def key_url(text: str) -> str:
    """No message repeats the value: it may hold a password, or a key."""
    try:
        parts = urlsplit(text)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        host = None
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK_NAMES)):
        raise ValueError("wants an https:// address (http:// only on loopback)")
    return text


def without_credentials(address: str) -> str:
    """With stars for a user with password, for each value after `?`, and for all after `#`."""
    address, marked, _ = address.partition("#")
    place, asked, query = address.partition("?")
    scheme, slashes, rest = place.partition("://")
    _, at, host = rest.rpartition("@")
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    shown = "&".join(f"{name}=***" if sign else "***" for name, sign, _ in pairs)
    return f"{scheme}{slashes}{'***@' if at else ''}{host}{asked}{shown}{'#***' if marked else ''}"


def is_loopback(name: str) -> bool:
    """Whether a gateway that listens on `name` is reachable from this machine alone."""
    if name in _LOOPBACK_NAMES:
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
