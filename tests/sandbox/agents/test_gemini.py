"""The files of Gemini CLI's conversations."""

from sandbox.agents.core import HomeMove
from sandbox.agents.gemini import conversations, moves


def test_files_of_conversations_are_found_by_names_that_are_good_for_files() -> None:
    (pattern,) = conversations("12345678-abc")
    assert pattern == ".gemini/tmp/*/chats/session-*12345678.jsonl"
    assert conversations("../../etc/passwd") == conversations("short") == ()
    assert moves("12345678-abc", [pattern]) == [HomeMove(pattern, "session-2000-01-01T00-00-12345678.jsonl")]
