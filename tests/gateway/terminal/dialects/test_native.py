"""Our own dialect, frame by frame."""

import pytest

from gateway.terminal.dialects.control import say
from gateway.terminal.dialects.native import NativeDialect
from gateway.terminal.dialects.ports import Flow, Renewal, Reply, Typed, Wanted
from sandbox.protocol.terminal import Exit, Size
from sandbox.protocol.websocket_frames import FrameError
from tests.support.dialects import ENDED, HELLO, RESET, TROUBLE, binaries, control


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

    @pytest.mark.parametrize(
        "said", [b'{"type":"auth"}', b'{"type":"auth","token":1}', b'{"type":"auth","token":null}']
    )
    def test_a_token_that_is_no_string_is_refused(self, said: bytes) -> None:
        with pytest.raises(FrameError, match="token must be a string"):
            NativeDialect().hear_text(said)

    def test_bytes_pass_as_they_are(self) -> None:
        assert binaries(NativeDialect().output(b"\xff\x00")) == [b"\xff\x00"]
        assert NativeDialect().hear_binary(b"\xff\x00") == (Typed(b"\xff\x00"),)
