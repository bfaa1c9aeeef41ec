"""No protocol at all, for `@xterm/addon-attach` and `ws.onmessage = e => term.write(e.data)`. Pure.

Every message of the client, text or binary, is input. Output is text, so that a page needs no code for bytes; it is cut
between characters. No other message is ever sent: a picture is output too, after a full reset, and the program's end is
the connection's.
"""

from collections.abc import Sequence

from gateway.terminal.dialects.control import CLEAR
from gateway.terminal.dialects.output_only import OutputOnlyDialect
from gateway.terminal.dialects.ports import Heard, Typed
from gateway.terminal.dialects.utf8 import Utf8Cutter
from sandbox.protocol.terminal import Exit, Greeting, Reset
from sandbox.protocol.websocket_frames import frame_text


class PlainDialect(OutputOnlyDialect):
    splices = False
    closes_at_exit = True

    def __init__(self) -> None:
        self._cutter = Utf8Cutter()

    def greet(self, hello: Greeting, picture: bytes | None, *, absent: bool = False) -> bytes:
        return b"" if picture is None else _painted("", picture)

    def output(self, payload: bytes) -> bytes:
        text = self._cutter.cut(payload)
        return frame_text(text) if text else b""

    def repaint(self, reset: Reset, picture: bytes) -> bytes:
        return _painted(self._cutter.finish(), picture)

    def exited(self, exit: Exit) -> bytes:
        rest = self._cutter.finish()
        return frame_text(rest.encode()) if rest else b""

    def hear_text(self, payload: bytes) -> Sequence[Heard]:
        return self.hear_binary(payload)

    def hear_binary(self, payload: bytes) -> Sequence[Heard]:
        return (Typed(payload),) if payload else ()


def _painted(before: str, picture: bytes) -> bytes:
    return frame_text(before.encode() + CLEAR + picture.decode(errors="replace").encode())
