"""Tokens of git hosts for one repository each.

A credential of a git host is a token, which is used as it is, or an app: then its host is asked, on the app's behalf,
for a token that is valid for an hour and for that one repository. The requests follow GitHub's REST API, which other
hosts have, too. The host is also asked which installation of the app has the repository.
"""

import ssl
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import jwt

from gateway.egress.model_settings import ProviderKey
from gateway.egress.providers import ModelProvider
from gateway.egress.repositories import GitRepository
from gateway.vault.credential import Credential, GitApp

if TYPE_CHECKING:
    import httpx

SECONDS = 15.0
EARLY_SECONDS = 300.0
APP_SECONDS = 540  # how long the app's own token is valid; hosts allow ten minutes
MOST_KEPT = 10_000
LARGEST_ANSWER = 1 << 20


class NoGitToken(Exception):
    """The text is for the user, and has no value in it."""


@dataclass(frozen=True, slots=True)
class _MintedToken:
    number: int  # of the credential's row
    key: ProviderKey


class GitTokens:
    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, str], _MintedToken] = OrderedDict()

    async def token(
        self, credential: Credential, provider: ModelProvider, repository: GitRepository, *, fresh: bool = False
    ) -> ProviderKey:
        """`fresh`: the one there was is refused. Raises NoGitToken."""
        if not isinstance(credential.value, GitApp):
            return ProviderKey(credential.token)
        place = (credential.user_id, provider.name, f"{repository.host}/{repository.path}")
        kept = self._kept.get(place)
        if kept is not None and kept.number == credential.number and not fresh and not _ends(kept.key):
            return kept.key
        key = await _mint(credential.value, provider, repository)
        self._kept[place] = _MintedToken(credential.number, key)
        self._kept.move_to_end(place)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return key


def _ends(key: ProviderKey) -> bool:
    return key.expires - EARLY_SECONDS < time.time()


async def _mint(app: GitApp, provider: ModelProvider, repository: GitRepository) -> ProviderKey:
    import httpx  # here, because it takes longer to import than the whole gateway without it

    if not provider.token_api:
        raise NoGitToken(f"{provider.name} has no token_api (HOLDFAST_PROVIDERS_FILE): an app cannot get a token there")
    now = int(time.time())
    word = jwt.encode({"iat": now - 60, "exp": now + APP_SECONDS, "iss": app.app_id}, app.private_key, "RS256")
    headers = {"Authorization": f"Bearer {word}", "Accept": "application/vnd.github+json", "User-Agent": "holdfast"}
    verify: ssl.SSLContext | bool = ssl.create_default_context(cafile=provider.ca_file) if provider.ca_file else True
    owner, name = repository.owner_and_name
    try:
        async with httpx.AsyncClient(
            base_url=provider.token_api, headers=headers, verify=verify, timeout=SECONDS, trust_env=False
        ) as client:
            installed = await _ask(client, "GET", f"/repos/{owner}/{name}/installation", provider)
            wanted = {"repositories": [name], "permissions": {"contents": "write"}}
            path = f"/app/installations/{int(installed['id'])}/access_tokens"
            made = await _ask(client, "POST", path, provider, wanted)
            expires = datetime.fromisoformat(made["expires_at"].replace("Z", "+00:00")).timestamp()
            return ProviderKey(_token(made["token"]), expires=expires)
    except httpx.HTTPError as error:
        raise NoGitToken(f"{provider.name} did not answer for a token: {type(error).__name__}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NoGitToken(f"{provider.name} answered with no token") from error


async def _ask(
    client: "httpx.AsyncClient", method: str, path: str, provider: ModelProvider, body: Any = None
) -> dict[str, Any]:
    answer = await client.request(method, path, json=body)
    if answer.status_code == 404 and method == "GET":
        raise NoGitToken(f"the app of {provider.name} is not installed for this repository")
    if answer.status_code >= 300 or len(answer.content) > LARGEST_ANSWER:
        raise NoGitToken(f"{provider.name} gave no token for this repository ({answer.status_code})")
    found = answer.json()
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _token(text: Any) -> str:
    if not isinstance(text, str) or not text.isascii() or not text.isprintable() or " " in text or not text:
        raise ValueError("no token")
    return text
