"""The core of opencode, beyond what is recorded (test_golden.py): what comes rarely, and what should never come."""

import json
from typing import Any

import pytest

from sandbox.agents.core import EndProcess, Launch, Note, Past, UnknownFrame, WakeAfter
from sandbox.agents.opencode import (
    ATTEMPTS,
    MAX_MESSAGES,
    OPEN,
    OPEN_SECONDS,
    SERVER,
    SESSION,
    SETTLE,
    SETTLE_SECONDS,
    TRIES,
    UNANSWERED_SECONDS,
    OpencodeCore,
)
from sandbox.agents.opencode_parts import MAX_PARTS
from sandbox.agents.opencode_words import MAX_NAME
from sandbox.agents.turn import GATHER, REPEATED
from tests.support.cores import down, heard, up
from tests.support.golden import recordings, replay

WANTED = Launch(("opencode",), {"HOME": "/agent"}, directory="/workspace")
NAMED = "ses_1"
Frames = list[Any]


@pytest.mark.parametrize(("case", "entries"), recordings("opencode").items())
def test_a_recorded_conversation_becomes_what_is_recorded(case: str, entries: list[Any]) -> None:
    assert replay("opencode", entries) == entries


def new(notes: dict[str, str] | None = None, start: bytes | None = None) -> OpencodeCore:
    core = OpencodeCore()
    core.command(WANTED, Past(notes or {}))
    assert list(core.begin(start)) == []
    return core


def answered(core: OpencodeCore, tag: str, status: int = 200, **body: Any) -> Frames:
    return heard(core.answered(tag, status, json.dumps(body).encode()))


def event(core: OpencodeCore, kind: str, session: str = NAMED, **properties: Any) -> Frames:
    return up(core, type=kind, properties={"sessionID": session, **properties})


def opened(start: bytes | None = None) -> OpencodeCore:
    core = new(start=start)
    assert up(core, type="server.connected") == [("POST", "/session", {})]
    answered(core, "h1", id=NAMED, directory="/workspace")
    answered(core, "h2", version="1.2.3")
    return core


def at_work(start: bytes | None = None) -> OpencodeCore:
    """In a turn, with an assistant's message `m`."""
    core = opened(start)
    down(core, type="message", seq=1, content="go")
    message(core)
    return core


def message(core: OpencodeCore, name: str = "m", *, complete: bool = False, **info: Any) -> Frames:
    time = {"created": 1, "completed": 2} if complete else {"created": 1}
    return event(core, "message.updated", info={"id": name, "role": "assistant", "time": time, **info})


def part(core: OpencodeCore, name: str, message: str = "m", **members: Any) -> Frames:
    return event(core, "message.part.updated", part={"id": name, "messageID": message, **members})


def delta(core: OpencodeCore, name: str, words: str) -> Frames:
    return event(core, "message.part.delta", partID=name, field="text", delta=words)


def texts(frames: Frames) -> list[str]:
    """Of messages and pieces, in their order; tools by their names."""
    found = []
    for frame in frames:
        if frame["type"] in ("chunk", "thinking"):
            found.append(frame["text"])
        elif frame["type"] == "sdk_message":
            found += [block.get("text") or block.get("name") or block.get("content")
                      for block in frame["message"]["message"]["content"]]  # fmt: skip
    return found


def last(frames: Frames) -> Any:
    return [frame for frame in frames if isinstance(frame, dict)][-1]


def end(core: OpencodeCore) -> Frames:
    """The turn's end, as it mostly comes."""
    message(core, complete=True)
    answered(core, "h3")
    return event(core, "session.idle")


def test_it_is_launched_as_a_server_that_asks_for_what_changes_things() -> None:
    core = OpencodeCore()
    launch = core.command(WANTED, Past())
    assert launch.argv == ("opencode", "serve", "--hostname", "127.0.0.1", "--port", "0")
    assert launch.server == SERVER
    assert json.loads(launch.env["OPENCODE_PERMISSION"]) == {"edit": "ask", "bash": "ask", "webfetch": "ask"}
    assert launch.env["OPENCODE_SERVER_USERNAME"] == SERVER.user
    given = {"OPENCODE_PERMISSION": "{}", "OPENCODE_SERVER_USERNAME": "ada"}
    launch = core.command(Launch(("opencode",), given), Past())
    assert launch.env["OPENCODE_PERMISSION"] == "{}"
    assert launch.env["OPENCODE_SERVER_USERNAME"] == SERVER.user
    assert core.traces(WANTED, {}) == ()


def test_who_it_is_is_told_once_and_the_conversation_is_noted_with_its_first_message() -> None:
    core = new()
    up(core, type="server.connected")
    told = answered(core, "h1", id=NAMED, directory="/workspace")
    assert told[0] == {"type": "agent_status", "name": "opencode", "session": NAMED}
    assert told[1] == ("GET", "/global/health", None)
    assert answered(core, "h2", version="1.2.3") == [{"type": "agent_status", "version": "1.2.3"}]
    assert answered(core, "h2", version="1.2.4") == []
    note, asked = down(core, type="message", seq=1, content="go")
    assert note == Note({SESSION: NAMED})
    assert asked == ("POST", f"/session/{NAMED}/message", {"parts": [{"type": "text", "text": "go"}]})
    assert [core.ready] == [False]
    (told,) = message(core, providerID="fake", modelID="m1")
    assert told == {"type": "agent_status", "model": "fake/m1"}
    assert message(core, providerID="fake", modelID="m1") == []
    done = end(core)[-1]
    assert done["answers"] == [1]
    assert core.ready
    (asked,) = down(core, type="message", seq=2, content="again")
    assert asked[1] == f"/session/{NAMED}/message"


def test_a_model_and_a_plan_are_said_with_each_message() -> None:
    core = opened(b'{"model":"openai/gpt/5","mode":"plan"}')
    body = down(core, type="message", seq=1, content=" ")[-1][2]
    assert body["model"] == {"providerID": "openai", "modelID": "gpt/5"}
    assert body["agent"] == "plan"
    down(core, type="set_mode", mode="ask")
    down(core, type="set_mode", mode="of tomorrow")
    assert "agent" not in down(core, type="message", seq=2, content="on", metadata={"steer": True})[-1][2]
    assert "model" not in down(opened(b'{"model":"gpt"}'), type="message", seq=1, content="")[-1][2]


def test_a_known_conversation_goes_on() -> None:
    core = new({SESSION: NAMED})
    assert up(core, type="server.connected") == [("GET", f"/session/{NAMED}", None)]
    answered(core, "h1", id=NAMED, directory="/workspace")
    assert core.ready
    (asked,) = down(core, type="message", seq=1, content="go")
    assert asked[0] == "POST"


@pytest.mark.parametrize("status", [400, 404])
def test_a_conversation_that_is_gone_is_told(status: int) -> None:
    core = new({SESSION: NAMED})
    up(core, type="server.connected")
    lost, asked = answered(core, "h1", status, name="NotFoundError")
    assert lost == {"type": "agent_status", "status": "memory_lost"}
    assert asked == ("POST", "/session", {})
    answered(core, "h2", id="ses_2", directory="/workspace")
    note, asked = down(core, type="message", seq=1, content="go")
    assert note == Note({SESSION: "ses_2"})
    assert asked[1] == "/session/ses_2/message"


def test_a_conversation_of_another_directory_is_moved_here() -> None:
    core = new({SESSION: NAMED})
    up(core, type="server.connected")
    (asked,) = answered(core, "h1", id=NAMED, directory="/elsewhere")
    assert asked[1] == "/experimental/control-plane/move-session"
    assert asked[2] == {"sessionID": NAMED, "destination": {"directory": "/workspace"}}
    assert [core.ready] == [False]
    answered(core, "h2", 204)
    assert core.ready
    core = new({SESSION: NAMED})
    up(core, type="server.connected")
    answered(core, "h1", id=NAMED, directory="/elsewhere")
    assert answered(core, "h2", 400)[0] == {"type": "agent_status", "status": "memory_lost"}


def test_notes_that_are_no_name_of_a_conversation_are_nothing() -> None:
    core = new({SESSION: "../global/config"})
    assert up(core, type="server.connected") == [("POST", "/session", {})]


def test_a_conversation_that_does_not_open_is_asked_for_again_and_then_ends_the_process() -> None:
    core = new()
    outs = core.up([b'{"type":"server.connected"}'])
    assert [out for out in outs if isinstance(out, WakeAfter)] == [WakeAfter(OPEN, OPEN_SECONDS)]
    assert answered(core, "h1", 500) == []
    for n in range(1, TRIES):
        assert heard(core.woken(OPEN)) == [("POST", "/session", {})], n
    error, ended = heard(core.woken(OPEN))
    assert error["code"] == "agent"
    assert isinstance(ended, EndProcess)
    assert answered(core, "h1", id=NAMED) == [], "an answer that came too late"
    answered(core, f"h{TRIES}", id=NAMED, directory="/workspace")
    assert heard(core.woken(OPEN)) == []


def test_a_known_conversation_that_never_opens_is_lost_in_the_end() -> None:
    core = new({SESSION: NAMED})
    up(core, type="server.connected")
    for n in range(1, TRIES):
        assert answered(core, f"h{n}", 500) == []
        core.woken(OPEN)
    assert answered(core, f"h{TRIES}", 500)[0] == {"type": "agent_status", "status": "memory_lost"}


def test_a_message_that_steers_waits_for_a_conversation_and_for_the_end_of_an_abort() -> None:
    steers = b'{"type":"message","metadata":{"steer":true}}'
    core = new()
    assert core.folds(steers)
    assert not core.folds(b'{"type":"message"}')
    assert not core.folds(b'{"type":"abort","metadata":{"steer":true}}')
    can = [core.can_fold]
    error, done = down(core, type="message", seq=7, content="too early")
    assert (error["type"], done["answers"]) == ("error", [7])
    for core in (opened(), at_work()):
        can.append(core.can_fold)
    down(core, type="abort")
    can.append(core.can_fold)
    end(core)
    can.append(core.can_fold)
    event(core := at_work(), "session.error", error={"name": "APIError"})
    can.append(core.can_fold)
    assert can == [False, True, True, False, True, False]


def test_a_message_that_steers_is_folded_in_and_both_are_answered_by_one_done() -> None:
    core = at_work()
    assert core.waits(b'{"type":"message"}')
    assert not core.waits(b'{"type":"message","metadata":{"steer":true}}')
    down(core, type="message", seq=2, content="and", metadata={"steer": True})
    message(core, complete=True)
    assert answered(core, "h3") == []
    message(core, "n", complete=True)
    answered(core, "h4")
    assert event(core, "session.idle")[-1]["answers"] == [1, 2]


def test_text_before_a_tool_is_a_message_before_it() -> None:
    core = at_work()
    part(core, "t", type="text", text="")
    found = delta(core, "t", "I call") + delta(core, "t", " a tool.")
    state: dict[str, Any] = {"status": "pending", "input": {}}
    found += part(core, "x", type="tool", tool="bash", callID="c", state=state)
    state = {"status": "running", "input": {"command": "ls"}}
    found += part(core, "x", type="tool", tool="bash", callID="c", state=state)
    found += part(core, "x", type="tool", tool="bash", callID="c", state=state)
    found += part(core, "t", type="text", text="I call a tool.", time={"end": 1})
    state = {"status": "completed", "output": "out", "attachments": [{"url": "data:"}]}
    found += part(core, "x", type="tool", tool="bash", callID="c", state=state)
    found += part(core, "x", type="tool", tool="bash", callID="c", state=state)
    assert texts(found) == ["I call", " a tool.", "I call a tool.", "bash", "out\n[1 attached files left out]"]


def test_a_tool_that_fails_at_once_is_told_with_its_error() -> None:
    core = at_work()
    state = {"status": "error", "input": {"a": 1}, "error": "no such tool"}
    found = part(core, "x", type="tool", tool="bash", callID="c", state=state)
    assert texts(found) == ["bash", "no such tool"]
    assert found[-1]["message"]["message"]["content"][0]["is_error"] is True
    assert part(core, "y", type="tool", tool="bash", state={"status": "running"}) == [], "it has no name"


def test_text_that_came_in_no_pieces_or_lost_some_is_whole_in_its_message() -> None:
    core = at_work()
    found = part(core, "t", type="text", text="all at once", time={"end": 1})
    assert texts(found) == ["all at once", "all at once"]
    part(core, "u", type="text", text="")
    delta(core, "u", "some")
    core.woken(GATHER)
    found = part(core, "u", type="text", text="some more", time={"end": 1})
    assert texts(found) == ["some more"]
    assert part(core, "v", type="text", text="", time={"end": 1}) == []
    assert part(core, "w", type="text", text="of a file", ignored=True, time={"end": 1}) == []


def test_long_text_is_not_said_again_where_a_tool_cuts_it() -> None:
    core = at_work()
    part(core, "t", type="text", text="")
    for _ in range(3):
        delta(core, "t", "x" * (REPEATED + 1))
    found = part(core, "x", type="tool", tool="bash", callID="c", state={"status": "running"})
    assert texts(found) == ["bash"]


def test_thinking_goes_in_pieces_and_other_text_ends_the_text_before_it() -> None:
    core = at_work()
    part(core, "r", type="reasoning", text="")
    assert texts(delta(core, "r", "hm")) == ["hm"]
    for name in ("t", "u"):
        part(core, name, type="text", text="")
    delta(core, "t", "one")
    assert texts(delta(core, "u", "two"))[:1] == ["one"]
    found = heard(core.woken(GATHER)) + part(core, "t", type="text", text="one", time={"end": 1})
    assert texts(found + end(core)) == ["two", "two"]
    assert delta(core, "u", "late") == []
    assert core.woken("of tomorrow") == ()


def test_what_is_asked_before_a_turn_or_by_nobody_is_not_passed_on() -> None:
    core = opened()
    asked = {"id": "per_1", "permission": "bash"}
    assert event(core, "permission.asked", **asked) == []
    assert event(core, "question.asked", id="que_1", questions=[{"question": "?"}]) == []
    core = at_work()
    assert event(core, "permission.asked", **{**asked, "id": "../per"}) == []
    assert event(core, "question.asked", id=7) == []


def test_a_permission_is_asked_for_also_by_a_subagent_and_always_where_it_is_offered() -> None:
    core = at_work()
    told = {"id": "per_1", "permission": "bash", "metadata": {"command": "ls"}, "tool": {"callID": "c"}}
    (asked,) = event(core, "permission.asked", "ses_other", always=["ls *"], **told)
    assert asked == {"type": "tool_permission_request", "requestId": "per_1", "toolName": "bash",
                     "toolInput": {"command": "ls"}, "toolUseId": "c", "suggestions": ["ls *"]}  # fmt: skip
    ((_, path, body),) = down(core, type="permission_response", requestId="per_1", behavior="allow", always=True)
    assert (path, body) == ("/permission/per_1/reply", {"reply": "always"})
    assert event(core, "permission.replied", requestID="per_1") == []
    (error,) = down(core, type="permission_response", requestId="per_1", allow=True)
    assert error["code"] == "unknown_request"
    (asked,) = event(core, "permission.asked", id="per_2", patterns=["a"], always=[])
    assert (asked["toolName"], asked["toolInput"]) == ("tool", {"patterns": ["a"]})
    assert "suggestions" not in asked
    (gone,) = event(core, "permission.replied", requestID="per_2")
    assert gone["type"] == "request_gone"


@pytest.mark.parametrize(
    ("mode", "kind", "answer"),
    [
        ("all", "bash", {"reply": "once"}),
        ("edits", "edit", {"reply": "once"}),
        ("edits", "bash", None),
        ("plan", "edit", {"reply": "reject", "message": "Only plan: change nothing."}),
    ],
)
def test_a_mode_answers_by_itself(mode: str, kind: str, answer: dict[str, str] | None) -> None:
    core = at_work(json.dumps({"mode": mode}).encode())
    (found,) = event(core, "permission.asked", id="per_1", permission=kind)
    if answer is None:
        assert found["type"] == "tool_permission_request"
    else:
        assert found == ("POST", "/permission/per_1/reply", answer)


def test_a_question_is_answered_in_the_order_of_its_parts() -> None:
    core = at_work()
    questions = [{"question": "Which?", "multiple": True}, {"question": "How?"}]
    (asked,) = event(core, "question.asked", id="que_1", questions=questions, tool={"callID": "c"})
    assert [each["multiSelect"] for each in asked["questions"]] == [True, False]
    assert asked["toolUseId"] == "c"
    answers = {"How?": "so", "Which?": ["a", "b"]}
    (answer,) = down(core, type="ask_user_answer", requestId="que_1", answers=answers)
    assert answer == ("POST", "/question/que_1/reply", {"answers": [["a", "b"], ["so"]]})


def test_an_abort_withdraws_what_is_open_and_ends_at_the_last_idle_only() -> None:
    core = at_work()
    event(core, "permission.asked", id="per_1", permission="bash")
    gone, asked = down(core, type="abort")
    assert (gone["type"], asked[1]) == ("request_gone", f"/session/{NAMED}/abort")
    assert down(core, type="abort") == []
    event(core, "session.error", error={"name": "MessageAbortedError", "data": {"message": "Aborted"}})
    assert answered(core, "h3") == []
    assert event(core, "session.idle") == [], "its message is not complete"
    message(core, complete=True)
    done = event(core, "session.idle")[-1]
    assert done["metadata"]["aborted"] is True
    assert "error" not in done["metadata"]
    assert event(core, "session.idle") == []
    down(core, type="message", seq=2, content="on")
    assert event(core, "session.idle") == [], "an idle of the turn before"
    assert message(core, "m", complete=True) == []
    assert part(core, "t", type="text", text="late", time={"end": 1}) == []
    assert down(opened(), type="abort") == []


def test_an_abort_before_the_turn_has_begun_is_said_again() -> None:
    core = opened()
    down(core, type="message", seq=1, content="go")
    down(core, type="abort")
    (asked,) = message(core)
    assert asked[1] == f"/session/{NAMED}/abort"
    assert message(core, complete=True) == []
    asked = [each for n in range(20) for each in message(core, f"m{n}")]
    assert len(asked) < 10


def test_what_a_model_fails_at_again_and_again_ends_the_turn() -> None:
    core = at_work()
    for attempt in range(1, ATTEMPTS):
        (told,) = event(core, "session.status", status={"type": "retry", "attempt": attempt, "message": "fake 500"})
        assert (told["status"], told["attempt"], told["of"]) == ("retrying", attempt, ATTEMPTS)
    _, asked = event(core, "session.status", status={"type": "retry", "attempt": ATTEMPTS, "message": "fake 500"})
    assert asked[1] == f"/session/{NAMED}/abort"
    assert len(event(core, "session.status", status={"type": "retry", "attempt": 4, "message": "fake 500"})) == 1
    error, done = end(core)
    assert (error["code"], error["error"]) == ("agent", "fake 500")
    assert done["metadata"]["error"] is True
    assert "aborted" not in done["metadata"]


def test_a_refused_key_is_told_as_such() -> None:
    core = at_work()
    failed = {"name": "APIError", "data": {"message": "no", "statusCode": 401}}
    message(core, complete=True, error=failed)
    answered(core, "h3")
    error, done = event(core, "session.idle")
    assert error["code"] == "agent_auth"
    assert done["metadata"]["error"] is True
    assert end(at_work())[-1]["metadata"] == {}


def test_a_request_that_failed_and_no_event_end_the_turn_in_time() -> None:
    core = opened()
    down(core, type="message", seq=1, content="go")
    outs = core.answered("h3", 0, b"")
    assert outs == [WakeAfter(SETTLE, SETTLE_SECONDS)]
    error, done = heard(core.woken(SETTLE))
    assert error["error"] == "the agent's server broke the connection"
    assert done["answers"] == [1]
    assert heard(core.woken(SETTLE)) == []
    assert answered(core, "h3") == []


def test_an_error_of_the_server_is_told_better_by_its_event() -> None:
    core = opened()
    down(core, type="message", seq=1, content="go")
    answered(core, "h3", 500, name="UnknownError", data={"message": "see the log"})
    event(core, "session.error", error={"name": "UnknownError", "data": {"message": "Model not found: a/b"}})
    event(core, "session.error", "ses_other", error={"name": "of another one"})
    error, done = event(core, "session.idle")
    assert error["error"] == "Model not found: a/b"
    assert done["answers"] == [1]
    up(core, type="session.error", properties={"error": {"name": "Of a plugin"}})
    assert core.ready


def test_an_answer_that_never_comes_ends_nothing_for_long_and_a_busy_agent_takes_its_time() -> None:
    core = at_work()
    message(core, complete=True)
    (wake,) = core.up([b'{"type":"session.idle","properties":{"sessionID":"ses_1"}}'])
    assert wake == WakeAfter(SETTLE, UNANSWERED_SECONDS)
    busy = b'{"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"busy"}}}'
    assert core.up([busy]) == [WakeAfter(SETTLE, None)]
    answered(core, "h3")
    assert core.up([busy]) == [WakeAfter(SETTLE, SETTLE_SECONDS)]
    assert heard(core.woken(SETTLE))[-1]["type"] == "done"
    core = at_work()
    message(core, complete=True)
    event(core, "session.idle")
    assert answered(core, "h3")[-1]["type"] == "done", "the answer came last"


def test_tokens_and_costs_of_the_steps_are_added() -> None:
    core = at_work()
    tokens = {"input": 10, "output": 5, "cache": {"read": 1, "write": -1}}
    for name in ("a", "b", "b"):
        part(core, name, type="step-finish", tokens=tokens, cost=0.25)
    message(core, complete=True, finish="stop")
    answered(core, "h3")
    done = event(core, "session.idle")[-1]
    assert done["metadata"] == {
        "reason": "stop", "costUsd": 0.5, "usage": {"inputTokens": 20, "outputTokens": 10, "cacheReadTokens": 2},
    }  # fmt: skip


def test_work_is_shown_and_other_sessions_words_are_counted() -> None:
    core = at_work()
    (todo,) = event(core, "todo.updated", todos=[{"content": "a", "status": "pending"}])
    assert todo == {"type": "todo", "items": [{"content": "a", "status": "pending"}]}
    assert up(core, type="file.edited", properties={"file": "/workspace/a/b"}) == [
        {"type": "file_change", "path": "a/b"}
    ]
    assert up(opened(), type="file.edited", properties={"file": "/workspace/a"}) == []
    (unknown,) = event(core, "message.part.delta", "ses_other", partID="t", delta="x")
    assert unknown == UnknownFrame("another session's message.part.delta")
    assert up(core, type="plugin.added") == []
    assert up(core, type="of_tomorrow") == [UnknownFrame("of_tomorrow")]
    assert up(core) == [UnknownFrame("no event")]


def learned(core: OpencodeCore, tag: str, *found: Any) -> Frames:
    return heard(core.answered(tag, 200, json.dumps(found).encode()))


def test_what_was_missed_while_the_stream_was_broken_is_asked_for() -> None:
    core = at_work()
    event(core, "message.updated", info={"id": "u", "role": "user"})
    part(core, "t", type="text", text="")
    delta(core, "t", "some")
    core.woken(GATHER)
    event(core, "permission.asked", id="per_1", permission="bash")
    paths = [path for _, path, _ in up(core, type="server.connected")]
    assert paths == [f"/session/{NAMED}/message?limit=20", "/permission", "/question"]
    said = {"id": "p", "messageID": "e", "type": "text", "text": "earlier", "time": {"end": 1}}
    earlier = {"info": {"id": "e", "role": "assistant", "parentID": "before"}, "parts": [said]}
    whole = {"id": "t", "messageID": "m", "type": "text", "text": "some more", "time": {"end": 1}}
    ours = {"info": {"id": "m", "role": "assistant", "parentID": "u", "time": {"completed": 1}}, "parts": [whole]}
    assert texts(learned(core, "h4", earlier, ours)) == ["some more"]
    (asked,) = learned(core, "h5", {"id": "per_1"}, {"id": "per_2", "permission": "edit"})
    assert asked["requestId"] == "per_2"
    (asked,) = learned(core, "h6", {"id": "que_1", "questions": []})
    assert asked["requestId"] == "que_1"
    assert learned(core, "h6", {"id": "que_2", "questions": []}) == []
    answered(core, "h3")
    assert core.woken(SETTLE)
    assert up(core, type="server.connected") == []


def test_a_stream_that_breaks_again_and_again_is_caught_up_with_once_at_a_time() -> None:
    core = at_work()
    assert len(up(core, type="server.connected")) == 3
    for _ in range(1000):
        assert up(core, type="server.connected") == []
    assert len(core.missed) == 3
    assert learned(core, "h4") == learned(core, "h5") == []
    assert len(learned(core, "h6")) == 3
    for tag in ("h7", "h8", "h9"):
        assert learned(core, tag) == []


def test_what_was_missed_of_a_turn_that_is_over_is_nothing() -> None:
    core = at_work()
    up(core, type="server.connected")
    end(core)
    assert learned(core, "h5", {"id": "per_1", "permission": "edit"}) == []


def test_of_one_turn_only_so_many_parts_are_kept() -> None:
    core = at_work()
    for n in range(max(MAX_PARTS, MAX_MESSAGES) + 2):
        part(core, f"t{n}", type="text", text="")
        message(core, f"m{n}")
    assert len(core.parts.kinds) <= MAX_PARTS + 1
    assert len(core.messages) <= MAX_MESSAGES


def test_names_that_are_too_long_to_be_kept_are_none() -> None:
    core = at_work()
    long = "x" * (MAX_NAME + 1)
    message(core, long)
    message(core, long, role="user")
    part(core, long, type="text", text="")
    part(core, long, type="tool", callID="c", state={"status": "running"})
    part(core, long, type="step-finish")
    assert list(core.messages) == ["m"]
    assert (core.users, core.parts.kinds, core.parts.over) == ([], {}, set())


def test_messages_without_a_name_or_of_the_user_are_not_the_agent_s() -> None:
    core = at_work()
    message(core, "")
    message(core, "u", role="user")
    assert list(core.messages) == ["m"]
    message(core := opened(), "of an earlier turn")
    down(core, type="message", seq=1, content="go")
    message(core, "of an earlier turn")
    assert core.messages == {}


def test_it_ends_when_it_does_not_stop_and_says_what_it_held_back() -> None:
    core = at_work()
    (ended,) = core.interrupt()
    assert isinstance(ended, EndProcess)
    part(core, "t", type="text", text="")
    delta(core, "t", "a")
    delta(core, "t", "b")
    assert texts(heard(core.over())) == ["b"]
