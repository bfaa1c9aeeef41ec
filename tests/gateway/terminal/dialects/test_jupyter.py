"""Jupyter's dialect, frame by frame."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.close_codes import CloseCode
from gateway.protocol.strict_json import MAX_ELEMENTS, MAX_KEYS
from gateway.terminal.dialects.jupyter import JupyterDialect
from gateway.terminal.dialects.ports import Typed, Wanted
from sandbox.protocol.terminal import Size
from sandbox.protocol.websocket_frames import FrameError
from tests.support.dialects import ENDED, HELLO, RESET, TROUBLE, control

CUTS = st.lists(st.binary(max_size=40) | st.text(max_size=10).map(str.encode), max_size=8)

SIDES = st.integers(1, 1000)


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

    @pytest.mark.parametrize(
        ("spelled", "why"),
        [
            (b'["stdin",1]', "stdin wants a string"),
            (b'["stdin"]', "stdin wants a string"),
            (b'["set_size",24]', "set_size wants rows and columns"),
            (b"[]", "begins with a word"),
            (b'[1,"stdin"]', "begins with a word"),
            (b'{"stdin":"a"}', "not a JSON array"),
            (b"ls", "not JSON"),
            (b'["stdin"' + b",1" * (MAX_KEYS + MAX_ELEMENTS + 1) + b"]", "more than"),
        ],
    )
    def test_a_message_that_cannot_be_read_closes_with_the_reason(self, spelled: bytes, why: str) -> None:
        with pytest.raises(FrameError, match=why) as refused:
            JupyterDialect().hear_text(spelled)
        assert refused.value.code == CloseCode.BAD_FRAME

    def test_binary_frames_are_not_spoken(self) -> None:
        with pytest.raises(FrameError, match="text frames"):
            JupyterDialect().hear_binary(b'["stdin","a"]')

    def test_there_is_no_word_for_the_rest(self) -> None:
        dialect = JupyterDialect()
        assert dialect.resized(Size(9, 8)) == b""
        assert dialect.told_status("running") == b""
        assert dialect.told_trouble(TROUBLE) == b""
        assert dialect.told_expiring("soon") == b""
