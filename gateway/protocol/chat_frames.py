"""Frames of the chat socket: parses a browser's, and makes the gateway's. Pure.

A frame that cannot be parsed (`UnreadableFrame`) ends its connection with 4400: the two sides no longer agree on the
protocol. A readable frame with a `cid` and a wrong request (`Invalid`) gets a nack; the connection goes on.
"""

from typing import Any

import msgspec
import orjson

from gateway.protocol.strict_json import (
    MAX_DEPTH,
    SURELY_NARROW,
    BadJson,
    check_width,
    load_object,
    within_depth,
)
from persistence.record import Record
from persistence.record_json import content_of, iso, metadata_of

CID_LENGTH = 128
RECORD_FRAME_BYTES = 256 << 10
START_BYTES = 64 << 10  # a `start` is kept with its session for good, and copied to its branches
START_TOO_LARGE = f"a start may have at most {START_BYTES} bytes: put more into a message, or into a workspace file"
RESERVED_CIDS = ("agent:", "duplicate:", "gateway:", "rejected:")
# Types of the gateway's own frames. An agent's frame of such a type would pass for the gateway's, so it is not relayed.
# A tuple, because an agent's `type` may be any value, and a set cannot be asked for a list.
OWN_TYPES = (
    "welcome",
    "record",
    "ack",
    "nack",
    "receipt",
    "expired",
    "interrupted",
    "connection_status",
    "session_status",
    "auth_expiring",
    "pong",
    "going_away",
)


class UnreadableFrame(Exception):
    """Close 4400. The text is the reason."""


class Invalid(Exception):
    """Nack. The text says what is wrong with the frame that `cid` names."""

    def __init__(self, cid: str, text: str) -> None:
        super().__init__(text)
        self.cid = cid
        self.text = text


class ChatFrame(msgspec.Struct, frozen=True):
    """One readable frame of a browser. It may wait, so it holds each value once: `body` has only the members that are
    needed later, `line` the frame as it came, on one line, without members that are ours."""

    type: str
    cid: str | None
    body: dict[str, Any]
    line: bytes

    def payload(self, cid: str) -> bytes:
        """The frame as it is stored and given to the agent."""
        return self.line if self.cid is not None else splice(b'"cid":' + orjson.dumps(cid), self.line)


_LOOKED_AT = {"permission_response": "requestId", "ask_user_answer": "requestId", "auth": "token", "ping": "id"}


def _frame(body: dict[str, Any], raw: bytes) -> ChatFrame:
    kind, cid = body["type"], body.get("cid")
    looked_at = _LOOKED_AT.get(kind)
    kept = {looked_at: body[looked_at]} if looked_at in body else {}
    if kind == "start":
        kept = {name: value for name, value in body.items() if name not in ("sessionId", "cid", "seq")}
    return ChatFrame(kind, cid, kept, _line(body, raw, cid))


def _line(body: dict[str, Any], raw: bytes, cid: str | None) -> bytes:
    if "seq" in body or "_offset" in body or (cid is None and "cid" in body):  # `"cid":null` is no cid
        ours = ("seq", "_offset") if cid is not None else ("seq", "_offset", "cid")
        return orjson.dumps({name: value for name, value in body.items() if name not in ours})
    return raw.strip().replace(b"\n", b" ").replace(b"\r", b" ")  # inside a string neither may stand


def splice(member: bytes, obj: bytes) -> bytes:
    """Put `member` first into the JSON object `obj`, without reading the rest."""
    rest = obj[1:]
    if not rest.startswith(b'"') and rest.lstrip().startswith(b"}"):
        return b"{" + member + rest
    return b"{%b,%b" % (member, rest)


def agent_line(seq: int, payload: bytes) -> bytes:
    """The line that the agent reads: the browser's frame with its `seq`."""
    return splice(b'"seq":%d' % seq, payload)


def steers(payload: bytes) -> bool:
    """True if a message is meant for the turn that runs. Only a few are parsed for it."""
    return b'"steer"' in payload and metadata_of(orjson.loads(payload)).get("steer") is True


def snug(data: bytes) -> bytes:
    """A copy without orjson's spare room (4 KiB for a short frame, measured), for values that are kept."""
    return bytes(memoryview(data))


def delivered_line(record: Record) -> bytes:
    """The line that the agent reads for a record: a raw line as it came, any other record as a frame with its `seq`."""
    if record.type == "raw":
        return str(orjson.loads(record.payload)["content"]).encode()
    return agent_line(record.seq, record.payload)


def numbered(offset: int, line: bytes, *, is_frame: bool) -> bytes:
    """An agent's frame as browsers see it. A line that is no JSON object goes out as `output`."""
    if is_frame:
        # Of two members of one name a browser believes the last, so the agent's frame may have none with the name of
        # ours. The name can only be plain or escaped: other frames need not be parsed again.
        if b'"_offset"' in line or b"\\u" in line:
            body = orjson.loads(line)
            if "_offset" in body:
                return orjson.dumps({"_offset": offset} | body | {"_offset": offset})
        if line.startswith(b'{"'):
            return b'{"_offset":%d,%b' % (offset, line[1:])
        return splice(b'"_offset":%d' % offset, line)
    return snug(orjson.dumps({"_offset": offset, "type": "output", "text": line.decode(errors="replace")}))


def read_agent_frame(line: bytes) -> dict[str, Any] | None:
    """An agent's line as a frame; None if it is no JSON object, or one too deep or too wide to be parsed."""
    if line[:1] != b"{":
        return None
    try:
        if len(line) > SURELY_NARROW:
            check_width(line)
        body: dict[str, Any] = orjson.loads(line)
    except (BadJson, orjson.JSONDecodeError):
        return None
    few = line.count(b"{") + line.count(b"[") <= MAX_DEPTH  # and cannot nest deeply
    return body if few or within_depth(body) else None


def read_frame(raw: bytes) -> ChatFrame:
    """Read one frame of a browser; raises UnreadableFrame or Invalid."""
    try:
        body = load_object(raw)
    except BadJson as error:
        raise UnreadableFrame(str(error)) from None
    cid = body.get("cid")
    if cid is not None and not is_cid(cid):
        text = f"cid must be a string of 1 to {CID_LENGTH} printable characters"
        raise Invalid(cid[:CID_LENGTH], text) if isinstance(cid, str) else UnreadableFrame(text)
    problem = _problem(body)
    if problem is None and cid is not None and cid.startswith(RESERVED_CIDS):
        problem = f"a cid may not begin with {', '.join(RESERVED_CIDS)}"
    if problem is None:
        return _frame(body, raw)
    if cid is None:
        raise UnreadableFrame(problem)
    raise Invalid(cid, problem)


def is_cid(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= CID_LENGTH and value.isprintable()


def is_content(value: object) -> bool:
    """A string, or an array of typed parts."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in value)
    return isinstance(value, str)


def _problem(body: dict[str, Any]) -> str | None:
    """The fault of a frame; None if there is none."""
    match body.get("type"):
        case "message":
            if not is_content(body.get("content")):
                return "content must be a string or an array of parts, each an object with a type"
            if not isinstance(body.get("metadata", {}), dict):
                return "metadata must be an object"
        case "permission_response" | "ask_user_answer":
            request_id = body.get("requestId")
            if not isinstance(request_id, str) or not 0 < len(request_id) <= 256:
                return "requestId must be a string of 1 to 256 characters"
        case "auth":
            if not isinstance(body.get("token"), str):
                return "token must be a string"
        case "start" | "abort" | "close" | "ping":
            pass
        case str() as other:
            return f"unknown type {other[:64]!r}"
        case _:
            return "type must be a string"
    return None


def record_json(record: Record) -> dict[str, Any]:
    """A stored message as every reader sees it."""
    payload = orjson.loads(record.payload)
    return _shown(record, content_of(payload), metadata_of(payload))


def _shown(record: Record, content: object, metadata: object) -> dict[str, Any]:
    seq = record.seq
    return {
        "id": f"{record.session_id}.{seq}",
        "seq": seq,
        "cid": record.cid,
        "role": record.role,
        "type": record.type,
        "content": content,
        "metadata": metadata,
        "createdAt": iso(record.created_at),
        "status": str(record.status),
    }


def dump(type: str, **members: object) -> bytes:
    """One of the gateway's own frames. Members that are None are left out."""
    return orjson.dumps({"type": type} | {name: value for name, value in members.items() if value is not None})


_ANSWER = (
    b'{"type":"record","seq":%d,"cid":"%b","record":{"id":"%b.%d","seq":%d,"cid":"%b",'
    b'"role":"assistant","type":"message",%b,"createdAt":"%b","status":"%b"}}'
)


def record_frame(record: Record) -> bytes:
    """The frame about a stored record for every viewer. A very large record goes without its content: history has
    it."""
    seq = record.seq
    if len(record.payload) > RECORD_FRAME_BYTES:
        brief = _shown(record, None, {})
        return dump("record", seq=seq, cid=record.cid, record=brief, omitted=True)
    if record.type == "message" and record.cid.startswith("agent:"):
        # An answer, and so written by Transcript: content and metadata only, as orjson writes them.
        cid, session, said = record.cid.encode(), record.session_id.encode(), record.payload[1:-1]
        at, status = iso(record.created_at).encode(), record.status.encode()
        return _ANSWER % (seq, cid, session, seq, seq, cid, said, at, status)
    return orjson.dumps({"type": "record", "seq": seq, "cid": record.cid, "record": record_json(record)})


def ack(cid: str, seq: int, *, stage: str = "stored", status: str | None = "stored") -> bytes:
    if stage == "stored" == status:
        return b'{"type":"ack","cid":%b,"seq":%d,"stage":"stored","status":"stored"}' % (orjson.dumps(cid), seq)
    return dump("ack", cid=cid, seq=seq, stage=stage, status=status)


def delivered(cid: str, seq: int) -> bytes:
    """A record has reached the agent."""
    return b'{"type":"receipt","cid":%b,"seq":%d,"stage":"delivered"}' % (orjson.dumps(cid), seq)


def nack(cid: str, reason: str, text: str | None = None) -> bytes:
    return dump("nack", cid=cid, reason=reason, error=text)


_OURS_IN_DONE = ("_offset", "messageId", "seq")


def done_frame(offset: int, body: dict[str, Any], line: bytes, message_id: str, seq: int) -> bytes:
    """The agent's `done`, passed on once its record is durable. `body` is `line`, parsed."""
    if "metadata" in body and body.keys().isdisjoint(_OURS_IN_DONE):
        return b'{"_offset":%d,"messageId":"%b","seq":%d,%b' % (offset, message_id.encode(), seq, line[1:])
    ours = {"_offset": offset, "type": "done", "messageId": message_id, "seq": seq}
    return snug(orjson.dumps({"_offset": offset, "metadata": {}} | body | ours))
