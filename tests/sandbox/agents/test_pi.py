"""The core of pi, beyond what is recorded (test_golden.py): what comes rarely, and what should never come."""

import json
from typing import Any

import pytest

from sandbox.agents.core import VERSION_IN, Core, EndProcess, Launch, Note, Past, UnknownFrame, WakeAfter
from sandbox.agents.pi import BEGUN, CONVERSATION, EXTENSION_FILE, SETTLE, SETTLE_SECONDS, STATE, PiCore
from sandbox.agents.pi_extension import EXTENSION, PERMISSION
from sandbox.agents.turn import MAX_JOINING
from tests.support.cores import down, heard, up
from tests.support.golden import recordings, replay

WHO = ("agent", {"id": STATE, "type": "get_state"})
WANTED = Launch(("pi",), {"HOME": "/agent"}, directory="/workspace")


@pytest.mark.parametrize(("case", "entries"), recordings("pi").items())
def test_a_recorded_conversation_becomes_what_is_recorded(case: str, entries: list[Any]) -> None:
    assert replay("pi", entries) == entries


def at_work(start: bytes | None = None) -> PiCore:
    core = PiCore()
    core.command(WANTED, Past())
    heard(core.begin(start))
    down(core, type="message", seq=1, content="go")
    up(core, type="response", id="h1", command="prompt", success=True)
    return core


def dialog(core: Core, method: str = "select", **members: Any) -> list[Any]:
    return up(core, type="extension_ui_request", id="d", method=method, **members)


def permission(core: Core, tool: str = "bash") -> list[Any]:
    about = {"toolName": tool, "toolInput": {"a": 1}, "toolUseId": "t", "kind": "of nobody"}
    return dialog(core, title=PERMISSION + json.dumps(about), options=["allow", "deny"])


def answer(core: Core, **members: Any) -> Any:
    ((_, line),) = down(core, requestId="pi-d", **members)
    assert (line.pop("type"), line.pop("id")) == ("extension_ui_response", "d")
    return line


def said(core: Core, **message: Any) -> list[Any]:
    return up(core, type="message_end", message=message)


def test_the_conversation_is_a_file_of_the_home() -> None:
    core = PiCore()
    launch = core.command(WANTED, Past())
    assert core.traces(WANTED, {}) == (CONVERSATION,)
    assert launch.argv == (
        "pi", "--mode", "rpc", "--session", f"/agent/{CONVERSATION}", "-e", f"/agent/{EXTENSION_FILE}",
    )  # fmt: skip
    assert [(file.path, file.content) for file in launch.files] == [(EXTENSION_FILE, EXTENSION)]
    assert launch.env["PI_CODING_AGENT_DIR"] == "/agent/.pi"
    assert PiCore().command(Launch((), {"PI_CODING_AGENT_DIR": "/x"}), Past()).env["PI_CODING_AGENT_DIR"] == "/x"


def test_a_conversation_that_is_gone_is_told() -> None:
    core = PiCore()
    core.command(WANTED, Past({BEGUN: "yes"}))
    assert heard(core.begin(None)) == [{"type": "agent_status", "status": "memory_lost"}, WHO]
    core = PiCore()
    core.command(WANTED, Past({BEGUN: "yes"}, (CONVERSATION,)))
    assert heard(core.begin(None)) == [WHO]


def test_it_is_asked_who_it_is_and_its_version_is_the_installed_one() -> None:
    core = PiCore()
    core.command(Launch(("pi",), {"HOME": "/agent", VERSION_IN: "0.87.1"}), Past())
    heard(core.begin(None))
    state = {"sessionId": "s", "model": {"provider": "openai", "id": "gpt-5", "cost": {}}}
    (told,) = up(core, type="response", id=STATE, command="get_state", success=True, data=state)
    known = {"name": "pi", "version": "0.87.1", "session": "s", "model": "openai/gpt-5"}
    assert told == {"type": "agent_status", **known}
    assert up(core, type="response", id=STATE, command="get_state", success=True, data=state) == [], "told once"
    assert up(core, type="response", id=STATE, command="get_state", success=False, error="no") == []


def test_a_start_chooses_the_model_of_a_provider_and_the_mode() -> None:
    core = PiCore()
    (_, line), _ = heard(core.begin(b'{"model":"openai/gpt/5","mode":"all"}'))
    assert line == {"id": "h1", "type": "set_model", "provider": "openai", "modelId": "gpt/5"}
    assert core.mode == "all"
    assert heard(PiCore().begin(b'{"model":"gpt","mode":["all"]}')) == [WHO]
    notice = {"type": "agent_status", "status": "notice", "message": "no such model"}
    assert up(core, type="response", id="h1", command="set_model", success=False, error="no such model") == [notice]


def test_messages_wait_but_what_steers_is_given_as_such() -> None:
    core = at_work()
    assert core.waits(b'{"type":"message","content":"x"}')
    assert not core.waits(b'{"type":"message","content":"x","metadata":{"steer":true}}')
    assert not core.ready
    ((_, line),) = down(core, type="message", seq=2, content=[{"type": "text", "text": "now"}])
    assert (line["message"], line["streamingBehavior"]) == ("now", "steer")
    up(core, type="response", id=line["id"], command="prompt", success=True)
    note, done = up(core, type="agent_settled")
    assert note == Note({BEGUN: "yes"})
    assert done == {"type": "done", "answers": [1, 2], "metadata": {}}
    assert up(core, type="agent_settled") == []


def test_messages_that_pi_has_not_accepted_have_a_bound() -> None:
    core = at_work()
    assert core.folds(b'{"type":"message","content":"x","metadata":{"steer":true}}')
    while core.can_fold:
        ((_, line),) = down(core, type="message", seq=len(core.prompts) + 1, content="now")
    assert len(core.prompts) == MAX_JOINING
    up(core, type="response", id=line["id"], command="prompt", success=True)
    assert core.can_fold


def test_a_message_that_is_refused_ends_its_turn() -> None:
    core = PiCore()
    down(core, type="message", seq=1, content="go")
    error, _, done = up(core, type="response", id="h1", command="prompt", success=False, error="busy")
    assert (error["error"], done["metadata"]) == ("busy", {"error": True})
    core = at_work()
    down(core, type="message", seq=2, content="now")
    (error,) = up(core, type="response", id="h2", command="prompt", success=False)
    assert error["error"] == "the agent failed"
    assert not core.ready


def test_versions_that_do_not_say_when_they_have_settled_are_waited_for() -> None:
    core = at_work()
    assert core.up([b'{"type":"agent_end","willRetry":true}']) == []
    assert core.up([b'{"type":"agent_end"}']) == [WakeAfter(SETTLE, SETTLE_SECONDS)]
    wake, _ = core.up([b'{"type":"auto_retry_start","attempt":1,"errorMessage":"500"}'])
    assert wake == WakeAfter(SETTLE, None)
    assert heard(core.woken(SETTLE))[-1]["type"] == "done"
    assert core.ready


def test_an_abort_cancels_what_is_asked_first() -> None:
    core = at_work()
    permission(core)
    (_, cancelled), gone, (_, abort) = down(core, type="abort")
    assert cancelled == {"type": "extension_ui_response", "id": "d", "cancelled": True}
    assert (gone["type"], gone["requestId"]) == ("request_gone", "pi-d")
    assert abort["type"] == "abort"
    assert down(core, type="abort") == down(PiCore(), type="abort") == []
    said(core, role="assistant", content=[], stopReason="error", errorMessage="aborted")
    assert up(core, type="agent_settled")[-1]["metadata"] == {"aborted": True}


@pytest.mark.parametrize(
    ("mode", "shell", "edit"),
    [("ask", None, None), ("edits", None, "allow"), ("all", "allow", "allow"), ("plan", "deny", "deny")],
)
def test_a_mode_answers_by_itself(mode: str, shell: str | None, edit: str | None) -> None:
    core = at_work()
    down(core, type="set_mode", mode="other")
    down(core, type="set_mode", mode=mode)
    for tool, value in (("bash", shell), ("edit", edit)):
        (heard,) = permission(core, tool)
        if value is None:
            assert (heard["toolName"], heard["toolInput"], heard["toolUseId"]) == (tool, {"a": 1}, "t")
        else:
            assert heard[1]["value"] == value


def test_a_permission_is_answered_by_a_choice() -> None:
    for members, value in (({"allow": True}, "allow"), ({"behavior": "allow"}, "allow"), ({"allow": 1}, "deny")):
        core = at_work()
        permission(core)
        assert answer(core, type="permission_response", **members) == {"value": value}
    assert down(core, type="permission_response", requestId="pi-d")[0]["code"] == "unknown_request"
    core = at_work()
    (asked,) = dialog(core, "confirm", title="sure?")
    assert (asked["toolName"], asked["toolInput"]) == ("confirm", {"title": "sure?", "message": ""})
    assert answer(core, type="permission_response", allow=True) == {"confirmed": True}


@pytest.mark.parametrize(
    ("members", "value"),
    [
        ({"answers": {"Which?": "a"}}, {"value": "a"}),
        ({"answers": {"another": "b"}}, {"value": "b"}),
        ({"answer": ["a", "b"]}, {"value": '["a", "b"]'}),
        ({"answers": {}}, {"cancelled": True}),
    ],
)
def test_a_dialog_of_any_extension_is_a_question(members: dict[str, Any], value: Any) -> None:
    core = at_work()
    (asked,) = dialog(core, title="Which?", options=["a", 7])
    assert asked["questions"][0]["options"] == [{"label": "a"}, {"label": ""}]
    assert answer(core, type="ask_user_answer", **members) == value
    (asked,) = dialog(core, "input", message="Name?")
    assert (asked["questions"][0]["question"], asked["questions"][0]["options"]) == ("Name?", [])


def test_what_is_asked_without_a_turn_is_cancelled() -> None:
    ((_, line),) = dialog(PiCore(), title="Which?")
    assert line["cancelled"] is True


def test_what_extensions_say_is_a_notice() -> None:
    core = at_work()
    assert dialog(core, "notify", message="hi") == [{"type": "agent_status", "status": "notice", "message": "hi"}]
    assert dialog(core, "setWidget") == []


def test_what_it_cost_is_counted_over_the_turn() -> None:
    core = at_work()
    for _ in range(2):
        usage = {"input": 10, "output": 5, "cacheRead": "x", "cost": {"total": 0.25}}
        said(
            core,
            role="assistant",
            content=[{"type": "toolCall", "id": "t", "name": "bash"}, {"type": "x"}],
            usage=usage,
        )
    done = up(core, type="agent_settled")[-1]
    assert done["metadata"] == {"costUsd": 0.5, "usage": {"inputTokens": 20, "outputTokens": 10}}


@pytest.mark.parametrize(
    ("message", "code"),
    [("401: bad", "agent_auth"), ("No API key", "agent_auth"), ("500", "agent"), (7, "agent")],
)
def test_an_error_is_told_once_at_the_turns_end(message: Any, code: str) -> None:
    core = at_work()
    assert said(core, role="assistant", content=[], stopReason="error", errorMessage=message) == []
    error, _, done = up(core, type="agent_settled")
    assert (error["code"], done["metadata"]) == (code, {"error": True})
    core = at_work()
    said(core, role="assistant", content=[], stopReason="error", errorMessage=message)
    said(core, role="assistant", content=[{"type": "text", "text": "after all"}])
    assert "error" not in up(core, type="agent_settled")[-1]["metadata"]


def test_what_nobody_knows_is_counted() -> None:
    core = at_work()
    assert up(core, type="of_tomorrow") == [UnknownFrame("of_tomorrow")]
    assert heard(core.up([b""])) == [UnknownFrame("no frame")]
    assert up(core, type="turn_start") == up(core, type="message_update") == said(core, role="user") == []
    assert up(core, type="message_update", assistantMessageEvent={"type": "toolcall_delta", "delta": "{"}) == []
    assert down(core, type="of_tomorrow") == []


def test_it_is_woken_for_its_text_and_dies_of_an_interrupt() -> None:
    core = at_work()
    for _ in range(2):
        up(core, type="message_update", assistantMessageEvent={"type": "text_delta", "delta": "a"})
    assert core.woken("another") == ()
    assert heard(core.woken("gather")) == [{"type": "chunk", "text": "a"}]
    (end,) = core.interrupt()
    assert isinstance(end, EndProcess)
    assert heard(core.over()) == []
    assert core.cuts_lines


def test_what_cannot_be_added_costs_nothing() -> None:
    core = at_work()
    said(core, role="assistant", content=[], usage={"input": 10**400, "output": 5, "cost": {"total": 10**400}})
    assert up(core, type="agent_settled")[-1]["metadata"] == {"usage": {"outputTokens": 5}}


def test_messages_that_are_all_refused_end_their_turn() -> None:
    core = PiCore()
    core.command(WANTED, Past())
    down(core, type="message", seq=1, content="go")
    down(core, type="message", seq=2, content="now", metadata={"steer": True})
    assert up(core, type="response", id="h1", command="prompt", success=False, error="No API key")[0]["type"] == "error"
    error, *_, done = up(core, type="response", id="h2", command="prompt", success=False, error="No API key")
    assert (error["code"], done["answers"], core.ready) == ("agent_auth", [1, 2], True)


def test_what_steers_while_the_turn_settles_has_a_turn_of_its_own() -> None:
    core = at_work()
    down(core, type="message", seq=2, content="now", metadata={"steer": True})
    assert up(core, type="agent_settled")[-1]["answers"] == [1]
    assert not core.ready
    assert up(core, type="response", id="h2", command="prompt", success=True) == []
    assert up(core, type="agent_settled")[-1]["answers"] == [2]
    assert core.ready


def test_what_steers_before_an_older_version_has_settled_is_part_of_the_turn() -> None:
    core = at_work()
    assert core.up([b'{"type":"agent_end"}']) == [WakeAfter(SETTLE, SETTLE_SECONDS)]
    down(core, type="message", seq=2, content="now", metadata={"steer": True})
    up(core, type="response", id="h2", command="prompt", success=True)
    assert core.up([b'{"type":"agent_start"}', b'{"type":"agent_start"}']) == [WakeAfter(SETTLE, None)]
    assert core.up([b'{"type":"agent_end"}']) == [WakeAfter(SETTLE, SETTLE_SECONDS)]
    assert heard(core.woken(SETTLE))[-1]["answers"] == [1, 2]
