"""Which of the credentials of a request decides."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.credentials import ShownCredential, find_credential, offered_protocols, read_query, session_cookie
from gateway.protocol.errors import ApiError

# In the order in which they decide.
SHOWN = ("relay", "service", "header", "protocol", "ticket", "query", "cookie")
HEADERS = {
    "relay": (b"x-relay-secret", b"of relay"),
    "service": (b"x-service-token", b"of service"),
    "header": (b"authorization", b"Bearer of header"),
    "cookie": (b"cookie", b"a=b; session=of cookie"),
}


def request(*shown: str, kind: str = "websocket", **more: Any) -> dict[str, Any]:
    headers = [HEADERS[via] for via in shown if via in HEADERS]
    protocols = ["chat", "token.of protocol"] if "protocol" in shown else ["chat"]
    return {"type": kind, "headers": headers, "subprotocols": protocols, "query_string": b"", **more}


def query(*shown: str) -> list[tuple[str, str]]:
    return [({"query": "token"}.get(via, via), f"of {via}") for via in shown if via in ("ticket", "query")]


@given(st.sets(st.sampled_from(SHOWN)))
def test_the_first_in_order_decides_alone(shown: set[str]) -> None:
    found = find_credential(request(*shown), query(*shown), query_tokens=True)
    first = next((via for via in SHOWN if via in shown), None)
    assert (found and (found.via, found.value)) == (first and (first, f"of {first}"))


@given(st.sets(st.sampled_from(SHOWN)))
def test_sub_protocols_and_tickets_are_for_sockets_alone(shown: set[str]) -> None:
    found = find_credential(request(*shown, kind="http"), query(*shown), query_tokens=True)
    first = next((via for via in SHOWN if via in shown - {"protocol", "ticket"}), None)
    assert (found and found.via) == first


def test_other_headers_are_no_credentials() -> None:
    others = [(b"host", b"h"), (b"x-forwarded-authorization", b"Bearer a"), (b"proxy-authorization", b"Bearer b")]
    assert find_credential(request(headers=others), [], query_tokens=True) is None
    scope = request(headers=[*others, HEADERS["header"], *others])
    assert find_credential(scope, [], query_tokens=True) == ShownCredential("header", "of header")


@pytest.mark.parametrize("via", [via for via in SHOWN if via != "protocol"])
def test_one_kind_shown_twice_is_refused(via: str) -> None:
    scope = request(via)
    with pytest.raises(ApiError) as refused:
        find_credential({**scope, "headers": scope["headers"] * 2}, query(via) * 2, query_tokens=True)
    assert (refused.value.status, refused.value.code) == (400, "ambiguous_credentials")


def test_two_token_sub_protocols_are_refused() -> None:
    with pytest.raises(ApiError, match="more than once"):
        find_credential(request(subprotocols=["token.a", "token.b"]), [], query_tokens=True)


def test_a_token_in_the_url_can_be_turned_off() -> None:
    with pytest.raises(ApiError) as refused:
        find_credential(request("query"), query("query"), query_tokens=False)
    assert (refused.value.status, refused.value.code) == (401, "query_token")


@pytest.mark.parametrize(("value", "token"), [(b"bearer  x ", "x"), (b"TOKEN x", "x"), (b"Bearer a b", "a b")])
def test_bearer_and_token_are_read_in_any_case(value: bytes, token: str) -> None:
    scope = request(headers=[(b"authorization", value)])
    assert find_credential(scope, [], query_tokens=True) == ShownCredential("header", token)


@pytest.mark.parametrize("value", [b"Bearer", b"Bearer ", b"Basic dTpw", b"x"])
def test_another_scheme_is_refused(value: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        find_credential(request(headers=[(b"authorization", value)]), [], query_tokens=True)
    assert refused.value.status == 401


@pytest.mark.parametrize(
    ("cookies", "found"),
    [
        ([], None),
        ([b"session=a"], "a"),
        ([b'b=c; session = "a" ;d'], "a"),
        ([b"session=a; session=b"], None),
        ([b"session=a", b"session=a"], None),
        ([b"sessions=a; session"], None),
    ],
)
def test_the_session_cookie_is_read_if_there_is_exactly_one(cookies: list[bytes], found: str | None) -> None:
    assert session_cookie(request(headers=[(b"cookie", each) for each in cookies])) == found


def test_a_query_is_read_up_to_a_bound() -> None:
    assert read_query({"query_string": b"a=1&b=&a=%20"}) == [("a", "1"), ("b", ""), ("a", " ")]
    with pytest.raises(ApiError, match="query"):
        read_query({"query_string": b"&".join([b"a=1"] * 51)})


def test_a_token_is_no_protocol_that_is_answered() -> None:
    assert offered_protocols(request("protocol")) == ["chat"]
