"""Codex's words: its directory, its provider, and the answers to what it asks."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.agents import codex_words as words
from sandbox.agents.core import ToAgent

ASKED = {
    "method": "item/tool/requestUserInput",
    "params": {"questions": [{"id": "c", "question": "Which?"}, {"id": "d"}]},
}
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, ".codex"),
        ({"HOME": "/agent", "CODEX_HOME": "/agent/own/codex"}, "own/codex"),
        ({"HOME": "/agent", "CODEX_HOME": "/elsewhere"}, ".codex"),
        ({"HOME": "/agent", "CODEX_HOME": "own"}, ".codex"),
        ({"CODEX_HOME": "/own"}, ".codex"),
    ],
)
def test_its_directory_is_below_home(env: dict[str, str], expected: str) -> None:
    assert words.home_of(env) == expected


def test_a_provider_of_ours_takes_the_key_from_the_environment_and_gives_up_soon() -> None:
    settings = words.provider("http://m/v1")
    assert settings[0] == 'model_provider="holdfast"'
    assert 'model_providers.holdfast.base_url="http://m/v1"' in settings
    assert 'model_providers.holdfast.env_key="OPENAI_API_KEY"' in settings
    assert "model_providers.holdfast.request_max_retries=2" in settings


def test_a_thread_is_noted_by_an_id_that_is_good_for_a_file() -> None:
    name = "11111111-1111-4111-8111-111111111111"
    assert words.thread_of({words.THREAD: name}) == name
    assert words.thread_of({words.THREAD: "../../x"}) == words.thread_of({}) == ""


@pytest.mark.parametrize(
    ("frame", "decision"),
    [
        ({"allow": True}, "accept"),
        ({"behavior": "allow", "always": True}, "acceptForSession"),
        ({"allow": False}, "decline"),
        ({"interrupt": True}, "cancel"),
        ({}, "decline"),
    ],
)
def test_a_permission_is_a_decision(frame: dict[str, Any], decision: str) -> None:
    assert words.answer({"method": "item/fileChange/requestApproval", "params": {}}, frame) == {"decision": decision}


@pytest.mark.parametrize(
    ("answers", "first", "second"),
    [
        ({"Which?": "blue", "d": ["a", 1]}, ["blue"], ["a", "1"]),
        ({"c": "blue"}, ["blue"], []),
        ("both", ["both"], ["both"]),
        (None, [], []),
    ],
)
def test_questions_are_answered_by_their_words_or_ids(answers: Any, first: list[str], second: list[str]) -> None:
    told = words.answer(ASKED, {"answers": answers})
    assert told == {"answers": {"c": {"answers": first}, "d": {"answers": second}}}


@given(JSON)
def test_any_answer_is_a_list_of_texts(answers: Any) -> None:
    for each in words.answer(ASKED, {"answer": answers})["answers"].values():
        assert all(isinstance(label, str) for label in each["answers"])


def test_only_what_is_needed_is_kept_and_counted_and_said() -> None:
    assert words.reply("7", {"a": 1}) == ToAgent(b'{"id":"7","result":{"a":1}}')
    frame = {"seq": 1, "cid": "c", "content": [{"type": "text", "text": "x"}], "metadata": {"long": "y" * 9}}
    assert words.kept(frame) == {"seq": 1, "cid": "c", "content": "x"}
    assert words.usage_of({"inputTokens": 3, "outputTokens": "x", "cachedInputTokens": 0}) == {
        "inputTokens": 3,
        "cacheReadTokens": 0,
    }
    assert words.usage_of({}) is None
    assert json.loads(json.dumps(words.RULES.decode())).count("prefix_rule") == len(words.ASKED)
    assert words.SILENT.fullmatch("account/updated")
    assert not words.SILENT.fullmatch("turn/started")
