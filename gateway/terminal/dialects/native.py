"""Our own dialect: bytes are binary frames, control is JSON in text frames, and a client can count and resume. Pure.

`ready` comes first: output counts from its `offset`, and the first `replayed` bytes are old. `reset` means: clear,
paint the one binary frame that follows, which is not counted, and count on from its `offset`.
"""

from collections.abc import Sequence

from gateway.terminal.dialects.control import exact_size, read_control, say, unreadable
from gateway.terminal.dialects.ports import Flow, Heard, Renewal, Reply, Typed, Wanted
from sandbox.protocol.terminal import Exit, Greeting, Reset, Size, TerminalTrouble
from sandbox.protocol.websocket_frames import BINARY, frame

PROTOCOL = "holdfast.terminal.v1"


class NativeDialect:
    splices = True
    closes_at_exit = False

    def greet(self, hello: Greeting, picture: bytes | None, *, absent: bool = False) -> bytes:
        ready = say(
            "ready",
            epoch=hello.epoch,
            offset=hello.offset,
            cols=hello.size.cols,
            rows=hello.size.rows,
            replayed=hello.replayed,
            **({"absent": True} if absent else {}),
        )
        if picture is None:
            return ready
        return ready + say("reset", epoch=hello.epoch, offset=hello.offset) + frame(BINARY, picture)

    def output(self, payload: bytes) -> bytes:
        return frame(BINARY, payload)

    def repaint(self, reset: Reset, picture: bytes) -> bytes:
        told = say("reset", epoch=reset.epoch, offset=reset.offset, cols=reset.size.cols, rows=reset.size.rows)
        return told + frame(BINARY, picture)

    def exited(self, exit: Exit) -> bytes:
        return say("exit", code=exit.code, signal=exit.signal)

    def resized(self, size: Size) -> bytes:
        return say("resize", cols=size.cols, rows=size.rows)

    def told_status(self, status: str) -> bytes:
        return say("status", status=status)

    def told_trouble(self, trouble: TerminalTrouble) -> bytes:
        return say("error", code=trouble.code, error=trouble.reason)

    def told_expiring(self, at: str) -> bytes:
        return say("auth_expiring", at=at)

    def hear_text(self, payload: bytes) -> Sequence[Heard]:
        """Sizes, tokens, flow control and pings. An unknown type is ignored: a newer client may use more."""
        type, body = read_control(payload)
        match type:
            case "resize":
                return (Wanted(exact_size(body.get("cols"), body.get("rows"))),)
            case "auth":
                token = body.get("token")
                if not isinstance(token, str):
                    raise unreadable("token must be a string")
                return (Renewal(token),)
            case "pause":
                return (Flow(open=False),)
            case "resume":
                return (Flow(open=True),)
            case "ping":
                return (Reply(say("pong")),)
        return ()

    def hear_binary(self, payload: bytes) -> Sequence[Heard]:
        return (Typed(payload),)
