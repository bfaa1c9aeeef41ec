"""The key of each object. Pure.

Everything of one user is below one prefix, made from a hash of the user's id, so that no id can reach into another's:

    v1/users/<user>/packs/<hash>             content: frames of compressed chunks, named by the hash of the whole object
    v1/users/<user>/manifests/<hash>         one tree, or its difference from another, named likewise
    v1/users/<user>/sessions/<id>/pointer    which generations a session keeps
    v1/users/<user>/sessions/<id>/damaged-*  an unreadable pointer, moved when the session began anew
    v1/users/<user>/marks                    what the collector found unreferenced, and when

Only pointers and marks are ever replaced. Any other key is not ours: it is neither read nor removed.
"""

import re
from dataclasses import dataclass

from blake3 import blake3

ROOT = "v1/users/"
_PREFIX = re.compile(rf"{ROOT}[0-9a-f]{{32}}/")
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one user. A method that makes a key raises ValueError if a part of it is unusable."""

    prefix: str

    @classmethod
    def of_user(cls, user_id: str) -> "Keys":
        return cls(f"{ROOT}{blake3(user_id.encode(errors='surrogatepass')).hexdigest()[:32]}/")

    @property
    def packs(self) -> str:
        return f"{self.prefix}packs/"

    @property
    def manifests(self) -> str:
        return f"{self.prefix}manifests/"

    @property
    def sessions(self) -> str:
        return f"{self.prefix}sessions/"

    @property
    def marks(self) -> str:
        return f"{self.prefix}marks"

    def pack(self, name: str) -> str:
        return self.packs + _checked(name, _NAME)

    def manifest(self, name: str) -> str:
        return self.manifests + _checked(name, _NAME)

    def session(self, session_id: str) -> str:
        return f"{self.sessions}{_checked(session_id, _SESSION_ID)}/"

    def pointer(self, session_id: str) -> str:
        return f"{self.session(session_id)}pointer"

    def set_aside(self, session_id: str, name: str) -> str:
        """The key for an unreadable pointer."""
        return f"{self.session(session_id)}damaged-{name}"

    def is_set_aside(self, key: str) -> bool:
        return key.startswith(self.sessions) and key.rpartition("/")[2].startswith("damaged-")

    def pack_in(self, key: str) -> str | None:
        """The name of the pack with this key; None if it is no pack of this user."""
        return _between(key, self.packs, "", _NAME)

    def manifest_in(self, key: str) -> str | None:
        return _between(key, self.manifests, "", _NAME)

    def session_in(self, key: str) -> str | None:
        """The session whose pointer has this key."""
        return _between(key, self.sessions, "/pointer", _SESSION_ID)


def prefix_in(key: str) -> str | None:
    """The prefix of the user who owns this key."""
    found = _PREFIX.match(key)
    return None if found is None else found[0]


def _checked(text: str, pattern: re.Pattern[str]) -> str:
    if not pattern.fullmatch(text):
        raise ValueError("not a part of a key")
    return text


def _between(key: str, before: str, after: str, pattern: re.Pattern[str]) -> str | None:
    middle = key[len(before) : len(key) - len(after)]
    return middle if key == before + middle + after and pattern.fullmatch(middle) else None
