"""The `session` cookie as it is written: a JWT that a browser keeps where no script can read it. Pure.

`SameSite=Strict`, so that no other site's page can have it sent along; `Secure` where the page came by https, so that
it never goes over a plain line. There is no `Domain`: it goes back to this very host and to no other.
"""

import re

COOKIE = "session"
LONGEST = 4000  # browsers silently drop a cookie beyond 4,096 bytes, name included
# Stricter than a signature's decoder: `;` or a line break would write more into the header than a token.
_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)


def can_be_kept(token: str) -> bool:
    """True if the token has the characters of a JWT only."""
    return _TOKEN.fullmatch(token) is not None


def kept(token: str, seconds: int, *, secure: bool) -> str:
    """The value of `Set-Cookie` that keeps `token` for so long."""
    assert can_be_kept(token)
    return f"{COOKIE}={token}; Max-Age={seconds}{_ends(secure)}"


def forgotten(*, secure: bool) -> str:
    return f"{COOKIE}=; Max-Age=0{_ends(secure)}"


def _ends(secure: bool) -> str:
    return "; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
