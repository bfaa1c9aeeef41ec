"""The client's half of HTTP/1.1, whatever answers and however that is cut."""

import gc
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.client.http1 import HEAD_BYTES, HttpFailed, HttpResponse, request
from tests.support.hostile_answers import BAD_HTTP, GOOD_HTTP


def fed(raw: bytes, cuts: list[int], *, closed: bool) -> tuple[HttpResponse, bytes]:
    """The answer and its body when `raw` came in pieces of these sizes."""
    answer, body = HttpResponse(), b""
    for cut in [*cuts, len(raw)]:
        piece, raw = raw[:cut], raw[cut:]
        if answer.is_over:
            break
        body += b"".join(answer.feed(piece))
    if closed and not answer.is_over:
        answer.end()
    return answer, body


SIZES = st.lists(st.integers(1, 40), max_size=20)


@pytest.mark.parametrize("name", GOOD_HTTP)
@settings(max_examples=20, deadline=None)
@given(cuts=SIZES)
def test_an_answer_is_understood_however_it_is_cut(name: str, cuts: list[int]) -> None:
    raw, status, content, _, closed = GOOD_HTTP[name]
    answer, body = fed(raw, cuts, closed=closed)
    assert (answer.status, body, answer.is_over) == (status, content, True)


@pytest.mark.parametrize("name", GOOD_HTTP)
def test_a_connection_may_be_used_again_only_after_a_clean_end(name: str) -> None:
    raw, _, _, is_reusable, closed = GOOD_HTTP[name]
    assert fed(raw, [], closed=closed)[0].is_reusable == is_reusable


@pytest.mark.parametrize("name", BAD_HTTP)
@settings(max_examples=20, deadline=None)
@given(cuts=SIZES)
def test_what_is_no_answer_is_a_failure_however_it_is_cut(name: str, cuts: list[int]) -> None:
    with pytest.raises(HttpFailed):
        fed(BAD_HTTP[name], cuts, closed=True)


def test_names_of_headers_are_in_lower_case_and_trailers_are_none() -> None:
    raw = b"HTTP/1.1 200 OK\r\nX-One: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Two: 2\r\n\r\n"
    answer, body = fed(raw, [], closed=False)
    assert (answer.headers, body) == ({b"x-one": b"1", b"transfer-encoding": b"chunked"}, b"")
    early = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    assert fed(early, [], closed=False)[0].headers == {b"content-length": b"0"}


@pytest.mark.parametrize(
    ("begin", "more", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n", "head has no end"),
        (b"HTTP/1.1 200 OK\r\nx: ", b"yyyy", "head has no end"),
        (b"", b"\r\n", "head has no end"),
        (b"", b"HTTP/1.1 103 Early\r\n\r\n", "head has no end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", "mostly framing"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"xxxx", "mostly framing"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n", "mostly framing"),
    ],
)
def test_what_is_not_body_is_bounded(begin: bytes, more: bytes, reason: str) -> None:
    answer, size = HttpResponse(), 0
    answer.feed(begin)

    def endless() -> None:
        nonlocal size
        while True:
            size += len(more) * 100
            answer.feed(more * 100)

    with pytest.raises(HttpFailed, match=reason):
        endless()
    assert size < 2 * HEAD_BYTES


def test_a_body_has_no_bound_but_its_readers() -> None:
    answer = HttpResponse()
    answer.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert sum(len(b"".join(answer.feed(b"1000\r\n" + b"x" * 4096 + b"\r\n"))) for _ in range(1000)) == 4096 * 1000


def test_a_request_is_whole() -> None:
    head = b"POST /x?y HTTP/1.1\r\nHost: bridge\r\nContent-Length: 2\r\n\r\n"
    assert request("POST", "/x?y", {"Host": "bridge"}, b"\r\n") == head + b"\r\n"


@pytest.mark.parametrize("bad", ["a\r\nb", "a\nb", "a\0b", "ü"])
def test_nothing_can_be_put_into_a_request_that_would_end_it(bad: str) -> None:
    for method, target, headers in (
        (bad, "/", {}),
        ("GET", bad, {}),
        ("GET", "/", {bad: "x"}),
        ("GET", "/", {"x": bad}),
    ):
        with pytest.raises(ValueError, match="printable"):
            request(method, target, headers)
    with pytest.raises(ValueError, match="printable"):
        request("GET", "/ HTTP/1.1", {})


def test_an_answer_that_was_let_go_is_freed_at_once() -> None:
    answer = fed(GOOD_HTTP[next(iter(GOOD_HTTP))][0], [], closed=False)[0]
    answer.let_go()
    gc.disable()
    try:
        kept = ref(answer)
        del answer
        assert kept() is None
    finally:
        gc.enable()
