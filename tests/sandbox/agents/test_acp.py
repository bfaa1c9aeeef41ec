"""The core of agents that speak ACP, beyond what is recorded of Gemini (test_golden.py)."""

from typing import Any

import pytest

from sandbox.agents import model_failures as models
from sandbox.agents.acp import (
    AT_LAST,
    AT_LAST_SECONDS,
    CANCEL,
    CANCEL_SECONDS,
    MAX_TOOLS,
    SESSION,
    SETTLE,
    SETTLE_SECONDS,
    START,
    START_SECONDS,
    AcpCore,
)
from sandbox.agents.core import Core, EndProcess, HomeMove, Launch, LogReadingCore, Note, Past, UnknownFrame, WakeAfter
from sandbox.agents.turn import MAX_ID, REPEATED
from tests.support.cores import down, heard, up
from tests.support.golden import recordings, replay

RAN = "11111111-1111-4111-8111-111111111111"
WANTED = Launch(("agent", "--acp"), {}, directory="/workspace")
OPTIONS = [{"optionId": kind, "kind": kind} for kind in ("allow_always", "allow_once", "reject_once")]


@pytest.mark.parametrize(("case", "entries"), recordings("acp").items())
def test_a_recorded_conversation_becomes_what_is_recorded(case: str, entries: list[Any]) -> None:
    assert replay("acp", entries) == entries


def begun(
    notes: dict[str, str] | None = None, capabilities: Any = None, start: bytes | None = None
) -> tuple[AcpCore, list[Any]]:
    """A core that has said hello, and what it asks for then."""
    core = AcpCore()
    core.command(WANTED, Past(notes or {}))
    heard(core.begin(start))
    return core, up(core, id=1, result={"agentCapabilities": capabilities})


def at_work(start: bytes | None = None) -> AcpCore:
    core, _ = begun(start=start)
    up(core, id=2, result={"sessionId": RAN})
    assert core.ready
    down(core, type="message", seq=1, content="go")
    return core


def updates(core: Core, kind: str, /, **update: Any) -> list[Any]:
    return up(core, method="session/update", params={"update": {"sessionUpdate": kind, **update}})


def says(core: Core, words: str, kind: str = "agent_message_chunk") -> list[Any]:
    return updates(core, kind, content={"type": "text", "text": words})


def asks(core: Core, kind: str = "execute", options: Any = OPTIONS, **call: Any) -> list[Any]:
    params = {"toolCall": {"toolCallId": "t", "kind": kind, **call}, "options": options}
    return up(core, id=7, method="session/request_permission", params=params)


def outcome(said: list[Any]) -> Any:
    return said[-1][1]["result"]["outcome"]


def over(core: Core, **answer: Any) -> list[Any]:
    return up(core, id=3, **(answer or {"result": {"stopReason": "end_turn"}}))


def test_a_conversation_is_resumed_or_loaded_or_begun_as_the_agent_can() -> None:
    notes = {SESSION: RAN}
    for capabilities, method in (
        ({"sessionCapabilities": {"resume": {}}, "loadSession": True}, "session/resume"),
        ({"loadSession": True}, "session/load"),
    ):
        core, ((_, line),) = begun(notes, capabilities)
        assert (line["method"], line["params"]["sessionId"], line["params"]["cwd"]) == (method, RAN, "/workspace")
        assert not core.ready
    _, ((_, line),) = begun()
    assert line["method"] == "session/new"
    _, (lost, (_, line)) = begun(notes)
    assert (lost["status"], line["method"]) == ("memory_lost", "session/new")
    assert begun({SESSION: "x" * 257})[1][0][1]["method"] == "session/new"


def test_what_a_loaded_conversation_says_again_is_nothing() -> None:
    core, _ = begun({SESSION: RAN}, {"loadSession": True})
    assert says(core, "before its answer") == []
    up(core, id=2, result=None)
    assert not core.ready
    assert says(core, "after its answer") == []
    assert core.woken(SETTLE) == [WakeAfter(AT_LAST, None)]
    assert (core.ready, core.session) == (True, RAN)


def test_an_agent_that_says_its_conversation_again_without_end_is_listened_to_at_last() -> None:
    core, _ = begun({SESSION: RAN}, {"loadSession": True})
    outs = core.up([b'{"id":2,"result":null}'])
    assert outs[-2:] == [WakeAfter(SETTLE, SETTLE_SECONDS), WakeAfter(AT_LAST, AT_LAST_SECONDS)]
    assert core.up([b'{"method":"session/update"}']) == [WakeAfter(SETTLE, SETTLE_SECONDS)]
    assert not core.ready
    assert core.woken(AT_LAST) == [WakeAfter(SETTLE, None)]
    assert core.ready


def test_a_conversation_that_the_agent_does_not_know_is_begun_anew() -> None:
    core, _ = begun({SESSION: RAN}, {"loadSession": True})
    lost, (_, line) = up(core, id=2, error={"code": 1})
    assert (lost["status"], line["method"]) == ("memory_lost", "session/new")


def test_an_agent_that_cannot_begin_a_conversation_is_asked_again_with_each_message() -> None:
    core, _ = begun()
    assert up(core, id=2, error={"message": "Authentication required"}) == []
    assert core.woken(START) == []
    for number in (3, 4):
        assert core.ready
        ((_, line),) = down(core, type="message", seq=number, content="go")
        assert (line["id"], line["method"]) == (number, "session/new")
        error, done = up(core, id=number, error={"message": "Authentication required"})
        assert (error["code"], done["answers"], done["metadata"]) == ("agent_auth", [number], {"error": True})
    down(core, type="message", seq=5, content="go")
    _, (_, line) = up(core, id=5, result={"sessionId": RAN})
    assert (line["method"], line["params"]["prompt"]) == ("session/prompt", [{"type": "text", "text": "go"}])
    assert up(core, id=6, result={})[-1]["answers"] == [5]
    assert core.ready


def test_a_file_of_gemini_gets_a_name_of_another_minute() -> None:
    core, notes = AcpCore(), {SESSION: RAN}
    (pattern,) = core.traces(WANTED, notes)
    assert pattern == ".gemini/tmp/*/chats/session-*11111111.jsonl"
    assert core.traces(WANTED, {}) == ()
    launch = core.command(WANTED, Past(notes, (pattern,)))
    assert launch.moves == [HomeMove(pattern, "session-2000-01-01T00-00-11111111.jsonl")]
    assert AcpCore().command(WANTED, Past()) == Launch(WANTED.argv, models.ENV, (), "/workspace", [])


def test_all_messages_wait() -> None:
    core = at_work()
    assert core.waits(b'{"type":"message","metadata":{"steer":true}}')
    assert not core.ready
    note, done = over(core)
    assert note == Note({SESSION: RAN})
    assert done == {"type": "done", "answers": [1], "metadata": {"reason": "end_turn"}}
    down(core, type="message", seq="none", content=[{"type": "text", "text": "x"}])
    assert [each["type"] for each in up(core, id=4, result={})] == ["done"]


def test_text_is_a_message_when_a_tool_or_the_turn_ends_it() -> None:
    core = at_work()
    says(core, "one")
    said = updates(core, "tool_call", toolCallId="t", kind="read", rawInput={"a": 1})
    assert [each["type"] for each in said] == ["stream_end", "sdk_message", "sdk_message"]
    use = said[2]["message"]["message"]["content"][0]
    assert use == {"type": "tool_use", "id": "t", "name": "read", "input": {"a": 1}}
    for status, out, content in (
        ("completed", {"rawOutput": "out"}, "out"),
        ("failed", {"content": [1]}, "[1]"),
        ("completed", {}, "completed"),
    ):
        (result,) = updates(core, "tool_call_update", toolCallId="t", status=status, **out)
        block = result["message"]["message"]["content"][0]
        assert (block["content"], block["is_error"]) == (content, status == "failed")
    assert updates(core, "tool_call", toolCallId=7) == updates(core, "tool_call", toolCallId="x" * (MAX_ID + 1)) == []
    for number in range(MAX_TOOLS + 5):
        updates(core, "tool_call", toolCallId=f"t{number}")
    assert len(core.tools) == MAX_TOOLS
    over(core)
    assert core.tools == set()


def test_thoughts_plans_and_what_nobody_knows() -> None:
    core = at_work()
    assert says(core, "so", "agent_thought_chunk") == [{"type": "thinking", "text": "so"}]
    (plan,) = updates(core, "plan", entries=[{"content": "a", "status": "pending"}])
    assert plan == {"type": "plan", "steps": [{"step": "a", "status": "pending"}]}
    assert updates(core, "usage_update") == []
    assert updates(core, "of_tomorrow") == [UnknownFrame("of_tomorrow")]
    assert up(core, method="session/update") == [UnknownFrame("no update")]
    assert up(core, method="of/tomorrow") == [UnknownFrame("of/tomorrow")]
    assert up(core, id="text") == [UnknownFrame("no message")]
    assert up(core, id=99, result={}) == down(core, type="of_tomorrow") == []
    ((_, line),) = up(core, id=8, method="fs/read_text_file")
    assert line["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("answer", "options", "expected"),
    [
        ({"allow": True}, OPTIONS, "allow_once"),
        ({"behavior": "allow", "always": True}, OPTIONS, "allow_always"),
        ({"allow": True}, OPTIONS[:1], "allow_always"),
        ({"allow": False, "always": True}, OPTIONS, "reject_once"),
        ({"allow": False}, OPTIONS[:2], None),
        ({"allow": True}, None, None),
    ],
)
def test_a_permission_is_answered_by_the_option_that_says_so(answer: Any, options: Any, expected: Any) -> None:
    core = at_work()
    *_, asked = asks(core, options=options, title="ls")
    assert (asked["toolName"], asked["toolInput"], asked["toolUseId"]) == ("execute", {"title": "ls"}, "t")
    assert asked.get("suggestions") == (["session"] if options and options[0]["kind"] == "allow_always" else None)
    chosen = outcome(down(core, type="permission_response", requestId=asked["requestId"], **answer))
    assert chosen == ({"outcome": "selected", "optionId": expected} if expected else {"outcome": "cancelled"})
    assert down(core, type="permission_response", requestId=asked["requestId"])[0]["code"] == "unknown_request"


@pytest.mark.parametrize(
    ("mode", "shell", "edit"),
    [("ask", None, None), ("edits", None, "allow_once"), ("all", "allow_once", "allow_once"),
     ("plan", "reject_once", "reject_once")],
)  # fmt: skip
def test_a_mode_answers_by_itself(mode: str, shell: str | None, edit: str | None) -> None:
    core = at_work(b'{"mode":"all"}')
    down(core, type="set_mode", mode=7)
    down(core, type="set_mode", mode=mode)
    for kind, option in (("execute", shell), ("edit", edit)):
        said = asks(core, kind)
        if option is None:
            assert said[-1]["type"] == "tool_permission_request"
        else:
            assert outcome(said) == {"outcome": "selected", "optionId": option}


def test_what_is_asked_without_a_turn_is_cancelled() -> None:
    assert outcome(asks(begun()[0])) == {"outcome": "cancelled"}


def test_an_abort_answers_what_is_open() -> None:
    core = at_work()
    asks(core)
    (_, cancel), (_, answer), gone = down(core, type="abort")
    assert (cancel["method"], answer["id"], gone["type"]) == ("session/cancel", 7, "request_gone")
    assert down(core, type="abort") == []
    assert over(core, error={"message": "aborted"})[-1]["metadata"] == {"aborted": True}
    assert down(AcpCore(), type="abort") == []


@pytest.mark.parametrize(
    ("error", "code"), [({"message": "API key not valid"}, "agent_auth"), ({"message": "x"}, "agent"), (7, "agent")]
)
def test_an_error_ends_the_turn(error: Any, code: str) -> None:
    told, _, done = over(at_work(), error=error)
    assert (told["code"], done["metadata"]) == (code, {"error": True})


def test_it_is_woken_for_its_text_and_dies_of_an_interrupt() -> None:
    core = at_work()
    says(core, "a")
    says(core, "b")
    assert core.woken("another") == ()
    assert heard(core.woken("gather")) == [{"type": "chunk", "text": "b"}]
    (end,) = core.interrupt()
    assert isinstance(end, EndProcess)
    assert heard(core.over()) == []
    assert core.cuts_lines


def test_of_a_text_that_is_not_said_again_only_the_beginning_is_kept() -> None:
    core = at_work()
    says(core, "x" * (REPEATED + 1))
    says(core, "y")
    assert len(core.said) == REPEATED + 1
    assert "sdk_message" not in [each["type"] for each in over(core) if isinstance(each, dict)]


def test_a_conversation_may_have_any_name() -> None:
    core, _ = begun()
    up(core, id=2, result={"sessionId": "ses:1/../x"})
    assert core.ready
    down(core, type="message", seq=1, content="go")
    assert Note({SESSION: "ses:1/../x"}) in over(core)
    _, ((_, line),) = begun({SESSION: "ses:1/../x"}, {"loadSession": True})
    assert line["params"]["sessionId"] == "ses:1/../x"
    assert AcpCore().traces(WANTED, {SESSION: "ses:1/../x"}) == (), "it is in no name of a file"


@pytest.mark.parametrize("name", [None, "", "x" * 257, 7])
def test_a_conversation_without_a_name_cannot_go_on(name: Any) -> None:
    core, _ = begun()
    error, end = up(core, id=2, result={"sessionId": name})
    assert (error["code"], isinstance(end, EndProcess)) == ("agent", True)
    assert not core.ready


def logs(core: AcpCore, attempt: int, told: str = "with status 500") -> list[Any]:
    return heard(core.logged([b"[WARN] Attempt %d failed %b. Retrying with backoff..." % (attempt, told.encode())]))


def test_a_model_that_fails_again_and_again_ends_the_turn() -> None:
    core = at_work()
    assert isinstance(core, LogReadingCore)
    asks(core)
    for attempt in range(1, models.ATTEMPTS):
        (status,) = logs(core, attempt)
        assert status == {
            "type": "agent_status",
            "status": "retrying",
            "attempt": attempt,
            "of": models.ATTEMPTS,
            "error": f"Attempt {attempt} failed with status 500",
        }
    _, (_, cancel), (_, answer), gone = logs(core, models.ATTEMPTS)
    assert (cancel["method"], answer["id"], gone["type"]) == ("session/cancel", 7, "request_gone")
    assert logs(core, 1) == [], "it was told to stop"
    could = [core.ready]
    error, note, done = over(core, result={"stopReason": "cancelled"})
    assert (error["code"], isinstance(note, Note)) == ("agent", True)
    assert error["error"] == "the model kept failing: Attempt 4 failed with status 500"
    assert done == {"type": "done", "answers": [1], "metadata": {"error": True, "reason": "cancelled"}}
    assert [*could, core.ready] == [False, True]
    assert logs(core, 4) == [], "no turn runs"
    down(core, type="message", seq=2, content="again")
    (done,) = up(core, id=4, result={})
    assert done["metadata"] == {}


def test_failures_of_one_model_after_another_are_counted_until_something_is_said() -> None:
    core = at_work()
    for _ in range(models.FAILURES - 1):
        assert len(logs(core, 1)) == 1
    says(core, "a word")
    for _ in range(models.FAILURES - 1):
        assert len(logs(core, 1)) == 1
    assert len(logs(core, 1)) == 2


def test_an_abort_of_a_turn_that_fails_is_an_abort() -> None:
    core = at_work()
    logs(core, models.ATTEMPTS)
    down(core, type="abort")
    assert over(core, result={"stopReason": "cancelled"})[-1]["metadata"] == {"aborted": True, "reason": "cancelled"}
    core = at_work()
    down(core, type="abort")
    assert logs(core, models.ATTEMPTS) == []


def test_an_agent_that_does_not_stop_a_failing_turn_is_started_anew() -> None:
    core = at_work()
    assert core.woken(CANCEL) == [], "nothing was cancelled"
    outs = core.logged([b"[WARN] Attempt 9 failed with status 401. Max attempts reached"])
    assert outs[-1] == WakeAfter(CANCEL, CANCEL_SECONDS)
    error, done, end = heard(core.woken(CANCEL))
    assert (error["code"], done["metadata"], isinstance(end, EndProcess)) == ("agent_auth", {"error": True}, True)
    assert not core.ready, "no further message is for this process"
    assert over(core, error={"message": "late"}) == []


def test_a_conversation_that_is_never_loaded_is_begun_anew() -> None:
    core = AcpCore()
    core.command(WANTED, Past({SESSION: RAN}))
    assert core.begin(None)[-1] == WakeAfter(START, START_SECONDS)
    up(core, id=1, result={"agentCapabilities": {"loadSession": True}})
    assert core.up([b'{"method":"session/update"}']) == [WakeAfter(START, START_SECONDS)], "it is under way"
    lost, (_, line) = heard(core.woken(START))
    assert (lost["status"], line["method"]) == ("memory_lost", "session/new")
    assert up(core, id=2, result=None) == [], "too late"
    up(core, id=3, result={"sessionId": "new"})
    assert (core.ready, core.session) == (True, "new")
    assert core.woken(START) == []
    down(core, type="message", seq=1, content="go")
    late = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "said before"}}
    assert up(core, method="session/update", params={"sessionId": RAN, "update": late}) == []


def refused() -> AcpCore:
    """A core whose agent begins a conversation for a message, after it could not."""
    core, _ = begun()
    up(core, id=2, error={"message": "Authentication required"})
    assert core.down(b'{"type":"message","seq":1,"content":"go"}')[-1] == WakeAfter(START, START_SECONDS)
    return core


def test_a_message_whose_conversation_never_begins_is_answered() -> None:
    core = refused()
    error, done, end = heard(core.woken(START))
    assert (error["code"], done["answers"], done["metadata"]) == ("agent", [1], {"error": True})
    assert isinstance(end, EndProcess)
    assert not core.ready


@pytest.mark.parametrize("answer", [{"result": {"sessionId": RAN}}, {"error": {"message": "Authentication required"}}])
def test_an_abort_while_a_conversation_begins_is_an_abort(answer: Any) -> None:
    core = refused()
    assert down(core, type="abort") == []
    assert up(core, id=3, **answer)[-1] == {"type": "done", "answers": [1], "metadata": {"aborted": True}}
    assert core.ready


@pytest.mark.parametrize(("answers", "asked"), [(0, "initialize"), (1, "session/new")])
def test_an_agent_that_does_not_begin_is_ended(answers: int, asked: str) -> None:
    core = AcpCore()
    core.command(WANTED, Past())
    core.begin(None)
    for number in range(answers):
        up(core, id=number + 1, result={})
    error, end = heard(core.woken(START))
    assert error["error"] == f"the agent did not answer {asked} within 120 s"
    assert isinstance(end, EndProcess)
