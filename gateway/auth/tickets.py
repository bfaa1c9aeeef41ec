"""One-time tickets: a credential for a WebSocket URL that is worthless in a log. Pure: the time is an argument.

A ticket lives 30 s, is good for one attempt, and only for the user, session and Origin it was made for. Only its digest
is kept, so that memory or a crash dump opens nothing.
"""

import hashlib
import secrets
from dataclasses import dataclass, replace

from gateway.auth.tokens import Principal

TICKET_SECONDS = 30.0
_MOST = 10_000
_MOST_PER_USER = 100


@dataclass(frozen=True, slots=True)
class _Ticket:
    principal: Principal
    session_id: str
    origin: str | None
    ends_at: float


class Tickets:
    """The unused tickets. At most 10,000, and 100 per user: a user beyond that waits for the oldest to end."""

    def __init__(self) -> None:
        self._out: dict[bytes, _Ticket] = {}  # in the order of their end, which is the order of their creation
        self._per_user: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._out)

    def issue(self, principal: Principal, session_id: str, origin: str | None, *, now: float) -> str | None:
        """A new ticket, or None if too many are unused."""
        self._forget_ended(now)
        if len(self._out) >= _MOST or self._per_user.get(principal.counted_as, 0) >= _MOST_PER_USER:
            return None
        text = secrets.token_urlsafe(24)
        self._out[_digest(text)] = _Ticket(principal, session_id, origin, now + TICKET_SECONDS)
        self._per_user[principal.counted_as] = self._per_user.get(principal.counted_as, 0) + 1
        return text

    def redeem(self, text: str, session_id: str, origin: str | None, *, now: float) -> Principal | None:
        """Use the ticket up and return its principal; None if it is unknown, expired, used, or made for another session
        or Origin."""
        ticket = self._out.get(_digest(text))
        if ticket is None:
            return None
        self._drop(_digest(text))
        good = now < ticket.ends_at and ticket.session_id == session_id and ticket.origin == origin
        if not good:
            return None
        return replace(ticket.principal, via="ticket")

    def _forget_ended(self, now: float) -> None:
        while self._out:
            oldest = next(iter(self._out))
            if self._out[oldest].ends_at > now:
                return
            self._drop(oldest)

    def _drop(self, digest: bytes) -> None:
        user = self._out.pop(digest).principal.counted_as
        left = self._per_user[user] - 1
        if left:
            self._per_user[user] = left
        else:
            del self._per_user[user]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()
