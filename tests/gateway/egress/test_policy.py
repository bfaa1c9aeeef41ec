"""Hosts as they are written, compared, listed and compared with what an operator allows."""

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress import policy
from gateway.egress.policy import NONE, OUTBOUND, BadHost, Network, Policy, covers, entry, parse_network

LABEL = st.from_regex(re.compile(r"[a-z][a-z0-9]{0,5}"), fullmatch=True)
NAME = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
HOST = NAME | st.builds(IPv4Address, st.integers(0, 2**32 - 1)).map(str)
HOST |= st.builds(IPv6Address, st.integers(0, 2**128 - 1)).map(str)
PORT = st.integers(1, 65535)
PATTERN = st.builds(entry, HOST, PORT) | NAME.map("*.{}".format) | NAME.map("*.{}:8443".format)
LISTS = st.lists(PATTERN, max_size=4).map(lambda hosts: parse_network({"allow": hosts}))
NETWORK = st.just(NONE) | st.just(OUTBOUND) | LISTS
NO_HOSTS = [
    ".",
    "a..b",
    "-a.com",
    "a-.com",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "1.2.3.4.5",
    "a/b",
    "[example.com]",
    "fe80::1%eth0",
    "a@b",
    "0x7f.1",
    "::1::",
]
NO_PORTS = ["a.example", "a.example:", "a.example:0", "a.example:65536", "a.example:x", ":443", "a:1:2"]
BAD_HOSTS = ["*", "a.*", "*.1.2.3.4", "https://a.example", "*.*.example", "a:99999", "*.[::1]"]
OTHERS: list[Any] = ["all", None, 1, [], {}, {"allow": "a"}, {"allow": [1]}, {"allow": [], "deny": []}]
OTHERS += [{"allow": [host]} for host in BAD_HOSTS]
OTHERS += [{"allow": [f"h{n}.example" for n in range(257)]}]


@pytest.mark.parametrize(
    ("written", "compared"),
    [
        ("Example.COM.", "example.com"),
        ("a_b-c.example", "a_b-c.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("[2001:DB8::0:1]", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("3com.com", "3com.com"),
    ],
)
def test_a_host_is_compared_as_it_is_written_best(written: str, compared: str) -> None:
    assert policy.host_name(written) == compared


@pytest.mark.parametrize(
    "text", ["", "a b", "a\n", "ex\u00e4mple.com", "a" * 64 + ".com", "a." * 127 + "com", *NO_HOSTS]
)
def test_what_only_some_programs_take_for_a_host_is_none(text: str) -> None:
    with pytest.raises(BadHost):
        policy.host_name(text)


@pytest.mark.parametrize(
    ("text", "default", "read"),
    [
        ("a.example:443", None, ("a.example", 443)),
        ("[2001:db8::1]:8443", None, ("2001:db8::1", 8443)),
        ("a.example", 80, ("a.example", 80)),
        ("[::1]", 80, ("::1", 80)),
    ],
)
def test_a_port_follows_its_host(text: str, default: int | None, read: tuple[str, int]) -> None:
    assert policy.host_and_port(text, default) == read


@pytest.mark.parametrize("text", NO_PORTS)
def test_no_port_and_no_such_port_are_refused(text: str) -> None:
    with pytest.raises(BadHost):
        policy.host_and_port(text)


@pytest.mark.parametrize(
    ("pattern", "host", "port", "fits"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "example.com", 80, True),
        ("example.com", "example.com", 22, False),
        ("example.com:22", "example.com", 22, True),
        ("example.com:22", "example.com", 443, False),
        ("example.com", "www.example.com", 443, False),
        ("*.example.com", "www.example.com", 443, True),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "badexample.com", 443, False),
        ("*.example.com:8443", "a.example.com", 8443, True),
        ("203.0.113.7", "203.0.113.7", 443, True),
        ("2001:db8::1", "2001:db8::1", 443, True),
        ("[2001:db8::1]:8443", "2001:db8::1", 8443, True),
        ("EXAMPLE.com", "example.com", 443, True),
    ],
)
def test_a_list_allows_what_it_names(pattern: str, host: str, port: int, fits: bool) -> None:
    assert parse_network({"allow": [pattern]}).allows(host, port) is fits


@pytest.mark.parametrize("wanted", OTHERS)
def test_another_network_is_refused(wanted: Any) -> None:
    with pytest.raises(BadHost):
        parse_network(wanted)


@given(NETWORK)
def test_a_network_is_shown_as_it_is_read(network: Network) -> None:
    assert parse_network(policy.shown(network)) == network


@given(HOST, PORT)
def test_the_entry_that_is_named_allows_the_host(host: str, port: int) -> None:
    assert parse_network({"allow": [entry(host, port)]}).allows(host, port)


@given(NETWORK, NETWORK, HOST, st.sampled_from([22, 80, 443, 8443]))
def test_what_is_covered_allows_nothing_else(wide: Network, narrow: Network, host: str, port: int) -> None:
    if covers(wide, narrow) and narrow.allows(host, port) and not wide.everything:
        assert wide.allows(host, port)


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        ("outbound", {"allow": ["a.example:22"]}, True),
        ("none", {"allow": ["a.example"]}, False),
        ("none", "none", True),
        ({"allow": ["a.example"]}, "outbound", False),
        ({"allow": ["*.example"]}, {"allow": ["a.example"]}, True),
        ({"allow": ["*.example"]}, {"allow": ["*.a.example"]}, True),
        ({"allow": ["*.a.example"]}, {"allow": ["*.example"]}, False),
        ({"allow": ["*.example"]}, {"allow": ["example"]}, False),
        ({"allow": ["a.example"]}, {"allow": ["a.example:443"]}, True),
        ({"allow": ["a.example:443"]}, {"allow": ["a.example"]}, False),
        ({"allow": ["a.example:22"]}, {"allow": ["a.example:22"]}, True),
        ({"allow": ["[2001:db8::1]"]}, {"allow": ["2001:db8::1"]}, True),
    ],
)
def test_a_list_is_within_another_one(wide: Any, narrow: Any, covered: bool) -> None:
    assert covers(parse_network(wide), parse_network(narrow)) is covered


def test_a_policy_shows_no_secret() -> None:
    shown = repr(Policy("s", "u", routes={"model": msgspec.Raw(b'{"key":"canary"}')}))
    assert "canary" not in shown
    assert "model" in shown


@given(NETWORK)
def test_a_network_is_one_line_in_settings(network: Network) -> None:
    assert policy.read_text(policy.text(network)) == network


@pytest.mark.parametrize("words", ["", ",", "all hosts", "a,,*"])
def test_another_line_is_refused(words: str) -> None:
    with pytest.raises(BadHost):
        policy.read_text(words)


def test_what_names_a_port_is_told_from_what_does_not() -> None:
    assert [policy.has_port(each) for each in ("a:22", "a", "[::1]", "[::1]:22")] == [True, False, False, True]
