"""What every core of an agent promises, whatever the agent writes: sandbox/agents/core.py."""

import copy
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.agents.acp import AcpCore
from sandbox.agents.claude import ClaudeCore
from sandbox.agents.codex import CodexCore
from sandbox.agents.core import (
    Core,
    Http,
    Launch,
    Note,
    Out,
    Past,
    ToAgent,
    ToGateway,
    UnknownFrame,
)
from sandbox.agents.opencode import OpencodeCore
from sandbox.agents.pi import PiCore
from sandbox.agents.plain import PlainCore
from sandbox.protocol.agent import MAX_LINE
from tests.support.turn_core import TurnCore

START = b'{"type":"start","model":"x","resume":true,"pending":[]}'
MESSAGE = b'{"seq":1,"type":"message","cid":"a","content":"first"}'
ANSWER = b'{"seq":3,"type":"permission_response","cid":"c","requestId":"r-1","allow":true}'
ABORT = b'{"type":"abort"}'


@dataclass
class Served(OpencodeCore):
    """What an agent's server answers is a line, too: the tag, the status, and the body."""

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        return [out for line in lines for out in self._heard(line)]

    def _heard(self, line: bytes) -> Sequence[Out]:
        found = re.fullmatch(rb"(h[0-9]+) ([0-9]{1,3}) (.*)", line, re.DOTALL)
        if found is None:
            return super().up([line])
        return self.answered(found[1].decode(), int(found[2]), found[3])


@dataclass(frozen=True)
class Case:
    """A core, and what its agent writes in a conversation: `told[n]` is what it is told before it writes `said[n]`."""

    make: Callable[[], Core]
    told: Sequence[bytes | None]
    said: Sequence[Sequence[bytes]]


def _streamed(member: str, kind: str, words: bytes) -> bytes:
    delta = b'{"type":"%s","%s":%s}' % (kind.encode(), member.encode(), words)
    return b'{"type":"stream_event","event":{"type":"content_block_delta","delta":%s}}' % delta


def _updated(what: bytes) -> bytes:
    return b'{"method":"session/update","params":{"update":{"sessionUpdate":%b}}}' % what


def _told(kind: str, what: bytes) -> bytes:
    return b'{"type":"%b","properties":{"sessionID":"ses_1",%b}}' % (kind.encode(), what)


CASES = {
    "plain": Case(
        PlainCore,
        (None, MESSAGE, ANSWER, ABORT),
        (
            (b'{"type":"stream_start"}',),
            (b'{"type":"chunk","text":"\xc3\xa4"}', b'{"type":"tool_permission_request","requestId":"r-1"}'),
            (b'{"type":"of_tomorrow"}', b"no frame", b""),
            (b'{"type":"done","metadata":{"aborted":true}}',),
        ),
    ),
    "claude-code": Case(
        ClaudeCore,
        (None, MESSAGE, ANSWER, ABORT),
        (
            (b'{"type":"system","subtype":"init"}',),
            (
                _streamed("text", "text_delta", b'"\xc3\xa4"'),
                b'{"type":"control_request","request_id":"r-1","request":{"subtype":"can_use_tool","tool_name":"Bash"}}',
            ),
            (b'{"type":"of_tomorrow"}', b"no frame", b"", _streamed("thinking", "thinking_delta", b'"so"')),
            (b'{"type":"result","is_error":true,"errors":["[x]"],"usage":{"input_tokens":1},"total_cost_usd":0.5}',),
        ),
    ),
    "codex": Case(
        CodexCore,
        (None, MESSAGE, ANSWER, ABORT),
        (
            (b'{"id":1,"result":{}}', b'{"id":2,"result":{"thread":{"id":"t"},"model":"m"}}'),
            (
                b'{"method":"turn/started","params":{"turn":{"id":"r"}}}',
                b'{"method":"item/agentMessage/delta","params":{"itemId":"i","delta":"\xc3\xa4"}}',
                b'{"id":1,"method":"item/commandExecution/requestApproval","params":{"turnId":"r","command":"ls"}}',
            ),
            (b'{"method":"of/tomorrow"}', b"no frame", b"", b'{"method":"error","params":{"willRetry":true}}'),
            (b'{"method":"turn/completed","params":{"turn":{"id":"r","status":"failed","error":{}}}}',),
        ),
    ),
    "pi": Case(
        PiCore,
        (None, MESSAGE, ANSWER, ABORT),
        (
            (b'{"type":"session_start"}',),
            (
                b'{"type":"message_update","assistantMessageEvent":{"type":"text_delta","delta":"\xc3\xa4"}}',
                b'{"type":"extension_ui_request","id":"r","method":"confirm","title":"sure?"}',
            ),
            (b'{"type":"of_tomorrow"}', b"no frame", b"", b'{"type":"auto_retry_start","attempt":1}'),
            (b'{"type":"agent_end"}', b'{"type":"agent_settled"}'),
        ),
    ),
    "opencode": Case(
        Served,
        (None, MESSAGE, ANSWER, ABORT),
        (
            (b'{"type":"server.connected"}', b'h1 200 {"id":"ses_1"}', b'h2 200 {"version":"1"}'),
            (
                _told("message.updated", b'"info":{"id":"m","role":"assistant","time":{}}'),
                _told("message.part.updated", b'"part":{"id":"p","messageID":"m","type":"text"}'),
                _told("message.part.delta", b'"partID":"p","delta":"\xc3\xa4"'),
                _told("permission.asked", b'"id":"r-1","permission":"bash"'),
            ),
            (b'{"type":"of_tomorrow"}', b"no event", b"", b"h4 200 true", _told("session.status", b'"status":{}')),
            (
                _told("message.updated", b'"info":{"id":"m","role":"assistant","time":{"completed":1}}'),
                b"h3 200 {}",
                _told("session.idle", b'"of":"nobody"'),
            ),
        ),
    ),
    "acp": Case(
        AcpCore,
        (None, MESSAGE, ANSWER, ABORT),
        (
            (b'{"id":1,"result":{}}', b'{"id":2,"result":{"sessionId":"of-the-test"}}'),
            (
                _updated(b'"agent_message_chunk","content":{"type":"text","text":"\xc3\xa4"}'),
                b'{"id":0,"method":"session/request_permission","params":{"toolCall":{"toolCallId":"t"}}}',
            ),
            (b'{"method":"of/tomorrow"}', b"no frame", b"", b'{"id":9,"method":"fs/read_text_file"}'),
            (b'{"id":3,"result":{"stopReason":"end_turn"}}',),
        ),
    ),
    "turns": Case(
        TurnCore,
        (None, MESSAGE, ANSWER, ABORT),
        ((b"hello",), (b"say \xc3\xa4", b"ask r-1", b"ping 1"), (b"of tomorrow", b"say on"), (b"over",)),
    ),
}

JSON_LINES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
).map(lambda value: json.dumps(value).encode())
KINDS = st.sampled_from(["message", "permission_response", "ask_user_answer", "abort", "start", "done", "chunk", ""])
FRAMES = st.builds(
    lambda kind, name, value: b'{"type":"%s","%s":%s}' % (kind.encode(), name.encode(), value),
    KINDS,
    st.sampled_from(["content", "requestId", "type", "metadata", "resume"]),
    JSON_LINES,
)
WORDS = st.builds(
    lambda word, rest: word + b" " + rest.replace(b"\n", b""),
    st.sampled_from([b"hello", b"say", b"ask", b"over", b"ping", b"note", b"wake", b"sleep", b"end", b"what"]),
    st.binary(max_size=20),
)
HUGE = [b"[" * 100_000, b'{"type":' * 20_000, b"say " + b"\0" * (MAX_LINE - 4), b"\xff" * MAX_LINE]
GARBAGE = st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")) | JSON_LINES | FRAMES | WORDS

every_core = pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])


def checked(outs: Iterable[Out]) -> list[Out | bytes]:
    """What came out, with frames one by one; each is a line that the link and the agent's input can carry."""
    flat: list[Out | bytes] = []
    for out in outs:
        if isinstance(out, ToGateway):
            flat.extend(out.frames)
        else:
            flat.append(out)
    for each in flat:
        match each:
            case bytes():
                assert b"\n" not in each
                assert len(each) <= MAX_LINE
            case ToAgent(line):
                assert isinstance(line, bytes)
                assert b"\n" not in line
            case Http(method, path, tag, body):
                assert re.fullmatch("GET|POST", method)
                assert re.fullmatch("/[!-~]*", path)
                assert len(body) <= MAX_LINE + 1000
                assert tag
            case Note(members):
                assert len(json.dumps(dict(members)).encode()) < 4096
            case UnknownFrame(kind):
                kind.encode()
    return flat


def begun(case: Case, start: bytes | None = START) -> Core:
    core = case.make()
    core.command(Launch(("agent",), {"HOME": "/agent"}), Past())
    checked(core.begin(start))
    return core


def play(core: Core, case: Case, said: Sequence[Sequence[bytes]]) -> list[Out | bytes]:
    """All that comes out of a conversation in which the agent writes `said`."""
    heard: list[Out | bytes] = []
    for told, lines in zip(case.told, said, strict=False):
        if told is not None:
            heard += checked(core.down(told))
        heard += checked(core.up(lines))
    return heard


@every_core
def test_a_conversation_comes_through_and_leaves_the_core_ready(case: Case) -> None:
    core = begun(case)
    heard = play(core, case, case.said)
    frames = [json.loads(each) for each in heard if isinstance(each, bytes) and each.startswith(b"{")]
    kinds = [frame["type"] for frame in frames]
    assert [kind for kind in kinds if kind in ("chunk", "tool_permission_request", "done")][:2] == [
        "chunk",
        "tool_permission_request",
    ]
    assert kinds[-1] == "done"
    assert core.ready


@every_core
def test_a_process_is_launched_with_a_program_and_what_it_begins_with_is_lines(case: Case) -> None:
    launch = case.make().command(Launch(("agent", "--flag"), {"A": "a secret"}), Past())
    assert launch.argv[0] == "agent"
    assert launch.env["A"] == "a secret"
    assert "a secret" not in repr(launch)
    for start in (None, START, b"", b"no frame", b"[" * 100_000):
        begun(case, start)


@every_core
def test_the_conversation_may_be_cut_anywhere(case: Case) -> None:
    whole = play(begun(case), case, case.said)
    for turn, lines in enumerate(case.said):
        for number, line in enumerate(lines):
            for end in range(len(line) + 1):
                said = [*case.said[:turn], [*lines[:number], line[:end]]]
                heard = play(begun(case), case, said)
                before = play(begun(case), case, [*case.said[:turn], lines[:number]])
                assert heard[: len(before)] == before == whole[: len(before)]


@every_core
@given(garbage=GARBAGE)
@settings(deadline=None, max_examples=60)
def test_any_line_may_be_garbage_and_the_next_is_read(case: Case, garbage: bytes) -> None:
    for turn, lines in enumerate(case.said):
        for number in range(len(lines)):
            said = list(case.said)
            said[turn] = [*lines[:number], garbage, *lines[number + 1 :]]
            core = begun(case)
            play(core, case, said)
            checked(core.up([line for lines in case.said for line in lines]))


@every_core
@given(
    steps=st.lists(st.tuples(st.booleans(), GARBAGE | st.sampled_from([START, MESSAGE, ANSWER, ABORT])), max_size=12)
)
@settings(deadline=None, max_examples=100)
def test_whatever_comes_in_whatever_order_nothing_raises_and_a_copy_goes_on_like_the_original(
    case: Case, steps: list[tuple[bool, bytes]]
) -> None:
    core = begun(case)
    for is_up, line in steps:
        twin = copy.deepcopy(core)
        ready, waits = core.ready, core.waits(line)
        assert (core, core.ready, twin.waits(line)) == (twin, ready, waits)
        heard = checked(core.up([line]) if is_up else core.down(line))
        assert checked(twin.up([line]) if is_up else twin.down(line)) == heard
        assert core == twin
    for last in (core.woken("of tomorrow"), core.interrupt(), core.over()):
        checked(last)


@every_core
@given(lines=st.lists(GARBAGE, max_size=8), cut=st.integers(0, 8))
@settings(deadline=None, max_examples=60)
def test_lines_that_come_together_mean_what_they_mean_one_after_the_other(
    case: Case, lines: list[bytes], cut: int
) -> None:
    together, apart = begun(case), begun(case)
    assert checked(together.up(lines)) == checked([*apart.up(lines[:cut]), *apart.up(lines[cut:])])
    assert together == apart


@every_core
@pytest.mark.parametrize("line", HUGE, ids=["deep", "deep-object", "controls", "not-utf8"])
def test_a_line_of_any_size_and_depth_is_survived(case: Case, line: bytes) -> None:
    core = begun(case)
    core.waits(line)
    checked(core.down(line))
    checked(core.up([line]))


@every_core
def test_what_the_running_turn_needs_does_not_wait(case: Case) -> None:
    """An answer that waited for the end of its own turn would wait for ever."""
    core = begun(case)
    for line in (ANSWER, b'{"seq":3,"type":"ask_user_answer","requestId":"r-1"}', ABORT, b"", b"no frame"):
        assert not core.waits(line)
    assert core.ready or core.waits(MESSAGE), "what a core is not ready for must wait"


@every_core
@given(
    notes=st.dictionaries(st.text(max_size=8), st.text(max_size=40), max_size=4), lines=st.lists(GARBAGE, max_size=3)
)
@settings(deadline=None, max_examples=60)
def test_notes_of_anybody_s_making_are_survived(case: Case, notes: dict[str, str], lines: list[bytes]) -> None:
    """They lie in the agent's home: it may write into them what it likes."""
    core = case.make()
    wanted = Launch(("agent",), {"HOME": "/agent"})
    traces = core.traces(wanted, notes)
    assert all(isinstance(pattern, str) and not pattern.startswith("/") for pattern in traces)
    launch = core.command(wanted, Past(notes, traces))
    assert all("\0" not in word for word in (*launch.argv, *launch.env.values()))
    checked(core.begin(START))
    checked(core.up(lines))
