"""One-time links, with which people sign in to the page. Pure: the time is an argument.

A link carries a code of 160 random bits that is good once, for ten minutes, for the person it was made for. Only its
digest is kept, and only in memory: a dump or a backup signs no one in, and a restart ends every link.
"""

import hashlib
import secrets
from dataclasses import dataclass

LINK_SECONDS = 600.0
_MOST = 10_000
_MOST_PER_USER = 100


@dataclass(frozen=True, slots=True)
class Person:
    """The person whom a link signs in."""

    user_id: str
    email: str


class Links:
    """The unused links. At most 10,000, and 100 per user: above that, a new one has to wait for the oldest to end."""

    def __init__(self) -> None:
        self._out: dict[bytes, tuple[Person, float]] = {}  # with its end; in the order of creation, thus of the end
        self._per_user: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._out)

    def issue(self, person: Person, *, now: float) -> str | None:
        """A new code, or None if too many are unused."""
        self._forget_ended(now)
        if len(self._out) >= _MOST or self._per_user.get(person.user_id, 0) >= _MOST_PER_USER:
            return None
        code = secrets.token_hex(20)  # letters and digits alone: a terminal takes all of it for the address
        self._out[_digest(code)] = (person, now + LINK_SECONDS)
        self._per_user[person.user_id] = self._per_user.get(person.user_id, 0) + 1
        return code

    def redeem(self, code: str, *, now: float) -> Person | None:
        """Use the code up and return its person; None if it is unknown, used or expired."""
        self._forget_ended(now)
        digest = _digest(code)
        return self._drop(digest) if digest in self._out else None

    def _forget_ended(self, now: float) -> None:
        while self._out:
            oldest = next(iter(self._out))
            if self._out[oldest][1] > now:
                return
            self._drop(oldest)

    def _drop(self, digest: bytes) -> Person:
        person, _ = self._out.pop(digest)
        left = self._per_user[person.user_id] - 1
        if left:
            self._per_user[person.user_id] = left
        else:
            del self._per_user[person.user_id]
        return person


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode(errors="replace")).digest()
