"""The gateway's half of a handshake with a bridge, whatever the bridge answers and however that is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.http11 import Request
from websockets.server import ServerProtocol

from sandbox.client.endpoint import UnixEndpoint
from sandbox.client.handshake import MAX_HEAD, Handshake
from sandbox.ports.link import LinkRefused

TOKEN = "t" * 43
ENDPOINT = UnixEndpoint("/nowhere", TOKEN)


def accepted(request: bytes) -> tuple[Request, bytes]:
    """What a bridge reads, and its answer."""
    bridge = ServerProtocol()
    bridge.receive_data(request)
    [read] = bridge.events_received()
    assert isinstance(read, Request)
    bridge.send_response(bridge.accept(read))
    return read, b"".join(bridge.data_to_send())


@given(st.binary(max_size=40), st.lists(st.integers(1, 60), max_size=10))
def test_an_answer_is_found_however_it_is_cut_and_what_is_behind_it_is_returned(rest: bytes, cuts: list[int]) -> None:
    handshake = Handshake(ENDPOINT, "/terminals/main/link")
    request, answer = accepted(handshake.request)
    assert (request.path, request.headers["Authorization"]) == ("/terminals/main/link", f"Bearer {TOKEN}")
    left, behind = answer + rest, None
    for cut in [*cuts, len(left)]:
        piece, left = left[:cut], left[cut:]
        behind = handshake.feed(piece)
        if behind is not None:
            break
    assert behind is not None
    assert behind + left == rest


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "refuses our token"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "404"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "200"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "101"),  # without a word on the key
        (b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n", "101"),
        (b"HTTP/1.1 101 \xff\r\n\xff: \xff\r\n\r\n", "101"),
        (b"garbage\r\n\r\n", "no bridge answers there"),
        (b"\r\n\r\n", "no bridge answers there"),
        (b"\xff" * 20 + b"\r\n\r\n", "no bridge answers there"),
        (b"x" * (MAX_HEAD + 1), "no bridge answers there"),
        (b"x" * (MAX_HEAD + 1) + b"\r\n\r\n", "no bridge answers there"),
    ],
)
def test_any_other_answer_is_a_refusal(answer: bytes, reason: str) -> None:
    with pytest.raises(LinkRefused, match=reason):
        Handshake(ENDPOINT, "/agent").feed(answer)


def test_an_answer_without_end_is_refused_at_its_bound() -> None:
    handshake = Handshake(ENDPOINT, "/agent")
    for _ in range(MAX_HEAD // 1024):
        assert handshake.feed(b"x" * 1024) is None
    with pytest.raises(LinkRefused):
        handshake.feed(b"x")
