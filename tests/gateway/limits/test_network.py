"""How much network a session may have: the table, whole."""

import pytest

from gateway.limits.network import NetworkRule, way_out


@pytest.mark.parametrize(
    ("most", "network", "granted", "repo", "refused"),
    [
        ("outbound", "outbound", False, None, False),
        ("outbound", "none", False, "https://example.com/a.git", False),  # the provider says what it lacks
        ("none", "none", False, None, False),
        ("none", "outbound", False, None, True),
        ("none", "outbound", True, None, False),
        ("none", "none", False, "https://example.com/a.git", True),
        ("none", "none", True, "https://example.com/a.git", False),
        ("*.a.example", "x.a.example", False, None, False),
        ("*.a.example", "a.example", False, None, True),
        ("*.a.example", "outbound", False, None, True),
        ("a.example", "none", False, "https://a.example/a.git", False),
        ("a.example", "none", False, "https://b.example/a.git", True),
        ("a.example", "none", False, "https://[/a.git", True),
    ],
)
def test_users_have_what_is_allowed_and_services_all(
    most: str, network: str, granted: bool, repo: str | None, refused: bool
) -> None:
    told = NetworkRule("none", most).refusal(network, granted=granted, repo_url=repo)
    assert (told is not None) == refused
    assert told is None or "HOLDFAST_NETWORK_MAX" in told


def test_for_a_provider_there_is_a_way_out_or_none() -> None:
    assert [way_out(each) for each in ("none", "outbound", "a.example,b.example")] == ["none", "outbound", "outbound"]
