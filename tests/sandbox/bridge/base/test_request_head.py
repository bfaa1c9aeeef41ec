import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.bridge.base.request_head import MAX_HEAD, KnownPath, KnownRequest, Token, Unknown, read_head

TOKEN = Token("secret")
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = {
    b"Host": b"bridge",
    b"Upgrade": b"websocket",
    b"Connection": b"Upgrade",
    b"Sec-WebSocket-Key": KEY,
    b"Sec-WebSocket-Version": b"13",
    b"Authorization": b"Bearer secret",
}


def head(line: bytes, headers: dict[bytes, bytes]) -> bytes:
    return b"".join([line, b"\r\n", *(b"%b: %b\r\n" % each for each in headers.items()), b"\r\n"])


def test_health_is_open() -> None:
    assert read_head(head(b"GET /health HTTP/1.1", {b"Host": b"x"}), TOKEN) == KnownRequest(KnownPath.HEALTH)
    with_length = {b"Host": b"x", b"Content-Length": b"0", b"Connection": b"close"}
    assert read_head(head(b"GET /health HTTP/1.1", with_length), TOKEN) == KnownRequest(KnownPath.HEALTH)


@pytest.mark.parametrize("path", [KnownPath.TREE, KnownPath.AGENT])
def test_a_socket_is_known_by_its_token(path: KnownPath) -> None:
    asked = head(b"GET %b HTTP/1.1" % path.value, UPGRADE)
    assert read_head(asked + b"more", TOKEN) == KnownRequest(path, KEY, b"more")
    assert read_head(asked, Token("another")) is Unknown.FOR_GOOD


def test_the_listener_is_handed_out_to_who_has_the_token() -> None:
    asked = {b"Host": b"x", b"Authorization": b"Bearer secret"}
    line = b"GET /egress HTTP/1.1"
    assert read_head(head(line, asked), TOKEN) == KnownRequest(KnownPath.EGRESS)
    assert read_head(head(line, asked), Token("another")) is Unknown.FOR_GOOD
    assert read_head(head(line, {b"Host": b"x"}), TOKEN) is Unknown.FOR_GOOD
    assert read_head(head(line, asked) + b"more", TOKEN) is Unknown.FOR_GOOD
    assert read_head(head(line, {**asked, b"Upgrade": b"h2c"}), TOKEN) is Unknown.FOR_GOOD


@given(st.integers(0, 1000))
def test_a_part_of_a_head_is_not_known_yet(size: int) -> None:
    whole = head(b"GET /tree HTTP/1.1", UPGRADE)
    size %= len(whole)
    assert read_head(whole[:size], TOKEN) is Unknown.YET


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"Host", None),
        (b"Upgrade", b"h2c"),
        (b"Connection", b"keep-alive"),
        (b"Sec-WebSocket-Key", b"short"),
        (b"Sec-WebSocket-Version", b"8"),
        (b"Authorization", None),
        (b"Authorization", b"Basic secret"),
        (b"Authorization", b"Bearer secret x"),
        (b"Sec-WebSocket-Protocol", b"chat"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Content-Length", b"1"),
        (b"X-Odd", b"\x80"),
        (b"X Odd", b"1"),
        (b" X-Folded", b"1"),
        (b"host", b"another"),
    ],
)
def test_what_is_not_just_so_is_the_web_servers(name: bytes, value: bytes | None) -> None:
    headers = {each: said for each, said in UPGRADE.items() if each != name}
    if value is not None:
        headers[name] = value
    assert read_head(head(b"GET /tree HTTP/1.1", headers), TOKEN) is Unknown.FOR_GOOD


@pytest.mark.parametrize(
    "data",
    [
        b"POST /health HTTP/1.1\r\n",
        b"GET /tree?x HTTP/1.1\r\n",
        b"GET /health HTTP/1.0\r\n",
        b"x",
        b"GET /health HTTP/1.1\r\n\r\n",
        head(b"GET /health HTTP/1.1", {b"Host": b"x"}) + b"GET",
        head(b"GET /health HTTP/1.1", {b"Host": b"x", b"Upgrade": b"websocket"}),
        b"GET /tree HTTP/1.1\r\nX: " + b"x" * MAX_HEAD,
    ],
)
def test_other_requests_are_the_web_servers_as_soon_as_that_can_be_told(data: bytes) -> None:
    assert read_head(data, TOKEN) is Unknown.FOR_GOOD


@given(st.binary(max_size=300))
def test_noise_is_never_taken_for_one_of_them(data: bytes) -> None:
    found = read_head(b"GET /agent HTTP/1.1\r\n" + data, TOKEN)
    assert found in (Unknown.YET, Unknown.FOR_GOOD)
