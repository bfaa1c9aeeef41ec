"""The transcript of an agent's output. Pure: a frame goes in, records to store come out.

There is one transcript for all agents: the gateway knows chat frames only, whatever an agent's own protocol is.

An answer is everything between two `done` frames. Its text comes from `sdk_message`s; streamed `chunk`s carry the same
text earlier, so they count only from the last `sdk_message` on, where none has come to replace them. Between two
messages, and where a tool was used, stands a blank line.

Tool calls and their results are kept as blocks beside the text. To show the order, a block `{"type": "text", "at": n}`
stands among them where text begins: at its n-th character, counted from 0. An answer without tools has no blocks.

An agent's reports about its work are shown and not stored, except the last of each kind in `KEPT` (plans, activity,
usage): those go into the answer's metadata. A report that the agent has lost its memory of the conversation is a
record.

A permission or a question is a record at once, `open` until it is answered, or until the agent withdraws it
(`request_gone`).

A `done` answers the oldest message that is owed an answer; or, if it has `answers`, the messages with these seqs: an
agent may fold a message into the turn that runs.

`save` and `restore` carry an unfinished answer over a gateway restart, together with the position up to which the
agent's output is in it; frames up to that position must not be fed again.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson

REQUESTS = {"tool_permission_request": "permission_request", "ask_user_question": "question"}
# A browser's frame -> the record it becomes, and the kind of request it answers.
ANSWERS = {
    "permission_response": ("permission_response", "permission_request"),
    "ask_user_answer": ("question_answer", "question"),
}
ANSWER_RECORDS = frozenset(record_type for record_type, _ in ANSWERS.values())
EXCHANGES = ANSWER_RECORDS | frozenset(REQUESTS.values())  # types of records about the agent's requests
MAX_SIZE = 8 << 20  # of one answer's text and blocks; the rest is left out, which metadata.truncated says
MAX_BLOCKS = 10_000
MAX_NUMBER = 2**53 - 1  # of a seq
MAX_ANSWERS = 1_000  # messages that one `done` may name
KEPT = ("todo", "plan", "usage")  # frames of which the last goes into the answer's metadata
MAX_KEPT = 64 << 10  # bytes of each; a longer one is not kept
BREAK = "\n\n"
MAX_REASON = 1_000  # characters of the reason why a request is gone
MAX_PIECES = 1_000  # of text; more are joined, because a million short strings take far more room than their characters


class AgentAnswer(msgspec.Struct, frozen=True):
    """The agent finished: store its message, then pass `done` on."""

    payload: bytes
    done: dict[str, Any]
    aborted: bool = False  # the agent reports that it stopped early, because it was asked to
    answers: tuple[int, ...] | None = None  # seqs of the messages that it answers; None: the oldest


class Request(msgspec.Struct, frozen=True, gc=False):
    """The agent asks something and waits."""

    type: str
    request_id: str
    payload: bytes


class RequestGone(msgspec.Struct, frozen=True, gc=False):
    """The agent withdraws a request."""

    request_id: str
    reason: str | None = None


class Remark(msgspec.Struct, frozen=True, gc=False):
    """A report of the agent about itself that stays in the conversation."""

    type: str
    payload: bytes


Due = AgentAnswer | Request | RequestGone | Remark


@dataclass(slots=True)
class Transcript:
    settled: list[str] = field(default_factory=list)
    streamed: list[str] = field(default_factory=list)
    blocks: list[bytes] = field(default_factory=list)  # JSON: as objects they could take twenty times the room
    size: int = 0
    truncated: bool = False
    # Where text begins after a tool: (number of blocks before it, its first character). Text before the first tool has
    # no mark.
    marks: list[tuple[int, int]] = field(default_factory=list)
    kept: dict[str, bytes] = field(default_factory=dict)

    @property
    def begun(self) -> bool:
        """True if there is an unfinished answer worth storing."""
        return bool(self.settled or self.streamed or self.blocks)

    def feed(self, body: dict[str, Any], line: bytes) -> Due | None:
        """Take one frame of the agent, parsed and as received; return what is to be stored, or None."""
        match body.get("type"):
            case "chunk":
                self._stream(body.get("text", body.get("content")))
            case "sdk_message":
                self._settle(body.get("message"))
            case "tool_permission_request" | "ask_user_question" as kind:
                if (request_id := _request_id(body)) is not None:
                    return Request(REQUESTS[kind], request_id, line)
            case "done":
                metadata = body.get("metadata")
                metadata = metadata if isinstance(metadata, dict) else {}
                answers = _seqs(body.get("answers"))
                aborted = metadata.get("aborted") is True
                if answers is not None:
                    metadata = metadata | {"answers": answers}
                return AgentAnswer(self.finish(metadata), body, aborted, answers)
            case "request_gone":
                if (request_id := _request_id(body)) is not None:
                    reason = body.get("reason")
                    return RequestGone(request_id, reason[:MAX_REASON] if isinstance(reason, str) else None)
            case "todo" | "plan" | "usage" as kind:
                self._remember(kind, body)
            case "agent_status" if body.get("status") == "memory_lost":
                return Remark("agent_status", line)
        return None

    def finish(self, metadata: dict[str, Any]) -> bytes:
        """Return the answer so far as a record's payload, and begin an empty one."""
        if self.streamed:
            self._begin_text()
        text = "".join(self.settled) + "".join(self.streamed)
        if self.kept:
            metadata = {name: orjson.Fragment(said) for name, said in self.kept.items()} | metadata
        if self.blocks:
            metadata = metadata | {"blocks": self._in_order(bool(text))}
        if self.truncated:
            metadata = metadata | {"truncated": True}
        self.settled, self.streamed, self.blocks, self.size, self.truncated = [], [], [], 0, False
        self.marks, self.kept = [], {}
        return orjson.dumps({"content": text, "metadata": metadata})

    def save(self) -> bytes:
        saved = [self.settled, self.streamed, [orjson.Fragment(block) for block in self.blocks], self.truncated]
        if self.marks or self.kept:
            saved += [self.marks, {name: orjson.Fragment(said) for name, said in self.kept.items()}]
        return orjson.dumps(saved)

    @classmethod
    def restore(cls, saved: bytes) -> "Transcript":
        settled, streamed, parts, truncated, *more = orjson.loads(saved)
        marks, kept = more or ((), {})
        blocks = [_block(part) for part in parts]
        size = sum(map(len, settled)) + sum(map(len, streamed)) + sum(map(len, blocks))
        said = {name: _block(part) for name, part in kept.items()}
        return cls(settled, streamed, blocks, size, truncated, [(count, at) for count, at in marks], said)

    def _stream(self, text: object) -> None:
        if isinstance(text, str):
            self._add(text, self.streamed)

    def _settle(self, message: object) -> None:
        if not isinstance(message, dict):
            return
        inner = message.get("message")
        content = inner.get("content") if isinstance(inner, dict) else None
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(parts, list):
            return
        speaks = message.get("type") == "assistant" and any(map(_is_text, parts))
        if speaks:
            self.size -= sum(map(len, self.streamed))
            self.streamed = []
        begins = True
        for part in parts:
            if speaks and _is_text(part):
                if begins:
                    self._begin_text()
                    begins = False
                self._add(part["text"], self.settled)
            elif isinstance(part, dict) and part.get("type") in ("tool_use", "tool_result"):
                self._keep(_block(part))
                begins = True

    def _begin_text(self) -> None:
        """Begin a text after earlier text and after the blocks."""
        if self.settled:
            self._add(BREAK, self.settled)
        if self.blocks and (not self.marks or self.marks[-1][0] < len(self.blocks)):
            self.marks.append((len(self.blocks), sum(map(len, self.settled))))

    def _in_order(self, said: bool) -> list[Any]:
        """The blocks, with marks among them where text begins."""
        marks = self.marks if not said or (self.marks and not self.marks[0][1]) else [(0, 0), *self.marks]
        found, after = list[Any](), 0
        for count, at in marks:
            found += map(orjson.Fragment, self.blocks[after:count])
            found.append({"type": "text", "at": at})
            after = count
        return [*found, *map(orjson.Fragment, self.blocks[after:])]

    def _remember(self, kind: str, body: dict[str, Any]) -> None:
        """Keep the newest report of each kind about an agent's work."""
        said = {name: value for name, value in body.items() if name != "type"}
        if kind == "usage" and "costUsd" in said:
            self._remember_as("costUsd", said.pop("costUsd"))
        self._remember_as(kind, said)

    def _remember_as(self, name: str, value: Any) -> None:
        said = _block(value)
        if len(said) <= MAX_KEPT:
            self.kept[name] = said
        else:
            self.kept.pop(name, None)

    def _add(self, text: str, pieces: list[str]) -> None:
        """Add text, cut where there is no more room, so that the stored text has no hole."""
        kept = text[: max(0, MAX_SIZE - self.size)]
        self.truncated |= len(kept) < len(text)
        self.size += len(kept)
        if kept:
            pieces.append(kept)
        if len(pieces) > MAX_PIECES:
            pieces[:] = ["".join(pieces)]

    def _keep(self, block: bytes) -> None:
        if self.size + len(block) > MAX_SIZE or len(self.blocks) >= MAX_BLOCKS:
            self.truncated = True
        else:
            self.size += len(block)
            self.blocks.append(block)


def ends_answer(body: dict[str, Any]) -> bool:
    """True if this frame ends an answer."""
    return body.get("type") == "done"


def request_id_of(payload: bytes) -> str:
    """The id of a stored request, read from the payload that `Request` gave it."""
    return str(orjson.loads(payload)["requestId"])


def _block(part: Any) -> bytes:
    """A copy, because orjson's result keeps its whole buffer: 4 KiB for a few bytes."""
    return bytes(memoryview(orjson.dumps(part)))


def _request_id(body: dict[str, Any]) -> str | None:
    request_id = body.get("requestId")
    return request_id if isinstance(request_id, str) and 0 < len(request_id) <= 256 else None


def _seqs(answers: object) -> tuple[int, ...] | None:
    """The seqs of the messages that a `done` names; None if it has no proper list."""
    if not isinstance(answers, list):
        return None
    return tuple(seq for seq in answers[:MAX_ANSWERS] if type(seq) is int and 0 < seq <= MAX_NUMBER)


def _is_text(part: object) -> bool:
    """True for a text part that is not empty. An empty one replaces nothing that was streamed."""
    return (
        isinstance(part, dict)
        and part.get("type") == "text"
        and isinstance(part.get("text"), str)
        and part["text"] != ""
    )
