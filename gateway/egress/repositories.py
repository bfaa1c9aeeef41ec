"""A session's repository through the proxy: selects git's requests for that one repository. Pure.

Git inside is configured (`url.insteadOf`) to ask `http://127.0.0.1:3128/git/<host>/<path>` for repositories at
`https://<host>/<path>`. The proxy answers for the session's own repository only, and for the requests that clone, fetch
and push make: the list of refs, `git-upload-pack` and `git-receive-pack`. Objects of git-lfs do not pass: their answers
carry keys of other places.
"""

import re
from base64 import b64encode
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from gateway.egress.providers import Api, KeyHeader, ModelProvider, ModelProviders

ROUTE = "git"  # the first part of the path, and the name of the policy's route
SERVICES = ("git-upload-pack", "git-receive-pack")
_HOST = re.compile(r"[a-z0-9.-]{1,253}(?::[0-9]{1,5})?", re.ASCII)
_PATH = re.compile(r"[A-Za-z0-9._~+-]+(?:/[A-Za-z0-9._~+-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class GitRepository:
    """`host` has the port where it is not the usual one; `path` has no `.git` at its end."""

    host: str
    path: str

    @property
    def owner_and_name(self) -> tuple[str, str]:
        owner, _, name = self.path.rpartition("/")
        return owner, name


@dataclass(frozen=True, slots=True)
class GitRequest:
    """`target` is the request's target at the host, below its origin."""

    target: str
    service: str


def repository_of(url: str) -> GitRepository | None:
    """The repository of an https address, without any credentials in the address; None for any other address."""
    try:
        parts = urlsplit(url)
        host = f"{parts.hostname}:{parts.port}" if parts.port not in (None, 443) else parts.hostname or ""
    except ValueError:
        return None
    path = unquote(parts.path).strip("/").removesuffix(".git")
    if parts.scheme != "https" or not _HOST.fullmatch(host) or not _is_path(path):
        return None
    return GitRepository(host, path)


def git_request(repository: GitRepository, method: str, path: str) -> GitRequest | None:
    """The request for the host; None: it is not allowed. `path` comes after `/git`, with its query."""
    place, mark, query = path.partition("?")
    host, slash, rest = place.removeprefix("/").partition("/")
    if not slash or host.lower() != repository.host:
        return None
    for tail, service in _tails(method, query if mark else ""):
        asked = rest.removesuffix(tail)
        if asked != rest and _is_path(asked) and asked.removesuffix(".git").lower() == repository.path.lower():
            return GitRequest(f"/{asked}{tail}" + (f"?service={service}" if method == "GET" else ""), service)
    return None


def _tails(method: str, query: str) -> list[tuple[str, str]]:
    if method == "GET":
        service = query.removeprefix("service=")
        return [("/info/refs", service)] if service in SERVICES and query != service else []
    return [(f"/{service}", service) for service in SERVICES] if method == "POST" and not query else []


def host_of(repository: GitRepository, providers: ModelProviders) -> ModelProvider:
    """The git host's provider; a host without a known provider has no key and a public address."""
    known = providers.git_host(repository.host)
    if known is not None:
        return known
    return ModelProvider(repository.host, f"https://{repository.host}", (Api.GIT,), KeyHeader.BASIC, key_user="git")


def basic(user: str, key: str) -> str:
    return b64encode(f"{user or 'git'}:{key}".encode()).decode()


def git_config(repository: GitRepository, proxy: str) -> dict[str, str]:
    """Variables that lead every git of a sandbox to the proxy for this repository, and for no other."""
    there = f"https://{repository.host}/{repository.path}"
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{proxy}/{ROUTE}/{repository.host}/{repository.path}.insteadOf",
        "GIT_CONFIG_VALUE_0": there,
    }


def _is_path(path: str) -> bool:
    return bool(_PATH.fullmatch(path)) and not {".", ".."} & set(path.split("/"))
