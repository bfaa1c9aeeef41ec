"""What the built-in model says, by interface."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agents.trial.answers import SAID, answer


def events(path: str) -> list[dict[str, Any]]:
    said = answer(path, {"stream": True})
    assert isinstance(said, bytes)
    data = [line.removeprefix(b"data: ") for line in said.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(each) for each in data if each != b"[DONE]"]


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/messages", "message_stop"),
        ("/v1/responses", "response.completed"),
        ("/v1/chat/completions", ""),
        ("/v1beta/models/x:streamGenerateContent", ""),
    ],
)
def test_each_interface_streams_the_same_words(path: str, last: str) -> None:
    said = events(path)
    assert SAID in json.dumps(said)
    assert said[-1].get("type", "") == last


@pytest.mark.parametrize("path", ["/v1/messages", "/v1beta/models/x:generateContent"])
def test_who_wants_no_stream_gets_the_words_at_once(path: str) -> None:
    assert SAID in json.dumps(answer(path, {}))


def test_what_agents_ask_beside_is_answered() -> None:
    assert answer("/v1/messages/count_tokens", {}) == {"input_tokens": 10}
    assert answer("/v1beta/models/x:countTokens", {}) == {"totalTokens": 10}
    models = answer("/v1/models", {})
    assert isinstance(models, dict)
    assert models["data"][0]["object"] == "model"


@given(st.text().filter(lambda path: not path.endswith(("/models", "/messages", "/responses"))))
def test_nothing_else_is(path: str) -> None:
    assert answer(f"/v2/{path.replace(':', '')}-", {}) is None
