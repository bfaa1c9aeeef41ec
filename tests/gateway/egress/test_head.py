"""Heads of requests: what is read, and all that is refused because two programs could read it in two ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress import head
from gateway.egress.head import MAX_HEADERS, NotServed, TargetForm

HOST = b"\r\nHost: a.example"
TOKEN = st.from_regex(rb"[A-Za-z][A-Za-z0-9-]{0,8}", fullmatch=True).filter(
    lambda name: name.lower() not in (b"host", b"content-length", b"transfer-encoding", b"expect", b"connection", b"te")
)
VALUE = st.from_regex(rb"[!-~]{0,12}", fullmatch=True)


@pytest.mark.parametrize(
    ("line", "form", "target"),
    [
        (b"CONNECT a.example:443 HTTP/1.1", TargetForm.CONNECT, "a.example:443"),
        (b"GET http://a.example/x?y HTTP/1.1", TargetForm.ABSOLUTE, "http://a.example/x?y"),
        (b"GET HTTP://a.example/ HTTP/1.1", TargetForm.ABSOLUTE, "HTTP://a.example/"),
        (b"POST /anthropic/v1/messages HTTP/1.1", TargetForm.ORIGIN, "/anthropic/v1/messages"),
    ],
)
def test_what_is_asked_for_has_three_forms(line: bytes, form: TargetForm, target: str) -> None:
    found = head.read(line + HOST)
    assert (found.form, found.target, found.length) == (form, target, 0)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"GET /",
        b"GET  / HTTP/1.1" + HOST,
        b"GET / HTTP/2.0" + HOST,
        b"GET / HTTP/1.1 x" + HOST,
        b"G@T / HTTP/1.1" + HOST,
        b"GET https://a.example/ HTTP/1.1" + HOST,
        b"OPTIONS * HTTP/1.1" + HOST,
        b"GET a.example:443 HTTP/1.1" + HOST,
        b"GET ftp://a.example/ HTTP/1.1" + HOST,
        b"GET / HTTP/1.1",
        b"GET / HTTP/1.1" + HOST + HOST,
        b"GET / HTTP/1.1" + HOST + b"\r\nA : b",
        b"GET / HTTP/1.1" + HOST + b"\r\n folded",
        b"GET / HTTP/1.1" + HOST + b"\r\nA: b\nB: c",
        b"GET / HTTP/1.1" + HOST + b"\r\nA: b\rB: c",
        b"GET / HTTP/1.1" + HOST + b"\r\nA: \x00",
        b"GET / HTTP/1.1" + HOST + b"\r\n: b",
        b"GET / HTTP/1.1" + HOST + b"\r\nContent-Length: 1\r\nContent-Length: 1",
        b"GET / HTTP/1.1" + HOST + b"\r\nContent-Length: +1",
        b"GET / HTTP/1.1" + HOST + b"\r\nContent-Length: 1, 1",
        b"GET / HTTP/1.1" + HOST + b"\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
        b"GET / HTTP/1.1" + HOST + b"\r\nTransfer-Encoding: gzip, chunked",
        b"GET / HTTP/1.1" + HOST + b"\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked",
        b"CONNECT a.example:443 HTTP/1.1" + HOST + b"\r\nContent-Length: 1",
        b"GET / HTTP/1.1" + HOST + b"\r\nExpect: 200-ok",
        b"GET / HTTP/1.1" + HOST + b"\r\nA: b" * MAX_HEADERS,
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(text: bytes) -> None:
    with pytest.raises(NotServed) as refused:
        head.read(text)
    assert refused.value.status in (400, 431)
    assert str(refused.value)


def test_a_body_has_a_length_or_comes_in_chunks() -> None:
    assert head.read(b"POST / HTTP/1.1" + HOST + b"\r\nContent-Length: 17").length == 17
    chunked = head.read(b"POST / HTTP/1.1" + HOST + b"\r\nTransfer-Encoding: Chunked\r\nExpect: 100-continue")
    assert (chunked.length, chunked.expects_continue) == (None, True)


def test_what_is_between_two_ends_goes_no_further() -> None:
    text = b"GET http://a.example/ HTTP/1.1" + HOST + b"\r\nConnection: close, X-Own\r\nX-Own: 1\r\nX-Other: 2"
    text += b"\r\nProxy-Authorization: Basic x\r\nTE: trailers\r\nUpgrade: h2c"
    found = head.read(text)
    assert head.end_to_end(found.headers, b"host") == [(b"X-Other", b"2")]
    assert found.values(b"x-other") == [b"2"]


@given(st.lists(st.tuples(TOKEN, VALUE), max_size=10))
def test_a_head_that_is_written_is_read_as_the_same(headers: list[tuple[bytes, bytes]]) -> None:
    written = head.request("GET", "/a", [(b"Host", b"a.example"), *headers])
    assert head.read(written.removesuffix(b"\r\n\r\n")).headers == [(b"Host", b"a.example"), *headers]


@given(st.binary(max_size=200))
def test_anything_is_read_or_refused(text: bytes) -> None:
    try:
        found = head.read(text)
    except NotServed:
        return
    assert found.method
    assert found.target


@given(st.text())
def test_an_answer_is_one_line_in_words(words: str) -> None:
    said = head.answer(403, words.encode(errors="replace").decode())
    top, _, body = said.partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert b"Content-Length: %d" % len(body) in top
    assert (body.count(b"\n"), b"\r" in body) == (1, False)


def test_a_status_without_a_name_is_answered_too() -> None:
    assert head.answer(418, "x").startswith(b"HTTP/1.1 418 Refused\r\n")
