"""Checks the addresses that the proxy dials. Pure.

A name is looked up once, outside, and the proxy dials the addresses of that answer: a second answer of the name server
comes too late. All of them must be public; the operator may allow others (`inner`: networks, and hosts that may have
such addresses). Inner addresses have no usual ports: a session that may reach every host may reach every port of them.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

from gateway.egress.policy import PORTS, BadHost, has_port, host_pattern, matches
from sandbox.system.public_address import is_public


class Inner(msgspec.Struct, frozen=True):
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    hosts: tuple[str, ...] = ()


def parse_inner(entries: Iterable[str]) -> Inner:
    """Parse the operator's list. Raises BadHost."""
    networks, hosts = [], []
    for entry in entries:
        try:
            networks.append(ip_network(entry.strip("[]")))
        except ValueError as exc:
            if "/" in entry:
                raise BadHost(f"{entry[:100]!r}: {exc}") from None
            hosts.append(host_pattern(entry))
    return Inner(tuple(networks), tuple(hosts))


def refused(host: str, port: int, addresses: Sequence[str], inner: Inner, *, only_inner: bool = False) -> str | None:
    """The first address of a host that may not be dialled; None if all may be. `only_inner`: a public one may not."""
    if any(_is_inner(pattern, host, port) for pattern in inner.hosts):
        return None
    return next((address for address in addresses if not _may_be_dialled(address, inner, only_inner)), None)


def _is_inner(pattern: str, host: str, port: int) -> bool:
    """As in a list of hosts, but that one without a port is meant with every port."""
    return matches(pattern, host, port) or (not has_port(pattern) and matches(pattern, host, PORTS[0]))


def _may_be_dialled(text: str, inner: Inner, only_inner: bool) -> bool:
    address = ip_address(text.partition("%")[0])
    plain = (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
    if any(plain in network for network in inner.networks if network.version == plain.version):
        return True
    return not only_inner and is_public(address)
