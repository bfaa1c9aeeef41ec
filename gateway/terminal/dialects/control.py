"""Shared by dialects: control in JSON, sizes, and the sequence that resets a terminal. Pure."""

from typing import Any

import orjson

from gateway.protocol.close_codes import CloseCode
from gateway.protocol.strict_json import BadJson, load_object
from sandbox.protocol.terminal import MAX_SIDE, Size
from sandbox.protocol.websocket_frames import FrameError, frame_text

# RIS, a terminal's full reset. Without it, a client that paints over its earlier screen would keep its modes, its
# alternate screen and its scrollback. It ends any sequence that was cut before it.
CLEAR = b"\x1bc"


def say(type: str, **members: object) -> bytes:
    """One text frame with an object. Members that are None are null."""
    return frame_text(orjson.dumps({"type": type, **members}))


def unreadable(reason: str) -> FrameError:
    return FrameError(CloseCode.BAD_FRAME, reason)


def read_object(payload: bytes) -> dict[str, Any]:
    """The object in a client's message; raises FrameError."""
    try:
        return load_object(payload)
    except BadJson as error:
        raise unreadable(str(error)) from None


def read_control(payload: bytes) -> tuple[str, dict[str, Any]]:
    """A control message's type and the message; raises FrameError."""
    body = read_object(payload)
    type = body.get("type")
    if not isinstance(type, str):
        raise unreadable("type must be a string")
    return type, body


def exact_size(cols: Any, rows: Any) -> Size:
    """A size from our own clients, which must be exact; raises FrameError."""
    if any(type(side) is not int or not 1 <= side <= MAX_SIDE for side in (cols, rows)):
        raise unreadable(f"cols and rows must be whole numbers from 1 to {MAX_SIDE}")
    return Size(cols, rows)


def rough_size(cols: Any, rows: Any) -> Size | None:
    """A size from clients that measure a window: fractions are cut off, and so is the excess. None if it is no size: a
    hidden window has none, and the server that the client was written for ignores that.
    """
    if any(type(side) not in (int, float) or side < 1 for side in (cols, rows)):
        return None
    return Size(int(min(cols, MAX_SIDE)), int(min(rows, MAX_SIDE)))
