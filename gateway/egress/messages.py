"""What gateway and proxy tell each other, one message in one packet. Pure.

The gateway sets what it wants, and says it all again to each proxy it finds: every message may be repeated. A
`Listener` comes with one descriptor, the socket that a sandbox listens with; the policy of its session goes before it.
Parts of the proxy that have more to say (routes, what was spent) do so in a `PartNote`, which names the part.
"""

from typing import TypeVar

import msgspec

from gateway.egress.policy import Policy

T = TypeVar("T")

VERSION = 1
MAX_MESSAGE = 160 * 1024  # a packet of a unix socket is no longer, unless the machine's settings say so


class EgressMessage(msgspec.Struct, frozen=True, tag_field="type"):
    """Any of them."""


class Welcome(EgressMessage, frozen=True, tag="welcome"):
    """The proxy's first: who it is, and which sessions it serves."""

    version: int
    release: str
    pid: int
    sessions: tuple[str, ...] = ()


class Setup(EgressMessage, frozen=True, tag="setup"):
    """The gateway's first. `inner`: what of the networks that are not public may be reached, as
    `addresses.parse_inner` reads it."""

    inner: tuple[str, ...] = ()
    connections: int = 256  # of one session at once
    orphan_seconds: float = 600.0  # without a gateway and without work it ends itself after that time


class SetPolicy(EgressMessage, frozen=True, tag="policy"):
    """In place of an earlier one of the session."""

    policy: Policy


class Listener(EgressMessage, frozen=True, tag="listener"):
    """With a descriptor. In place of an earlier one of the session; connections that are open stay."""

    session: str


class TakeAway(EgressMessage, frozen=True, tag="take_away"):
    """The session's sandbox has ended: its listener, its policy and its connections with it."""

    session: str


class KeepOnly(EgressMessage, frozen=True, tag="keep"):
    """All sessions but these are taken away: the gateway that has just come knows of no others that run."""

    sessions: tuple[str, ...]


class Retire(EgressMessage, frozen=True, tag="retire"):
    """Another proxy serves from now on: accept nothing more, finish what is open, and end."""


class Denied(EgressMessage, frozen=True, tag="denied"):
    """A host that was refused; `times` since it was told last. `entry` is what a list would have to have, "" where no
    list can allow it."""

    session: str
    host: str
    port: int
    reason: str
    entry: str = ""
    times: int = 1


class PartNote(EgressMessage, frozen=True, tag="note"):
    """Between a part of the gateway and a part of the proxy. The proxy drops those to a gateway that does not read:
    a part that must lose nothing asks for an answer, and says it again."""

    part: str
    body: msgspec.Raw


ToProxy = Setup | SetPolicy | Listener | TakeAway | KeepOnly | Retire | PartNote
ToGateway = Welcome | Denied | PartNote


class BadMessage(ValueError):
    """The other end speaks otherwise."""


_TO_PROXY: "msgspec.json.Decoder[ToProxy]" = msgspec.json.Decoder(ToProxy)
_TO_GATEWAY: "msgspec.json.Decoder[ToGateway]" = msgspec.json.Decoder(ToGateway)


def encode(message: EgressMessage) -> bytes:
    """Raises BadMessage if it is longer than a packet can be."""
    packet = msgspec.json.encode(message)
    if len(packet) > MAX_MESSAGE:
        raise BadMessage(f"a message of {len(packet)} bytes; {MAX_MESSAGE} are possible")
    return packet


def to_proxy(packet: bytes) -> ToProxy:
    """Raises BadMessage."""
    return _decode(_TO_PROXY, packet)


def to_gateway(packet: bytes) -> ToGateway:
    """Raises BadMessage."""
    return _decode(_TO_GATEWAY, packet)


def _decode(decoder: "msgspec.json.Decoder[T]", packet: bytes) -> T:
    try:
        return decoder.decode(packet)
    except (msgspec.ValidationError, msgspec.DecodeError) as exc:
        raise BadMessage(str(exc)) from exc
