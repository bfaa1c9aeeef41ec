"""What an answer of a model cost in tokens, read while it passes by."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agents.trial.answers import SAID, answer
from gateway.egress.meter import LINE_BYTES, Meter, MeterReading, Tokens
from gateway.egress.providers import Api


def events(*said: dict[str, Any], done: bool = False) -> bytes:
    lines = b"".join(b"event: x\r\ndata: %b\r\n\r\n" % json.dumps(each).encode() for each in said)
    return lines + (b"data: [DONE]\n\n" if done else b"")


def measured(
    api: Api, data: bytes, *, streamed: bool = True, cuts: list[int] | None = None, **how: Any
) -> MeterReading:
    meter = Meter(api, streamed=streamed)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts or ()), len(data)]
    for start, end in itertools.pairwise(edges):
        meter.feed(data[start:end])
    return meter.read(**how)


START = {
    "type": "message_start",
    "message": {
        "model": "claude-x",
        "usage": {
            "input_tokens": 10,
            "output_tokens": 1,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 20,
            "cache_creation": {"ephemeral_5m_input_tokens": 20},
        },
    },
}
PIECE = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "one"}}
END = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 50}}
CLAUDE = events(START, *[PIECE] * 5, END, {"type": "message_stop"})
RESPONSE = {
    "type": "response.completed",
    "response": {
        "model": "gpt-x",
        "output": [],
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 80},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 2},
        },
    },
}
CODEX = events({"type": "response.created", "response": {"model": "gpt-x", "usage": None}}, RESPONSE)
CHUNK = {"model": "gpt-y", "choices": [{"delta": {"content": "one"}}], "usage": None}
CHAT_USAGE = {"prompt_tokens": 30, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 10}}
CHAT = events(CHUNK, {"model": "gpt-y", "choices": [], "usage": CHAT_USAGE}, done=True)
GEMINI_USAGE = {
    "promptTokenCount": 40,
    "cachedContentTokenCount": 15,
    "toolUsePromptTokenCount": 2,
    "candidatesTokenCount": 3,
    "thoughtsTokenCount": 6,
    "totalTokenCount": 51,
}
GEMINI = events(
    {"modelVersion": "gemini-x", "usageMetadata": {"promptTokenCount": 40}}, {"usageMetadata": GEMINI_USAGE}
)


@pytest.mark.parametrize(
    ("api", "data", "tokens", "model"),
    [
        (Api.ANTHROPIC, CLAUDE, Tokens(10, 50, 100, 20), "claude-x"),
        (Api.RESPONSES, CODEX, Tokens(20, 7, 80), "gpt-x"),
        (Api.CHAT, CHAT, Tokens(20, 4, 10), "gpt-y"),
        (Api.GOOGLE, GEMINI, Tokens(27, 9, 15), "gemini-x"),
    ],
)
def test_a_stream_says_what_it_cost(api: Api, data: bytes, tokens: Tokens, model: str) -> None:
    assert measured(api, data) == MeterReading(tokens, True, model)


@pytest.mark.parametrize(
    ("api", "document", "tokens"),
    [
        (Api.ANTHROPIC, {"usage": {"input_tokens": 1, "output_tokens": 2}}, Tokens(1, 2)),
        (Api.RESPONSES, RESPONSE["response"], Tokens(20, 7, 80)),
        (Api.CHAT, {"usage": CHAT_USAGE}, Tokens(20, 4, 10)),
        (Api.GOOGLE, {"usageMetadata": GEMINI_USAGE}, Tokens(27, 9, 15)),
        (Api.GOOGLE, [{"usageMetadata": {"promptTokenCount": 40}}, {"usageMetadata": GEMINI_USAGE}], Tokens(27, 9, 15)),
    ],
)
def test_so_does_one_document(api: Api, document: Any, tokens: Tokens) -> None:
    reading = measured(api, json.dumps(document, indent=1).encode(), streamed=False)
    assert (reading.tokens, reading.exact) == (tokens, True)


@pytest.mark.parametrize(
    ("path", "api"),
    [("/v1/messages", Api.ANTHROPIC), ("/v1/responses", Api.RESPONSES), ("/v1/chat/completions", Api.CHAT),
     ("/v1beta/models/x:streamGenerateContent", Api.GOOGLE)],
)  # fmt: skip
def test_the_model_that_is_built_in_is_read(path: str, api: Api) -> None:
    said = answer(path, {"stream": True})
    assert isinstance(said, bytes)
    assert SAID.encode() in said
    assert measured(api, said) == MeterReading(Tokens(10, 5), True, "holdfast-trial")


@given(
    st.sampled_from([(Api.ANTHROPIC, CLAUDE), (Api.RESPONSES, CODEX), (Api.CHAT, CHAT), (Api.GOOGLE, GEMINI)]),
    st.lists(st.integers(0, 10_000), max_size=12),
)
def test_every_cut_of_the_bytes_gives_the_same(case: tuple[Api, bytes], cuts: list[int]) -> None:
    assert measured(*case, cuts=cuts) == measured(*case)


@given(
    st.sampled_from(Api),
    st.booleans(),
    st.lists(
        st.sampled_from([b"data: ", b"data:", b"\n", b'{"usage":', b'{"output_tokens":5}', b"}", b"[DONE]", b"\xff"])
        | st.binary(max_size=10),
        max_size=20,
    ).map(b"".join),
    st.lists(st.integers(0, 300), max_size=6),
)
def test_garbage_is_harmless_and_the_same_however_it_is_cut(
    api: Api, streamed: bool, data: bytes, cuts: list[int]
) -> None:
    assert measured(api, data, streamed=streamed, cuts=cuts) == measured(api, data, streamed=streamed)


def test_an_event_of_any_length_is_read_and_not_kept() -> None:
    long = json.loads(json.dumps(RESPONSE))
    long["response"]["output"] = ["x" * (3 * LINE_BYTES)]
    data = events(long)
    meter = Meter(Api.RESPONSES, streamed=True)
    for at in range(0, len(data), 1000):
        meter.feed(data[at : at + 1000])
        assert len(meter._line) <= LINE_BYTES + 1000
    assert meter.read() == MeterReading(Tokens(20, 7, 80), True, "gpt-x")
    assert measured(Api.RESPONSES, data, cuts=[17, LINE_BYTES, LINE_BYTES + 1, 2 * LINE_BYTES]) == meter.read()
    comment = b": " + b"x" * (2 * LINE_BYTES) + b"\n"
    assert measured(Api.RESPONSES, comment + CODEX, cuts=[LINE_BYTES + 5, LINE_BYTES + 9]) == measured(
        Api.RESPONSES, CODEX
    )


def test_a_stream_that_was_cut_off_is_estimated() -> None:
    cut = events(START, *[PIECE] * 30)
    assert measured(Api.ANTHROPIC, cut) == MeterReading(Tokens(10, 31, 100, 20), False, "claude-x")
    assert measured(Api.ANTHROPIC, CLAUDE, whole=False) == MeterReading(Tokens(10, 50, 100, 20), False, "claude-x")
    silent = events(*[{"choices": []}] * 12, done=True)
    assert measured(Api.CHAT, silent, sent_bytes=400) == MeterReading(Tokens(100, 12), False)
    nested = b"data: " + b"[" * 5000 + b'"usage"\n'
    assert measured(Api.CHAT, nested) == MeterReading(Tokens(0, 1), False)
    assert measured(Api.CHAT, b"data: {'usage'\n") == MeterReading(Tokens(0, 1), False)


def test_a_document_that_says_nothing_is_estimated() -> None:
    assert measured(Api.CHAT, b"x" * 40, streamed=False, sent_bytes=8) == MeterReading(Tokens(2, 10), False)
    assert measured(Api.GIT, b"data: x\n") == MeterReading(Tokens(0, 1), False)


def test_tokens_add_up() -> None:
    assert Tokens(1, 2, 3, 4) + Tokens(10, 20, 30, 40) == Tokens(11, 22, 33, 44)
    assert Tokens(1, 2, 3, 4).total == 10
