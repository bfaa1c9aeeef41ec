"""Which pages may speak to the gateway."""

import pytest

from gateway.auth.origin import Origins, check_origin, origin_of, own_origin
from gateway.protocol.errors import ApiError


@pytest.mark.parametrize(
    ("scheme", "host", "origin"),
    [
        ("https", "a.example", "https://a.example"),
        ("https", "a.example:443", "https://a.example"),
        ("http", "A.Example:80", "http://a.example"),
        ("ws", "localhost:8080", "http://localhost:8080"),
        ("wss", "a.example:8443", "https://a.example:8443"),
        ("http", "[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_the_own_origin_is_written_as_a_browser_writes_it(scheme: str, host: str, origin: str) -> None:
    assert own_origin({"scheme": scheme, "headers": [(b"host", host.encode())]}) == origin


@pytest.mark.parametrize("headers", [[], [(b"host", b"")], [(b"host", b"a"), (b"host", b"b")]])
def test_without_exactly_one_host_there_is_no_own_origin(headers: list[tuple[bytes, bytes]]) -> None:
    assert own_origin({"scheme": "http", "headers": headers}) is None


def test_a_list_stands_in_for_the_own_origin() -> None:
    scope = {"scheme": "http", "headers": [(b"host", b"own.example")]}
    assert Origins(()).allows("http://own.example", scope)
    assert not Origins(()).allows("http://other.example", scope)
    assert Origins(("http://other.example",)).allows("http://other.example", scope)
    assert not Origins(("http://other.example",)).allows("http://own.example", scope)


def test_the_origin_is_read_and_two_are_refused() -> None:
    assert origin_of({"headers": [(b"host", b"h")]}) is None
    assert origin_of({"headers": [(b"origin", b"http://a")]}) == "http://a"
    with pytest.raises(ApiError, match="more than once"):
        origin_of({"headers": [(b"origin", b"http://a"), (b"origin", b"http://a")]})


@pytest.mark.parametrize("origin", [None, "http://allowed", "http://evil"])
@pytest.mark.parametrize("cookie", [True, False])
@pytest.mark.parametrize(("kind", "method"), [("websocket", ""), ("http", "GET"), ("http", "HEAD"), ("http", "POST")])
def test_who_began_must_be_known_where_a_browser_adds_credentials(
    origin: str | None, cookie: bool, kind: str, method: str
) -> None:
    writes = kind == "http" and method == "POST"
    refused = (
        cookie and (writes or kind == "websocket")
        if origin is None
        else origin == "http://evil" and (cookie or kind == "websocket")
    )
    scope = {"type": kind, "method": method, "scheme": "http", "headers": []}
    if refused:
        with pytest.raises(ApiError) as error:
            check_origin(Origins(("http://allowed",)), origin, scope, cookie=cookie)
        assert (error.value.status, error.value.code) == (403, "bad_origin")
    else:
        check_origin(Origins(("http://allowed",)), origin, scope, cookie=cookie)
