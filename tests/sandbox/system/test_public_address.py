"""Which addresses are public, in each spelling of them."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandbox.system.public_address import is_public


@pytest.mark.parametrize("text", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101", "2002:101:101::1"])
def test_hosts_of_the_internet_are_public(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "224.0.0.1",
        "240.0.0.1", "255.255.255.255", "192.0.0.192", "168.63.129.16", "192.88.99.1", "198.51.100.1",
        "::", "::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::127.0.0.1", "2002:7f00:1::1", "64:ff9b::7f00:1",
        "64:ff9b:1::1", "fe80::1", "fec0::1", "fc00::1", "ff02::1", "fd00:ec2::254", "2001:0:a00:1::",
    ],
)  # fmt: skip
def test_everything_else_is_not(text: str) -> None:
    assert not is_public(ip_address(text))


@given(st.integers(0, 2**32 - 1))
@example(0x7F000001)
@example(0x01010101)
def test_an_address_inside_another_counts_as_itself(number: int) -> None:
    inner = IPv4Address(number)
    for outer in ((0xFFFF << 32) | number, (0x2002 << 112) | (number << 80), (0x64FF9B << 96) | number):
        assert is_public(IPv6Address(outer)) == is_public(inner)
