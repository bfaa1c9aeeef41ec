"""ttyd's dialect, frame by frame."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.terminal.dialects.ports import Flow, Typed, Wanted
from gateway.terminal.dialects.ttyd import TtydDialect
from sandbox.protocol.terminal import Size
from tests.support.dialects import ENDED, HELLO, RESET, TROUBLE, binaries

SIDES = st.integers(1, 1000)


class TestTty:
    def test_title_and_preferences_come_first(self) -> None:
        assert binaries(TtydDialect().greet(HELLO, None)) == [b"1vim", b"2{}"]
        untitled = HELLO.__class__.of("e1", 0, Size(80, 24), 0, True)
        assert binaries(TtydDialect().greet(untitled, b"\xffs")) == [b"1terminal", b"2{}", b"0\x1bc\xffs"]
        assert binaries(TtydDialect().repaint(RESET, b"s")) == [b"0\x1bcs"]

    @given(st.binary(min_size=1))
    def test_bytes_go_both_ways_behind_a_zero(self, payload: bytes) -> None:
        assert binaries(TtydDialect().output(payload)) == [b"0" + payload]
        assert TtydDialect().hear_binary(b"0" + payload) == (Typed(payload),)
        assert TtydDialect().hear_text(b"0" + payload) == (Typed(payload),)

    @given(SIDES, SIDES, st.text())
    def test_a_size_is_heard_from_the_first_message_and_from_later_ones(self, cols: int, rows: int, token: str) -> None:
        first = orjson.dumps({"AuthToken": token, "columns": cols, "rows": rows})
        later = b"1" + orjson.dumps({"columns": cols, "rows": rows})
        assert TtydDialect().hear_binary(first) == TtydDialect().hear_binary(later) == (Wanted(Size(cols, rows)),)

    def test_output_can_be_held_and_let_go(self) -> None:
        assert TtydDialect().hear_binary(b"2") == (Flow(open=False),)
        assert TtydDialect().hear_binary(b"3") == (Flow(open=True),)

    @pytest.mark.parametrize("message", [b"", b"0", b"9x", b"\xff", b"{}", b'1{"columns":0,"rows":5}', b'1{"rows":5}'])
    def test_what_means_nothing_is_passed_over(self, message: bytes) -> None:
        assert TtydDialect().hear_binary(message) == ()

    def test_there_is_no_word_for_the_rest(self) -> None:
        dialect = TtydDialect()
        assert dialect.exited(ENDED) == b""
        assert dialect.resized(Size(9, 8)) == b""
        assert dialect.told_status("running") == b""
        assert dialect.told_trouble(TROUBLE) == b""
        assert dialect.told_expiring("soon") == b""
