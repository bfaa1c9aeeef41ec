"""The core of Codex, beyond what is recorded (test_golden.py): what comes rarely, and what should never come."""

from typing import Any

import pytest

from sandbox.agents.codex import (
    LATE,
    LATE_SECONDS,
    MAX_HELD_BYTES,
    MAX_ITEMS,
    MAX_PATCH_BYTES,
    CodexCore,
)
from sandbox.agents.codex_words import RULES, THREAD
from sandbox.agents.core import EndProcess, Launch, Note, Past, UnknownFrame, WakeAfter
from sandbox.agents.turn import MAX_ID, MAX_JOINING
from tests.support.cores import down, heard, up
from tests.support.golden import recordings, replay

RAN = "11111111-1111-4111-8111-111111111111"
FILE = f".codex/sessions/*/*/*/rollout-*{RAN}.jsonl"
WANTED = Launch(("codex",), {"HOME": "/agent", "OPENAI_API_KEY": "k"}, directory="/workspace")


@pytest.mark.parametrize(("case", "entries"), recordings("codex").items())
def test_a_recorded_conversation_becomes_what_is_recorded(case: str, entries: list[Any]) -> None:
    assert replay("codex", entries) == entries


def begun(past: Past = Past(), start: bytes | None = None) -> CodexCore:  # noqa: B008
    """A core whose server has said hello."""
    core = CodexCore()
    core.command(WANTED, past)
    heard(core.begin(start))
    return core


def opened(start: bytes | None = None) -> CodexCore:
    core = begun(start=start)
    up(core, id=1, result={})
    up(core, id=2, result={"thread": {"id": "t"}, "model": "m"})
    return core


def at_work(start: bytes | None = None) -> CodexCore:
    core = opened(start)
    down(core, type="message", seq=1, content="go", cid="c1")
    up(core, method="turn/started", params={"turn": {"id": "r"}})
    return core


def steer(core: CodexCore, seq: int) -> list[Any]:
    return down(core, type="message", seq=seq, content="now", metadata={"steer": True})


def completed(core: CodexCore, status: str = "completed", name: str = "r", **turn: Any) -> list[Any]:
    return up(core, method="turn/completed", params={"turn": {"id": name, "status": status, **turn}})


def asks(core: CodexCore, kind: str = "commandExecution/requestApproval", **params: Any) -> list[Any]:
    return up(core, id=7, method=f"item/{kind}", params={"turnId": "r", "itemId": "i", **params})


def methods(said: list[Any]) -> list[str]:
    return [each[1]["method"] for each in said if isinstance(each, tuple)]


def test_the_thread_of_before_is_looked_for_and_resumed() -> None:
    core = CodexCore()
    assert core.traces(WANTED, {}) == core.traces(WANTED, {THREAD: "*"}) == (".codex/config.toml", ".codex/auth.json")
    assert core.traces(WANTED, {THREAD: RAN})[2:] == (FILE,)
    core = begun(Past({THREAD: RAN}, (FILE,)))
    assert not core.ready
    initialized, (_, resume) = up(core, id=1, result={})
    assert initialized == ("agent", {"method": "initialized"})
    assert (resume["method"], resume["params"]["threadId"]) == ("thread/resume", RAN)
    known = {"name": "codex", "session": RAN}
    assert up(core, id=2, result={"thread": {"id": RAN}}) == [{"type": "agent_status", **known}]
    assert core.ready


def test_a_thread_that_is_gone_is_told_and_another_one_begins() -> None:
    core = begun(Past({THREAD: RAN}))
    _, lost, (_, begin) = up(core, id=1, result={})
    assert lost == {"type": "agent_status", "status": "memory_lost"}
    assert begin["method"] == "thread/start"
    core = begun(Past({THREAD: RAN}, (FILE,)))
    up(core, id=1, result={})
    lost, (_, begin) = up(core, id=2, error={"message": "no rollout found"})
    assert (lost["status"], begin["method"]) == ("memory_lost", "thread/start")
    up(core, id=3, result={"thread": {"id": "t"}})
    down(core, type="message", seq=1, content="go")
    assert up(core, method="turn/started", params={"turn": {"id": "r"}}) == [Note({THREAD: "t"})]
    assert up(core, method="turn/started", params={"turn": {"id": "r"}}) == []


def test_a_conversation_that_cannot_begin_ends_the_process_with_the_cause() -> None:
    core = begun()
    up(core, id=1, result={})
    error, end = up(core, id=2, error={"message": "bad model"})
    assert error == {"type": "error", "code": "agent", "error": "bad model"}
    assert isinstance(end, EndProcess)


def test_without_a_configuration_of_the_users_it_is_told_its_model_and_its_rules() -> None:
    launch = CodexCore().command(WANTED, Past())
    assert launch.argv[:2] == ("codex", "app-server")
    assert 'model_providers.holdfast.base_url="https://api.openai.com/v1"' in launch.argv
    assert [(file.path, file.content) for file in launch.files] == [(".codex/rules/holdfast.rules", RULES)]
    elsewhere = Launch(("codex",), {**WANTED.env, "OPENAI_BASE_URL": "http://m/v1"})
    assert 'model_providers.holdfast.base_url="http://m/v1"' in CodexCore().command(elsewhere, Past()).argv
    signed_in = CodexCore().command(WANTED, Past({}, (".codex/auth.json",)))
    assert signed_in.argv[2:] == ("-c", "features.default_mode_request_user_input=true")
    without_a_key = CodexCore().command(Launch(("codex",), {}), Past())
    assert without_a_key.argv == launch.argv, "it says at once that it has none"


def test_a_configuration_of_the_users_stands_above_everything() -> None:
    core = begun(Past({}, (".codex/config.toml",)))
    assert core.command(WANTED, Past({}, (".codex/config.toml",))) == Launch(
        ("codex", "app-server"), WANTED.env, (), "/workspace"
    )
    _, (_, begin) = up(core, id=1, result={})
    assert begin["params"] == {"cwd": "/workspace", "model": None}


@pytest.mark.parametrize(
    ("env", "below"),
    [
        ({"CODEX_HOME": "/agent/c", "HOME": "/agent"}, "c"),
        ({"CODEX_HOME": "/elsewhere", "HOME": "/agent"}, ".codex"),
        ({"CODEX_HOME": "c", "HOME": "/agent"}, ".codex"),
        ({"CODEX_HOME": "/c"}, ".codex"),
    ],
)
def test_its_directory_may_be_another_one_of_the_home(env: dict[str, str], below: str) -> None:
    assert CodexCore().traces(Launch((), env), {})[0] == f"{below}/config.toml"


def test_a_message_waits_for_the_thread_and_for_the_turn() -> None:
    core = begun()
    assert core.waits(b'{"type":"message","content":"x"}')
    assert not core.waits(b'{"type":"message","content":"x","metadata":{"steer":true}}')
    assert not core.ready
    assert opened().ready
    assert not at_work().ready


def test_what_steers_before_the_thread_begins_the_first_turn() -> None:
    core = begun()
    assert steer(core, 1) == []
    up(core, id=1, result={})
    said = up(core, id=2, result={"thread": {"id": "t"}})
    assert methods(said) == ["turn/start"]
    assert core.turn.seqs == [1]


def test_what_steers_before_the_turn_has_a_name_is_folded_in_when_it_has() -> None:
    core = opened()
    down(core, type="message", seq=1, content="go")
    assert steer(core, 2) == []
    note, (_, steered) = up(core, method="turn/started", params={"turn": {"id": "r"}})
    assert isinstance(note, Note)
    assert (steered["method"], steered["params"]["expectedTurnId"]) == ("turn/steer", "r")
    assert up(core, id=4, result={"turnId": "r"}) == []
    assert completed(core)[-1]["answers"] == [1, 2]


def test_what_steers_too_late_is_a_turn_of_its_own() -> None:
    core = at_work()
    steer(core, 2)
    steer(core, 3)
    assert up(core, id=4, error={"message": "no active turn"}) == up(core, id=5, result={}) == []
    done, begin = completed(core)
    assert done["answers"] == [1, 3]
    assert methods([begin]) == ["turn/start"]
    up(core, method="turn/started", params={"turn": {"id": "s"}})
    assert completed(core, name="s")[-1]["answers"] == [2]
    assert core.ready


def test_what_steers_too_late_is_named_by_one_done() -> None:
    core = at_work()
    steer(core, 2)
    assert completed(core)[-1]["answers"] == [1]
    assert methods(up(core, id=4, error={})) == ["turn/start"]
    up(core, method="turn/started", params={"turn": {"id": "s"}})
    assert completed(core, name="s")[-1]["answers"] == [2]

    core = at_work()
    steer(core, 2)
    assert completed(core)[-1]["answers"] == [1]
    assert up(core, id=4, result={}) == [{"type": "done", "answers": [2], "metadata": {}}], (
        "it was taken in, and told late"
    )
    assert core.ready


def test_a_message_of_which_the_server_says_nothing_is_answered_in_the_end() -> None:
    core = at_work()
    steer(core, 2)
    outs = core.up([b'{"method":"turn/completed","params":{"turn":{"id":"r","status":"completed"}}}'])
    assert outs[-1] == WakeAfter(LATE, LATE_SECONDS)
    down(core, type="message", seq=3, content="next")
    up(core, method="turn/started", params={"turn": {"id": "s"}})
    steer(core, 4)
    error, done = heard(core.woken(LATE))
    assert error["error"].startswith("the agent did not confirm a message")
    assert done == {"type": "done", "answers": [2], "metadata": {"error": True}}
    assert up(core, id=4, result={}) == up(core, id=6, result={}) == [], "what is late now is nothing"
    assert completed(core, name="s")[-1]["answers"] == [3, 4]
    assert core.woken(LATE) == []


def test_a_message_without_a_number_that_was_taken_in_late_needs_no_answer() -> None:
    core = at_work()
    down(core, type="message", content="now", metadata={"steer": True})
    completed(core)
    assert up(core, id=4, result={}) == []


def test_a_message_is_folded_in_only_while_its_turn_can_take_it() -> None:
    steering = b'{"type":"message","content":"x","metadata":{"steer":true}}'
    core = begun()
    assert [core.folds(steering), core.folds(b'{"type":"message","content":"x"}')] == [True, False]
    assert not core.folds(b'{"type":"permission_response","metadata":{"steer":true}}')
    could = [core.can_fold]  # there is no conversation yet
    core = opened()
    could.append(core.can_fold)  # it would begin a turn
    down(core, type="message", seq=1, content="go")
    could.append(core.can_fold)  # the turn has no name yet
    up(core, method="turn/started", params={"turn": {"id": "r"}})
    could.append(core.can_fold)
    down(core, type="abort")
    could.append(core.can_fold)
    completed(core, "interrupted")
    could.append(core.can_fold)
    assert could == [False, True, False, True, False, True]


@pytest.mark.parametrize("result", [{}, {"thread": {}}, {"thread": {"id": ""}}, {"thread": {"id": 7}}])
def test_a_conversation_without_an_id_ends_in_an_error(result: dict[str, Any]) -> None:
    core = begun()
    up(core, id=1, result={})
    error, end = up(core, id=2, result=result)
    assert (error["type"], error["error"]) == ("error", "the agent sent no id for its conversation")
    assert isinstance(end, EndProcess)
    assert not core.ready


def test_what_is_held_has_a_bound() -> None:
    core = begun()
    for seq in range(MAX_JOINING):
        assert steer(core, seq) == []
    error, done = steer(core, MAX_JOINING)
    assert "send this message again" in error["error"]
    assert done == {"type": "done", "answers": [MAX_JOINING], "metadata": {"error": True}}
    assert len(core.held) == MAX_JOINING


@pytest.mark.parametrize("content", ["x", "x" * (MAX_HELD_BYTES // 8)])
def test_no_more_messages_join_a_turn_while_too_many_are_on_their_way(content: str) -> None:
    core = at_work()
    sent = 0
    while core.can_fold:
        ((_, line),) = down(core, type="message", seq=sent, content=content, metadata={"steer": True})
        sent += 1
    assert sent == (MAX_JOINING if len(content) == 1 else 8)
    up(core, id=line["id"], result={})
    assert core.can_fold


def test_of_changes_only_so_much_is_kept() -> None:
    core = at_work()
    for number in range(5):
        changes = [{"path": "f", "diff": "x" * (MAX_PATCH_BYTES // 4)}]
        up(core, method="item/started", params={"item": {"type": "fileChange", "id": f"i{number}", "changes": changes}})
    assert sum(map(len, core.patches.values())) <= MAX_PATCH_BYTES
    up(core, method="item/started", params={"item": {"type": "fileChange", "id": "small", "changes": [{"path": "g"}]}})
    (asked,) = asks(core, "fileChange/requestApproval", itemId="small")
    assert asked["toolInput"] == {"changes": [{"path": "g"}]}


def test_a_turn_that_does_not_start_ends_with_its_error() -> None:
    core = opened()
    down(core, type="message", content="go")
    error, done = up(core, id=3, error={"message": "overloaded"})
    assert error["error"] == "overloaded"
    assert done == {"type": "done", "metadata": {"error": True}}
    assert up(core, id=3, result={}) == up(core, id=99, error={}) == []


def test_an_abort_waits_for_the_turns_name_and_is_said_once() -> None:
    core = opened()
    assert down(core, type="abort") == []
    down(core, type="message", seq=1, content="go")
    assert down(core, type="abort") == down(core, type="abort") == []
    assert methods(up(core, method="turn/started", params={"turn": {"id": "r"}})[1:]) == ["turn/interrupt"]
    assert completed(core, "failed", error={"message": "x"}) == [
        {"type": "done", "answers": [1], "metadata": {"aborted": True, "reason": "failed"}}
    ]
    assert methods(down(at_work(), type="abort")) == ["turn/interrupt"]


def test_a_turn_of_another_name_is_not_ours() -> None:
    core = at_work()
    assert completed(core, name="another") == []
    assert not core.ready
    assert completed(opened(), "failed", error={}) == []


def test_what_a_patch_would_do_is_told_with_its_request() -> None:
    core = at_work()
    changes = [{"path": "a", "kind": {"type": "add"}, "diff": "x"}]
    up(core, method="item/started", params={"item": {"type": "fileChange", "id": "i", "changes": changes}})
    (request,) = asks(core, "fileChange/requestApproval", reason="why")
    assert (request["toolName"], request["toolInput"]) == ("apply_patch", {"changes": changes})
    assert request["reason"] == "why"
    assert up(core, method="serverRequest/resolved", params={"requestId": 8}) == []
    (gone,) = up(core, method="serverRequest/resolved", params={"requestId": 7})
    assert gone == {"type": "request_gone", "requestId": "r-7", "reason": "the agent no longer asks this"}
    assert down(core, type="permission_response", requestId="r-7")[0]["code"] == "unknown_request"


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ({"allow": True}, "accept"),
        ({"behavior": "allow", "always": True}, "acceptForSession"),
        ({"allow": False}, "decline"),
        ({"interrupt": True}, "cancel"),
    ],
)
def test_a_permission_is_answered_in_its_words(answer: dict[str, Any], decision: str) -> None:
    core = at_work()
    asks(core, command="ls")
    assert down(core, type="permission_response", requestId="r-7", **answer) == [
        ("agent", {"id": 7, "result": {"decision": decision}})
    ]


@pytest.mark.parametrize(
    ("answer", "labels"),
    [
        ({"answers": {"Which?": "a"}}, ["a"]),
        ({"answers": {"q": ["a", "b"]}}, ["a", "b"]),
        ({"answer": "c"}, ["c"]),
        ({"answers": {}}, []),
    ],
)
def test_a_question_is_answered_by_its_id(answer: dict[str, Any], labels: list[str]) -> None:
    core = at_work()
    asks(core, "tool/requestUserInput", questions=[{"id": "q", "question": "Which?"}])
    ((_, line),) = down(core, type="ask_user_answer", requestId="r-7", **answer)
    assert line["result"] == {"answers": {"q": {"answers": labels}}}


@pytest.mark.parametrize(
    ("mode", "command", "patch"),
    [("ask", None, None), ("edits", None, "accept"), ("all", "accept", "accept"), ("plan", "decline", "decline")],
)
def test_a_mode_answers_by_itself(mode: str, command: str | None, patch: str | None) -> None:
    core = at_work(b'{"type":"start","mode":"plan","model":"n"}' if mode == "plan" else b"{}")
    down(core, type="set_mode", mode=mode)
    down(core, type="set_mode", mode="other")
    for kind, decision in (("commandExecution", command), ("fileChange", patch)):
        (said,) = asks(core, f"{kind}/requestApproval")
        if decision is None:
            assert said["type"] == "tool_permission_request"
        else:
            assert said[1]["result"] == {"decision": decision}


def test_a_plan_is_a_mode_of_the_turn() -> None:
    core = opened(b'{"type":"start","mode":"plan"}')
    ((_, begin),) = down(core, type="message", content=[{"type": "text", "text": "x"}])
    assert begin["params"]["collaborationMode"]["mode"] == "plan"
    assert begin["params"]["input"] == [{"type": "text", "text": "x"}]
    (plan,) = up(core, method="turn/plan/updated", params={"plan": [{"step": "a", "status": "pending"}, 7]})
    assert plan == {"type": "plan", "steps": [{"step": "a", "status": "pending"}]}


def test_what_is_asked_and_not_known_or_without_a_turn_is_refused() -> None:
    for core, kind in ((at_work(), "tool/call"), (opened(), "commandExecution/requestApproval")):
        ((_, line),) = asks(core, kind)
        assert line["error"] == {"code": -32601, "message": "not supported"}
    ((_, line),) = asks(opened(), "tool/requestUserInput")
    assert "error" in line


def test_results_of_tools_have_their_output_or_what_there_is() -> None:
    core = at_work()

    def content(**item: Any) -> Any:
        (said,) = up(core, method="item/completed", params={"item": {"type": "mcpToolCall", "id": "i", **item}})
        (block,) = said["message"]["message"]["content"]
        return block["content"], block["is_error"]

    assert content(aggregatedOutput="out", status="failed") == ("out", True)
    assert content(result={"a": 1}, status="completed") == ('{"a": 1}', False)
    assert content(status="declined") == ("declined", True)
    for item in ({"type": "reasoning", "id": "i"}, {"type": "mcpToolCall"}):
        assert up(core, method="item/completed", params={"item": item}) == []
        assert up(core, method="item/started", params={"item": item}) == []
    for number in range(MAX_ITEMS + 5):
        up(core, method="item/started", params={"item": {"type": "fileChange", "id": str(number)}})
    assert len(core.patches) == MAX_ITEMS


def test_a_picture_that_it_looks_at_is_a_tool_of_its_own() -> None:
    core, item = at_work(), {"type": "imageView", "id": "i", "path": "/workspace/a.png"}
    (used,) = up(core, method="item/started", params={"item": item})
    (block,) = used["message"]["message"]["content"]
    assert (block["name"], block["input"]) == ("view_image", {"path": "/workspace/a.png"})
    (seen,) = up(core, method="item/completed", params={"item": item})
    (result,) = seen["message"]["message"]["content"]
    assert (result["tool_use_id"], result["is_error"]) == ("i", False)


def test_text_that_was_not_streamed_is_said() -> None:
    core = at_work()
    said = up(core, method="item/completed", params={"item": {"type": "agentMessage", "id": "a", "text": "whole"}})
    assert [frame["type"] for frame in said] == ["stream_start", "chunk", "stream_end", "sdk_message"]


@pytest.mark.parametrize(
    ("message", "code"),
    [("unexpected status 401 Unauthorized", "agent_auth"), ("Missing environment variable: `K`", "agent_auth"),
     ("high demand", "agent"), (None, "agent")],
)  # fmt: skip
def test_an_error_is_told_once_and_says_what_to_do(message: str | None, code: str) -> None:
    core = at_work()
    error = {"message": message}
    assert up(core, method="error", params={"error": error, "willRetry": True})[0]["status"] == "retrying"
    assert up(core, method="error", params={"error": error}) == []
    told, done = completed(core, "failed", error=error)
    assert (told["type"], told["code"], done["metadata"]) == ("error", code, {"error": True, "reason": "failed"})
    assert ("OPENAI_API_KEY" in told["error"]) == (code == "agent_auth")
    assert up(core, method="error", params={"error": error})[0]["code"] == code


def test_what_nobody_knows_is_counted() -> None:
    core = at_work()
    assert up(core, method="of/tomorrow") == [UnknownFrame("of/tomorrow")]
    assert up(core, id="text") == [UnknownFrame("no message")]
    assert up(core, method="warning", params=7) == []
    assert down(core, type="of_tomorrow") == []


def test_it_is_woken_for_its_text_alone_and_dies_of_an_interrupt() -> None:
    core = at_work()
    for _ in range(2):
        up(core, method="item/agentMessage/delta", params={"delta": "a"})
    assert core.woken("another") == ()
    assert heard(core.woken("gather")) == [{"type": "chunk", "text": "a"}]
    (end,) = core.interrupt()
    assert isinstance(end, EndProcess)
    assert heard(core.over()) == []
    assert core.cuts_lines


def test_names_of_streamed_items_have_a_bound() -> None:
    core = at_work()
    for number in range(MAX_ITEMS + 5):
        up(core, method="item/agentMessage/delta", params={"itemId": f"i{number}", "delta": ""})
    assert len(core.streamed) == MAX_ITEMS


def test_names_that_are_too_long_are_not_kept() -> None:
    core, long = at_work(), "x" * (MAX_ID + 1)
    up(core, method="item/agentMessage/delta", params={"itemId": long, "delta": ""})
    up(core, method="item/started", params={"item": {"type": "fileChange", "id": long}})
    assert (core.streamed, core.patches) == (set(), {})


def test_a_configuration_of_ours_leaves_the_core_its_own_settings() -> None:
    env = {**WANTED.env, "HOLDFAST_CODEX_CONFIG": "1"}
    ours = CodexCore().command(Launch(WANTED.argv, env), Past({}, (".codex/config.toml",)))
    assert "features.default_mode_request_user_input=true" in ours.argv
    assert any("model_provider" in word for word in ours.argv), "a session's configuration may have replaced the file"
    assert [file.path for file in ours.files] == [".codex/rules/holdfast.rules"]
    alone = CodexCore().command(Launch(WANTED.argv, env), Past())
    assert any("model_provider" in word for word in alone.argv)
