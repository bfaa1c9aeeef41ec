"""What a token endpoint is asked, and what its answers mean."""

import json
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.vault.credential import OAuthTokens
from gateway.vault.oauth import USUAL_SECONDS, EndpointAway, GrantRefused, OAuthClient, read_answer, request_of

BEFORE = OAuthTokens("old-access", "old-refresh", 5)
ASKED = {"grant_type": "refresh_token", "refresh_token": "r", "client_id": "me"}


def read(status: int, body: object) -> object:
    return read_answer(status, json.dumps(body).encode(), BEFORE, 1000.0)


def test_a_form_or_json_is_asked_with_a_secret_if_there_is_one() -> None:
    kind, body = request_of(OAuthClient("https://x/token", "me"), "r")
    assert kind == "application/x-www-form-urlencoded"
    assert parse_qs(body.decode()) == {name: [value] for name, value in ASKED.items()}
    kind, body = request_of(OAuthClient("https://x/token", "me", "s", as_json=True), "r")
    assert (kind, json.loads(body)) == ("application/json", {**ASKED, "client_secret": "s"})


def test_fresh_tokens_end_when_they_say() -> None:
    fresh = read(200, {"access_token": "a", "refresh_token": "r", "expires_in": 60})
    assert fresh == OAuthTokens("a", "r", 1_060_000)


def test_without_a_new_refresh_token_the_old_one_stays() -> None:
    assert read(200, {"access_token": "a", "expires_in": "60"}) == OAuthTokens("a", "old-refresh", 1_060_000)


@pytest.mark.parametrize("told", [None, "soon", [], "nan"])
def test_an_end_that_is_not_told_is_the_usual_one(told: object) -> None:
    fresh = read(200, {"access_token": "a", "expires_in": told})
    assert fresh == OAuthTokens("a", "old-refresh", int((1000 + USUAL_SECONDS) * 1000))


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (400, {"error": "invalid_grant"}, "it answers 400 invalid_grant"),
        (401, {"error": "the token sk-canary is unknown"}, "it answers 401"),
        (403, ["canary"], "it answers 403"),
        (404, {"error": 5}, "it answers 404"),
    ],
)
def test_a_refusal_is_told_by_its_code_alone(status: int, body: object, why: str) -> None:
    assert read(status, body) == GrantRefused(why)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (302, {}),
        (429, {"error": "slow_down"}),
        (500, {}),
        (503, {"error": "invalid_grant"}),
        (100, {}),
        (200, {}),
        (200, {"access_token": 5}),
        (200, {"access_token": "a", "refresh_token": 5}),
        (200, {"access_token": "not a word"}),
        (200, {"access_token": "a\r\nx: y"}),
    ],
)
def test_anything_else_is_no_refusal(status: int, body: object) -> None:
    assert isinstance(read(status, body), EndpointAway)


@given(
    st.integers(100, 599),
    st.binary() | st.recursive(st.none() | st.text(), st.lists).map(lambda x: json.dumps(x).encode()),
)
def test_no_answer_breaks_it_or_is_quoted(status: int, body: bytes) -> None:
    found = read_answer(status, body, BEFORE, 1000.0)
    assert isinstance(found, EndpointAway | GrantRefused)
    assert len(found.why) < 100
