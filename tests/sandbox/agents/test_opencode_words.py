"""What opencode's events and answers are made of."""

from typing import Any

import pytest

from sandbox.agents.opencode_words import (
    SILENT,
    add_usage,
    answer,
    error,
    error_of,
    is_refusal,
    list_of,
    model_of,
    name_in,
    result,
    session_in,
    session_of,
)
from sandbox.agents.turn import Turn
from tests.support.cores import heard


def test_names_that_could_be_part_of_another_path_are_none() -> None:
    assert session_of("ses_e0b0") == "ses_e0b0"
    assert {session_of(each) for each in ("", "e0b0", "ses_", "ses_/x", "ses_a?b", "ses_" + "x" * 121)} == {""}
    assert name_in({"id": "per_1-2"}) == "per_1-2"
    assert {name_in({"id": each}) for each in ("", "a/b", "..", 7, "x" * 129)} == {""}
    assert (session_in({"sessionID": "s"}), session_in({"sessionID": 7})) == ("s", "")


def test_an_answer_may_be_a_list() -> None:
    assert list_of(b'[{"a":1},2]') == [{"a": 1}]
    assert list_of(b"{}") == list_of(b"") == list_of(b"}") == []


def test_a_model_has_a_provider() -> None:
    assert model_of("a/b/c") == {"model": {"providerID": "a", "modelID": "b/c"}}
    assert model_of("b") == model_of("") == {}


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ({"allow": True}, {"reply": "once"}),
        ({"allow": True, "always": True}, {"reply": "always"}),
        ({"behavior": "allow"}, {"reply": "once"}),
        ({"allow": False}, {"reply": "reject", "message": "The user said no."}),
        ({"allow": False, "message": "not now"}, {"reply": "reject", "message": "not now"}),
        ({"allow": False, "message": "stop", "interrupt": True}, {"reply": "reject"}),
        ({"allow": 1}, {"reply": "reject", "message": "The user said no."}),
    ],
)
def test_a_permission_is_answered(frame: dict[str, Any], expected: dict[str, str]) -> None:
    assert answer({"kind": "permission"}, frame) == expected


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ({"answers": {"a": "1", "b": ["2", 3]}}, [["1"], ["2", "3"]]),
        ({"answers": {"a": "1"}}, [["1"], []]),
        ({"answer": "x"}, [["x"], ["x"]]),
        ({"answers": ["x", {}]}, [["x"], ["x"]]),
        ({}, [[], []]),
    ],
)
def test_a_question_is_answered_by_lists(frame: dict[str, Any], expected: list[list[str]]) -> None:
    assert answer({"kind": "question", "questions": ["a", "b"]}, frame) == {"answers": expected}


def test_a_result_is_its_output_or_its_error() -> None:
    told = {"type": "tool_result", "tool_use_id": "c"}
    assert result("c", {"status": "completed", "output": "o"}) == {**told, "content": "o", "is_error": False}
    assert result("c", {"status": "error", "error": "e"}) == {**told, "content": "e", "is_error": True}
    assert result("c", {"attachments": []})["content"] == ""


def test_tokens_that_are_no_numbers_are_not_counted() -> None:
    usage = {"inputTokens": 1}
    add_usage(usage, {"input": 2, "output": "x", "cache": 7})
    assert usage == {"inputTokens": 3}


def test_an_error_that_speaks_of_the_key_is_a_refusal() -> None:
    assert error_of({"data": {"message": "m"}}) == "m"
    assert error_of({"data": 7}) == ""
    assert is_refusal({"data": {"statusCode": 403}})
    assert is_refusal({"name": "ProviderAuthError"})
    assert is_refusal({"data": {"message": "OpenAI API key is missing"}})
    assert not is_refusal({"name": "APIError", "data": {"message": "fake 500", "statusCode": 500}})
    turn = Turn()
    codes = [heard(error(turn, told, refused=refused))[0]["code"]
             for told, refused in (("fake 401", False), ("x", True), ("fake 500", False))]  # fmt: skip
    assert codes == ["agent_auth", "agent_auth", "agent"]


def test_what_it_says_of_itself_is_silent() -> None:
    for kind in ("server.heartbeat", "plugin.added", "session.updated", "lsp.updated", "message.removed"):
        assert SILENT.fullmatch(kind), kind
    assert not SILENT.fullmatch("of.tomorrow")
