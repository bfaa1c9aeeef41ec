"""What the gateway and the proxy tell each other about models."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.budget import Spent
from gateway.egress.meter import Tokens
from gateway.egress.model_settings import (
    AskKey,
    HeardSpending,
    ProviderKey,
    SpendingSettings,
    counts,
    note_to_gateway,
    note_to_proxy,
    read_counts,
    read_route,
    read_spending,
    route_settings,
)
from gateway.egress.providers import BUILT_IN, ModelProvider


def raw(said: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(said))


@pytest.mark.parametrize("provider", BUILT_IN, ids=lambda each: each.name)
def test_a_provider_comes_whole_to_the_proxy(provider: ModelProvider) -> None:
    bare = msgspec.structs.replace(route_settings(provider))
    told = read_route(raw(route_settings(provider, ProviderKey("k", True, 5.0))))
    assert (told.key, told.oauth, told.expires, bare.key) == ("k", True, 5.0, "")
    assert told.provider == bare.provider
    assert (told.provider.origin, told.provider.apis) == (provider.origin, provider.apis)


def test_no_key_is_shown() -> None:
    settings = route_settings(BUILT_IN[0], ProviderKey("secret"))
    assert "secret" not in repr(settings) + repr(ProviderKey("secret"))
    assert "key=none" in repr(route_settings(BUILT_IN[0]))
    assert "none" in repr(ProviderKey(why="x"))


def test_limits() -> None:
    assert read_spending(None) == SpendingSettings()
    assert read_spending(raw(SpendingSettings(5, 6, 7, (1,)))) == SpendingSettings(5, 6, 7, (1,))


def test_notes_of_another_version_are_none() -> None:
    assert note_to_proxy(raw(HeardSpending(3))) == HeardSpending(3)
    assert note_to_gateway(raw(AskKey(1, "s", "p"))) == AskKey(1, "s", "p")
    assert note_to_proxy(raw(AskKey(1, "s", "p"))) is None
    assert note_to_gateway(raw({"type": "x"})) is None


@given(st.builds(Spent, st.integers(0), st.builds(Tokens, *[st.integers(0, 99)] * 4), *[st.integers(0, 99)] * 3))
def test_counts_come_back(spent: Spent) -> None:
    assert read_counts(counts(spent)) == spent
    assert read_counts(counts(spent)[1:]) == Spent()
    assert read_counts((-1, *counts(spent)[1:])) == Spent()
