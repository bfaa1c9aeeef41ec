"""The transcript against a model of its text rules, with the gateway restarting at any frame."""

import tracemalloc
from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.agents.transcript import (
    ANSWER_RECORDS,
    ANSWERS,
    EXCHANGES,
    KEPT,
    MAX_ANSWERS,
    MAX_BLOCKS,
    MAX_KEPT,
    MAX_NUMBER,
    MAX_PIECES,
    MAX_REASON,
    MAX_SIZE,
    REQUESTS,
    AgentAnswer,
    Due,
    Remark,
    Request,
    RequestGone,
    Transcript,
    ends_answer,
    request_id_of,
)
from gateway.protocol.chat_frames import read_agent_frame

Body = dict[str, Any]

WORDS = st.text(max_size=6)
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
PARTS = (
    st.builds(lambda text: {"type": "text", "text": text}, WORDS)
    | st.builds(lambda id, input: {"type": "tool_use", "id": id, "input": input}, WORDS, JUNK)
    | st.builds(lambda id, content: {"type": "tool_result", "id": id, "content": content}, WORDS, JUNK)
)
SPEAKERS = st.sampled_from(["assistant", "user", "system"])


def sdk_message(speaker: Any, content: Any) -> Body:
    return {"type": "sdk_message", "message": {"type": speaker, "message": {"content": content}}}


def chunk(text: Any) -> Body:
    return {"type": "chunk", "text": text}


def done(**members: Any) -> Body:
    return {"type": "done", **members}


GOOD = (
    st.builds(chunk, WORDS)
    | st.builds(lambda text: {"type": "chunk", "content": text}, WORDS)
    | st.builds(sdk_message, SPEAKERS, WORDS | st.lists(PARTS, max_size=3))
    | st.builds(
        lambda kind, said: {**said, "type": kind},
        st.sampled_from(["usage", "todo", "plan", "thinking"]),
        st.dictionaries(WORDS | st.just("costUsd"), JUNK, max_size=2),
    )
    | st.builds(lambda metadata: done(metadata=metadata), st.dictionaries(WORDS, JUNK, max_size=2))
    | st.builds(lambda answers: done(answers=answers), JUNK | st.lists(JUNK | st.integers(-1, 9), max_size=3))
    | st.builds(
        lambda kind, id: {"type": kind, "requestId": id},
        st.sampled_from([*sorted(REQUESTS), "request_gone"]),
        st.text(min_size=1, max_size=5),
    )
)
KINDS = st.sampled_from(
    ["chunk", "sdk_message", "done", "error", "stream_start", "request_gone", "agent_status", *REQUESTS]
)
# Every place where the transcript looks into a frame, filled with what does not belong there.
HOSTILE = (
    st.builds(lambda kind, rest: rest | {"type": kind}, KINDS | JUNK, st.dictionaries(WORDS, JUNK, max_size=2))
    | st.builds(
        lambda kind, name, value: {"type": kind, name: value},
        KINDS,
        st.sampled_from(["text", "content", "message", "metadata", "requestId"]),
        JUNK,
    )
    | st.builds(sdk_message, JUNK | SPEAKERS, JUNK | st.lists(JUNK | PARTS, max_size=3))
    | st.builds(
        lambda type, text: sdk_message("assistant", [{"type": type, "text": text}]),
        JUNK | st.sampled_from(["text", "tool_use"]),
        JUNK,
    )
    | st.builds(lambda inner: {"type": "sdk_message", "message": {"type": "assistant", "message": inner}}, JUNK)
)


class Model:
    """The rules in a few lines: what the messages said, and what was streamed since the last that said something."""

    def __init__(self) -> None:
        self.said, self.streamed = "", ""
        self.parts: list[Any] = []  # blocks, and where text begins
        self.kept: Body = {}

    @property
    def tools(self) -> bool:
        return any(isinstance(part, dict) for part in self.parts)

    def say(self, text: str, *, begins: bool) -> None:
        if begins:
            self.said += "\n\n" if self.said else ""
            if not self.parts or isinstance(self.parts[-1], dict):
                self.parts.append(len(self.said))
        self.said += text

    def feed(self, body: Body) -> Body | None:
        match body:
            case {"type": "chunk"}:
                text = body["text"] if "text" in body else body.get("content")
                self.streamed += text if isinstance(text, str) else ""
            case {"type": "sdk_message", "message": {"message": {"content": content}} as message}:
                parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
                begins = True
                for part in parts if isinstance(parts, list) else []:
                    match part:
                        case {"type": "text", "text": str(text)} if text and message.get("type") == "assistant":
                            self.say(text, begins=begins)
                            self.streamed, begins = "", False
                        case {"type": "tool_use" | "tool_result"}:
                            self.parts.append(part)
                            begins = True
            case {"type": "usage" | "todo" | "plan" as kind, **said}:
                if kind == "usage" and "costUsd" in said:
                    self.kept["costUsd"] = said.pop("costUsd")
                self.kept[kind] = said
            case {"type": "done"}:
                if self.streamed:
                    self.say(self.streamed, begins=True)
                metadata = body.get("metadata")
                metadata = self.kept | (dict(metadata) if isinstance(metadata, dict) else {})
                if isinstance(named := body.get("answers"), list):
                    metadata["answers"] = [seq for seq in named if type(seq) is int and 0 < seq <= MAX_NUMBER]
                if self.tools:
                    blocks = [part if isinstance(part, dict) else {"type": "text", "at": part} for part in self.parts]
                    metadata["blocks"] = blocks
                answer = {"content": self.said, "metadata": metadata}
                self.__init__()  # type: ignore[misc]
                return answer
        return None


def as_read(body: Body) -> tuple[Body, bytes]:
    """A frame the way the gateway gets it: as a line, read."""
    line = orjson.dumps(body)
    read = read_agent_frame(line)
    assert read is not None
    return read, line


def told(transcript: Transcript, bodies: Iterable[Body]) -> list[Due]:
    return [due for body in bodies if (due := transcript.feed(*as_read(body))) is not None]


def answers(dues: Iterable[Due]) -> list[AgentAnswer]:
    return [due for due in dues if isinstance(due, AgentAnswer)]


def answer_to(*bodies: Body) -> Body:
    [due] = told(Transcript(), [*bodies, done()])
    assert isinstance(due, AgentAnswer)
    payload: Body = orjson.loads(due.payload)
    return payload


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(GOOD | HOSTILE, st.booleans()), max_size=20))
def test_a_transcript_follows_the_rules_and_a_restart_at_any_frame_changes_nothing(
    frames: list[tuple[Body, bool]],
) -> None:
    whole, restarted, model = Transcript(), Transcript(), Model()
    for each, restart in [*frames, (done(), False)]:
        body, line = as_read(each)
        if restart:
            restarted = Transcript.restore(restarted.save())
        due = whole.feed(body, line)
        assert restarted.feed(body, line) == due
        expected = model.feed(body)
        if expected is not None:
            assert isinstance(due, AgentAnswer)
            assert orjson.loads(due.payload) == expected
            assert due.done == body
        else:
            assert not isinstance(due, AgentAnswer)
        assert restarted == whole
        assert whole.begun == bool(model.said or model.streamed or model.tools)
    assert whole == Transcript()


@settings(deadline=None, max_examples=50)
@given(st.lists(HOSTILE, max_size=10))
def test_whatever_an_agent_writes_what_is_stored_is_one_line_of_json(frames: list[Body]) -> None:
    for due in answers(told(Transcript(), [*frames, done()])):
        assert b"\n" not in due.payload
        assert isinstance(orjson.loads(due.payload), dict)


def test_chunks_are_the_answer_where_no_message_comes() -> None:
    assert answer_to(chunk("Hel"), {"type": "chunk", "content": "lo"}) == {"content": "Hello", "metadata": {}}


def test_a_message_replaces_what_was_streamed_before_it_and_nothing_else() -> None:
    frames = [
        chunk("one"),
        sdk_message("assistant", "ONE "),
        chunk("two"),
        sdk_message("assistant", "TWO "),
        chunk("3"),
    ]
    assert answer_to(*frames)["content"] == "ONE \n\nTWO \n\n3"


# It once did: the answer was stored empty.
@pytest.mark.parametrize("content", ["", [{"type": "text", "text": ""}], [], [{"type": "tool_use", "id": "t"}]])
def test_a_message_that_says_nothing_replaces_nothing(content: Any) -> None:
    assert answer_to(chunk("Hello"), sdk_message("assistant", content))["content"] == "Hello"


def test_only_the_assistant_speaks_but_everybodys_tool_blocks_are_kept_in_order() -> None:
    use, result = {"type": "tool_use", "id": "t", "input": {"a": [1]}}, {"type": "tool_result", "content": "ok"}
    answer = answer_to(
        sdk_message("assistant", [{"type": "text", "text": "Look: "}, use]),
        sdk_message("user", [{"type": "text", "text": "not the assistant's"}, result]),
        sdk_message("assistant", "done"),
    )
    begun = [{"type": "text", "at": at} for at in (0, len("Look: \n\n"))]
    assert answer == {"content": "Look: \n\ndone", "metadata": {"blocks": [begun[0], use, result, begun[1]]}}


def test_text_begins_anew_behind_a_tool_and_the_parts_of_one_text_are_joined() -> None:
    use, result = {"type": "tool_use", "id": "t"}, {"type": "tool_result", "id": "t"}
    one, two = {"type": "text", "text": "a"}, {"type": "text", "text": "b"}
    answer = answer_to(
        sdk_message("assistant", [use]),
        sdk_message("user", [result]),
        sdk_message("assistant", [one, two, use, one]),
        chunk("c"),
    )
    assert answer["content"] == "ab\n\na\n\nc"
    assert answer["metadata"]["blocks"] == [use, result, {"type": "text", "at": 0}, use, {"type": "text", "at": 4}]


def test_a_text_is_counted_in_characters() -> None:
    use = {"type": "tool_use", "id": "t"}
    answer = answer_to(sdk_message("assistant", "\U0001f600"), sdk_message("assistant", [use]), chunk("x"))
    at = answer["metadata"]["blocks"][-1]["at"]
    assert (at, answer["content"][at:]) == (3, "x")


def test_an_answer_without_tools_has_no_blocks() -> None:
    assert answer_to(sdk_message("assistant", "a"), sdk_message("assistant", "b")) == {
        "content": "a\n\nb",
        "metadata": {},
    }


def test_the_last_of_what_the_agent_plans_does_and_uses_goes_into_the_metadata() -> None:
    answer = answer_to(
        {"type": "todo", "items": ["a", "b"], "active": 0},
        {"type": "plan", "steps": ["a"]},
        {"type": "usage", "tokens": 1, "costUsd": 0.5},
        {"type": "todo", "items": ["b"], "active": 0},
        {"type": "usage", "tokens": 2},
        {"type": "thinking", "text": "hm"},
        {"type": "file_change", "path": "a"},
        {"type": "agent_event", "event": {}},
    )
    assert answer["metadata"] == {
        "todo": {"items": ["b"], "active": 0},
        "plan": {"steps": ["a"]},
        "usage": {"tokens": 2},
        "costUsd": 0.5,
    }


def test_what_a_done_says_itself_counts_more_than_what_was_said_before() -> None:
    frames = [{"type": "usage", "tokens": 1, "costUsd": 0.5}, done(metadata={"costUsd": 0.7, "usage": {"tokens": 3}})]
    [due] = answers(told(Transcript(), frames))
    assert orjson.loads(due.payload)["metadata"] == {"usage": {"tokens": 3}, "costUsd": 0.7}


def test_what_is_too_long_to_be_kept_is_not_replaced_by_what_was_before() -> None:
    frames: list[Body] = [{"type": "plan", "steps": ["a"]}, {"type": "plan", "steps": ["x" * MAX_KEPT]}]
    assert answer_to(*frames)["metadata"] == {}
    assert answer_to(*frames[::-1])["metadata"] == {"plan": {"steps": ["a"]}}
    assert set(KEPT) == {"todo", "plan", "usage"}


def test_that_the_agent_has_forgotten_the_conversation_is_a_record() -> None:
    line = b'{"type":"agent_status","status":"memory_lost","reason":"its notes are gone"}'
    body = read_agent_frame(line)
    assert body is not None
    assert Transcript().feed(body, line) == Remark("agent_status", line)
    assert told(Transcript(), [{"type": "agent_status", "status": "retrying"}, {"type": "agent_status"}]) == []


def test_an_unfinished_answer_of_an_older_version_goes_on() -> None:
    saved = orjson.dumps([["a", "b"], ["c"], [{"type": "tool_use"}], False])
    answer = orjson.loads(Transcript.restore(saved).finish({}))
    assert answer["content"] == "ab\n\nc"
    assert answer["metadata"]["blocks"] == [{"type": "text", "at": 0}, {"type": "tool_use"}, {"type": "text", "at": 4}]
    assert len(orjson.loads(Transcript(["a"], ["b"], [b"{}"]).save())) == 4, "an older version can read it"


def test_the_metadata_of_done_is_kept_beside_the_blocks() -> None:
    transcript = Transcript()
    frames = [sdk_message("user", [{"type": "tool_result"}]), done(metadata={"cost": 1, "blocks": "mine"})]
    [due] = answers(told(transcript, frames))
    assert orjson.loads(due.payload)["metadata"] == {"cost": 1, "blocks": [{"type": "tool_result"}]}
    assert not transcript.begun


def test_a_second_answer_begins_empty() -> None:
    first, second = answers(told(Transcript(), [chunk("one"), done(), chunk("two"), done()]))
    assert [orjson.loads(each.payload)["content"] for each in (first, second)] == ["one", "two"]


@pytest.mark.parametrize(
    ("kind", "record"), [("tool_permission_request", "permission_request"), ("ask_user_question", "question")]
)
def test_a_request_is_a_record_at_once_as_the_agent_wrote_it(kind: str, record: str) -> None:
    line = b'{ "type":"%s", "requestId":"r-1", "n": 1.0 }' % kind.encode()
    body = read_agent_frame(line)
    assert body is not None
    transcript = Transcript()
    assert transcript.feed(body, line) == Request(record, "r-1", line)
    assert not transcript.begun


@pytest.mark.parametrize("request_id", [None, "", 7, "x" * 257, ["r"]])
def test_a_request_nobody_could_answer_is_no_record(request_id: Any) -> None:
    assert told(Transcript(), [{"type": kind, "requestId": request_id} for kind in REQUESTS]) == []
    assert len(told(Transcript(), [{"type": "ask_user_question", "requestId": "x" * 256}])) == 1


@pytest.mark.parametrize("reason", [None, "the turn ended", "x" * 2 * MAX_REASON, 7])
def test_an_agent_withdraws_what_it_asked(reason: Any) -> None:
    [due] = told(Transcript(), [{"type": "request_gone", "requestId": "r-1", "reason": reason}])
    assert due == RequestGone("r-1", reason[:MAX_REASON] if isinstance(reason, str) else None)
    assert told(Transcript(), [{"type": "request_gone", "requestId": bad} for bad in (None, "", 7, "x" * 257)]) == []


def test_every_kind_of_request_has_an_answer() -> None:
    assert {answers for _, answers in ANSWERS.values()} == set(REQUESTS.values())
    assert {"permission_response", "question_answer"} == ANSWER_RECORDS
    assert {"permission_request", "question", "permission_response", "question_answer"} == EXCHANGES


def test_a_request_is_found_by_the_id_in_its_record() -> None:
    [due] = told(Transcript(), [{"type": "ask_user_question", "requestId": "r-1"}])
    assert isinstance(due, Request)
    assert request_id_of(due.payload) == due.request_id == "r-1"


@pytest.mark.parametrize(
    ("metadata", "aborted"), [({"aborted": True}, True), ({"aborted": 1}, False), ({}, False), ("aborted", False)]
)
def test_an_answer_says_whether_the_agent_stopped_early(metadata: Any, aborted: bool) -> None:
    [due] = told(Transcript(), [done(metadata=metadata)])
    assert isinstance(due, AgentAnswer)
    assert due.aborted is aborted


@pytest.mark.parametrize(
    ("said", "seqs"),
    [
        ([5, 7], (5, 7)),
        ([], ()),
        ([0, -1, True, "5", 2.0, None, 2**53, 6], (6,)),
        (list(range(1, MAX_ANSWERS + 9)), tuple(range(1, MAX_ANSWERS + 1))),
        (5, None),
        (None, None),
        ({"5": 7}, None),
    ],
)
def test_a_done_says_which_messages_it_answers(said: Any, seqs: tuple[int, ...] | None) -> None:
    [due] = answers(told(Transcript(), [done(answers=said)]))
    assert due.answers == seqs
    assert orjson.loads(due.payload)["metadata"] == ({} if seqs is None else {"answers": list(seqs)})


def test_a_done_that_does_not_say_answers_the_oldest() -> None:
    [due] = told(Transcript(), [done()])
    assert isinstance(due, AgentAnswer)
    assert due.answers is None


@given(GOOD | HOSTILE)
def test_what_ends_an_answer_can_be_told_without_the_transcript(body: Body) -> None:
    read, line = as_read(body)
    assert ends_answer(read) is isinstance(Transcript().feed(read, line), AgentAnswer)


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else 1


def test_the_deepest_frame_there_is_can_be_kept_and_saved() -> None:
    block = {"type": "tool_use", "input": deep(58)}  # itself the sixth level of its frame
    body, line = as_read(sdk_message("assistant", [block]))
    assert read_agent_frame(orjson.dumps(sdk_message("assistant", [{"type": "tool_use", "input": deep(60)}]))) is None
    transcript = Transcript()
    transcript.feed(body, line)
    assert Transcript.restore(transcript.save()) == transcript
    assert orjson.loads(transcript.finish({}))["metadata"]["blocks"] == [block]


def test_what_is_too_wide_is_no_frame_and_is_not_parsed() -> None:
    assert read_agent_frame(b'{"type":"chunk","x":[' + b"[]," * 19_000 + b"[]]}") is not None
    assert read_agent_frame(b'{"type":"chunk","x":[' + b"[]," * 340_000 + b"[]]}") is None
    assert read_agent_frame(b'{"type":"chunk","text":"' + b"a," * 400_000 + b'"}') is not None


def test_a_text_without_end_is_cut_and_says_so() -> None:
    transcript, piece = Transcript(), "0123456789" * 90_000
    count = MAX_SIZE // len(piece) + 1
    for _ in range(count):
        transcript.feed(chunk(piece), b"")
    transcript.feed(chunk("tail"), b"")  # short enough for any gap, had one been left
    transcript.feed(sdk_message("user", [{"type": "tool_result"}]), b"")
    restored = Transcript.restore(transcript.save())
    assert restored == transcript
    answer = orjson.loads(restored.finish({}))
    assert answer == {"content": (piece * count)[:MAX_SIZE], "metadata": {"truncated": True}}
    assert not restored.truncated


def test_a_message_finds_the_room_that_the_text_it_replaces_had() -> None:
    transcript = Transcript()
    transcript.feed(chunk("x" * MAX_SIZE), b"")
    transcript.feed(sdk_message("assistant", "y" * MAX_SIZE), b"")
    assert orjson.loads(transcript.finish({})) == {"content": "y" * MAX_SIZE, "metadata": {}}


def test_blocks_share_the_room_with_the_text() -> None:
    transcript = Transcript()
    transcript.feed(chunk("x" * (MAX_SIZE - 40)), b"")
    fits, does_not = {"type": "tool_use"}, {"type": "tool_result", "content": "x" * 20}
    transcript.feed(sdk_message("assistant", [fits, does_not]), b"")
    blocks = [fits, {"type": "text", "at": 0}]
    assert orjson.loads(transcript.finish({}))["metadata"] == {"blocks": blocks, "truncated": True}


# Once no text was taken any more after the last block that fitted.
def test_blocks_are_bounded_in_number_and_the_text_goes_on() -> None:
    transcript, block = Transcript(), {"type": "tool_use"}
    for _ in range(11):
        transcript.feed(sdk_message("assistant", [block] * (MAX_BLOCKS // 10)), b"")
    transcript.feed(sdk_message("assistant", "the end"), b"")
    answer = orjson.loads(transcript.finish({}))
    assert answer["content"] == "the end"
    assert answer["metadata"] == {"blocks": [*[block] * MAX_BLOCKS, {"type": "text", "at": 0}], "truncated": True}


def kept_by(transcript: Transcript, lines: Iterable[bytes]) -> int:
    """How many bytes are in use after `lines` that were not before."""
    tracemalloc.start()
    try:
        for line in lines:
            transcript.feed(read_agent_frame(line) or {}, line)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


# One string object per character took 40 times the room of the text.
def test_a_text_in_the_smallest_pieces_takes_little_more_room_than_the_text() -> None:
    transcript, count = Transcript(), 5_000
    characters = (chr(0x4E00 + n % 20_000) for n in range(count))
    kept = kept_by(transcript, (orjson.dumps(chunk(text)) for one in characters for text in (one, "")))
    assert len(transcript.streamed) <= MAX_PIECES
    assert kept < 20 * count
    assert len(orjson.loads(transcript.finish({}))["content"]) == count


# As Python objects such a block took 20 times the room it was counted with.
def test_a_block_of_many_small_values_takes_little_more_room_than_it_is_counted_with() -> None:
    transcript = Transcript()
    line = orjson.dumps(sdk_message("user", [{"type": "tool_result", "content": [[]] * 19_900}]))
    kept = kept_by(transcript, [line])
    assert transcript.size > 59_000
    assert kept < 2 * transcript.size
    assert Transcript.restore(transcript.save()) == transcript


# orjson's own bytes keep the buffer they were written into: 4 KiB for each of these.
def test_a_small_block_takes_little_room() -> None:
    transcript = Transcript()
    kept = kept_by(transcript, [orjson.dumps(sdk_message("user", [{"type": "tool_use"}] * 1000))])
    assert len(transcript.blocks) == 1000
    assert kept < 200_000
