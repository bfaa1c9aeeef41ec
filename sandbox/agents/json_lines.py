"""JSON lines in, frames out, for cores of agents that speak JSON. Pure.

Reading is lenient and never raises. Frames are bounded: long strings are cut with a remark, base64 data is dropped
and counted, numbers that some readers refuse become null, and a frame that is still too long keeps only its type.
"""

import json
from typing import Any

import msgspec

MAX_FRAME = 1 << 20  # bytes of one frame, the limit of the link to the gateway
MAX_TEXT = 64 << 10  # characters of one string in a frame
SHORT_TEXT = 1 << 10  # the same, in a frame that would be too long
SLACK = 64  # extra characters that a string may have: the remark of an earlier cut
MAX_DEPTH = 64
MOST_NESTED = 500  # levels of a line; a line that can just be read may be too deep to write
MOST = 1 << 53
INTEGERS = range(-(1 << 63), 1 << 64)  # outside, some readers refuse the whole line

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


def read(line: bytes) -> dict[str, Any]:
    """The object on this line; an empty one if there is none."""
    try:
        found = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = _read_halves(line)
    if not isinstance(found, dict):
        return {}
    few = line.count(b"{") + line.count(b"[") <= MOST_NESTED
    return found if few or _within(found, MOST_NESTED) else {}


def _within(value: dict[str, Any], depth: int) -> bool:
    """Whether the value is nested at most so deep."""
    level: list[Any] = [value]
    for _ in range(depth):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [each for parts in inner for each in parts if isinstance(each, dict | list)]
        if not level:
            return True
    return False


def _read_halves(line: bytes) -> Any:
    """Programs that cut text into pieces may write half a surrogate pair; the half is replaced."""
    try:
        whole = json.dumps(json.loads(line.decode("utf-8", "replace")), ensure_ascii=False)
        return _decoder.decode(whole.encode("utf-8", "replace"))
    except (ValueError, RecursionError, msgspec.DecodeError):
        return None


def line(members: dict[str, Any]) -> bytes:
    """One line for the agent."""
    return _encoder.encode(members)


def frame(kind: str, members: dict[str, Any]) -> bytes:
    """One frame for the gateway. Members that are None are left out."""
    said = {"type": kind, **{name: each for name, each in members.items() if each is not None}}
    encoded = _encoder.encode(cut(said))
    if len(encoded) > MAX_FRAME:
        encoded = _encoder.encode(cut(said, SHORT_TEXT))
    if len(encoded) > MAX_FRAME:
        encoded = _encoder.encode({"type": kind, "requestId": cut_text(text(members.get("requestId")), SHORT_TEXT)})
    return encoded


def cut(value: Any, limit: int = MAX_TEXT, depth: int = MAX_DEPTH) -> Any:
    """`value` with its long strings cut, and without base64 data."""
    if isinstance(value, str):
        return cut_text(value, limit)
    if not depth and isinstance(value, dict | list):
        return None
    if isinstance(value, list):
        return [cut(each, limit, depth - 1) for each in value]
    if isinstance(value, dict):
        if value.get("type") == "base64" and isinstance(value.get("data"), str):
            value = {**value, "data": "", "omitted": len(value["data"])}
        return {cut_text(name, SHORT_TEXT): cut(each, limit, depth - 1) for name, each in value.items()}
    return None if isinstance(value, int) and value not in INTEGERS else value


def cut_text(whole: str, limit: int = MAX_TEXT) -> str:
    if len(whole) <= limit + SLACK:
        return whole
    return f"{whole[:limit]}\n[{len(whole) - limit} characters left out]"


def text(value: Any) -> str:
    """`value` if it is a string, else nothing."""
    return value if isinstance(value, str) else ""


def members(value: Any) -> dict[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; nothing if it is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def count(value: Any) -> int | None:
    """`value` if it is a number of things."""
    return value if type(value) is int and 0 <= value < MOST else None


def amount(value: Any) -> float | None:
    """`value` if it is a number that can be added to others, such as a price."""
    return float(value) if type(value) in (int, float) and -MOST < value < MOST else None


def seq_of(frame: dict[str, Any]) -> int | None:
    """The number of a gateway's message; None if it has none."""
    seq = frame.get("seq")
    return seq if isinstance(seq, int) else None


def waits_for_turn(line: bytes) -> bool:
    """Whether this record is a message that has a turn of its own."""
    frame = read(line)
    return frame.get("type") == "message" and not _steers(frame)


def joins_turn(line: bytes) -> bool:
    """Whether this record is a message for the turn that runs."""
    frame = read(line)
    return frame.get("type") == "message" and _steers(frame)


def _steers(frame: dict[str, Any]) -> bool:
    return members(frame.get("metadata")).get("steer") is True


def word(answer: Any) -> str:
    """One answer of a person: its text, or its number. An object or a list gives nothing."""
    return "" if answer is None or isinstance(answer, dict | list) else str(answer)


def words_of(content: Any) -> str:
    """The text of a message: the string itself, or the text of its blocks."""
    if isinstance(content, str):
        return content
    return "\n".join(text(part.get("text")) for part in items(content) if part.get("type") == "text")
