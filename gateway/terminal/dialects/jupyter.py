"""Jupyter's terminals, as JupyterLab speaks them with terminado: arrays in text frames, a word first. Pure.

`["setup",{}]` must be the first: JupyterLab ignores earlier messages. Sizes are rows first, then columns, then pixels,
which are ignored. JupyterLab takes close code 1000 for an end and any other for a cut, and keeps its screen across a
cut: so a picture begins with a full reset.
"""

from collections.abc import Sequence

import orjson

from gateway.protocol.strict_json import BadJson, check_width
from gateway.terminal.dialects.control import CLEAR, rough_size, unreadable
from gateway.terminal.dialects.output_only import OutputOnlyDialect
from gateway.terminal.dialects.ports import Heard, Typed, Wanted
from gateway.terminal.dialects.utf8 import Utf8Cutter
from sandbox.protocol.terminal import Exit, Greeting, Reset
from sandbox.protocol.websocket_frames import frame_text


class JupyterDialect(OutputOnlyDialect):
    splices = False
    closes_at_exit = True

    def __init__(self) -> None:
        self._cutter = Utf8Cutter()

    def greet(self, hello: Greeting, picture: bytes | None, *, absent: bool = False) -> bytes:
        return _say("setup", {}) + (b"" if picture is None else _painted("", picture))

    def output(self, payload: bytes) -> bytes:
        return _stdout(self._cutter.text(payload))

    def repaint(self, reset: Reset, picture: bytes) -> bytes:
        return _painted(self._cutter.finish(), picture)

    def exited(self, exit: Exit) -> bytes:
        return _stdout(self._cutter.finish()) + _say("disconnect", 1)

    def hear_text(self, payload: bytes) -> Sequence[Heard]:
        """`stdin` and `set_size`. Other words, and invalid sizes, are ignored, as terminado does."""
        match _read_array(payload):
            case ["stdin", str(typed)]:
                return (Typed(typed.encode()),) if typed else ()
            case ["set_size", rows, cols, *_]:
                size = rough_size(cols, rows)
                return () if size is None else (Wanted(size),)
            case ["stdin" | "set_size", *_]:
                raise unreadable("stdin wants a string, set_size wants rows and columns")
            case [str(), *_]:
                return ()
        raise unreadable("a message begins with a word")

    def hear_binary(self, payload: bytes) -> Sequence[Heard]:
        raise unreadable("messages are JSON arrays in text frames")


def _read_array(payload: bytes) -> list[object]:
    try:
        check_width(payload)
        value = orjson.loads(payload)
    except BadJson as error:
        raise unreadable(str(error)) from None
    except orjson.JSONDecodeError as error:
        raise unreadable(f"not JSON: {error}") from None
    if not isinstance(value, list):
        raise unreadable("not a JSON array")
    return value


def _say(word: str, content: object) -> bytes:
    return frame_text(orjson.dumps([word, content]))


def _stdout(text: str) -> bytes:
    return _say("stdout", text) if text else b""


def _painted(before: str, picture: bytes) -> bytes:
    return _stdout(before + CLEAR.decode() + picture.decode(errors="replace"))
