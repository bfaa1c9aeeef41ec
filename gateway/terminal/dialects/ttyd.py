"""ttyd's protocol: the first byte of a message is its kind. Pure.

The client begins with a bare JSON object, `{"AuthToken","columns","rows"}`; its `{` is a kind like the others. The
AuthToken proves nothing here and is ignored: access is decided before the upgrade, which is refused with 401 otherwise.
Then `0` is typing, `1` a size, `2` pause and `3` resume. The server sends `1` title and `2` preferences first, then `0`
output. All of its frames are binary; the client's may also be text, as for ttyd.

The client resets its screen when it comes back after a cut, and asks before it comes back after a 1000.
"""

from collections.abc import Sequence

from gateway.terminal.dialects.control import CLEAR, read_object, rough_size
from gateway.terminal.dialects.output_only import OutputOnlyDialect
from gateway.terminal.dialects.ports import Flow, Heard, Typed, Wanted
from sandbox.protocol.terminal import Exit, Greeting, Reset
from sandbox.protocol.websocket_frames import BINARY, frame

PROTOCOL = "tty"


class TtydDialect(OutputOnlyDialect):
    splices = False
    closes_at_exit = True

    def greet(self, hello: Greeting, picture: bytes | None, *, absent: bool = False) -> bytes:
        title = hello.title or "terminal"  # it becomes the page's title
        told = frame(BINARY, b"1" + title.encode()) + frame(BINARY, b"2{}")
        return told if picture is None else told + self.output(CLEAR + picture)

    def output(self, payload: bytes) -> bytes:
        return frame(BINARY, b"0" + payload)

    def repaint(self, reset: Reset, picture: bytes) -> bytes:
        return self.output(CLEAR + picture)

    def exited(self, exit: Exit) -> bytes:
        return b""

    def hear_text(self, payload: bytes) -> Sequence[Heard]:
        return self.hear_binary(payload)

    def hear_binary(self, payload: bytes) -> Sequence[Heard]:
        """Unknown kinds, and invalid sizes, are ignored, as ttyd does."""
        match payload[:1]:
            case b"0" if len(payload) > 1:
                return (Typed(payload[1:]),)
            case b"1":
                return _wanted(payload[1:])
            case b"2":
                return (Flow(open=False),)
            case b"3":
                return (Flow(open=True),)
            case b"{":
                return _wanted(payload)
        return ()


def _wanted(spelled: bytes) -> Sequence[Heard]:
    body = read_object(spelled)
    size = rough_size(body.get("columns"), body.get("rows"))
    return () if size is None else (Wanted(size),)
