"""What a chat shows and what typed lines mean, without a terminal or a gateway."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.client.api import GatewayApi
from gateway.cli.client.chat import ChatClient, Connected, ConnectionEnded, Event, FrameHeard, Lost
from gateway.cli.commands.chat import Chat
from gateway.cli.commands.chat_view import (
    Abort,
    Break,
    CancelPending,
    ChatView,
    Line,
    ListPending,
    Quit,
    Send,
    SetMode,
    Shown,
    StreamedText,
    listed_pending,
)


def heard(kind: str, **members: Any) -> FrameHeard:
    return FrameHeard(kind, {"type": kind, **members})


def assistant(text: str) -> FrameHeard:
    content = [{"type": "text", "text": text}]
    return heard("sdk_message", message={"type": "assistant", "message": {"content": content}})


def record(
    seq: int, role: str, content: Any, *, kind: str = "message", cid: str = "", status: str = ""
) -> dict[str, Any]:
    state = status or ("complete" if role == "assistant" else "stored")
    return {"seq": seq, "role": role, "type": kind, "content": content, "cid": cid or f"c{seq}", "status": state}


def text_of(shown: list[Shown]) -> str:
    """Everything shown, as a plain screen would print it."""
    printed = ""
    for each in shown:
        match each:
            case StreamedText(text):
                printed += text
            case Line(text):
                printed += ("" if printed.endswith("\n") or not printed else "\n") + text + "\n"
            case Break() if printed and not printed.endswith("\n"):
                printed += "\n"
    return printed


def show(view: ChatView, *events: Any) -> str:
    return text_of([shown for event in events for shown in view.show(event)])


def send(view: ChatView, cid: str, text: str) -> None:
    _, action = view.read(text)
    assert isinstance(action, Send)
    view.sent(cid, action.frame)


def test_a_streamed_answer_is_shown_once_although_its_whole_text_follows() -> None:
    view = ChatView()
    printed = show(
        view,
        heard("stream_start"),
        heard("chunk", text="good "),
        heard("chunk", text="morning"),
        heard("stream_end"),
        assistant("good morning"),
        heard("done", seq=2, metadata={}),
    )
    assert printed == "good morning\n"


def test_an_answer_that_was_not_streamed_is_shown() -> None:
    assert show(ChatView(), assistant("all at once"), heard("done", seq=2)) == "all at once\n"


def test_two_messages_of_one_answer_stand_on_two_lines() -> None:
    printed = show(ChatView(), heard("chunk", text="one"), assistant("one"), assistant("two"), heard("done", seq=2))
    assert printed == "one\ntwo\n"


def test_what_the_agent_sends_cannot_move_the_cursor() -> None:
    printed = show(ChatView(), heard("chunk", text="\x1b]0;owned\x07\u202ecod\x9b31m"), heard("done", seq=1))
    assert "\x1b" not in printed
    assert printed == "\\x1b]0;owned\\x07\\u202ecod\\x9b31m\n"


def test_a_message_waits_until_its_own_answer_is_done() -> None:
    view = ChatView()
    view.show(FrameHeard("record", {"type": "record", "record": record(1, "user", "from somebody else", cid="other")}))
    send(view, "mine", "hello")
    view.show(heard("ack", cid="mine", seq=2, stage="stored", status="stored"))
    view.show(heard("done", seq=3))
    assert view.turns.waiting, "the first done answered the other person's message"
    view.show(heard("done", seq=4))
    assert not view.turns.waiting


def test_what_was_never_delivered_is_not_waited_for() -> None:
    view = ChatView()
    note = record(1, "user", "a service's note", status="complete")
    view.show(FrameHeard("record", {"type": "record", "record": note}))
    send(view, "mine", "hello")
    view.show(heard("ack", cid="mine", seq=2, stage="stored", status="stored"))
    view.show(heard("done", seq=3))
    assert not view.turns.waiting


def test_a_done_that_the_history_told_of_is_not_counted_twice() -> None:
    view = ChatView()
    send(view, "a", "one")
    send(view, "b", "two")
    view.recall(
        [record(1, "user", "one", cid="a"), record(2, "user", "two", cid="b"), record(3, "assistant", "1")],
        answers=True,
    )
    view.show(heard("done", seq=3))
    assert view.turns.waiting
    view.show(heard("done", seq=4))
    assert not view.turns.waiting


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (heard("nack", cid="mine", reason="buffer_full"), "not sent: buffer_full"),
        (heard("expired", cid="mine", seq=1), "expired"),
        (heard("interrupted", cid="mine", seq=1), "interrupted"),
        (heard("ack", cid="mine", seq=1, stage="stored", status="expired"), "expired"),
    ],
)
def test_a_message_that_comes_to_nothing_is_told_and_not_waited_for(event: FrameHeard, words: str) -> None:
    view = ChatView()
    send(view, "mine", "hello")
    assert words in show(view, event)
    assert not view.turns.waiting
    assert view.refused == 1
    assert view.show(heard("interrupted", cid="mine", seq=1)) == [], "told once"


def test_receipts_are_kept_for_the_status_line_and_not_printed() -> None:
    view = ChatView()
    send(view, "mine", "hello")
    assert show(view, heard("ack", cid="mine", seq=7, stage="stored", status="stored")) == ""
    assert view.receipt == "#7 stored"
    assert show(view, heard("receipt", cid="mine", seq=7, stage="delivered")) == ""
    assert view.receipt == "#7 delivered"


def test_a_permission_is_answered_with_y_or_n_and_nothing_else() -> None:
    view = ChatView()
    printed = show(view, heard("tool_permission_request", requestId="p1", toolName="rm\x1b", toolInput={"path": "x"}))
    assert 'rm\\x1b with {"path": "x"}' in printed
    shown, action = view.read("maybe")
    assert action is None
    assert "y or n" in text_of(shown)
    _, action = view.read("Y")
    assert isinstance(action, Send)
    assert action.frame == {"type": "permission_response", "requestId": "p1", "allow": True, "behavior": "allow"}
    assert view.ask is None


def test_a_permission_can_be_denied() -> None:
    view = ChatView()
    view.show(heard("tool_permission_request", requestId="p1", toolName="rm", toolInput={}))
    _, action = view.read("n")
    assert isinstance(action, Send)
    assert action.frame["allow"] is False


def question(text: str, *labels: str, several: bool = False) -> dict[str, Any]:
    options = [{"label": label, "description": ""} for label in labels]
    return {"question": text, "header": "", "options": options, "multiSelect": several}


@pytest.mark.parametrize(
    ("typed", "answer"), [("2", "green"), ("something else", "something else"), ("0", None), ("3", None)]
)
def test_a_question_is_answered_by_number_or_in_own_words(typed: str, answer: str | None) -> None:
    view = ChatView()
    view.show(heard("ask_user_question", requestId="q1", questions=[question("Colour?", "red", "green")]))
    _, action = view.read(typed)
    if answer is None:
        assert action is None
        assert view.ask is not None
    else:
        assert action == Send({"type": "ask_user_answer", "requestId": "q1", "answers": {"Colour?": answer}})


def test_several_questions_are_asked_one_after_the_other() -> None:
    view = ChatView()
    questions = [question("Colours?", "red", "green", "blue", several=True), question("Size?")]
    view.show(heard("ask_user_question", requestId="q1", questions=questions))
    shown, action = view.read("1, 3")
    assert action is None
    assert "Size?" in text_of(shown)
    _, action = view.read("large")
    assert isinstance(action, Send)
    assert action.frame["answers"] == {"Colours?": "red, blue", "Size?": "large"}


def test_a_question_that_somebody_else_answered_is_closed() -> None:
    view = ChatView()
    view.show(heard("ask_user_question", requestId="q1", questions=[question("Colour?")]))
    answer = record(5, "user", {"requestId": "q1", "answers": {}}, kind="question_answer")
    assert "answered elsewhere" in show(view, FrameHeard("record", {"type": "record", "record": answer}))
    _, action = view.read("hello")
    assert isinstance(action, Send)
    assert action.frame["type"] == "message"


def test_an_open_permission_is_asked_again_from_the_history() -> None:
    view = ChatView()
    asked = record(3, "assistant", {"requestId": "p", "toolName": "rm"}, kind="permission_request", status="open")
    assert "asks to use rm" in text_of(view.recall([asked], answers=True))
    assert view.ask is not None


def test_commands_work_also_while_a_question_is_open() -> None:
    view = ChatView()
    view.show(heard("tool_permission_request", requestId="p1", toolName="rm", toolInput={}))
    assert view.read("/abort")[1] == Abort()
    assert view.read("/quit")[1] == Quit()
    shown, action = view.read("/help")
    assert action is None
    assert "/abort" in text_of(shown)


@pytest.mark.parametrize(
    ("typed", "content"), [("/ask me", "/ask me"), ("//help", "/help"), ("  indented", "  indented"), ("a b", "a b")]
)
def test_everything_else_goes_to_the_agent_as_it_was_typed(typed: str, content: str) -> None:
    assert ChatView().read(typed)[1] == Send({"type": "message", "content": content})


def test_an_empty_line_does_nothing() -> None:
    assert ChatView().read("   ") == ([], None)


def test_a_lost_connection_is_told_once_and_so_is_its_return() -> None:
    view = ChatView()
    view.show(Connected(False, None, 0))
    printed = show(view, Lost("cut", 0.1), Lost("refused", 0.2), Lost("refused", 0.4), Connected(True, True, 0))
    assert printed.count("trying again") == 1
    assert printed.count("connected again") == 1


def test_the_end_is_told_with_its_reason() -> None:
    assert "ended: no such session" in show(ChatView(), ConnectionEnded("no such session", True))


def test_history_shows_both_sides_and_skips_what_was_seen() -> None:
    view = ChatView()
    records = [
        record(1, "user", "hi"),
        record(2, "assistant", "hello"),
        record(3, "assistant", "ha", status="incomplete"),
    ]
    assert text_of(view.recall(records, answers=True)) == "> hi\nhello\nha\n(incomplete)\n"
    assert view.recall(records, answers=True) == []


def test_an_image_on_its_way_is_told_of_by_quarters() -> None:
    view = ChatView()

    def told(**members: object) -> str:
        return show(view, heard("session_status", status="pulling", image="debian:12", **members))

    assert told(bytes=0, ofBytes=0) == "fetching the image debian:12\n"
    assert [told(bytes=got, ofBytes=100) for got in (1, 24, 25, 26, 49)] == [
        *("", "", "fetching the image debian:12: 25 %\n"),
        *("", ""),
    ]
    assert told(bytes=99, ofBytes=100) == "fetching the image debian:12: 75 %\n"
    assert told() == told(bytes="x", ofBytes=-1) == ""
    show(view, heard("session_status", status="pulled", image="debian:12"))
    assert told(bytes=50, ofBytes=100) == "fetching the image debian:12\n", "another start"


def test_every_frame_has_its_words() -> None:
    view = ChatView()
    assert show(view, heard("output", text="built")) == "built\n"
    assert "too much" in show(view, heard("error", error="too much"))
    assert "the gateway restarts" in show(view, heard("going_away"))
    assert show(view, heard("something new")) == ""
    assert "session error: no disk" in show(view, heard("session_status", status="error", reason="no disk"))
    assert "session paused" in show(view, heard("session_status", status="paused"))
    assert show(view, heard("session_status", status="running")) == ""
    show(view, heard("connection_status", sandboxStatus="sleeping"))
    assert view.status == "sleeping"
    assert "the image x is there" in show(view, heard("session_status", status="pulled", image="x"))
    assert "(aborted)" in show(view, heard("done", metadata={"aborted": True}))


def test_a_tool_that_is_used_is_named() -> None:
    parts = [{"type": "text", "text": "see"}, {"type": "tool_use", "name": "Bash"}]
    shown = show(ChatView(), heard("sdk_message", message={"type": "assistant", "message": {"content": parts}}))
    assert shown == "see\nuses Bash\n"


def test_records_of_others_are_shown_live_and_once() -> None:
    view = ChatView()
    said = record(3, "user", "hello")
    assert show(view, heard("record", record=said)) == "> hello\n"
    assert show(view, heard("record", record=said)) == ""
    assert show(view, heard("record", record="no record")) == ""
    assert "cut off" in show(view, heard("record", record=record(4, "assistant", "half", status="incomplete")))
    answer = record(5, "user", "no object", kind="question_answer")
    assert show(view, heard("record", record=answer)) == ""


def test_an_answer_that_was_cut_is_recalled_as_such() -> None:
    cut = record(2, "assistant", "half", status="incomplete")
    assert text_of(ChatView().recall([cut], answers=True)) == "half\n(incomplete)\n"
    expired = record(3, "user", "late", status="expired")
    assert "late" in text_of(ChatView().recall([expired], answers=True))
    assert ChatView().recall([record(4, "system", "note", kind="note")], answers=True) == []


def test_a_message_is_asked_once_and_only_messages_are_waited_for() -> None:
    view = ChatView()
    view.sent("a", {"type": "abort"})
    assert not view.turns.waiting
    view.turns.sent("b")
    view.turns.asked(5, "b")
    view.turns.asked(5, "b")
    view.turns.answered(6)
    view.turns.answered(6)
    assert not view.turns.waiting


STRANGE = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
KINDS = (
    "chunk sdk_message output tool_permission_request ask_user_question done error record ack nack receipt expired "
    "connection_status session_status going_away odd"
)


@given(STRANGE, st.sampled_from(KINDS.split(" ")))
def test_no_frame_of_a_strange_agent_breaks_the_view(value: Any, kind: str) -> None:
    view = ChatView()
    names = (
        "text",
        "message",
        "metadata",
        "questions",
        "requestId",
        "toolInput",
        "record",
        "cid",
        "seq",
        "error",
        "status",
    )
    for name in names:
        view.show(heard(kind, **{"requestId": "x", "questions": [{}], name: value}))
        view.read("1")


class Paper:
    """A screen nobody types at; also a client with these `events` and the gateway's whole history."""

    def __init__(self, events: Sequence[Event], stored: list[dict[str, Any]]) -> None:
        self.shown: list[Shown] = []
        self._events, self._stored = events, stored

    def show(self, shown: Sequence[Shown]) -> None:
        self.shown += shown

    async def lines(self) -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield ""

    async def events(self) -> AsyncIterator[Event]:
        for event in self._events:
            yield event

    async def history(self, path: str, *, before: int, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        return [each for each in self._stored if after < each["seq"] < before][-limit:]


# The history was once read without an end: an answer that was stored after the welcome came from there, and as frames.
@pytest.mark.parametrize("again", [True, False])
async def test_an_answer_that_ends_while_the_history_is_read_is_shown_once(again: bool) -> None:
    events: list[Event] = [
        Connected(again=again, recovered=False if again else None, last_seq=1),
        heard("chunk", text="yes"),
        heard("done", seq=2),
        ConnectionEnded("over", failed=False),
    ]
    paper = Paper(events, [record(1, "user", "well?"), record(2, "assistant", "yes")])
    chat = Chat(cast(ChatClient, paper), cast(GatewayApi, paper), "s", ChatView(), paper, patient=False)
    assert await chat.run() == 0
    printed = text_of(paper.shown)
    assert printed.count("yes") == 1
    assert printed.index("> well?") < printed.index("yes")


def test_what_the_agent_does_stands_between_its_words() -> None:
    used = {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "is_error": True, "content": "no such file"}
    printed = show(
        ChatView(),
        heard("thinking", text="Hm. "),
        heard("thinking", text="Look."),
        heard("chunk", text="I look."),
        heard("sdk_message", message={"type": "assistant", "message": {"content": ["odd", used]}}),
        heard("sdk_message", message={"type": "user", "message": {"content": [result]}}),
        heard("agent_status", status="retrying", attempt=1),
        heard("chunk", text="Nothing."),
        heard("done", seq=2, metadata={"costUsd": 0.25}),
    )
    assert printed.splitlines() == [
        "thinks: Hm. Look.",
        "I look.",
        "uses Bash: ls",
        "it failed: no such file",
        "its model did not answer; trying again (try 1)",
        "Nothing.",
        "$0.2500",
    ]


def test_an_answer_to_several_messages_is_waited_for_once() -> None:
    view = ChatView()
    for seq, cid in ((1, "a"), (2, "b")):
        send(view, cid, "words")
        view.show(heard("ack", cid=cid, seq=seq, stage="stored"))
    view.show(heard("done", seq=3, answers=[1, 2], metadata={}))
    assert not view.turns.waiting


def test_a_request_that_is_gone_is_answered_no_more() -> None:
    view = ChatView()
    view.show(heard("tool_permission_request", requestId="r", toolName="Bash"))
    view.show(heard("tool_permission_request", requestId="s", toolName="Bash"))
    gone = heard("expired", cid="agent:e:1", seq=4, requestId="r", reason="the turn is over")
    assert show(view, gone, gone) == "the agent no longer asks this: the turn is over\n"
    assert show(view, heard("request_gone", requestId="s")) == "the agent no longer asks this\n"
    assert view.ask is None


def test_a_cancelled_message_is_no_failure() -> None:
    view = ChatView()
    send(view, "a", "words")
    view.show(heard("ack", cid="a", seq=1, stage="stored"))
    assert "was cancelled" in show(view, heard("expired", cid="a", seq=1, reason="cancelled"))
    assert (view.refused, view.turns.waiting) == (0, False)


def test_the_memory_that_was_lost_is_recalled() -> None:
    lost = record(3, "assistant", {"status": "memory_lost"}, kind="agent_status")
    assert "forgotten" in text_of(ChatView().recall([lost], answers=True))


@pytest.mark.parametrize(
    ("typed", "action"),
    [
        ("/pending", ListPending()),
        ("/cancel 7", CancelPending(7)),
        ("/cancel #7", CancelPending(7)),
        ("/mode", SetMode("")),
        ("/mode  plan", SetMode("plan")),
        ("/steer look there", Send({"type": "message", "content": "look there", "metadata": {"steer": True}})),
    ],
)
def test_the_agent_is_led_by_commands(typed: str, action: object) -> None:
    assert ChatView().read(typed) == ([], action)


@pytest.mark.parametrize("typed", ["/cancel", "/cancel x", "/cancel \u0667", "/mode fast", "/steer", "/steer  "])
def test_a_command_that_says_too_little_is_explained(typed: str) -> None:
    (line,), action = ChatView().read(typed)
    assert isinstance(line, Line)
    assert (line.style, action) == ("warn", None)


def test_what_waits_is_listed() -> None:
    listed = listed_pending(
        [{"seq": 7, "content": "two\nlines"}, {"seq": 8, "content": [{"type": "text", "text": "x"}]}]
    )
    assert text_of(listed) == "#7  two lines\n#8  x\n"
    assert "no message waits" in text_of(listed_pending([]))
