"""Cloudflare's terminal WebSocket, version 0.12, as the xterm add-on of `@cloudflare/sandbox` speaks it. Pure.

Bytes are binary frames both ways; control is JSON in text frames. The present screen comes first, then `ready`: the
add-on clears its screen at a `ready` that nothing came before, and answers with its size.

The add-on comes back by itself after every close, whatever the code, and takes each `ready` for a success. If the
connection were closed at the program's end, it would come back every second for ever; so it gets `exit`, as the
protocol declares, and stays. Its clearing of the screen is not complete (the cursor's line stays, and so do the modes),
so a picture always begins with a full reset.
"""

from collections.abc import Sequence
from signal import Signals

from gateway.terminal.dialects.control import CLEAR, read_control, rough_size, say
from gateway.terminal.dialects.ports import Heard, Typed, Wanted
from sandbox.protocol.terminal import Exit, Greeting, Reset, Size, TerminalTrouble
from sandbox.protocol.websocket_frames import BINARY, frame


class CloudflareDialect:
    splices = True
    closes_at_exit = False

    def greet(self, hello: Greeting, picture: bytes | None, *, absent: bool = False) -> bytes:
        painted = b"" if picture is None else frame(BINARY, CLEAR + picture)
        return painted + say("ready")

    def output(self, payload: bytes) -> bytes:
        return frame(BINARY, payload)

    def repaint(self, reset: Reset, picture: bytes) -> bytes:
        return frame(BINARY, CLEAR + picture)

    def exited(self, exit: Exit) -> bytes:
        code = _code(exit.signal) if exit.code is None else exit.code
        return say("exit", code=code) if exit.signal is None else say("exit", code=code, signal=exit.signal)

    def resized(self, size: Size) -> bytes:
        return b""

    def told_status(self, status: str) -> bytes:
        return b""

    def told_trouble(self, trouble: TerminalTrouble) -> bytes:
        return say("error", message=trouble.reason)

    def told_expiring(self, at: str) -> bytes:
        return b""

    def hear_text(self, payload: bytes) -> Sequence[Heard]:
        """`resize`. Other types, and invalid sizes, are ignored, as Cloudflare's own server does."""
        type, body = read_control(payload)
        size = rough_size(body.get("cols"), body.get("rows")) if type == "resize" else None
        return () if size is None else (Wanted(size),)

    def hear_binary(self, payload: bytes) -> Sequence[Heard]:
        return (Typed(payload),)


def _code(name: str | None) -> int:
    """The exit code that a shell gives for a signal: `code` is declared a number."""
    return 128 + next((known for known in Signals if known.name == name), 0)
