"""What a request to a model asks for, how it goes on, and answers that are ours."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.model_requests import (
    MOST_OUTPUT,
    UNSAID_OUTPUT,
    AskedModel,
    error_answer,
    head_back,
    headers_to_origin,
    read_asked,
)
from gateway.egress.providers import Api


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ({"model": "m", "max_tokens": 5}, AskedModel("m", 5)),
        ({"model": "m", "max_completion_tokens": 7, "n": 3}, AskedModel("m", 21)),
        ({"model": "m", "max_output_tokens": 9}, AskedModel("m", 9)),
        ({"generationConfig": {"maxOutputTokens": 4, "candidateCount": 2}}, AskedModel("", 8)),
        ({"model": "m"}, AskedModel("m", UNSAID_OUTPUT)),
        ({"model": 5, "max_tokens": True, "n": -1}, AskedModel("", UNSAID_OUTPUT)),
        ({"model": "m", "max_tokens": 10**11}, AskedModel("m", MOST_OUTPUT)),
        ([], AskedModel("", UNSAID_OUTPUT)),
    ],
)
def test_what_is_asked_for(body: object, asked: AskedModel) -> None:
    assert read_asked(json.dumps(body).encode()) == asked


def test_the_path_may_name_the_model() -> None:
    assert read_asked(b'{"model":"other"}', "gemini-x").model == "gemini-x"
    assert read_asked(b"{", "gemini-x") == AskedModel("gemini-x", UNSAID_OUTPUT)


@given(st.binary(max_size=80))
def test_garbage_asks_for_as_much_as_anything(body: bytes) -> None:
    assert 0 <= read_asked(body).output <= MOST_OUTPUT


def test_what_says_who_asks_does_not_go_on() -> None:
    came = [
        *((b"Host", b"x"), (b"X-Api-Key", b"k"), (b"AUTHORIZATION", b"k"), (b"X-Forwarded-For", b"1.2.3.4")),
        *((b"Content-Type", b"application/json"), (b"Anthropic-Beta", b"a-1"), (b"Content-Length", b"99")),
        *((b"X-HTTP-Method-Override", b"DELETE"), (b"X-Original-URL", b"/files"), (b"X-Goog-FieldMask", b"candidates")),
    ]
    key = {"x-api-key": "real"}
    assert headers_to_origin(came, "api.test", key, 2) == [
        (b"Host", b"api.test"),
        (b"Content-Type", b"application/json"),
        (b"Anthropic-Beta", b"a-1"),
        (b"x-api-key", b"real"),
        (b"Accept-Encoding", b"identity"),
        (b"Content-Length", b"2"),
    ]
    oauth = {"authorization": "Bearer t", "anthropic-beta": "oauth-1"}
    going = dict(headers_to_origin(came, "api.test", oauth, 0))
    assert going[b"anthropic-beta"] == b"oauth-1,a-1"
    assert b"Content-Length" not in going
    twice = [(b"anthropic-beta", b"x,oauth-1")]
    assert dict(headers_to_origin(twice, "api.test", oauth, 0))[b"anthropic-beta"] == b"oauth-1"
    assert (b"accept", b"x") not in headers_to_origin([(b"accept", b"x")], "api.test", {"accept": "y"}, 0)


def test_an_answer_comes_back_with_its_own_framing() -> None:
    headers = {b"content-type": b"text/event-stream", b"set-cookie": b"a=b", b"location": b"x", b"x": b"a\r\nb"}
    assert head_back(200, headers, length=None) == (
        b"HTTP/1.1 200 Answer\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: close\r\n\r\n"
    )
    assert b"Content-Length: 7\r\n" in head_back(429, {b"retry-after": b"1"}, length=7)


@pytest.mark.parametrize("api", Api)
@pytest.mark.parametrize("status", [401, 402, 503])
def test_an_error_is_in_the_apis_own_form(api: Api, status: int) -> None:
    head, _, body = error_answer(api, status, "words", "code").partition(b"\r\n\r\n")
    said = json.loads(body)
    assert said["error"]["message"] == "words"
    assert f"Content-Length: {len(body)}".encode() in head
    assert (b"x-should-retry" in head) == (status < 500)
