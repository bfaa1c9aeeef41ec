"""What an agent's frames add to the conversation. Pure: a frame goes in, records to store come out.

This is the one transcript: the gateway knows chat frames only, whatever an agent's own words are.

An answer is everything between two `done` frames. Its text is what the `sdk_message`s say; streamed `chunk`s are the
same words earlier, so they count only from the last `sdk_message` on, where none has come to replace them. Tool calls
and their results are kept as blocks beside the text. A permission or a question is a record at once, `open` until it
is answered, or until the agent withdraws it (`request_gone`).

A `done` answers the oldest message that is owed an answer; or, where it says `answers`, the messages with these seqs:
an agent may fold a message into the turn that runs.

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
EXCHANGES = ANSWER_RECORDS | frozenset(REQUESTS.values())  # types of records about what an agent asked
MAX_SIZE = 8 << 20  # of one answer's text and blocks; what is beyond is left out, and said so in metadata.truncated
MAX_BLOCKS = 10_000
MAX_NUMBER = 2**53 - 1  # of a seq
MAX_ANSWERS = 1_000  # messages that one `done` may name
MAX_REASON = 1_000  # characters of what a viewer is told of a request that is gone
MAX_PIECES = 1_000  # of text; more are joined, for a million short strings take far more room than their characters


class AgentAnswer(msgspec.Struct, frozen=True):
    """The agent finished: store its message, then pass `done` on."""

    payload: bytes
    done: dict[str, Any]
    aborted: bool = False  # the agent says that it stopped early, as it was told to
    answers: tuple[int, ...] | None = None  # seqs of the messages that it answers; None: the oldest


class Request(msgspec.Struct, frozen=True, gc=False):
    """The agent asks something and waits."""

    type: str
    request_id: str
    payload: bytes


class RequestGone(msgspec.Struct, frozen=True, gc=False):
    """The agent asks this no more."""

    request_id: str
    reason: str | None = None


Due = AgentAnswer | Request | RequestGone


@dataclass(slots=True)
class Transcript:
    settled: list[str] = field(default_factory=list)
    streamed: list[str] = field(default_factory=list)
    blocks: list[bytes] = field(default_factory=list)  # JSON: as objects they could take twenty times the room
    size: int = 0
    truncated: bool = False

    @property
    def begun(self) -> bool:
        """Whether there is an unfinished answer worth keeping."""
        return bool(self.settled or self.streamed or self.blocks)

    def feed(self, body: dict[str, Any], line: bytes) -> Due | None:
        """Take one frame of the agent in, read and as it came; return what it makes due."""
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
        return None

    def finish(self, metadata: dict[str, Any]) -> bytes:
        """The answer so far as a record's payload; the next one begins empty."""
        text = "".join(self.settled) + "".join(self.streamed)
        if self.blocks:
            metadata = metadata | {"blocks": [orjson.Fragment(block) for block in self.blocks]}
        if self.truncated:
            metadata = metadata | {"truncated": True}
        self.settled, self.streamed, self.blocks, self.size, self.truncated = [], [], [], 0, False
        return orjson.dumps({"content": text, "metadata": metadata})

    def save(self) -> bytes:
        return orjson.dumps(
            [self.settled, self.streamed, [orjson.Fragment(block) for block in self.blocks], self.truncated]
        )

    @classmethod
    def restore(cls, saved: bytes) -> "Transcript":
        settled, streamed, parts, truncated = orjson.loads(saved)
        blocks = [_block(part) for part in parts]
        size = sum(map(len, settled)) + sum(map(len, streamed)) + sum(map(len, blocks))
        return cls(settled, streamed, blocks, size, truncated)

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
        said = [part["text"] for part in parts if _is_text(part)] if message.get("type") == "assistant" else []
        if said:
            self.size -= sum(map(len, self.streamed))
            self.streamed = []
            for text in said:
                self._add(text, self.settled)
        for part in parts:
            if isinstance(part, dict) and part.get("type") in ("tool_use", "tool_result"):
                self._keep(_block(part))

    def _add(self, text: str, pieces: list[str]) -> None:
        """Text is cut where there is no more room, so that what is kept has no hole."""
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
    """Whether this frame is the end of an answer."""
    return body.get("type") == "done"


def request_id_of(payload: bytes) -> str:
    """Which request a record is, by the payload that `Request` gave it."""
    return str(orjson.loads(payload)["requestId"])


def _block(part: Any) -> bytes:
    """Copied, because what orjson returns keeps its whole buffer: 4 KiB for a few bytes."""
    return bytes(memoryview(orjson.dumps(part)))


def _request_id(body: dict[str, Any]) -> str | None:
    request_id = body.get("requestId")
    return request_id if isinstance(request_id, str) and 0 < len(request_id) <= 256 else None


def _seqs(answers: object) -> tuple[int, ...] | None:
    """Which messages a `done` names; None if it names none in the way it should."""
    if not isinstance(answers, list):
        return None
    return tuple(seq for seq in answers[:MAX_ANSWERS] if type(seq) is int and 0 < seq <= MAX_NUMBER)


def _is_text(part: object) -> bool:
    """An empty one says nothing, so it replaces nothing that was streamed."""
    return (
        isinstance(part, dict)
        and part.get("type") == "text"
        and isinstance(part.get("text"), str)
        and part["text"] != ""
    )
