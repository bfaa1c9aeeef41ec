"""The link's messages: whatever is said is understood as it was meant, and whatever is not a message is refused."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.protocol import agent as wire
from sandbox.protocol.agent import LinkRules
from sandbox.protocol.messages import MAX_NUMBER, MAX_REASON, WireError
from sandbox.protocol.values import AgentExit, Hello, Position

EPOCHS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
NUMBERS = st.integers(0, MAX_NUMBER)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp"]), max_size=80)
LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=80)
POSITIONS = st.builds(Position, EPOCHS, NUMBERS)

UP = st.one_of(
    st.builds(Hello, EPOCHS, NUMBERS, EPOCHS, st.booleans(), st.booleans()),
    st.builds(Hello, EPOCHS, NUMBERS, st.none(), st.just(False), st.booleans()),
    st.builds(wire.Epoch, EPOCHS, NUMBERS),
    st.builds(
        AgentExit,
        EPOCHS,
        NUMBERS,
        NUMBERS,
        st.none() | st.integers(0, 255),
        st.none() | st.sampled_from(["SIGKILL", "SIGRTMIN+3"]),
        TEXTS,
    ),
    st.builds(wire.Taken, NUMBERS),
    st.builds(wire.Problem, TEXTS),
    st.builds(wire.Pong, NUMBERS),
    st.just(wire.Changed()),
)
DOWN = st.one_of(
    st.builds(wire.Attach.of, st.none() | POSITIONS),
    st.builds(wire.Start, st.none() | LINES),
    st.builds(wire.Inject, LINES),
    st.just(wire.Interrupt()),
    st.just(wire.StopAgent()),
    st.just(wire.Kill()),
    st.builds(wire.Seen, EPOCHS, NUMBERS),
    st.builds(wire.Ready, EPOCHS),
    st.builds(wire.Ping, NUMBERS),
)


# A bridge outlives upgrades, so these bytes stay as they are: a bridge of another version says and reads them.
UP_AS_SAID: list[tuple[wire.Up, bytes]] = [
    (
        Hello("t", 0, None, False, False),
        b'{"type":"hello","taker":"t","taken":0,"epoch":null,"alive":false,"held":false}',
    ),
    (Hello("t_", 7, "e", True, True), b'{"type":"hello","taker":"t_","taken":7,"epoch":"e","alive":true,"held":true}'),
    (wire.Epoch("e", 0), b'{"type":"epoch","epoch":"e","base":0}'),
    (
        AgentExit("e", 5, 3, 0, None, "exited with code 0"),
        b'{"type":"exit","epoch":"e","offset":5,"taken":3,"code":0,"signal":null,"reason":"exited with code 0"}',
    ),
    (
        AgentExit("e", 5, 3, None, "SIGRTMIN+3", "killed\r\n\x1b[1m\u00e9\ud800"),
        (
            b'{"type":"exit","epoch":"e","offset":5,"taken":3,"code":null,"signal":"SIGRTMIN+3",'
            b'"reason":"killed [1m\xc3\xa9?"}'
        ),
    ),
    (wire.Taken(MAX_NUMBER), b'{"type":"taken","seq":9007199254740991}'),
    (wire.Problem(""), b'{"type":"problem","reason":""}'),
    (wire.Problem("a\x1b]0;x\x07\r\nb\u202ec"), b'{"type":"problem","reason":"a ]0;x b c"}'),
    (wire.Pong(3), b'{"type":"pong","n":3}'),
    (wire.Changed(), b'{"type":"changed"}'),
]
DOWN_AS_SAID: list[tuple[wire.Down, bytes]] = [
    (wire.Attach.of(None), b'{"type":"attach","epoch":null,"offset":0}'),
    (wire.Attach.of(Position("e-1_Z", 41)), b'{"type":"attach","epoch":"e-1_Z","offset":41}'),
    (wire.Start(None), b'{"type":"start","line":null}'),
    (wire.Start(""), b'{"type":"start","line":""}'),
    (
        wire.Start('{"type":"start","x":"\u00e9\u2028\\"\t"}'),
        b'{"type":"start","line":"{\\"type\\":\\"start\\",\\"x\\":\\"\xc3\xa9\xe2\x80\xa8\\\\\\"\\t\\"}"}',
    ),
    (wire.AgentSetup(), b'{"type":"configure","files":[],"arguments":[]}'),
    (
        wire.AgentSetup((wire.SetupFile(".a/b.md", "x"),), ("-c", "y=1")),
        b'{"type":"configure","files":[{"path":".a/b.md","content":"x"}],"arguments":["-c","y=1"]}',
    ),
    (wire.Inject("ctrl\x01\U0001f600/\x7f"), b'{"type":"inject","line":"ctrl\\u0001\xf0\x9f\x98\x80/\x7f"}'),
    (wire.Interrupt(), b'{"type":"interrupt"}'),
    (wire.StopAgent(), b'{"type":"stop"}'),
    (wire.Kill(), b'{"type":"kill"}'),
    (wire.Seen("e", MAX_NUMBER), b'{"type":"seen","epoch":"e","offset":9007199254740991}'),
    (wire.Ready("x" * 64), b'{"type":"ready","epoch":"' + b"x" * 64 + b'"}'),
    (wire.Ping(0), b'{"type":"ping","n":0}'),
]


@pytest.mark.parametrize(("message", "said"), UP_AS_SAID)
def test_a_bridge_says_and_a_gateway_reads_the_same_bytes_in_every_version(message: wire.Up, said: bytes) -> None:
    assert wire.encode(message) == said
    assert wire.decode_up(said) == message


@pytest.mark.parametrize(("message", "said"), DOWN_AS_SAID)
def test_a_gateway_says_and_a_bridge_reads_the_same_bytes_in_every_version(message: wire.Down, said: bytes) -> None:
    assert wire.encode(message) == said
    assert wire.decode_down(said) == message


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b'{"type":"attach"}', wire.Attach()),
        (b'{"type":"attach","epoch":null}', wire.Attach()),
        (b'{"type":"start"}', wire.Start(None)),
        (b' { "n" : 3 , "later" : [{"x": null}, "\xc3\xa9"], "type" : "ping" } ', wire.Ping(3)),
        (b'{"type":"kill","why":"bored"}', wire.Kill()),
    ],
)
def test_what_may_be_left_out_may_and_what_nobody_knows_is_skipped(said: bytes, message: wire.Down) -> None:
    assert wire.decode_down(said) == message
    assert wire.decode_down(said.decode()) == message


def test_a_position_is_a_position() -> None:
    position = Position("e", 7)
    assert (wire.Attach.of(position).after, wire.Attach.of(None).after, wire.Attach().after) == (position, None, None)
    assert wire.Seen("e", 7).position == position


def test_a_hello_without_a_process_is_of_one_that_does_not_run() -> None:
    said = b'{"type":"hello","taker":"t","taken":0,"epoch":null,"alive":true,"held":false}'
    assert wire.decode_up(said) == Hello("t", 0, None, False, False)


@settings(deadline=None)
@given(UP)
def test_what_a_bridge_says_is_understood(message: wire.Up) -> None:
    assert wire.decode_up(wire.encode(message)) == message


@settings(deadline=None)
@given(DOWN)
def test_what_a_gateway_says_is_understood(message: wire.Down) -> None:
    assert wire.decode_down(wire.encode(message)) == message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=5,
)
UP_KINDS = ["hello", "epoch", "exit", "taken", "problem", "pong", "changed"]
DOWN_KINDS = ["attach", "start", "inject", "interrupt", "stop", "seen", "ready", "ping"]
MEMBERS = ["taker", "taken", "epoch", "alive", "base", "offset", "code", "signal", "reason", "seq", "n", "line", "held"]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_an_error_of_ours(text: bytes) -> None:
    for decode in (wire.decode_up, wire.decode_down):
        with pytest.raises(WireError):
            decode(text)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(UP_KINDS + DOWN_KINDS), st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=6))
def test_wrong_members_are_an_error_or_a_message_never_anything_else(kind: str, members: dict[str, object]) -> None:
    decoders: list[Callable[[bytes], wire.Up | wire.Down]] = [wire.decode_up, wire.decode_down]
    for decode in decoders:
        text = json.dumps({"type": kind, **members}).encode()
        try:
            message = decode(text)
        except WireError:
            continue
        assert decode(wire.encode(message)) == message


GOOD_EXIT = {"type": "exit", "epoch": "e", "offset": 1, "taken": 0, "code": 0, "signal": None, "reason": ""}
GOOD_HELLO = {"type": "hello", "taker": "t", "taken": 0, "epoch": None, "alive": False, "held": False}


@pytest.mark.parametrize(
    ("good", "member", "values"),
    [
        (GOOD_HELLO, "taker", [None, "", "a b", "x" * 65, 7]),
        (GOOD_HELLO, "taken", [None, -1, 1.0, "1", True, 2**53]),
        (GOOD_HELLO, "epoch", ["", "é", 1, ["e"]]),
        (GOOD_HELLO, "alive", [None, 1, "yes"]),
        (GOOD_HELLO, "held", [None, 0, "no"]),
        (GOOD_EXIT, "epoch", [None, "", "../x"]),
        (GOOD_EXIT, "offset", [None, -1, 2**64]),
        (GOOD_EXIT, "taken", [None, 0.5]),
        (GOOD_EXIT, "code", [-1, 256, "0", False]),
        (GOOD_EXIT, "signal", ["", "sigkill", "S" * 17, 9]),
        (GOOD_EXIT, "reason", [None, 3, "x" * 1001]),
    ],
)
def test_each_member_has_its_bounds(good: dict[str, object], member: str, values: list[object]) -> None:
    wire.decode_up(json.dumps(good))
    for value in values:
        with pytest.raises(WireError, match=member):
            wire.decode_up(json.dumps({**good, member: value}))


def test_long_deep_and_odd_messages_are_refused() -> None:
    for text in (b"[" * 5000, b'{"type":"pong","n":NaN}', b'{"type":"pong","n":' + b"9" * 4000 + b"}", b"\xff", b"[]"):
        with pytest.raises(WireError):
            wire.decode_up(text)
    with pytest.raises(WireError, match="long"):
        wire.decode_up(b'{"type":"pong","n":1}' + b" " * wire.MAX_CONTROL_UP)
    with pytest.raises(WireError, match="long"):
        wire.decode_down(b" " * (wire.MAX_DOWN + 1))
    for said in (b'{"type":"inject","line":"a\\nb"}', b'{"type":"start","line":"a\\nb"}', b'{"type":"inject"}'):
        with pytest.raises(WireError, match="line"):
            wire.decode_down(said)
    for said in (b'{"type":"attach","epoch":"e"}', b'{"type":"seen","epoch":"e"}'):
        with pytest.raises(WireError, match="offset"):
            wire.decode_down(said)
    for said in (b'{"type":"kill","why":"\xff"}', b'{"type":"kill","\xff":1}', b'{"type":"kill","why":"\\ud800"}'):
        with pytest.raises(WireError, match="JSON"):
            wire.decode_down(said)


def test_a_reason_is_one_clean_line_on_both_sides() -> None:
    nasty = "a\x1b]0;x\x07\r\nb\u202ec"
    said = json.dumps({"type": "problem", "reason": nasty}).encode()
    for text in (said, wire.encode(wire.Problem(nasty + "\ud800" + "x" * 2000))):
        message = wire.decode_up(text)
        assert isinstance(message, wire.Problem)
        assert message.reason.startswith("a ]0;x b c")
        assert len(message.reason) <= MAX_REASON


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), min_size=1, max_size=9))
def test_lines_are_joined_and_split(lines: list[bytes]) -> None:
    assert wire.split_lines(wire.join_lines(lines)) == lines
    deliveries = list(enumerate(lines, 7))
    assert wire.split_deliveries(wire.join_deliveries(deliveries)) == deliveries


def test_a_line_has_a_bound() -> None:
    assert wire.split_lines(b"x" * wire.MAX_LINE + b"\ny") == [b"x" * wire.MAX_LINE, b"y"]
    with pytest.raises(WireError, match="too long"):
        wire.split_lines(b"x" * (wire.MAX_LINE + 1))


@pytest.mark.parametrize(
    "payload", [b"", b"x", b"1", b"-1 x", b"1x y", b"9007199254740992 x", b"1 x\n", b"0" * 17 + b"1 x"]
)
def test_a_delivery_needs_its_number(payload: bytes) -> None:
    with pytest.raises(WireError, match="delivery"):
        wire.split_deliveries(payload)


def greeted(taken: int = 0) -> LinkRules:
    ledger = LinkRules()
    ledger.hello(Hello("t", taken, None, False, False))
    return ledger


def test_a_conversation_in_order_is_accepted() -> None:
    ledger = greeted()
    ledger.begin(wire.Epoch("a", 4))
    assert ledger.frames(2) == 5
    ledger.begin(wire.Epoch("a", 9))
    assert ledger.frames(1) == 10
    ledger.exit(AgentExit("a", 10, 0, 0, None, ""))
    ledger.begin(wire.Epoch("b", 0))
    ledger.delivered(3)
    ledger.delivered(2)
    ledger.taken(1)
    ledger.taken(2)
    ledger.recall(3)
    ledger.recall(4)
    ledger.recalled(3)
    ledger.taken(3)
    assert (ledger.epoch, ledger.offset, ledger.greeted) == ("b", 0, True)


def begun(ledger: LinkRules, offset: int = 0) -> LinkRules:
    ledger.begin(wire.Epoch("a", offset))
    return ledger


def over(ledger: LinkRules) -> LinkRules:
    begun(ledger).exit(AgentExit("a", 0, 0, 0, None, ""))
    return ledger


def asked_back(ledger: LinkRules, seq: int) -> LinkRules:
    ledger.recall(seq)
    return ledger


def given_back(ledger: LinkRules, seq: int) -> LinkRules:
    ledger.recalled(seq)
    return ledger


@pytest.mark.parametrize(
    "break_it",
    [
        lambda: greeted().hello(Hello("t", 0, None, False, False)),
        lambda: LinkRules().begin(wire.Epoch("a", 0)),
        lambda: LinkRules().taken(1),
        lambda: LinkRules().frames(1),
        lambda: greeted().frames(1),
        lambda: greeted().exit(AgentExit("", 0, 0, 0, None, "")),
        lambda: begun(greeted()).exit(AgentExit("b", 0, 0, 0, None, "")),
        lambda: begun(greeted()).exit(AgentExit("a", 1, 0, 0, None, "")),
        lambda: begun(greeted(), 5).begin(wire.Epoch("a", 4)),
        lambda: begun(greeted()).begin(wire.Epoch("b", 0)),
        lambda: over(greeted()).frames(1),
        lambda: over(greeted()).begin(wire.Epoch("a", 0)),
        lambda: over(greeted()).exit(AgentExit("a", 0, 0, 0, None, "")),
        lambda: begun(greeted(), MAX_NUMBER).frames(1),
        lambda: greeted().taken(1),  # nothing was delivered
        lambda: greeted(taken=5).taken(5),
        lambda: greeted().recalled(1),  # nobody asked
        lambda: asked_back(greeted(), 1).recalled(2),
        lambda: asked_back(greeted(taken=5), 5).recalled(5),
        lambda: given_back(asked_back(greeted(), 1), 1).recalled(1),
    ],
)
def test_a_conversation_out_of_order_is_not(break_it: Callable[[], object]) -> None:
    with pytest.raises(WireError):
        break_it()


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/.", "a/", "a\\u0000b", "x" * 300])
def test_a_path_that_leaves_the_home_is_refused(path: str) -> None:
    with pytest.raises(WireError):
        wire.decode_down(f'{{"type":"configure","files":[{{"path":"{path}","content":""}}]}}')


def test_an_argument_with_a_nul_is_refused() -> None:
    with pytest.raises(WireError):
        wire.decode_down('{"type":"configure","arguments":["a\\u0000"]}')
