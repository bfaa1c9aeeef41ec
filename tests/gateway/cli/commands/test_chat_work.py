"""What an agent does, in short lines, whatever it says."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.commands.chat_work import ChatWork, usage_words
from tests.support.vectors import check

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["text", "items", "steps", "content", "status", "input", "command", "usage", "costUsd", "path"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
KINDS = ("thinking", "tool_use", "tool_result", "todo", "plan", "file_change", "usage", "done", "agent_status", "")


def lines(work: ChatWork, *frames: tuple[str, Any]) -> list[str]:
    return [line for kind, body in frames for line, _ in work.feed(kind, body)]


def test_a_thought_is_told_in_one_line_when_it_is_over() -> None:
    work = ChatWork()
    assert lines(work, ("thinking", {"text": "Let me\n"}), ("thinking", {"text": "see.\x1b"})) == []
    assert lines(work, ("", None)) == ["thinks: Let me see.\\x1b"]
    assert lines(work, ("", None)) == []
    long = lines(work, ("thinking", {"text": "x" * 9000}), ("", None))
    assert len(long[0]) < 120


def test_a_tool_says_what_it_is_used_for_and_whether_it_failed() -> None:
    used = {"name": "Bash", "input": {"description": "list", "command": "ls\n-la"}}
    assert lines(ChatWork(), ("tool_use", used)) == ["uses Bash: ls -la"]
    assert lines(ChatWork(), ("tool_use", {"name": "shell", "input": {"command": ["git", "log"]}})) == [
        "uses shell: git log"
    ]
    assert lines(ChatWork(), ("tool_use", {"name": "look", "input": "here"})) == ["uses look: here"]
    assert lines(ChatWork(), ("tool_use", {"name": "look", "input": {}})) == ["uses look"]
    failed = {"is_error": True, "content": [{"type": "text", "text": "no such file"}]}
    assert lines(ChatWork(), ("tool_result", failed)) == ["it failed: no such file"]
    assert lines(ChatWork(), ("tool_result", {**failed, "content": "no"})) == ["it failed: no"]
    assert lines(ChatWork(), ("tool_result", {**failed, "content": {"a": 1}})) == ['it failed: {"a": 1}']
    assert lines(ChatWork(), ("tool_result", {"content": "fine"})) == []


def test_a_plan_is_told_when_it_goes_on() -> None:
    work = ChatWork()
    steps = [{"step": "look", "status": "completed"}, {"step": "build", "status": "in_progress"}, "sell"]
    assert lines(work, ("plan", {"steps": steps}), ("plan", {"steps": steps})) == ["plan: 1 of 3 done; build"]
    done = [{"content": "look", "status": "completed"}]
    assert lines(work, ("todo", {"items": done})) == ["to do: 1 of 1 done"]
    assert lines(work, ("todo", {"items": [{"content": "look"}, {}]}), ("todo", {})) == ["to do: 0 of 1 done; look"]


def test_changed_files_costs_and_who_it_is_are_told() -> None:
    work = ChatWork()
    assert lines(work, ("file_change", {"path": "a.py", "action": "created"}), ("file_change", {"path": "b.py"})) == [
        "created a.py",
        "changed b.py",
    ]
    assert lines(work, ("file_change", {}), ("usage", {"inputTokens": 1200}), ("done", {"costUsd": 0.5})) == [
        "tokens: 1,200 in, $0.5000"
    ]
    assert lines(work, ("done", None), ("done", {"usage": {"outputTokens": 3}})) == ["tokens: 3 out"]
    who = {"name": "Codex", "version": "1", "model": "m"}
    assert lines(work, ("agent_status", who), ("agent_status", who)) == ["agent: Codex 1, m"]
    assert usage_words({"inputTokens": True, "costUsd": "much"}) == ""


def test_what_an_agent_says_of_itself_is_told() -> None:
    work = ChatWork()
    assert work.feed("agent_status", {"status": "memory_lost"}) == [
        ("the agent has forgotten the conversation before this", "warn")
    ]
    assert lines(
        work,
        ("agent_status", {"status": "retrying", "attempt": 2, "error": "busy"}),
        ("agent_status", {"status": "retrying"}),
        ("agent_status", {"status": "notice", "message": "look"}),
        ("agent_status", {"status": "notice"}),
    ) == [
        "its model did not answer; trying again (try 2): busy",
        "its model did not answer; trying again",
        "look",
    ]


@given(st.lists(st.tuples(st.sampled_from(KINDS), JSON), max_size=8))
def test_nothing_an_agent_says_breaks_it_and_every_line_is_short(frames: list[tuple[str, Any]]) -> None:
    work = ChatWork()
    for kind, body in frames:
        for line, _ in work.feed(kind, body):
            assert "\n" not in line
            assert "\x1b" not in line
            assert len(line) < 2000


def test_the_vectors_that_both_clients_share() -> None:
    check("agents.json")
