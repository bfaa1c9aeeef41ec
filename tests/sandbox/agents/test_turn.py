"""A turn as the gateway hears it: its pieces, its messages, its requests, its end."""

import json
from collections.abc import Iterable
from typing import Any

from sandbox.agents.core import Out, ToGateway, UnknownFrame, WakeAfter
from sandbox.agents.turn import GATHER, GATHER_BYTES, GATHER_SECONDS, MAX_REQUEST_BYTES, MAX_REQUESTS, REPEATED, Turn


def heard(outs: Iterable[Out]) -> list[Any]:
    """Frames as objects, `wake` for a Wake."""
    found: list[Any] = []
    for out in outs:
        if isinstance(out, ToGateway):
            found += [json.loads(frame) for frame in out.frames]
        else:
            assert out == WakeAfter(GATHER, GATHER_SECONDS)
            found.append("wake")
    return found


def text(words: str) -> dict[str, str]:
    return {"type": "chunk", "text": words}


def begun(*seqs: int) -> Turn:
    turn = Turn()
    for seq in seqs:
        turn.begin(seq)
    return turn


def test_the_first_piece_goes_at_once_and_what_follows_soon_is_one_frame() -> None:
    turn = begun(1)
    assert heard(turn.piece("chunk", "a")) == [{"type": "stream_start"}, text("a"), "wake"]
    assert heard([*turn.piece("chunk", "b"), *turn.piece("chunk", ""), *turn.piece("chunk", "c")]) == []
    assert heard(turn.gathered()) == [text("bc"), "wake"]
    assert heard(turn.gathered()) == []
    assert heard(turn.piece("chunk", "d")) == [text("d"), "wake"]


def test_much_text_does_not_wait() -> None:
    turn = begun(1)
    heard(turn.piece("chunk", "a"))
    assert heard(turn.piece("chunk", "b" * GATHER_BYTES)) == [text("b" * GATHER_BYTES)]
    assert heard(turn.over()) == []


def test_any_other_frame_comes_after_what_was_gathered() -> None:
    turn = begun(1)
    heard(turn.piece("chunk", "a"))
    heard(turn.piece("chunk", "b"))
    assert heard(turn.piece("thinking", "c")) == [text("b")]
    assert heard(turn.say("agent_status", status="x")) == [
        {"type": "thinking", "text": "c"},
        {"type": "agent_status", "status": "x"},
    ]
    heard(turn.piece("chunk", "d"))
    assert heard(turn.over()) == [text("d")]


def test_a_message_ends_the_stream_and_repeats_its_text() -> None:
    turn = begun(1)
    heard(turn.piece("chunk", "words"))
    message = {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "words"}]}}
    assert heard(turn.message("assistant", [{"type": "text", "text": "words"}])) == [
        {"type": "stream_end"},
        {"type": "sdk_message", "message": message},
    ]
    assert heard(turn.message("user", [])) == []
    said = heard(turn.message("assistant", [{"type": "text", "text": "whole"}], streamed=False))
    assert [frame if frame == "wake" else frame["type"] for frame in said] == ["stream_start", "chunk", "stream_end",
        "sdk_message"]  # fmt: skip


def test_text_beyond_what_is_repeated_goes_once_to_the_end_of_the_turn() -> None:
    turn = begun(1)
    long, tool = {"type": "text", "text": "x" * REPEATED}, {"type": "tool_use", "id": "t"}
    assert len(heard(turn.message("assistant", [long]))) == 1
    (frame,) = heard(turn.message("assistant", [{"type": "text", "text": "y"}, tool]))
    assert frame["message"]["message"]["content"] == [tool]
    assert heard(turn.message("assistant", [{"type": "text", "text": "z"}])) == []
    heard(turn.done())
    turn.begin(2)
    assert len(heard(turn.message("assistant", [{"type": "text", "text": "z"}]))) == 1


def test_a_turn_ends_once_with_all_that_it_answered_and_withdraws_what_is_open() -> None:
    turn = begun(1, 2)
    turn.begin(None)
    heard(turn.ask("ask_user_question", "q-1", "kept", questions=[]))
    turn.aborting = True
    assert heard(turn.done(failed=True, reason="x", costUsd=None)) == [
        {"type": "request_gone", "requestId": "q-1", "reason": "the turn is over"},
        {"type": "done", "answers": [1, 2], "metadata": {"aborted": True, "error": True, "reason": "x"}},
    ]
    assert (turn.running, turn.aborting, turn.seqs) == (False, False, [])
    assert heard(turn.done()) == []


def test_what_is_not_answered_yet_goes_on() -> None:
    turn = begun(1, 2)
    assert heard(turn.done([2])) == [{"type": "done", "answers": [1], "metadata": {}}]
    assert turn.running
    turn.begin(None)
    assert heard(turn.done()) == [{"type": "done", "answers": [2], "metadata": {}}]
    turn.begin(None)
    assert heard(turn.done()) == [{"type": "done", "metadata": {}}]


def test_a_request_is_open_until_it_is_answered_or_withdrawn() -> None:
    turn = begun(1)
    assert heard(turn.ask("tool_permission_request", "r", {"a": 1}, toolName="Bash")) == [
        {"type": "tool_permission_request", "requestId": "r", "toolName": "Bash"}
    ]
    assert turn.answered("r") == {"a": 1}
    assert turn.answered("r") is turn.answered(7) is None
    heard(turn.ask("tool_permission_request", "s", True))
    assert heard(turn.withdraw("s", "gone")) == [{"type": "request_gone", "requestId": "s", "reason": "gone"}]
    assert heard(turn.withdraw("s", "gone")) == []


def test_requests_without_a_turn_or_a_usable_name_or_an_end_are_none() -> None:
    assert heard(Turn().ask("ask_user_question", "r", True)) == []
    turn = begun(1)
    told = heard([*turn.ask("ask_user_question", "", True), *turn.ask("ask_user_question", "x" * 300, True)])
    why = "the request's name is empty or too long"
    error = f"a request of the agent cannot be shown, and the agent may wait for the answer: {why}"
    assert told == [{"type": "error", "code": "agent", "error": error}], "once a turn"
    heard(turn.done())
    turn.begin(2)
    said = [each for n in range(MAX_REQUESTS + 5) for each in heard(turn.ask("ask_user_question", f"r-{n}", True))]
    assert len(turn.requests) == MAX_REQUESTS
    (error,) = (each["error"] for each in said if each["type"] == "error")
    assert f"more than {MAX_REQUESTS} requests are open" in error


def test_of_open_requests_only_so_much_is_kept() -> None:
    turn, kept = begun(1), {"input": "x" * (MAX_REQUEST_BYTES // 3)}
    shown = [len(heard(turn.ask("tool_permission_request", f"r-{n}", kept))) for n in range(2)]
    (error,) = heard(turn.ask("tool_permission_request", "r-2", kept))
    assert (shown, error["type"], list(turn.requests)) == ([1, 1], "error", ["r-0", "r-1"])
    assert "4 MiB" in error["error"]
    turn.answered("r-0")
    assert len(heard(turn.ask("tool_permission_request", "r-3", kept))) == 1


def test_an_answer_goes_to_what_was_asked() -> None:
    turn = begun(1)
    heard(turn.ask("tool_permission_request", "r", b"kept".decode()))
    told = UnknownFrame("told")
    answer = {"type": "permission_response", "requestId": "r"}
    assert list(turn.reply(answer, lambda kept: told if kept == "kept" else UnknownFrame("another"))) == [told]
    (error,) = heard(turn.reply(answer, lambda kept: told))
    assert error["code"] == "unknown_request"
