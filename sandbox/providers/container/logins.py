"""Logins of registries, from a file in the form of Docker's `config.json` and Podman's `auth.json`.

`LoginFile` reads it, at each pull: logins of some registries are good for hours. All else decides. No message
contains anything of the file.
"""

import base64
import binascii
import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.ports.images import HUB, ImageReference

MOST_BYTES = 1 << 20
_HUBS = ("index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")


class BadLogins(ValueError):
    """The file cannot be used. The text is for the operator, and has nothing of the file in it."""


@dataclass(frozen=True, slots=True)
class Login:
    """Of a registry, or of a part of it: `place` is `host[:port][/path]`."""

    place: str
    user: str = ""
    password: str = ""
    identity_token: str = ""

    @property
    def secrets(self) -> tuple[str, ...]:
        pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return (self.password, self.identity_token, pair) if self.password else (self.identity_token,)

    @property
    def header(self) -> str:
        """The value of X-Registry-Auth."""
        who = {"username": self.user, "password": self.password}
        said = {"identitytoken": self.identity_token} if self.identity_token else who
        whole = {**said, "serveraddress": self.place.partition("/")[0]}
        return base64.urlsafe_b64encode(json.dumps(whole).encode()).decode()

    def __repr__(self) -> str:
        return f"Login({self.place!r})"


def read_logins(content: bytes) -> list[Login]:
    """Raises BadLogins."""
    try:
        auths = json.loads(content)["auths"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise BadLogins('wants JSON with "auths", as `docker login` writes it') from None
    if not isinstance(auths, dict) or not all(isinstance(each, dict) for each in auths.values()):
        raise BadLogins('wants an object of objects as "auths"')
    return [_login(place, members) for place, members in auths.items()]


def login_for(logins: list[Login], image: ImageReference) -> Login | None:
    """The one of the narrowest place that the image is in."""
    found = [each for each in logins if f"{image.repository}/".startswith(f"{each.place}/")]
    return max(found, key=lambda each: len(each.place), default=None)


def _login(place: str, members: Mapping[str, Any]) -> Login:
    """Registries are named as addresses, too: https://index.docker.io/v1/ is the Hub's, for one."""
    bare = place.removeprefix("https://").removeprefix("http://").strip("/")
    bare = bare.removesuffix("/v1").removesuffix("/v2")
    host, slash, path = bare.partition("/")
    where = f"{HUB if host in _HUBS else host}{slash}{path}"
    token = members.get("identitytoken")
    if isinstance(token, str) and token:
        return Login(where, identity_token=token)
    user, password = members.get("username"), members.get("password")
    if not (isinstance(user, str) and isinstance(password, str)):
        user, password = _pair(members.get("auth"))
    if not (user and password):
        told = "has no login: credential helpers are not asked, so write the login itself into the file"
        raise BadLogins(f"{bare.partition('/')[0]!r} in it {told}")
    return Login(where, user, password)


def _pair(auth: Any) -> tuple[str, str]:
    try:
        user, _, password = base64.b64decode(auth or "", validate=True).decode().partition(":")
    except (TypeError, ValueError, binascii.Error):
        return "", ""
    return user, password.rstrip("\0")


class LoginFile:
    """`hide` hears each secret that the file holds, once."""

    def __init__(self, path: Path, hide: Callable[[str], None] = lambda secret: None) -> None:
        self._path = path
        self._hide = hide
        self._hidden: set[str] = set()

    def read(self) -> list[Login]:
        """Raises BadLogins."""
        try:
            with open(self._path, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                if not stat.S_ISREG(mode) or mode & 0o077:
                    raise BadLogins(f"{self._path} must be readable by its owner alone: chmod 600 {self._path}")
                content = file.read(MOST_BYTES + 1)
        except OSError as exc:
            raise BadLogins(f"{self._path} cannot be read: {exc.strerror or exc}") from exc
        if len(content) > MOST_BYTES:
            raise BadLogins(f"{self._path} has more than {MOST_BYTES} bytes")
        try:
            logins = read_logins(content)
        except BadLogins as exc:
            raise BadLogins(f"{self._path} {exc}") from None
        for secret in {secret for each in logins for secret in each.secrets if secret} - self._hidden:
            self._hidden.add(secret)
            self._hide(secret)
        return logins
