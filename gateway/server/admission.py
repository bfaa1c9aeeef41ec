"""Counts connections, in all and by address and user. Pure: the guard asks here before it reads a request.

A connection over a limit is still read long enough to be refused in words, and to ask for `/health`: it is a guest.
Guests have a bound of their own; at the bound the oldest goes, so a flood of guests never locks out health.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

GUESTS = 256


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a connection may only ask for health."""

    status: int
    code: str
    message: str


TOO_MANY = Refusal(503, "too_many_connections", "the gateway is full; try again later")
TOO_MANY_FROM_ADDRESS = Refusal(429, "too_many_from_address", "too many connections from this address")


class ConnectionSlot:
    """One connection's place in the count, given back once."""

    __slots__ = ("_release", "refusal")

    def __init__(self, refusal: Refusal | None, release: Callable[[], None]) -> None:
        self.refusal = refusal
        self._release: Callable[[], None] | None = release

    def leave(self) -> None:
        if self._release is not None:
            release, self._release = self._release, None
            release()


class Admission:
    """Connections in all, per address and per user."""

    def __init__(self, total: int, per_address: int, per_user: int) -> None:
        self._limits = total, per_address, per_user
        self.total = 0
        self._addresses: Counter[str] = Counter()
        self._users: Counter[str] = Counter()
        self._guests: dict[object, Callable[[], None]] = {}

    def enter(self, address: str | None, *, evict: Callable[[], None]) -> ConnectionSlot:
        """Count a connection. Over a limit it becomes a guest; `evict` is called when newer guests need its place.

        With `address` None (a trusted proxy, whose client is not known yet) only the total counts.
        """
        key = None if address is None else _counted_as(address)
        if self.total >= self._limits[0]:
            return self._guest(TOO_MANY, evict)
        if key is not None and self._addresses[key] >= self._limits[1]:
            return self._guest(TOO_MANY_FROM_ADDRESS, evict)
        self.total += 1
        release_address = None if key is None else _OneMore(self._addresses, key)

        def release() -> None:
            self.total -= 1
            if release_address is not None:
                release_address()

        return ConnectionSlot(None, release)

    def admit_address(self, address: str) -> Callable[[], None] | None:
        """Count one more connection of `address`, behind a proxy: return the call that gives the place back, or None if
        there is no place."""
        key = _counted_as(address)
        return None if self._addresses[key] >= self._limits[1] else _OneMore(self._addresses, key)

    def admit_user(self, user_id: str) -> Callable[[], None] | None:
        """Count one more connection of `user_id`: return the call that gives the place back, or None if there is no
        place."""
        return None if self._users[user_id] >= self._limits[2] else _OneMore(self._users, user_id)

    def _guest(self, refusal: Refusal, evict: Callable[[], None]) -> ConnectionSlot:
        if len(self._guests) >= GUESTS:
            oldest = next(iter(self._guests))
            self._guests.pop(oldest)()
        key = object()
        self._guests[key] = evict
        return ConnectionSlot(refusal, lambda: void(self._guests.pop(key, None)))


def void(_: object) -> None:
    """A callback that ignores its result."""


class _OneMore:
    """One more of a key in a count. The first call gives it back."""

    __slots__ = ("_counts", "_key")

    def __init__(self, counts: Counter[str], key: str) -> None:
        counts[key] += 1
        self._counts: Counter[str] | None = counts
        self._key = key

    def __call__(self) -> None:
        counts, self._counts = self._counts, None
        if counts is not None:
            counts[self._key] -= 1
            if not counts[self._key]:
                del counts[self._key]


def _counted_as(address: str) -> str:
    """An IPv6 user has a whole /64 to connect from, which counts as one address."""
    if ":" not in address:
        return address
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((parsed.packed[:8] + bytes(8), 64))) if isinstance(parsed, IPv6Address) else str(parsed)


class Proxies:
    """The proxies whose `X-Forwarded-*` headers count."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(text, strict=False) for text in trusted]

    def trusts(self, address: str) -> bool:
        if not self._networks:
            return False
        try:
            parsed = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped:
            return any(parsed.ipv4_mapped in network for network in self._networks)
        return any(parsed in network for network in self._networks)

    def client_of(self, peer: str, forwarded_for: str) -> str:
        """The nearest address from the right that is not a trusted proxy: any client may have written the entries left
        of it."""
        client = peer
        for hop in reversed(forwarded_for.split(",")):
            try:
                client = str(ip_address(_without_port(hop.strip())))
            except ValueError:
                break
            if not self.trusts(client):
                break
        return client


def _without_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
