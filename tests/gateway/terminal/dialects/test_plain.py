"""The plain dialect: nothing is said that is not output."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.terminal.dialects.plain import PlainDialect
from gateway.terminal.dialects.ports import Typed
from sandbox.protocol.terminal import Size
from tests.support.dialects import ENDED, HELLO, RESET, TROUBLE, texts

CUTS = st.lists(st.binary(max_size=40) | st.text(max_size=10).map(str.encode), max_size=8)


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
