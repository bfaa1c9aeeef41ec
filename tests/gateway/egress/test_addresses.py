"""Addresses that are dialled, and those that never are."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.addresses import parse_inner, refused
from gateway.egress.policy import BadHost
from sandbox.system.public_address import is_public

NONE = parse_inner([])
V4 = "127.0.0.1 10.0.0.1 192.168.1.1 172.16.0.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255 198.18.0.1"
V6 = "::1 fe80::1 fe80::1%eth0 fc00::1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 :: 64:ff9b::7f00:1 2002:7f00:1:: ff02::1"
NOT_PUBLIC = [*V4.split(), "203.0.113.1", "168.63.129.16", *V6.split()]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_what_is_not_public_is_not_dialled(address: str) -> None:
    assert refused("a.example", 443, [address], NONE) == address
    assert refused("a.example", 443, ["1.1.1.1", address], NONE) == address


def test_public_addresses_are_dialled() -> None:
    assert refused("a.example", 443, ["1.1.1.1", "2606:4700::1111"], NONE) is None


def test_the_operator_may_allow_networks_and_hosts() -> None:
    inner = parse_inner(["10.1.0.0/16", "127.0.0.2", "fd00::/8", "git.corp", "*.lan:8443"])
    assert refused("x", 443, ["10.1.2.3", "127.0.0.2", "::ffff:10.1.2.3", "fd00::1"], inner) is None
    assert refused("x", 443, ["10.2.0.1"], inner) == "10.2.0.1"
    assert refused("git.corp", 443, ["10.9.9.9"], inner) is None
    assert refused("git.corp", 22, ["10.9.9.9"], inner) is None, "every port of it"
    assert refused("a.lan", 22, ["10.9.9.9"], inner) == "10.9.9.9", "that one names its port"
    assert refused("x", 22, ["10.1.2.3"], inner, only_inner=True) is None
    assert refused("x", 22, ["1.1.1.1"], inner, only_inner=True) == "1.1.1.1"
    assert refused("a.lan", 8443, ["10.9.9.9"], inner) is None


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "10.0.0.0/99", "*", "http://a", ""])
def test_another_entry_is_refused(entry: str) -> None:
    with pytest.raises(BadHost):
        parse_inner([entry])


ADDRESSES = st.builds(IPv4Address, st.integers(0, 2**32 - 1)) | st.builds(IPv6Address, st.integers(0, 2**128 - 1))


@given(ADDRESSES)
def test_without_an_exception_exactly_the_public_ones_are_dialled(address: IPv4Address | IPv6Address) -> None:
    assert (refused("a.example", 443, [str(address)], NONE) is None) == is_public(address)
