"""Every dialect, frame by frame: what its client is told, and what is made of what it says."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ApiError
from gateway.sockets.dialects.choose import Kind, choose
from gateway.sockets.dialects.cloudflare import CloudflareDialect
from gateway.sockets.dialects.control import say
from gateway.sockets.dialects.jupyter import JupyterDialect
from gateway.sockets.dialects.native import NativeDialect
from gateway.sockets.dialects.plain import PlainDialect
from gateway.sockets.dialects.ports import Dialect, Flow, Renewal, Reply, Typed, Wanted
from gateway.sockets.dialects.tty import TtyDialect
from sandbox.terminal.wire import Exit, Size
from tests.support.dialects import ENDED, HELLO, RESET, TROUBLE, binaries, control, texts

CUTS = st.lists(st.binary(max_size=40) | st.text(max_size=10).map(str.encode), max_size=8)
SIDES = st.integers(1, 1000)


class TestNative:
    def test_ready_tells_where_output_counts_from(self) -> None:
        ready = {"type": "ready", "epoch": "e1", "offset": 700, "cols": 80, "rows": 24, "replayed": 0}
        assert control(NativeDialect().greet(HELLO, None)) == [ready]

    @pytest.mark.parametrize("picture", [b"", b"\x1b[Hscreen\xff"])
    def test_a_picture_comes_as_one_frame_behind_a_reset_even_if_it_is_empty(self, picture: bytes) -> None:
        ready, reset, painted = control(NativeDialect().greet(HELLO, picture))
        assert ready["type"] == "ready"
        assert (reset, painted) == ({"type": "reset", "epoch": "e1", "offset": 700}, picture)
        again = {"type": "reset", "epoch": "e2", "offset": 900, "cols": 100, "rows": 30}
        assert control(NativeDialect().repaint(RESET, picture)) == [again, picture]

    def test_everything_that_happens_is_told(self) -> None:
        dialect = NativeDialect()
        assert control(dialect.exited(ENDED)) == [{"type": "exit", "code": 3, "signal": None}]
        assert control(dialect.exited(Exit(None, "SIGKILL"))) == [{"type": "exit", "code": None, "signal": "SIGKILL"}]
        assert control(dialect.resized(Size(9, 8))) == [{"type": "resize", "cols": 9, "rows": 8}]
        assert control(dialect.told_status("sleeping")) == [{"type": "status", "status": "sleeping"}]
        told = {"type": "error", "code": "start_failed", "error": "no such program"}
        assert control(dialect.told_trouble(TROUBLE)) == [told]
        assert control(dialect.told_expiring("2026-01-01T00:00:00Z")) == [
            {"type": "auth_expiring", "at": "2026-01-01T00:00:00Z"}
        ]

    def test_its_output_can_be_held_and_let_go(self) -> None:
        assert NativeDialect().hear_text(b'{"type":"pause"}') == (Flow(open=False),)
        assert NativeDialect().hear_text(b'{"type":"resume","more":1}') == (Flow(open=True),)

    def test_it_gives_a_sign_of_life(self) -> None:
        assert NativeDialect().hear_text(b'{"type":"ping"}') == (Reply(say("pong")),)

    def test_it_hears_sizes_and_tokens_and_passes_over_what_a_newer_client_says(self) -> None:
        dialect = NativeDialect()
        assert dialect.hear_text(b'{"type":"resize","cols":1,"rows":1000}') == (Wanted(Size(1, 1000)),)
        assert dialect.hear_text(b'{"type":"auth","token":"abc"}') == (Renewal("abc"),)
        assert dialect.hear_text(b'{"type":"sing"}') == ()

    def test_bytes_pass_as_they_are(self) -> None:
        assert binaries(NativeDialect().output(b"\xff\x00")) == [b"\xff\x00"]
        assert NativeDialect().hear_binary(b"\xff\x00") == (Typed(b"\xff\x00"),)


class TestPlain:
    @given(CUTS)
    def test_output_is_the_programs_text_however_it_was_cut(self, cuts: list[bytes]) -> None:
        dialect = PlainDialect()
        said = [text for cut in cuts for text in texts(dialect.output(cut))] + texts(dialect.exited(ENDED))
        assert "".join(said) == b"".join(cuts).decode(errors="replace")
        assert "" not in said

    def test_nothing_is_said_that_is_not_output(self) -> None:
        dialect = PlainDialect()
        assert dialect.greet(HELLO, None) == b""
        assert dialect.resized(Size(9, 8)) == b""
        assert dialect.told_status("running") == b""
        assert dialect.told_trouble(TROUBLE) == b""
        assert dialect.told_expiring("soon") == b""

    def test_a_picture_follows_a_full_reset_and_half_a_character_does_not_reach_into_it(self) -> None:
        dialect = PlainDialect()
        assert texts(dialect.greet(HELLO, b"h\xc3")) == ["\x1bch�"]
        assert texts(dialect.output(b"a\xe2\x82")) == ["a"]
        assert texts(dialect.repaint(RESET, b"")) == ["�\x1bc"]
        assert texts(dialect.output(b"\xacb")) == ["�b"]

    @given(st.binary(min_size=1), st.text(min_size=1))
    def test_every_message_was_typed(self, binary: bytes, text: str) -> None:
        assert PlainDialect().hear_binary(binary) == (Typed(binary),)
        assert PlainDialect().hear_text(text.encode()) == (Typed(text.encode()),)

    def test_json_is_typed_like_anything_else(self) -> None:
        asked = b'{"type":"resize","cols":80,"rows":24}'
        assert PlainDialect().hear_text(asked) == (Typed(asked),)


class TestCloudflare:
    def test_what_is_there_already_comes_before_ready(self) -> None:
        assert control(CloudflareDialect().greet(HELLO, None)) == [{"type": "ready"}]
        assert control(CloudflareDialect().greet(HELLO, b"\xffscreen")) == [b"\x1bc\xffscreen", {"type": "ready"}]
        assert control(CloudflareDialect().repaint(RESET, b"screen")) == [b"\x1bcscreen"]

    @pytest.mark.parametrize(
        ("ended", "told"),
        [
            (Exit(0, None), {"code": 0}),
            (Exit(None, "SIGKILL"), {"code": 137, "signal": "SIGKILL"}),
            (Exit(None, "SIGRTMIN+3"), {"code": 128, "signal": "SIGRTMIN+3"}),
            (Exit(1, "SIGTERM"), {"code": 1, "signal": "SIGTERM"}),
            (Exit(None, None), {"code": 128}),
        ],
    )
    def test_the_code_of_an_exit_is_a_number(self, ended: Exit, told: dict[str, object]) -> None:
        assert control(CloudflareDialect().exited(ended)) == [{"type": "exit", **told}]

    def test_of_the_rest_only_trouble_has_a_word(self) -> None:
        dialect = CloudflareDialect()
        assert control(dialect.told_trouble(TROUBLE)) == [{"type": "error", "message": "no such program"}]
        assert dialect.resized(Size(9, 8)) == b""
        assert dialect.told_status("running") == b""
        assert dialect.told_expiring("soon") == b""

    def test_it_hears_sizes_and_passes_over_what_is_none(self) -> None:
        dialect = CloudflareDialect()
        assert dialect.hear_text(b'{"type":"resize","cols":120,"rows":30}') == (Wanted(Size(120, 30)),)
        assert dialect.hear_text(b'{"type":"resize","cols":0,"rows":30}') == ()
        assert dialect.hear_text(b'{"type":"interrupt"}') == ()

    def test_bytes_pass_as_they_are(self) -> None:
        assert binaries(CloudflareDialect().output(b"\xff\x00")) == [b"\xff\x00"]
        assert CloudflareDialect().hear_binary(b"\xff\x00") == (Typed(b"\xff\x00"),)


class TestJupyter:
    @given(CUTS)
    def test_stdout_is_the_programs_text_however_it_was_cut(self, cuts: list[bytes]) -> None:
        dialect = JupyterDialect()
        said = [message for cut in cuts for message in control(dialect.output(cut))] + control(dialect.exited(ENDED))
        assert said.pop() == ["disconnect", 1]
        assert all(word == "stdout" and text for word, text in said)
        assert "".join(text for _, text in said) == b"".join(cuts).decode(errors="replace")

    @given(st.text(min_size=1), SIDES, SIDES)
    def test_what_jupyterlab_spells_is_heard(self, typed: str, cols: int, rows: int) -> None:
        dialect = JupyterDialect()
        assert dialect.hear_text(orjson.dumps(["stdin", typed])) == (Typed(typed.encode()),)
        assert dialect.hear_text(orjson.dumps(["set_size", rows, cols, 480, 640])) == (Wanted(Size(cols, rows)),)

    def test_setup_comes_first_and_a_picture_behind_a_full_reset(self) -> None:
        assert control(JupyterDialect().greet(HELLO, None)) == [["setup", {}]]
        assert control(JupyterDialect().greet(HELLO, b"h\xc3")) == [["setup", {}], ["stdout", "\x1bch�"]]
        dialect = JupyterDialect()
        assert dialect.output(b"\xe2\x82") == b""
        assert control(dialect.repaint(RESET, b"")) == [["stdout", "�\x1bc"]]

    @pytest.mark.parametrize(
        ("spelled", "size"),
        [
            (b'["set_size",24.9,80.2,400,600]', Size(80, 24)),
            (b'["set_size",24,80]', Size(80, 24)),
            (b'["set_size",24,80,null,null]', Size(80, 24)),
            (b'["set_size",1e9,100000000000000000000]', Size(1000, 1000)),
            (b'["set_size",null,null,0,0]', None),
            (b'["set_size",0,80]', None),
            (b'["set_size",24,-1]', None),
            (b'["set_size",true,"80"]', None),
        ],
    )
    def test_sizes_are_taken_as_a_window_is_measured(self, spelled: bytes, size: Size | None) -> None:
        assert JupyterDialect().hear_text(spelled) == (() if size is None else (Wanted(size),))

    def test_words_that_mean_nothing_here_are_passed_over(self) -> None:
        assert JupyterDialect().hear_text(b'["ping"]') == ()
        assert JupyterDialect().hear_text(b'["stdin",""]') == ()

    def test_there_is_no_word_for_the_rest(self) -> None:
        dialect = JupyterDialect()
        assert dialect.resized(Size(9, 8)) == b""
        assert dialect.told_status("running") == b""
        assert dialect.told_trouble(TROUBLE) == b""
        assert dialect.told_expiring("soon") == b""


class TestTty:
    def test_title_and_preferences_come_first(self) -> None:
        assert binaries(TtyDialect().greet(HELLO, None)) == [b"1vim", b"2{}"]
        untitled = HELLO.__class__("e1", 0, Size(80, 24), 0, True)
        assert binaries(TtyDialect().greet(untitled, b"\xffs")) == [b"1terminal", b"2{}", b"0\x1bc\xffs"]
        assert binaries(TtyDialect().repaint(RESET, b"s")) == [b"0\x1bcs"]

    @given(st.binary(min_size=1))
    def test_bytes_go_both_ways_behind_a_zero(self, payload: bytes) -> None:
        assert binaries(TtyDialect().output(payload)) == [b"0" + payload]
        assert TtyDialect().hear_binary(b"0" + payload) == (Typed(payload),)
        assert TtyDialect().hear_text(b"0" + payload) == (Typed(payload),)

    @given(SIDES, SIDES, st.text())
    def test_a_size_is_heard_from_the_first_message_and_from_later_ones(self, cols: int, rows: int, token: str) -> None:
        first = orjson.dumps({"AuthToken": token, "columns": cols, "rows": rows})
        later = b"1" + orjson.dumps({"columns": cols, "rows": rows})
        assert TtyDialect().hear_binary(first) == TtyDialect().hear_binary(later) == (Wanted(Size(cols, rows)),)

    def test_output_can_be_held_and_let_go(self) -> None:
        assert TtyDialect().hear_binary(b"2") == (Flow(open=False),)
        assert TtyDialect().hear_binary(b"3") == (Flow(open=True),)

    @pytest.mark.parametrize("message", [b"", b"0", b"9x", b"\xff", b"{}", b'1{"columns":0,"rows":5}', b'1{"rows":5}'])
    def test_what_means_nothing_is_passed_over(self, message: bytes) -> None:
        assert TtyDialect().hear_binary(message) == ()

    def test_there_is_no_word_for_the_rest(self) -> None:
        dialect = TtyDialect()
        assert dialect.exited(ENDED) == b""
        assert dialect.resized(Size(9, 8)) == b""
        assert dialect.told_status("running") == b""
        assert dialect.told_trouble(TROUBLE) == b""
        assert dialect.told_expiring("soon") == b""


NATIVE = "holdfast.terminal.v1"


@pytest.mark.parametrize(
    ("kind", "offered", "query", "dialect", "protocol"),
    [
        ("terminal", [], [], PlainDialect, None),
        ("terminal", ["something"], [("name", "main")], PlainDialect, None),
        ("terminal", [], [("dialect", "plain")], PlainDialect, None),
        ("terminal", [], [("dialect", "native")], NativeDialect, None),
        ("terminal", ["x", NATIVE], [], NativeDialect, NATIVE),
        ("terminal", [NATIVE], [("dialect", "native"), ("dialect", "native")], NativeDialect, NATIVE),
        ("terminal", ["tty"], [], PlainDialect, None),
        ("cloudflare", [NATIVE], [("dialect", "native")], CloudflareDialect, None),
        ("jupyter", ["tty"], [("dialect", "?")], JupyterDialect, None),
        ("tty", ["tty"], [("dialect", "plain")], TtyDialect, "tty"),
        ("tty", [], [("arg", "dialect")], TtyDialect, None),
    ],
)
def test_path_sub_protocol_and_query_choose(
    kind: Kind, offered: list[str], query: list[tuple[str, str]], dialect: type[Dialect], protocol: str | None
) -> None:
    chosen = choose(kind, offered, query)
    assert (type(chosen.dialect), chosen.protocol) == (dialect, protocol)


@pytest.mark.parametrize(
    ("offered", "named", "code"),
    [
        ([], ["tty"], "unknown_dialect"),
        ([], [""], "unknown_dialect"),
        ([], ["plain", "?"], "unknown_dialect"),
        ([], ["plain", "native"], "ambiguous_dialect"),
        ([NATIVE], ["plain"], "ambiguous_dialect"),
    ],
)
def test_a_dialect_that_is_unknown_or_named_unlike_is_refused(offered: list[str], named: list[str], code: str) -> None:
    with pytest.raises(ApiError) as refused:
        choose("terminal", offered, [("dialect", name) for name in named])
    assert (refused.value.status, refused.value.code) == (400, code)


def test_two_viewers_share_no_state() -> None:
    first, second = choose("terminal", [], []).dialect, choose("terminal", [], []).dialect
    assert first.output(b"\xe2\x82") == b""
    assert texts(second.output(b"x")) == ["x"]


def test_a_dialect_that_tells_an_exit_stays_open_after_it_unless_its_clients_expect_the_end() -> None:
    kinds: tuple[Kind, ...] = ("cloudflare", "jupyter", "tty")
    chosen: list[Dialect] = [NativeDialect(), PlainDialect(), *(choose(kind, [], []).dialect for kind in kinds)]
    assert [dialect.closes_at_exit for dialect in chosen] == [False, True, False, True, True]
    assert [dialect.splices for dialect in chosen] == [True, False, True, False, False]
