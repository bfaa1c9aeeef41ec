"""Cloning a repository that a user named: what may be asked for, and the exact git command.

The URL and the branch are hostile until shown otherwise: git has transports that run commands, options that look like
URLs, and would gladly fetch from the metadata service. So: https only, nothing but plain characters, no address of a
private network in any spelling, the address that was checked is the one connected to, no redirects, no submodules, no
templates, hooks, credential helpers or configuration of the host.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from sandbox.system.public_address import is_public

MAX_URL, MAX_BRANCH = 2000, 250

_URL = re.compile(r"https://[A-Za-z0-9._~:/\[\]@!&'()*+,;=%-]+")
_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")
_LOCAL_NAMES = ("localhost", "local", "internal", "intranet", "lan", "home", "corp", "localdomain", "arpa")
_NOT_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)")


@dataclass(frozen=True, slots=True)
class Pin:
    """The address of a host, so that git connects there and nowhere else."""

    host: str
    port: int
    addresses: tuple[str, ...]


def check_repo(url: str, branch: str | None = None, *, allow_private: bool = False) -> None:
    """Raise ValueError, with a text for the user, unless git may get this. Looks nothing up."""
    host = _host(_parts(url))
    if not allow_private:
        _check_host(host)
    if branch is not None:
        _check_branch(branch)


def check_addresses(host: str, addresses: Iterable[str]) -> None:
    """Raise ValueError unless every address a host name stands for is a public one."""
    for text in addresses:
        if not is_public(ipaddress.ip_address(text.partition("%")[0])):
            raise ValueError(f"repoUrl: {host} is an address of a private network")


def resolve(url: str, *, allow_private: bool = False) -> Pin:
    """Look the host up, once. Blocks. Raises ValueError for an address that may not be used, OSError for no address."""
    parts = _parts(url)
    host, port = _host(parts), parts.port or 443
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not allow_private:
        check_addresses(host, addresses)
    return Pin(host, port, addresses)


def command(url: str, branch: str | None, into: str, pin: Pin | None) -> list[str]:
    """The git command line. `into` must not exist."""
    argv = ["git"]
    settings = [
        "protocol.allow=never",
        "protocol.https.allow=always",
        "protocol.ext.allow=never",
        "http.followRedirects=false",
        "submodule.recurse=false",
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "credential.helper=",
        "gc.auto=0",
    ]
    if pin is not None:
        settings.append(f"http.curloptResolve={pin.host}:{pin.port}:{','.join(map(_bracketed, pin.addresses))}")
    for setting in settings:
        argv += ["-c", setting]
    argv += ["clone", "--quiet", "--template=", "--no-recurse-submodules", "--no-local"]
    if branch is not None:
        argv.append(f"--branch={branch}")
    return [*argv, "--", url, into]


def environment(base: dict[str, str], url: str = "", key: str = "") -> dict[str, str]:
    """git's environment: the sandbox's without the session's secrets, and without anything that git could ask or
    read. `key` opens the repository at `url`, as HTTP's Basic has it; nothing of it is written."""
    opens = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"http.{url}.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: Basic {key}",
    }
    return {
        **base,
        **(opens if key else {}),
        "GIT_ALLOW_PROTOCOL": "https",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_ASKPASS": "true",
        "LC_ALL": "C",
    }


def reason(output: bytes) -> str:
    """Git's own words: its last lines that say something, on one line."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))] or lines
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", "; ".join(telling[-3:]))[:500]


def _parts(url: str) -> SplitResult:
    if len(url) > MAX_URL:
        raise ValueError("repoUrl: too long")
    if not url.startswith("https://"):
        raise ValueError("repoUrl: must begin with https://")
    if not _URL.fullmatch(url):
        raise ValueError("repoUrl: has characters a repository address does not need")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - reading it checks it
    except ValueError as exc:
        raise ValueError("repoUrl: not an address") from exc
    if "@" in parts.netloc:
        raise ValueError("repoUrl: must not hold a user name or password; they would be kept with the session")
    if not parts.path.strip("/"):
        raise ValueError("repoUrl: names no repository")
    return parts


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    if ":" in host:
        return _address(host)
    if not host or not all(_LABEL.fullmatch(label) for label in host.removesuffix(".").split(".")):
        raise ValueError("repoUrl: not a host name")
    return host


def _check_host(host: str) -> None:
    labels = host.removesuffix(".").split(".")
    # Some resolvers take a name that ends in a number as an IPv4 address: decimal, octal, hex, or with parts left
    # out.
    if labels[-1].isdigit() or re.fullmatch(r"0x[0-9a-f]*", labels[-1]):
        if not re.fullmatch(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})", host):
            raise ValueError("repoUrl: not a host name")
        check_addresses(host, [_address(host)])
    elif ":" in host:
        check_addresses(host, [host])
    elif len(labels) == 1 or labels[-1] in _LOCAL_NAMES:
        raise ValueError(f"repoUrl: {host} is a name of a private network")


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as exc:
        raise ValueError("repoUrl: not an address") from exc


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _check_branch(branch: str) -> None:
    """The rules of `git check-ref-format --branch`, and no leading dash."""
    bad = (
        not 0 < len(branch) <= MAX_BRANCH
        or branch.startswith(("-", "/", "."))
        or branch.endswith(("/", "."))
        or branch in ("@", "HEAD")
        or _NOT_IN_REF.search(branch)
        or not branch.isprintable()
    )
    if bad:
        raise ValueError("repoBranch: not a branch name")
