"""What an agent may ask of a person, and what a typed line answers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.commands.chat_prompts import Permission, Question, read_ask

COLOUR = {"question": "Colour?", "options": [{"label": "red", "description": "warm"}, {"label": "blue"}]}
SIZES = {"question": "Sizes?", "options": [{"label": "S"}, {"label": "L"}], "multiSelect": True}
NAME = {"question": "Name?"}


def question(*asked: dict[str, Any]) -> Question:
    ask = read_ask("question", {"requestId": "r", "questions": list(asked)})
    assert isinstance(ask, Question)
    return ask


def test_a_permission_says_what_is_asked_for() -> None:
    assert Permission("r", "Bash", {"command": "ls\x1b"}).prompt() == [
        'The agent asks to use Bash with {"command": "ls\\u001b"}',
        "Allow it? y/n",
    ]
    assert Permission("r", "Bash", {}).prompt()[0] == "The agent asks to use Bash"


@pytest.mark.parametrize(
    ("line", "allow"), [("y", True), ("YES", True), ("allow", True), ("N", False), ("deny", False)]
)
def test_a_permission_is_answered_in_a_word(line: str, allow: bool) -> None:
    behavior = "allow" if allow else "deny"
    frame = {"type": "permission_response", "requestId": "r", "allow": allow, "behavior": behavior}
    assert Permission("r", "Bash", None).answer(line) == (frame, "")


def test_another_word_gets_a_hint() -> None:
    frame, hint = Permission("r", "Bash", None).answer("perhaps")
    assert frame is None
    assert "y or n" in hint


def test_a_question_shows_its_options() -> None:
    assert question(COLOUR).prompt() == [
        "Colour?",
        "  1. red - warm",
        "  2. blue",
        "Answer with a number, or in your own words",
    ]
    assert question(SIZES).prompt()[-1].startswith("Answer with numbers with commas between")
    assert question(NAME).prompt() == ["Name?", "Answer in your own words"]


@pytest.mark.parametrize(
    ("asked", "line", "answer"),
    [
        (COLOUR, "2", "blue"),
        (COLOUR, "a dark red", "a dark red"),
        (COLOUR, "3", None),
        (COLOUR, "0", None),
        (COLOUR, "9" * 5000, None),
        (COLOUR, "1, 2", "1, 2"),
        (SIZES, "1, 2", "S, L"),
        (SIZES, "1, 3", None),
        (NAME, "1", "1"),
    ],
)
def test_a_number_chooses_and_other_words_are_the_answer(asked: dict[str, Any], line: str, answer: str | None) -> None:
    frame, hint = question(asked).answer(line)
    if answer is None:
        assert frame is None
        assert "from 1 to 2" in hint
    else:
        assert frame == {"type": "ask_user_answer", "requestId": "r", "answers": {asked["question"]: answer}}


def test_questions_are_answered_one_after_the_other_and_equal_ones_once() -> None:
    ask = question(COLOUR, NAME, COLOUR)
    assert ask.answer("1") == (None, "Name?\nAnswer in your own words")
    frame, _ = ask.answer("Ada")
    assert frame is not None
    assert frame["answers"] == {"Colour?": "red", "Name?": "Ada"}


STRANGE = st.recursive(
    st.none() | st.text(max_size=5) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["question", "options", "label", "multiSelect"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.sampled_from(["permission_request", "question"]), STRANGE, st.text(max_size=5))
def test_whatever_an_agent_asks_can_be_answered_or_is_passed_over(kind: str, asked: Any, line: str) -> None:
    assert read_ask(kind, asked) is None or isinstance(asked, dict)
    ask = read_ask(kind, {"requestId": "r", "toolName": asked, "toolInput": None, "questions": asked})
    if ask is not None:
        assert all(isinstance(shown, str) for shown in ask.prompt())
        ask.answer(line)


def test_a_permission_may_be_given_for_good_where_the_agent_offers_it() -> None:
    offered = read_ask("permission_request", {"requestId": "r", "toolName": "Bash", "suggestions": ["session"]})
    assert offered is not None
    assert offered.prompt()[-1] == "Allow it? y/n, or a for always"
    frame = {"type": "permission_response", "requestId": "r", "allow": True, "behavior": "allow"}
    assert offered.answer("Always") == ({**frame, "always": True}, "")
    assert offered.answer("y") == (frame, "")
    assert offered.answer("perhaps") == (None, "Please answer y, a or n (or /abort)")
    for none in ("", "session"):
        plain = read_ask("permission_request", {"requestId": "r", "toolName": "Bash", "suggestions": none or []})
        assert plain is not None
        assert plain.answer("a") == (None, "Please answer y or n (or /abort)")
