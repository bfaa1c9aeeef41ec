"""The messages between gateway and proxy, one in each packet. Pure.

The gateway sets the wanted state, and sends all of it again to each proxy that it finds: every message may be repeated.
A `Listener` comes with one descriptor, a sandbox's listening socket; the policy of its session goes before it. Parts of
the proxy with messages of their own (routes, spending) send a `PartNote`, which names the part.
"""

from typing import TypeVar

import msgspec

from gateway.egress.policy import Policy

T = TypeVar("T")

VERSION = 1
MAX_MESSAGE = 160 * 1024  # a longer packet of a unix socket needs other settings of the machine


class EgressMessage(msgspec.Struct, frozen=True, tag_field="type"):
    """Any message."""


class Welcome(EgressMessage, frozen=True, tag="welcome"):
    """The proxy's first: its identity, and the sessions that it serves."""

    version: int
    release: str
    pid: int
    sessions: tuple[str, ...] = ()


class Setup(EgressMessage, frozen=True, tag="setup"):
    """The gateway's first. `inner` lists the networks and hosts that are not public and may be reached, as
    `addresses.parse_inner` reads them."""

    inner: tuple[str, ...] = ()
    connections: int = 256  # of one session at once
    orphan_seconds: float = 600.0  # without a gateway and without work the proxy ends itself after that time


class SetPolicy(EgressMessage, frozen=True, tag="policy"):
    """Replaces an earlier policy of the session."""

    policy: Policy


class Listener(EgressMessage, frozen=True, tag="listener"):
    """With a descriptor. Replaces an earlier one of the session; open connections stay."""

    session: str


class TakeAway(EgressMessage, frozen=True, tag="take_away"):
    """The session's sandbox has ended: its listener, its policy and its connections end, too."""

    session: str


class KeepOnly(EgressMessage, frozen=True, tag="keep"):
    """All other sessions are taken away: the new gateway knows that their sandboxes do not run."""

    sessions: tuple[str, ...]


class Retire(EgressMessage, frozen=True, tag="retire"):
    """Another proxy serves from now on: accept no more, finish the open connections, and end."""


class Denied(EgressMessage, frozen=True, tag="denied"):
    """A host was refused, `times` times since the last report. `entry` is the entry that a list would need, "" if no
    list can allow it."""

    session: str
    host: str
    port: int
    reason: str
    entry: str = ""
    times: int = 1


class PartNote(EgressMessage, frozen=True, tag="note"):
    """Between a part of the gateway and a part of the proxy. The proxy drops those to a gateway that does not read: a
    part that must lose none asks for an answer, and repeats them."""

    part: str
    body: msgspec.Raw


ToProxy = Setup | SetPolicy | Listener | TakeAway | KeepOnly | Retire | PartNote
ToGateway = Welcome | Denied | PartNote


class BadMessage(ValueError):
    """The other end uses another protocol."""


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
