"""The network policy of one session. Pure.

A session's network is nothing, every public host, or a list of hosts: `example.com`, `*.example.com` (every name below
it, not itself), each with `:port` where that is neither 80 nor 443. An address is listed as an address is written
(`203.0.113.7`, `[2001:db8::1]:8443`). A list allows names; the dialer checks that a name's addresses are public
(`addresses.py`). `routes` are the paths that the proxy itself answers, by their first part.
"""

import re
from ipaddress import ip_address
from typing import Any

import msgspec

MOST_HOSTS = 256
PORTS = (80, 443)
_LABEL = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")  # as a last label: then it is an address in some spelling


class BadHost(ValueError):
    """Not a host; the text is for the person who wrote it."""


class Network(msgspec.Struct, frozen=True):
    """`everything` is every public host, at the ports 80 and 443. `hosts` are as `host_pattern` returns them."""

    everything: bool = False
    hosts: tuple[str, ...] = ()

    def allows(self, host: str, port: int) -> bool:
        """`host` is as `host_name` returns it."""
        return (self.everything and port in PORTS) or any(matches(pattern, host, port) for pattern in self.hosts)


NONE, OUTBOUND = Network(), Network(everything=True)


class Policy(msgspec.Struct, frozen=True):
    """Everything that the proxy knows of a session. `routes` has each route's settings for it, by the route's name;
    they may be secrets."""

    session: str
    user: str
    network: Network = NONE
    routes: dict[str, msgspec.Raw] = {}

    def __repr__(self) -> str:
        return f"Policy({self.session!r}, {self.network!r}, routes={sorted(self.routes)})"


def host_name(text: str) -> str:
    """A host in the form for comparisons: a name in lower case without a dot at its end, or an address in its canonical
    form. Raises BadHost, also for an address in one of the spellings that only some programs know (127.1,
    0x7f000001)."""
    name = text.lower().removesuffix(".")
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
        if ":" not in name:
            raise BadHost(f"{_shown(text)} is no host")
    try:
        return str(ip_address(name)) if "%" not in name else _bad(text)
    except ValueError:
        pass
    if len(name) > 253 or not _NAME.fullmatch(name) or _NUMBER.fullmatch(name.rpartition(".")[2]):
        raise BadHost(f"{_shown(text)} is no host")
    return name


def host_and_port(text: str, default: int | None = None) -> tuple[str, int]:
    """The parts of `host:port`, as `host_name` returns them. Raises BadHost."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, ""
    if not port and default is not None and not (colon and not text.endswith("]")):
        return host_name(host), default
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise BadHost(f"{_shown(text)} has no port" if not port else f"{_shown(text)}: no such port")
    return host_name(host), int(port)


def host_pattern(text: str) -> str:
    """One of a list's hosts, as `matches` compares it. Raises BadHost."""
    rest = text.strip()
    star = "*." if rest.startswith("*.") else ""
    rest = rest.removeprefix("*.")
    bracketed = rest.startswith("[")
    bare = rest.count(":") > 1 and not bracketed
    if rest.endswith("]") or ":" not in rest or bare:
        host, port = host_name(rest), ""
    else:
        host, number = host_and_port(rest)
        port = f":{number}"
    if star and ((host[0].isdigit() and _is_address(host)) or _is_address(host)):
        raise BadHost(f"{_shown(text)}: an address has nothing below it")
    return star + (f"[{host}]" if ":" in host else host) + port


def matches(pattern: str, host: str, port: int) -> bool:
    """True if the pattern of a list covers this host."""
    name, colon, wanted = pattern.rpartition(":")
    if not colon or pattern.endswith("]"):
        name, wanted = pattern, ""
    if port != int(wanted) if wanted else port not in PORTS:
        return False
    if name.startswith("*."):
        return host.endswith(name[1:]) and len(host) > len(name) - 1
    return host == name.strip("[]")


def has_port(pattern: str) -> bool:
    """Whether a host of a list names a port."""
    return bool(_split(pattern)[1])


def covers(wide: Network, narrow: Network) -> bool:
    """True if `wide` allows everything that `narrow` allows. Every public host covers every list: a session that may
    reach all of them may name some, with any ports."""
    if wide.everything:
        return True
    return not narrow.everything and all(any(_below(known, each) for known in wide.hosts) for each in narrow.hosts)


def parse_network(wanted: Any) -> Network:
    """Parse `none`, `outbound` or `{"allow": [...]}`. Raises BadHost with the fault."""
    if wanted == "none":
        return NONE
    if wanted == "outbound":
        return OUTBOUND
    if not isinstance(wanted, dict) or wanted.keys() != {"allow"} or not isinstance(wanted["allow"], list | tuple):
        raise BadHost('none, outbound, or {"allow": [hosts]}')
    hosts = wanted["allow"]
    if len(hosts) > MOST_HOSTS:
        raise BadHost(f"at most {MOST_HOSTS} hosts")
    if not all(isinstance(each, str) for each in hosts):
        raise BadHost('"allow" is a list of hosts, each a string')
    return Network(hosts=tuple(dict.fromkeys(host_pattern(each) for each in hosts)))


def shown(network: Network) -> Any:
    """In the form that `parse_network` reads."""
    if network.everything:
        return "outbound"
    return {"allow": list(network.hosts)} if network.hosts else "none"


def text(network: Network) -> str:
    """As settings and stored sessions have it: `none`, `outbound`, or hosts with commas between them."""
    return "outbound" if network.everything else ",".join(network.hosts) or "none"


def read_text(words: str) -> Network:
    """The other way. Raises BadHost."""
    if words in ("none", "outbound"):
        return parse_network(words)
    network = parse_network({"allow": [each for each in words.split(",") if each.strip()]})
    if not network.hosts:
        raise BadHost("none, outbound, or hosts such as api.example.com,*.example.org, separated by commas")
    return network


def entry(host: str, port: int) -> str:
    """The host of a list that allows exactly this."""
    name = f"[{host}]" if ":" in host else host
    return name if port in PORTS else f"{name}:{port}"


def _below(wide: str, narrow: str) -> bool:
    """True if one pattern allows everything that another does."""
    if wide == narrow:
        return True
    (name, ports), (other, others) = _split(wide), _split(narrow)
    if ports != others and not (not ports and others in ("80", "443")):
        return False
    return name == other or (name.startswith("*.") and other.removeprefix("*").endswith(name[1:]) and other != name[2:])


def _split(pattern: str) -> tuple[str, str]:
    name, colon, port = pattern.rpartition(":")
    return (name, port) if colon and not pattern.endswith("]") else (pattern, "")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _bad(text: str) -> str:
    raise BadHost(f"{_shown(text)} is no host")


def _shown(text: str) -> str:
    return repr(text[:100])
