"""The core of Claude Code, beyond what is recorded (test_golden.py): what comes rarely, and what should never come."""

from typing import Any

import pytest

from sandbox.agents.claude import SESSION, ClaudeCore
from sandbox.agents.core import Core, EndProcess, Launch, Note, Past, UnknownFrame
from sandbox.agents.turn import MAX_IDENTITY, MAX_JOINING
from tests.support.cores import down, heard, up
from tests.support.golden import recordings, replay

RAN = "11111111-1111-4111-8111-111111111111"


@pytest.mark.parametrize(("case", "entries"), recordings("claude-code").items())
def test_a_recorded_conversation_becomes_what_is_recorded(case: str, entries: list[Any]) -> None:
    assert replay("claude-code", entries) == entries


def begun(notes: dict[str, str] | None = None, *, found: bool = False, start: bytes | None = None) -> ClaudeCore:
    core = ClaudeCore()
    wanted = Launch(("claude",), {"HOME": "/agent", "HOLDFAST_SESSION_ID": "s"})
    core.command(wanted, Past(notes or {}, core.traces(wanted, notes or {}) if found else ()))
    heard(core.begin(start))
    return core


def at_work(**message: Any) -> tuple[ClaudeCore, str]:
    """A core with a turn, and Claude's name for its message."""
    core = begun()
    ((_, line),) = down(core, type="message", seq=1, content="go", **message)
    return core, line["uuid"]


def asks(core: Core, tool: str = "Bash", subtype: str = "can_use_tool", **request: Any) -> list[Any]:
    return up(core, type="control_request", request_id="r", request={"subtype": subtype, "tool_name": tool, **request})


def answered(said: list[Any]) -> Any:
    ((to, line),) = said
    assert to == "agent"
    return line["response"]["response"]


def test_the_first_process_has_an_id_of_the_sessions_and_the_next_ones_go_on_with_it() -> None:
    core, wanted = ClaudeCore(), Launch(("claude",), {"HOME": "/agent", "HOLDFAST_SESSION_ID": "s"})
    (pattern,) = core.traces(wanted, {})
    session = pattern.removeprefix(".claude/projects/*/").removesuffix(".jsonl")
    assert core.command(wanted, Past()).argv[-2:] == ("--session-id", session)
    assert core.command(wanted, Past({}, (pattern,))).argv[-2:] == ("--resume", session)
    assert ClaudeCore().traces(Launch((), {"HOLDFAST_SESSION_ID": "t"}), {}) != (pattern,)
    assert ClaudeCore().traces(wanted, {SESSION: RAN}) == (f".claude/projects/*/{RAN}.jsonl",)
    assert ClaudeCore().traces(wanted, {SESSION: "../*"}) == (pattern,)


@pytest.mark.parametrize(
    ("directory", "below"),
    [("/agent/.config/c", ".config/c"), ("/elsewhere", ".claude"), ("", ".claude"), ("relative", ".claude")],
)
def test_its_configuration_may_lie_elsewhere_in_its_home(directory: str, below: str) -> None:
    wanted = Launch((), {"HOME": "/agent", "CLAUDE_CONFIG_DIR": directory})
    assert ClaudeCore().traces(wanted, {SESSION: RAN}) == (f"{below}/projects/*/{RAN}.jsonl",)


def test_without_a_home_the_usual_directory_is_meant() -> None:
    wanted = Launch((), {"CLAUDE_CONFIG_DIR": "/agent/c"})
    assert ClaudeCore().traces(wanted, {SESSION: RAN}) == (f".claude/projects/*/{RAN}.jsonl",)


def test_a_memory_that_is_lost_is_told() -> None:
    core = ClaudeCore()
    core.command(Launch(("claude",), {}), Past({SESSION: RAN}))
    assert heard(core.begin(b'{"type":"start","resume":true}'))[0] == {"type": "agent_status", "status": "memory_lost"}
    assert begun({SESSION: RAN}, found=True).forgot is False


def test_what_was_configured_wins_over_what_is_usual() -> None:
    launch = ClaudeCore().command(Launch(("claude", "--model", "m"), {"DISABLE_AUTOUPDATER": "0"}), Past())
    assert launch.env["DISABLE_AUTOUPDATER"] == "0"
    assert launch.argv[:4] == ("claude", "--model", "m", "-p")


def test_a_start_chooses_model_and_mode() -> None:
    core = ClaudeCore()
    core.command(Launch(("claude",), {}), Past())
    said = heard(core.begin(b'{"type":"start","model":"m","mode":"plan"}'))
    assert [line["request"] for _, line in said] == [
        {"subtype": "initialize"},
        {"subtype": "set_model", "model": "m"},
        {"subtype": "set_permission_mode", "mode": "plan"},
    ]
    assert down(core, type="set_mode", mode="plan") == down(core, type="set_mode", mode="other") == []
    assert down(core, type="set_mode", mode=["ask"]) == []


def test_one_message_at_a_time_but_one_that_steers() -> None:
    core, _ = at_work()
    assert not core.ready
    assert core.waits(b'{"type":"message","content":"next"}')
    assert not core.waits(b'{"type":"message","content":"now","metadata":{"steer":true}}')
    (line,) = down(core, type="message", content=[{"type": "text", "text": "x"}], metadata={"steer": True})
    assert line[1]["message"]["content"] == [{"type": "text", "text": "x"}]
    (line,) = down(core, type="message", seq="no number", content=None)
    assert line[1]["message"]["content"] == " "
    assert core.turn.seqs == [1]


def test_messages_that_claude_has_not_answered_have_a_bound() -> None:
    core, _ = at_work()
    steering = b'{"type":"message","content":"now","metadata":{"steer":true}}'
    assert core.folds(steering)
    while core.can_fold:
        down(core, type="message", seq=len(core.sent) + 1, content="now", metadata={"steer": True})
    assert len(core.sent) == MAX_JOINING
    up(core, type="result")
    assert core.can_fold


def test_a_message_has_a_name_of_its_own_also_in_a_copy_of_the_session() -> None:
    names = {at_work(cid=cid)[1] for cid in ("a", "b")}
    assert len(names) == 2
    assert at_work(cid="a")[1] in names


def test_a_steered_message_that_was_not_folded_in_has_a_turn_of_its_own() -> None:
    core, first = at_work()
    ((_, line),) = down(core, type="message", seq=2, content="too late", metadata={"steer": True})
    up(core, type="command_lifecycle", command_uuid=first, state="started")
    (note, done) = up(core, type="result", user_message_uuids=[first, 7, "another"], total_cost_usd=0.5)
    assert note == Note({SESSION: core.session})
    assert (done["answers"], done["metadata"]) == ([1], {"costUsd": 0.5})
    assert not core.ready
    (done,) = up(core, type="result", user_message_uuids=[line["uuid"]], total_cost_usd=0.75)
    assert (done["answers"], done["metadata"]) == ([2], {"costUsd": 0.25})
    assert core.ready


def test_a_message_that_claude_had_before_is_answered_by_no_result() -> None:
    core, first = at_work()
    assert up(core, type="command_lifecycle", command_uuid=first, state="queued") == []
    (done,) = up(core, type="command_lifecycle", command_uuid=first, state="completed")
    assert done == {"type": "done", "answers": [1], "metadata": {"reason": "known"}}
    assert up(core, type="command_lifecycle", command_uuid=first, state="completed") == []


def test_one_of_two_that_claude_had_before_ends_with_the_other() -> None:
    core, first = at_work()
    ((_, line),) = down(core, type="message", seq=2, content="steered", metadata={"steer": True})
    up(core, type="command_lifecycle", command_uuid=first, state="started")
    assert up(core, type="command_lifecycle", command_uuid=first, state="completed") == []
    assert up(core, type="command_lifecycle", command_uuid=line["uuid"], state="cancelled") == []
    (_, done) = up(core, type="result", total_cost_usd=True)
    assert (done["answers"], done["metadata"]) == ([1, 2], {})


def test_a_result_of_no_turn_is_nothing_but_its_error_is_told() -> None:
    core = begun()
    assert up(core, type="result", is_error=False) == []
    assert up(core, type="result", is_error=True, errors=["No conversation found", 7]) == [
        {"type": "error", "code": "agent", "error": "No conversation found; "}
    ]
    assert core.ready


@pytest.mark.parametrize(
    ("result", "code", "told"),
    [
        ({"result": "Not logged in · Please run /login"}, "agent_auth", "the agent has no key"),
        ({"result": "no", "api_error_status": 403}, "agent_auth", "the model refused the key"),
        ({"errors": "text"}, "agent", "the agent failed"),
    ],
)
def test_an_error_says_what_to_do(result: dict[str, Any], code: str, told: str) -> None:
    core, _ = at_work()
    error, _, done = up(core, type="result", is_error=True, **result)
    assert error["code"] == code
    assert error["error"].startswith(told)
    assert done["metadata"] == {"error": True}


def test_a_key_that_is_refused_twice_ends_the_turn() -> None:
    core, _ = at_work()
    retry = {"type": "system", "subtype": "api_retry", "error": "authentication_failed"}
    assert len(up(core, **retry, attempt=1)) == len(up(core, **retry, attempt="2")) == 1
    status, (_, interrupt) = up(core, **retry, attempt=2)
    assert (status["status"], interrupt["request"]) == ("retrying", {"subtype": "interrupt"})
    assert len(up(core, **retry, attempt=3)) == 1
    error, *_ = up(core, type="result", is_error=True)
    assert error["code"] == "agent_auth"
    assert up(begun(), **retry, attempt=9)[1:] == []


def test_requests_that_are_none_of_a_tool_or_of_no_turn_are_refused() -> None:
    core, _ = at_work()
    ((_, line),) = asks(core, subtype="hook_callback")
    assert line["response"] == {"subtype": "error", "request_id": "r", "error": "not supported"}
    ((_, line),) = asks(begun())
    assert line["response"]["subtype"] == "error"


def test_answers_as_clients_give_them() -> None:
    suggestions = [{"type": "setMode", "mode": "acceptEdits"}]
    for answer, expected in (
        ({"behavior": "allow"}, {"behavior": "allow", "updatedInput": {"a": 1}}),
        ({"allow": True, "updatedInput": {"b": 2}}, {"behavior": "allow", "updatedInput": {"b": 2}}),
        (
            {"allow": True, "always": True, "updatedInput": 7},
            {"behavior": "allow", "updatedInput": {"a": 1}, "updatedPermissions": suggestions},
        ),
        ({"allow": "yes"}, {"behavior": "deny", "message": "The user said no."}),
        ({"message": "m", "interrupt": True}, {"behavior": "deny", "message": "m", "interrupt": True}),
    ):
        core, _ = at_work()
        asks(core, input={"a": 1}, permission_suggestions=suggestions)
        assert answered(down(core, type="permission_response", requestId="r", **answer)) == expected
    core, _ = at_work()
    asks(core, input="none")
    allowed = answered(down(core, type="permission_response", requestId="r", allow=True, always=True))
    assert allowed == {"behavior": "allow", "updatedInput": {}}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"answers": {"Which?": ["a", "b"]}}, {"Which?": "a, b"}),
        ({"answer": "a"}, {"Which?": "a"}),
        ({}, {"Which?": ""}),
    ],
)
def test_a_question_is_answered_by_its_words(answer: dict[str, Any], expected: dict[str, str]) -> None:
    core, _ = at_work()
    asks(core, "AskUserQuestion", input={"questions": [{"question": "Which?"}]})
    given = answered(down(core, type="ask_user_answer", requestId="r", **answer))["updatedInput"]
    assert given["answers"] == expected


def test_in_mode_all_nothing_is_asked_but_questions() -> None:
    core, _ = at_work()
    down(core, type="set_mode", mode="all")
    assert answered(asks(core, input={"a": 1})) == {"behavior": "allow", "updatedInput": {"a": 1}}
    (question,) = asks(core, "AskUserQuestion", input={"questions": []})
    assert question["type"] == "ask_user_question"


def test_what_subagents_say_is_counted_and_so_is_what_nobody_knows() -> None:
    core, _ = at_work()
    assert up(core, type="assistant", parent_tool_use_id="t") == [UnknownFrame("subagent assistant")]
    assert up(core, type="system", subtype="of_tomorrow") == [UnknownFrame("system/of_tomorrow")]
    known = {"name": "claude-code", "session": core.session}
    assert up(core, type="system", subtype="init") == [{"type": "agent_status", **known}]
    told = {"claude_code_version": "2.1.326", "model": "m" * 300}
    assert up(core, type="system", subtype="init", **told) == [
        {"type": "agent_status", "version": "2.1.326", "model": "m" * MAX_IDENTITY}
    ]
    assert up(core, type="system", subtype="init", **told) == []
    assert heard(core.up([b"no frame"])) == [UnknownFrame("no frame")]
    assert up(core, type="stream_event", event={"type": "message_stop"}) == []


def test_it_is_woken_for_its_text_alone_and_dies_of_an_interrupt() -> None:
    core, _ = at_work()
    delta = {"type": "text_delta", "text": "a"}
    for _ in range(2):
        up(core, type="stream_event", event={"type": "content_block_delta", "delta": delta})
    assert core.woken("another") == ()
    assert heard(core.woken("gather")) == [{"type": "chunk", "text": "a"}]
    (end,) = core.interrupt()
    assert isinstance(end, EndProcess)
    assert heard(core.over()) == []
    assert core.cuts_lines


def test_an_abort_is_said_once() -> None:
    core, _ = at_work()
    assert [line["request"]["subtype"] for _, line in down(core, type="abort")] == ["interrupt"]
    assert down(core, type="abort") == down(begun(), type="abort") == down(core, type="of_tomorrow") == []
    done = up(core, type="result", is_error=True, errors=["x"])[-1]
    assert done["metadata"] == {"aborted": True}


def test_a_cost_that_is_no_price_is_none() -> None:
    core, _ = at_work()
    done = up(core, type="result", total_cost_usd=10**400, usage={"input_tokens": 10**400, "output_tokens": 5})[-1]
    assert done["metadata"] == {"usage": {"outputTokens": 5}}


def test_an_answer_that_is_nested_without_end_is_no_label() -> None:
    core, _ = at_work()
    asks(core, "AskUserQuestion", input={"questions": [{"question": "Which?"}]})
    deep: list[Any] = []
    for _ in range(480):
        deep = [deep]
    given = answered(down(core, type="ask_user_answer", requestId="r", answer=[*deep, "a"]))["updatedInput"]
    assert given["answers"] == {"Which?": ", a"}


def test_messages_that_are_not_ours_are_not_remembered() -> None:
    core, _ = at_work()
    up(core, type="command_lifecycle", command_uuid="another", state="started")
    assert core.started == set()
