"""Frames of the chat socket: whatever comes is read, nacked or refused; what goes out says the same as what came in."""

import json
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.agents.transcript import ANSWERS, REQUESTS, Transcript
from gateway.protocol import chat_frames
from gateway.protocol.chat_frames import Invalid, UnreadableFrame, read_agent_frame, read_frame
from gateway.protocol.strict_json import load_object
from persistence.commit_plan import rejected_marker
from persistence.record import Record, Status

Body = dict[str, Any]

TEXT = st.text(max_size=8)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OWN_NAMES = st.sampled_from(["seq", "_offset", "cid", "type"])
OBJECTS = st.dictionaries(TEXT | OWN_NAMES, VALUES, max_size=5)
CIDS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=128)


@st.composite
def spelled(draw: st.DrawFn, bodies: st.SearchStrategy[Body]) -> bytes:
    """One of the many ways to write an object: with space, over lines, with escapes or without."""
    body, indent = draw(bodies), draw(st.sampled_from([None, 0, 1]))
    separators = draw(st.sampled_from([(",", ":"), (" , ", "\t: ")]))
    text = json.dumps(body, ensure_ascii=draw(st.booleans()), indent=indent, separators=separators)
    if draw(st.booleans()):
        for name in ("seq", "_offset", "cid", "type"):
            text = text.replace(f'"{name}"', f'"\\u{ord(name[0]):04x}{name[1:]}"')
    space = st.sampled_from(["", " ", "\r\n"])
    return f"{draw(space)}{text}{draw(space)}".encode()


GOOD: st.SearchStrategy[Body] = st.builds(
    lambda extra, wanted, cid: extra | wanted | cid,
    OBJECTS.map(lambda body: {name: value for name, value in body.items() if name not in ("cid", "metadata")}),
    st.builds(lambda content: {"type": "message", "content": content}, TEXT)
    | st.builds(lambda id: {"type": "permission_response", "requestId": id}, st.text(min_size=1, max_size=9))
    | st.sampled_from(["start", "abort", "close", "ping"]).map(lambda kind: {"type": kind}),
    st.just({}) | st.just({"cid": None}) | CIDS.map(lambda cid: {"cid": "c" + cid[:127]}),
)
TYPES = st.sampled_from(["message", "permission_response", "ask_user_answer", "auth", "start", "ping", "welcome", "?"])
NEARLY: st.SearchStrategy[Body] = st.builds(
    lambda extra, kind, name, value: extra | {"type": kind, name: value},
    OBJECTS,
    TYPES | VALUES,
    st.sampled_from(["content", "metadata", "requestId", "token", "cid", "type"]),
    VALUES | CIDS | st.lists(st.builds(lambda kind: {"type": kind}, TEXT | VALUES), max_size=2),
)


# -- what a browser says -----------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=120)
@given(st.binary() | spelled(GOOD) | spelled(NEARLY) | spelled(NEARLY).map(lambda raw: raw[:-2]))
def test_whatever_comes_is_a_frame_or_is_nacked_by_its_cid_or_is_unreadable(raw: bytes) -> None:
    with suppress(UnreadableFrame):
        try:
            frame = read_frame(raw)
        except Invalid as refusal:
            cid, text = refusal.cid, refusal.text
            assert cid == orjson.loads(raw)["cid"]
            assert orjson.loads(chat_frames.nack(cid, "invalid", text))["error"] == text
        else:
            body = orjson.loads(raw)
            assert (frame.type, frame.cid) == (body["type"], body.get("cid"))
            assert frame.body.items() <= body.items()


@settings(deadline=None, max_examples=80)
@given(spelled(GOOD), CIDS, st.integers(1, 2**53))
def test_what_is_kept_and_what_the_agent_reads_say_what_the_browser_said(raw: bytes, made: str, seq: int) -> None:
    frame = read_frame(raw)
    cid = frame.cid or made
    payload = frame.payload(cid)
    said = {name: value for name, value in orjson.loads(raw).items() if name not in ("seq", "_offset", "cid")}
    assert load_object(payload) == said | {"cid": cid}
    line = chat_frames.agent_line(seq, payload)
    assert b"\n" not in line
    assert b"\r" not in line
    assert load_object(line) == said | {"cid": cid, "seq": seq}
    assert next(iter(load_object(line))) == "seq"


def test_a_frame_with_a_cid_on_one_line_is_kept_byte_for_byte() -> None:
    raw = rb'{"type" : "message","cid":"c", "content":"\u0061\u2028 1.0","n":12345678901234567890123456789, "x":1.50}'
    assert read_frame(raw).payload("c") == raw
    assert read_frame(b" " + raw + b"\r\n").payload("c") == raw


def test_a_frame_without_a_cid_gets_one_and_is_otherwise_kept() -> None:
    assert read_frame(b'{"type":"ping"}').payload('a"b') == rb'{"cid":"a\"b","type":"ping"}'


# `"cid":null` once stayed beside the cid the gateway made, and of two members the last counts.
@pytest.mark.parametrize("name", ['"cid"', r'"\u0063id"'])
def test_a_cid_of_null_is_none(name: str) -> None:
    frame = read_frame(b'{"type":"ping",%s:null}' % name.encode())
    assert frame.cid is None
    assert load_object(frame.payload("made")) == {"cid": "made", "type": "ping"}


@pytest.mark.parametrize("name", ['"seq"', '"_offset"', r'"\u0073eq"', r'"\u005foffset"'])
def test_numbers_that_are_ours_cannot_be_brought_along(name: str) -> None:
    frame = read_frame(b'{"type":"message","content":"x","cid":"c",%s:999}' % name.encode())
    assert load_object(chat_frames.agent_line(5, frame.payload("c"))) == {
        "seq": 5,
        "type": "message",
        "content": "x",
        "cid": "c",
    }


def test_members_called_like_ours_further_down_are_the_browsers_own() -> None:
    raw = b'{"type":"message","content":"x","cid":"c","metadata":{"seq":9,"_offset":1,"cid":null}}'
    assert read_frame(raw).payload("c") == raw


MESSAGE = '{{"type":"message","content":"x","cid":"c","metadata":{}}}'


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param('{"x":' + "[" * 63 + "]" * 63 + "}", id="depth"),
        pytest.param('{"x":' + "[" * 100_000 + "]" * 100_000 + "}", id="abyss"),
        pytest.param(json.dumps({str(n): n for n in range(10_000)}), id="keys"),
        pytest.param('{"x":NaN}', id="nan"),
        pytest.param('{"x":-Infinity}', id="infinity"),
        pytest.param('{"a":1,"a":2}', id="twice"),
        pytest.param(r'{"a":1,"\u0061":2}', id="twice-escaped"),
        pytest.param(r'{"x":[{"y":{"\u0061":1,"a":2}}]}', id="twice-nested"),
        pytest.param(r'{"x":"\ud800"}', id="surrogate"),
        pytest.param(r'{"\udfff":1}', id="surrogate-name"),
        pytest.param('{"x":1' + "0" * 4000 + "}", id="integer"),
        pytest.param('{"x":1e4000}', id="exponent"),
    ],
)
def test_json_that_is_not_safe_to_read_is_unreadable_though_it_names_its_cid(metadata: str) -> None:
    assert read_frame(MESSAGE.format("{}").encode()).cid == "c"
    with pytest.raises(UnreadableFrame):
        read_frame(MESSAGE.format(metadata).encode())


def test_64_levels_and_10_000_members_are_read() -> None:
    metadata = '{"x":' + "[" * 62 + "]" * 62 + "}"
    assert read_frame(MESSAGE.format(metadata).encode()).type == "message"
    metadata = json.dumps({str(n): n for n in range(10_000 - 4)})
    assert read_frame(MESSAGE.format(metadata).encode()).type == "message"


@pytest.mark.parametrize(
    "body",
    [
        {"type": "message", "content": ""},
        {"type": "message", "content": "x", "metadata": {"a": 1}},
        {"type": "message", "content": [{"type": "text", "text": "x"}, {"type": "image"}]},
        {"type": "permission_response", "requestId": "r"},
        {"type": "ask_user_answer", "requestId": "r" * 256, "answers": {}},
        {"type": "auth", "token": "t"},
        {"type": "start", "anything": [1]},
        {"type": "abort"},
        {"type": "close"},
        {"type": "ping"},
    ],
)
def test_every_type_a_browser_may_send_is_read(body: Body) -> None:
    frame = read_frame(orjson.dumps(body))
    assert (frame.type, frame.cid) == (body["type"], None)
    assert load_object(frame.payload("c")) == body | {"cid": "c"}


def test_a_frame_that_waits_holds_its_content_once() -> None:
    assert read_frame(b'{"type":"message","content":"x","cid":"c"}').body == {}
    assert read_frame(b'{"type":"start","sessionId":"s","seq":1,"cid":"c","model":"m"}').body == {
        "type": "start",
        "model": "m",
    }
    assert read_frame(b'{"type":"permission_response","requestId":"r","x":1}').body == {"requestId": "r"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"type": "message"}, "content must be"),
        ({"type": "message", "content": None}, "content must be"),
        ({"type": "message", "content": []}, "content must be"),
        ({"type": "message", "content": ["x"]}, "content must be"),
        ({"type": "message", "content": [{"text": "x"}]}, "content must be"),
        ({"type": "message", "content": [{"type": 1}]}, "content must be"),
        ({"type": "message", "content": {"type": "text"}}, "content must be"),
        ({"type": "message", "content": "x", "metadata": None}, "metadata must be"),
        ({"type": "message", "content": "x", "metadata": []}, "metadata must be"),
        ({"type": "permission_response"}, "requestId must be"),
        ({"type": "permission_response", "requestId": ""}, "requestId must be"),
        ({"type": "ask_user_answer", "requestId": "r" * 257}, "requestId must be"),
        ({"type": "ask_user_answer", "requestId": 1}, "requestId must be"),
        ({"type": "auth"}, "token must be"),
        ({"type": "welcome"}, "unknown type 'welcome'"),
        ({"type": "x" * 500}, "unknown type 'x"),
        ({"type": None}, "type must be"),
        ({"type": ["message"]}, "type must be"),
        ({}, "type must be"),
    ],
)
def test_a_wrong_frame_is_nacked_if_it_names_its_cid_and_is_unreadable_if_not(body: Body, text: str) -> None:
    with pytest.raises(Invalid, match=text) as refusal:
        read_frame(orjson.dumps(body | {"cid": "c"}))
    assert refusal.value.cid == "c"
    assert len(refusal.value.text) < 200
    with pytest.raises(UnreadableFrame, match=text):
        read_frame(orjson.dumps(body))


@pytest.mark.parametrize("cid", ["", "x" * 129, "a\nb", "\u2028", "\x00"])
def test_a_cid_that_is_no_good_name_is_nacked_by_as_much_of_it_as_may_be_said(cid: str) -> None:
    with pytest.raises(Invalid, match="cid must be") as refusal:
        read_frame(orjson.dumps({"type": "ping", "cid": cid}))
    assert refusal.value.cid == cid[:128]


@pytest.mark.parametrize("cid", [7, [], {}, True])
def test_a_cid_that_could_not_be_answered_is_unreadable(cid: Any) -> None:
    with pytest.raises(UnreadableFrame, match="cid must be"):
        read_frame(orjson.dumps({"type": "ping", "cid": cid}))


@pytest.mark.parametrize("cid", ["a", "x" * 128, "é 字 😀", "agents", "{}"])
def test_a_cid_is_any_printable_text(cid: str) -> None:
    assert read_frame(orjson.dumps({"type": "ping", "cid": cid})).cid == cid


@pytest.mark.parametrize("prefix", chat_frames.RESERVED_CIDS)
def test_a_cid_that_only_the_gateway_makes_is_nacked(prefix: str) -> None:
    with pytest.raises(Invalid, match="may not begin with") as refusal:
        read_frame(orjson.dumps({"type": "ping", "cid": f"{prefix}e:1"}))
    assert refusal.value.cid == f"{prefix}e:1"


# -- what an agent says ------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(spelled(OBJECTS).map(bytes.strip), TEXT, VALUES)
def test_a_splice_adds_its_member_first_and_changes_nothing_else(obj: bytes, name: str, value: Any) -> None:
    with_member = chat_frames.splice(orjson.dumps(name) + b":" + orjson.dumps(value), obj)
    pairs: list[tuple[str, Any]] = orjson.loads(obj).items()
    assert json.loads(with_member, object_pairs_hook=list)[0][0] == name
    assert orjson.loads(with_member) == dict([(name, value), *pairs])


@pytest.mark.parametrize("empty", [b"{}", b"{ }", b"{\t}"])
def test_an_empty_object_gets_its_member_without_a_comma(empty: bytes) -> None:
    assert orjson.loads(chat_frames.agent_line(3, empty)) == {"seq": 3}


@settings(deadline=None, max_examples=80)
@given(spelled(OBJECTS).map(lambda raw: raw.strip().replace(b"\n", b" ")), st.integers(1, 2**53))
def test_an_agents_frame_goes_out_as_it_came_with_its_offset_first_and_once(line: bytes, offset: int) -> None:
    body = read_agent_frame(line)
    assert body == orjson.loads(line)
    shown = load_object(chat_frames.numbered(offset, line, is_frame=True))
    assert shown == (body or {}) | {"_offset": offset}
    assert next(iter(shown)) == "_offset"


def test_a_frame_that_leaves_our_member_alone_is_not_written_again() -> None:
    line = rb'{"type" : "chunk", "text":"\u00e9 _offset", "n":1.50, "deep":{"_offset":1}}'
    assert chat_frames.numbered(41, line, is_frame=True) == b'{"_offset":41,' + line[1:]


# A browser that believes the last of two members would have resumed where the agent wanted.
@pytest.mark.parametrize("name", [rb'"_offset"', rb'"\u005foffset"', rb'"_o\u0066fset"'])
def test_an_agent_cannot_say_where_its_frame_stands(name: bytes) -> None:
    shown = chat_frames.numbered(41, b'{"type":"chunk",%s:999}' % name, is_frame=True)
    assert json.loads(shown, object_pairs_hook=list) == [("_offset", 41), ("type", "chunk")]
    line = b'{"type":"done",%s:999,"seq":7,"messageId":"x"}' % name
    body = read_agent_frame(line)
    assert body is not None
    pairs = json.loads(chat_frames.done_frame(41, body, line, "s.3", 3), object_pairs_hook=list)
    assert pairs == [("_offset", 41), ("metadata", []), ("type", "done"), ("seq", 3), ("messageId", "s.3")]


@settings(deadline=None, max_examples=60)
@given(st.binary() | st.text().map(str.encode) | spelled(OBJECTS).map(lambda raw: raw[:-1]), st.integers(1, 2**53))
def test_any_line_of_an_agent_goes_out_as_one_object_with_its_offset(line: bytes, offset: int) -> None:
    body = read_agent_frame(line)
    shown = orjson.loads(chat_frames.numbered(offset, line, is_frame=body is not None))
    assert shown["_offset"] == offset
    if body is None:
        assert shown == {"_offset": offset, "type": "output", "text": line.decode(errors="replace")}


@pytest.mark.parametrize(
    "line", [b"", b"hello", b"[1]", b'"x"', b"1", b"{", b"{'a':1}", b' {"type":"welcome"}', b"\xff"]
)
def test_a_line_that_is_no_object_is_no_frame(line: bytes) -> None:
    assert read_agent_frame(line) is None


def nested(depth: int) -> bytes:
    return b'{"x":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def test_an_agents_frame_may_be_64_levels_deep() -> None:
    assert read_agent_frame(nested(64)) is not None
    assert read_agent_frame(nested(65)) is None
    assert read_agent_frame(nested(100_000)) is None


# The browsers' reader was once used for frames with many brackets, and its rules made plain output of them.
def test_an_agents_frame_may_be_large_and_say_a_member_twice() -> None:
    rows = {"type": "rows", "rows": [{"a": n, "b": n} for n in range(6_000)]}
    assert read_agent_frame(orjson.dumps(rows)) == rows
    assert read_agent_frame(b'{"type":"x","a":1,"a":2,"code":"' + b"{}[]" * 50 + b'"}') is not None


@settings(deadline=None, max_examples=60)
@given(VALUES)
def test_any_type_an_agent_writes_can_be_looked_up_among_our_own(kind: Any) -> None:
    """A list once could not, and ended the session's actor."""
    assert (kind in chat_frames.OWN_TYPES) is any(kind == own for own in chat_frames.OWN_TYPES)


def test_our_own_types_are_those_of_the_protocol_and_no_browser_may_send_them() -> None:
    protocol = "welcome record ack nack receipt expired interrupted connection_status session_status auth_expiring pong"
    assert set(chat_frames.OWN_TYPES) == {*protocol.split(), "going_away"}
    for kind in chat_frames.OWN_TYPES:
        with pytest.raises(Invalid, match="unknown type"):
            read_frame(orjson.dumps({"type": kind, "cid": "c"}))


# -- what the gateway says ---------------------------------------------------------------------------------------------


def record(payload: bytes, *, type: str = "message", status: str = Status.STORED) -> Record:
    return Record("s", 3, "c", "user", type, payload, 1.5, status)


def test_a_stored_message_is_shown_with_its_content_and_metadata() -> None:
    kept = record(b'{"type":"message","cid":"c","content":[{"type":"text"}],"metadata":{"k":1}}')
    assert chat_frames.record_json(kept) == {
        "id": "s.3", "seq": 3, "cid": "c", "role": "user", "type": "message", "status": "stored",
        "content": [{"type": "text"}], "metadata": {"k": 1}, "createdAt": "1970-01-01T00:00:01.500Z",
    }  # fmt: skip


def test_a_record_without_content_is_shown_as_its_frame_without_the_envelope() -> None:
    kept = record(
        b'{"type":"ask_user_question","cid":"c","requestId":"r","questions":[1],"metadata":7}', type="question"
    )
    shown = chat_frames.record_json(kept)
    assert (shown["content"], shown["metadata"]) == ({"requestId": "r", "questions": [1]}, {})


def test_a_record_is_told_whole_up_to_256_kib_and_without_its_content_beyond() -> None:
    def of(size: int) -> Body:
        payload = b'{"content":"%s"}' % (b"x" * (size - len(b'{"content":""}')))
        frame: Body = orjson.loads(chat_frames.record_frame(record(payload)))
        assert (frame["type"], frame["seq"], frame["cid"], frame["record"]["id"]) == ("record", 3, "c", "s.3")
        return frame

    assert chat_frames.RECORD_FRAME_BYTES == 256 << 10
    whole, brief = of(256 << 10), of((256 << 10) + 1)
    assert "omitted" not in whole
    assert whole["record"]["content"].startswith("xxx")
    assert (brief["omitted"], brief["record"]["content"], brief["record"]["metadata"]) == (True, None, {})
    assert len(orjson.dumps(brief)) < 500


def test_a_raw_line_reaches_the_agent_as_it_came_and_a_frame_with_its_seq() -> None:
    line = 'not { json "\\u0061 é\t'
    raw = record(orjson.dumps({"content": line}), type="raw")
    assert chat_frames.delivered_line(raw) == line.encode()
    assert chat_frames.delivered_line(record(b'{"content":"x"}')) == b'{"seq":3,"content":"x"}'


def test_what_is_not_known_is_left_out_of_a_frame() -> None:
    assert chat_frames.dump("pong", n=0, text="", none=None) == b'{"type":"pong","n":0,"text":""}'


def test_an_ack_names_the_stage_and_the_status() -> None:
    assert chat_frames.ack("c", 3) == b'{"type":"ack","cid":"c","seq":3,"stage":"stored","status":"stored"}'
    assert orjson.loads(chat_frames.ack("c", 3, stage="accepted", status="expired"))["status"] == "expired"


def test_a_nack_names_the_reason_and_what_is_wrong_if_that_is_known() -> None:
    assert orjson.loads(chat_frames.nack("c", "busy")) == {"type": "nack", "cid": "c", "reason": "busy"}
    assert orjson.loads(chat_frames.nack("c", "invalid", "why"))["error"] == "why"


def test_done_is_passed_on_with_the_record_it_became() -> None:
    body = {"type": "done", "metadata": {"k": 1}, "more": [1]}
    assert orjson.loads(chat_frames.done_frame(9, body, orjson.dumps(body), "s.4", 4)) == {
        "_offset": 9, "type": "done", "metadata": {"k": 1}, "more": [1], "messageId": "s.4", "seq": 4
    }  # fmt: skip


# What is cut out of a payload or put into an agent's line must say what reading and writing it again would.


SERVICES: st.SearchStrategy[Body] = st.builds(
    lambda type, content, more: {"type": type, "cid": "c", "content": content} | more,
    TEXT | st.just("message"),
    TEXT | VALUES,
    st.just({}) | st.builds(lambda metadata: {"metadata": metadata}, OBJECTS),
)
SAID = st.builds(lambda text: {"type": "chunk", "text": text}, st.text()) | st.builds(
    lambda content: {"type": "sdk_message", "message": {"type": "assistant", "message": {"content": content}}},
    st.text()
    | st.lists(
        st.builds(lambda text: {"type": "text", "text": text}, st.text())
        | st.builds(lambda name, value: {"type": "tool_use", name: value}, TEXT, VALUES)
    ),
)


@st.composite
def stored(draw: st.DrawFn) -> Record:
    """A record of each type, made as the gateway makes it."""
    role, status, cid, at = "user", Status.STORED, draw(CIDS), draw(st.floats(0, 4e9))
    match type := draw(st.sampled_from(["message", *ANSWERS, "raw", "service", "answer", *REQUESTS, "marker"])):
        case "message" | "permission_response" | "ask_user_answer":
            content = draw(st.just("content") | st.just("metadata") | st.just("text"))
            plain = {"type": type, "content": draw(st.text()), "requestId": "r"}
            body = draw(st.just(plain) | GOOD) | draw(st.just({}) | st.just({"cid": cid}) | OBJECTS)
            body |= {"type": type, content: draw(TEXT)} | ({} if type == "message" else {"requestId": "r"})
            raw = draw(spelled(st.just(body)) | st.just(orjson.dumps(body)))
            try:
                payload = read_frame(raw).payload(cid)
            except (Invalid, UnreadableFrame):
                payload = orjson.dumps(plain)
            type = ANSWERS[type][0] if type in ANSWERS else type
        case "raw":
            payload = orjson.dumps({"content": draw(st.text())})
        case "service":
            body = draw(SERVICES)
            payload, type = orjson.dumps(body), body["type"]
        case "answer":
            transcript = Transcript()
            for said in draw(st.lists(SAID, max_size=4)):
                transcript.feed(said, b"")
            payload = transcript.finish(draw(OBJECTS))
            role, type, cid = "assistant", "message", f"agent:epoch:{draw(st.integers(0, 9) | st.just('end'))}"
        case "tool_permission_request" | "ask_user_question":
            payload = draw(spelled(st.builds(lambda more: more | {"type": type, "requestId": "r"}, OBJECTS)))
            role, type, cid = "assistant", REQUESTS[type], "agent:epoch:7"
        case _:
            kept = Record("s-1", 3, cid, role, "message", b"{}", at, status)
            return rejected_marker(kept, draw(st.text()))
    return Record("s-1", draw(st.integers(1, 2**53)), cid, role, type, payload, at, status)


@settings(deadline=None, max_examples=1000)
@given(stored())
def test_a_record_of_any_type_is_told_as_readers_of_the_history_see_it(record: Record) -> None:
    shown = chat_frames.record_json(record)
    told = {"type": "record", "seq": record.seq, "cid": record.cid, "record": shown}
    assert chat_frames.record_frame(record) == orjson.dumps(told)


@settings(deadline=None, max_examples=300)
@given(spelled(st.builds(lambda more: more | {"type": "done"}, OBJECTS | st.just({"metadata": {}}))))
def test_a_done_says_what_the_agent_said_and_which_record_it_became(line: bytes) -> None:
    line = line.strip()
    body = read_agent_frame(line)
    assert body is not None
    shown = chat_frames.done_frame(9, body, line, "s-1.4", 4)
    said = {"metadata": {}} | body | {"_offset": 9, "type": "done", "messageId": "s-1.4", "seq": 4}
    assert orjson.loads(shown) == said
    assert len(json.loads(shown, object_pairs_hook=list)) == len(said), "a browser believes the last of two members"


@given(CIDS, st.integers(1, 2**53))
def test_what_is_written_by_hand_for_each_message_is_what_any_other_frame_would_be(cid: str, seq: int) -> None:
    for stage, status in (("stored", "stored"), ("accepted", "stored"), ("stored", "delivered"), ("stored", None)):
        told = chat_frames.dump("ack", cid=cid, seq=seq, stage=stage, status=status)
        assert chat_frames.ack(cid, seq, stage=stage, status=status) == told
    assert chat_frames.delivered(cid, seq) == chat_frames.dump("receipt", cid=cid, seq=seq, stage="delivered")


@pytest.mark.parametrize(
    ("frame", "steers"),
    [
        ({"content": "x", "metadata": {"steer": True}}, True),
        ({"content": "x", "metadata": {"steer": 1}}, False),
        ({"content": "x", "metadata": {"k": {"steer": True}}}, False),
        ({"content": '"steer"', "steer": True}, False),
        ({"content": "x"}, False),
    ],
)
def test_only_metadata_says_that_a_message_steers(frame: dict[str, Any], steers: bool) -> None:
    assert chat_frames.steers(json.dumps({"type": "message", **frame}).encode()) is steers
