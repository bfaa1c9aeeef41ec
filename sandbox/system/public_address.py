"""Which addresses are on the public internet. Pure.

An address that carries another one (IPv4 mapped into IPv6, 6to4, Teredo, NAT64) counts as the one it carries.
"""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_network

_NAT64 = IPv6Network("64:ff9b::/96")
# What Python calls global and is not: clouds' own services (Azure's 168.63.129.16, Oracle's 192.0.0.192), and addresses
# that mean something on the local network only.
_OWN_SERVICES = [
    ip_network(network)
    for network in ("168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24", "::/96", "64:ff9b:1::/48", "fec0::/10")
]


def is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is not None:
            return is_public(inner)
        if address in _NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
    if any(address in network for network in _OWN_SERVICES):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved
