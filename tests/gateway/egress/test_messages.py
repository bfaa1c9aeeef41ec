"""What gateway and proxy tell each other comes out as it went in; anything else is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress import messages
from gateway.egress.messages import (
    BadMessage,
    Denied,
    KeepOnly,
    Listener,
    PartNote,
    Retire,
    SetPolicy,
    Setup,
    TakeAway,
    Welcome,
)
from gateway.egress.policy import Network, Policy

TEXT = st.text(max_size=20)
POLICIES = st.builds(
    Policy,
    TEXT,
    TEXT,
    st.builds(Network, st.booleans(), st.lists(TEXT, max_size=3).map(tuple)),
    st.dictionaries(TEXT, st.just(msgspec.Raw(b'{"key":[1,null]}')), max_size=2),
)
NOTES = st.builds(PartNote, TEXT, st.just(msgspec.Raw(b'{"spent":1}')))
TO_PROXY = st.one_of(
    st.builds(Setup, st.lists(TEXT, max_size=3).map(tuple), st.integers(1, 1000)),
    st.builds(SetPolicy, POLICIES),
    st.builds(Listener, TEXT),
    st.builds(TakeAway, TEXT),
    st.builds(KeepOnly, st.lists(TEXT, max_size=3).map(tuple)),
    st.just(Retire()),
    NOTES,
)
TO_GATEWAY = st.one_of(
    st.builds(Welcome, st.just(1), TEXT, st.integers(0), st.lists(TEXT, max_size=3).map(tuple)),
    st.builds(Denied, TEXT, TEXT, st.integers(0, 65535), TEXT, TEXT, st.integers(1)),
    NOTES,
)


@given(TO_PROXY)
def test_the_proxy_hears_what_the_gateway_said(message: messages.ToProxy) -> None:
    assert messages.to_proxy(messages.encode(message)) == message


@given(TO_GATEWAY)
def test_the_gateway_hears_what_the_proxy_said(message: messages.ToGateway) -> None:
    assert messages.to_gateway(messages.encode(message)) == message


@given(st.binary(max_size=100))
def test_anything_else_is_refused(packet: bytes) -> None:
    for read in (messages.to_proxy, messages.to_gateway):
        with pytest.raises(BadMessage):
            read(packet)


def test_a_message_longer_than_a_packet_is_refused() -> None:
    with pytest.raises(BadMessage):
        messages.encode(KeepOnly(("x" * messages.MAX_MESSAGE,)))
