"""Answers of an agent's server, in pieces of any size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.bridge.agent.http_answer import MAX_HEAD, AnswerReader, BadHttp, port_in, request

COUNTED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: text/plain\r\n\r\nhello"
IN_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
CHUNKED = IN_CHUNKS + b"3\r\nhel\r\n2;of=nothing\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n"
TO_THE_END = b"HTTP/1.0 404 Not Found\r\n\r\nhello"
EMPTY = b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"


def read(data: bytes, sizes: list[int]) -> tuple[int, bytes]:
    reader, body, at = AnswerReader(), b"", 0
    for size in [*sizes, len(data)]:
        body += reader.feed(data[at : at + size])
        at += size
    reader.end() if not reader.over else None
    return reader.status, body


@given(sizes=st.lists(st.integers(0, 30), max_size=20))
@pytest.mark.parametrize(
    ("data", "status", "body"),
    [(COUNTED, 200, b"hello"), (CHUNKED, 200, b"hello"), (TO_THE_END, 404, b"hello"), (EMPTY, 204, b"")],
    ids=["counted", "chunked", "to-the-end", "empty"],
)
def test_a_body_is_the_same_however_it_comes(data: bytes, status: int, body: bytes, sizes: list[int]) -> None:
    assert read(data, sizes) == (status, body)


def test_heads_before_the_answer_s_own_are_passed_over_and_a_length_of_nothing_is_over_at_once() -> None:
    reader = AnswerReader()
    assert reader.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nof the next") == b""
    assert (reader.status, reader.over) == (200, True)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"no HTTP\r\n\r\n", "its head is no HTTP"),
        (b"HTTP/2 200\r\n\r\n", "its head is no HTTP"),
        (b"x" * (MAX_HEAD + 1), "its head is too long"),
        (b"x" * (MAX_HEAD + 1) + b"\r\n\r\n", "its head is too long"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "its length is no number"),
        (IN_CHUNKS + b"x\r\n", "the size of a chunk is no number"),
        (IN_CHUNKS + b"3" * 300, "a line between its chunks is too long"),
        (IN_CHUNKS + b"1\r\nab\r\n", "a chunk is longer than it said"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, told: str) -> None:
    with pytest.raises(BadHttp, match=told):
        AnswerReader().feed(data)


@pytest.mark.parametrize("data", [b"", COUNTED[:-1], CHUNKED[:-1], COUNTED[:20]])
def test_an_answer_that_breaks_off_is_none(data: bytes) -> None:
    reader = AnswerReader()
    reader.feed(data)
    with pytest.raises(BadHttp, match="the connection broke"):
        reader.end()


def test_a_request_says_who_asks_and_how_long_it_is() -> None:
    who = {"port": 4096, "user": "ada", "password": "of ada", "accept": "application/json"}
    head = b"Host: 127.0.0.1:4096\r\nAuthorization: Basic YWRhOm9mIGFkYQ==\r\nAccept: application/json\r\n"
    close = b"Connection: close\r\n"
    length = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    assert request("GET", "/a?b=c", b"", **who) == b"GET /a?b=c HTTP/1.1\r\n" + head + close + b"\r\n"  # type: ignore[arg-type]
    assert request("POST", "/a", b"{}", **who) == b"POST /a HTTP/1.1\r\n" + head + close + length % 2 + b"{}"  # type: ignore[arg-type]
    assert request("POST", "/a", b"", **who).endswith(length % 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "a"), ("GET", "/a b"), ("GET", "/a\r\nb"), ("get", "/"), ("", "/")]
)
def test_a_request_that_would_be_two_is_none(method: str, path: str) -> None:
    with pytest.raises(ValueError, match="no such"):
        request(method, path, b"", port=1, user="", password="", accept="")


@pytest.mark.parametrize(
    ("line", "port"),
    [
        (b"opencode server listening on http://127.0.0.1:4096", 4096),
        (b"http://127.0.0.1:65535/", 65535),
        (b"http://127.0.0.1:65536", None),
        (b"http://127.0.0.1:0", None),
        (b"http://0.0.0.0:4096", None),
        (b"", None),
    ],
)
def test_a_port_is_found_in_a_line_of_output(line: bytes, port: int | None) -> None:
    assert port_in(line) == port
