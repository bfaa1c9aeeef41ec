"""The turn of an agent that works on one message at a time, in frames for the gateway. Pure.

A message begins a turn. The turn ends with one `done`, which names every message that it answered: a running turn may
take in further messages (*steer*). Between the two come text and thinking in pieces, messages, and requests.

**Pieces are gathered.** An agent writes a few characters at a time, and one frame for each would be four times the
text. The first piece goes out at once. Pieces within the next GATHER_SECONDS become one frame, or one for each
GATHER_BYTES. Any other frame first sends the gathered pieces, so the order stays.

**Text goes once.** A message repeats text that was streamed before. The core repeats the first REPEATED characters of
a turn, for clients that show messages only, and leaves out the rest to the end of the turn. It must leave out all of
the rest: in the answer, a message's text replaces the text streamed before it, so a part would replace the whole.

**Requests end with their turn.** The core withdraws requests that are still open at its end (`request_gone`), because
most agents do not say so.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox.agents.core import Out, ToGateway, WakeAfter
from sandbox.agents.json_lines import frame, line, text

GATHER = "gather"
GATHER_SECONDS = 0.03
GATHER_BYTES = 4096
REPEATED = 48 << 10
MAX_REQUESTS = 256
MAX_REQUEST_BYTES = 4 << 20  # kept with the open ones
MAX_JOINING = 64  # steering messages that an agent has and has not taken into its turn yet
MAX_IDENTITY = 200  # characters
MAX_ID = 256  # characters of a request's id that the gateway takes, and of other names that cores remember


@dataclass(slots=True)
class Turn:
    """`seqs` are the messages that the turn answers; `requests` are the agent's unanswered requests."""

    running: bool = False
    aborting: bool = False
    seqs: list[int] = field(default_factory=list)
    requests: dict[str, Any] = field(default_factory=dict)
    identity: dict[str, str] = field(default_factory=dict)  # what the core said of the agent so far
    streaming: bool = False
    _kind: str = ""  # kind of the gathered pieces
    _pieces: list[str] = field(default_factory=list)
    _size: int = 0
    _waking: bool = False
    _said_again: int = 0
    _left_out: bool = False  # a request was left out in this turn
    _sizes: dict[str, int] = field(default_factory=dict)  # bytes kept with each open request

    def begin(self, seq: int | None) -> None:
        """A message goes to the agent. It begins a turn, or joins the running one."""
        self.running = True
        if seq is not None:
            self.seqs.append(seq)

    def say(self, kind: str, **members: Any) -> Iterator[Out]:
        """Send one frame, after all gathered pieces."""
        yield from self._flush()
        yield _one(kind, members)

    def piece(self, kind: str, words: str) -> Iterator[Out]:
        """A piece of text (`chunk`) or of `thinking`."""
        if not words:
            return
        if kind != self._kind:
            yield from self._flush()
            self._kind = kind
        if kind == "chunk" and not self.streaming:
            self.streaming = True
            yield _one("stream_start", {})
        self._pieces.append(words)
        self._size += len(words)
        if not self._waking:
            self._waking = True
            yield from self._flush()
            yield WakeAfter(GATHER, GATHER_SECONDS)
        elif self._size >= GATHER_BYTES:
            yield from self._flush()

    def gathered(self) -> Iterator[Out]:
        """GATHER_SECONDS have passed."""
        self._waking = bool(self._pieces)
        if self._waking:
            yield from self._flush()
            yield WakeAfter(GATHER, GATHER_SECONDS)

    def _flush(self) -> Iterator[Out]:
        if self._pieces:
            yield _one(self._kind, {"text": "".join(self._pieces)})
            self._pieces.clear()
            self._size = 0

    def identify(self, **members: str) -> Iterator[Out]:
        """Say who the agent is: `name`, `version`, `session`, `model`. Only changes are sent."""
        said = {name: each[:MAX_IDENTITY] for name, each in members.items()}
        new = {name: each for name, each in said.items() if each and self.identity.get(name) != each}
        if new:
            self.identity |= new
            yield from self.say("agent_status", **new)

    def end_stream(self) -> Iterator[Out]:
        yield from self._flush()
        if self.streaming:
            self.streaming = False
            yield _one("stream_end", {})

    def message(self, role: str, blocks: Sequence[Mapping[str, Any]], *, streamed: bool = True) -> Iterator[Out]:
        """A whole message of the agent. `streamed`: its text came in pieces before."""
        if role == "assistant":
            words = "".join(text(block.get("text")) for block in blocks if block.get("type") == "text")
            if words and not streamed:
                yield from self.piece("chunk", words)
            yield from self.end_stream()
            self._said_again += len(words)
            if self._said_again > REPEATED:
                blocks = [block for block in blocks if block.get("type") != "text"]
        if blocks:
            content = {"role": role, "content": list(blocks)}
            yield from self.say("sdk_message", message={"type": role, "message": content})

    def ask(self, kind: str, request_id: str, kept: Any, **members: Any) -> Iterator[Out]:
        """The agent asks something; `answered` gives `kept` back. A request that cannot be shown is reported once a
        turn."""
        if not self.running:
            return
        why = self._why_left_out(request_id, kept)
        if not why:
            self.requests[request_id] = kept
            yield from self.say(kind, requestId=request_id, **members)
        elif not self._left_out:
            self._left_out = True
            told = f"a request of the agent cannot be shown, and the agent may wait for the answer: {why}"
            yield from self.say("error", code="agent", error=told)

    def _why_left_out(self, request_id: str, kept: Any) -> str:
        if not 0 < len(request_id) <= MAX_ID:
            return "the request's name is empty or too long"
        if len(self.requests) >= MAX_REQUESTS:
            return f"more than {MAX_REQUESTS} requests are open"
        sizes = {name: self._sizes.get(name, 0) for name in self.requests} | {request_id: len(line({"kept": kept}))}
        if sum(sizes.values()) > MAX_REQUEST_BYTES:
            return f"the open requests hold more than {MAX_REQUEST_BYTES >> 20} MiB"
        self._sizes = sizes
        return ""

    def answered(self, request_id: Any) -> Any:
        """What was kept with this request, which is now answered; None if it is not open."""
        return self.requests.pop(request_id, None) if isinstance(request_id, str) else None

    def reply(self, frame: Mapping[str, Any], told: Callable[[Any], Out]) -> Iterator[Out]:
        """`frame` answers a request: the agent is `told` so, with what was kept of it."""
        asked = self.answered(frame.get("requestId"))
        if asked is None:
            yield from self.say("error", code="unknown_request", error="the agent no longer asks this")
        else:
            yield told(asked)

    def withdraw(self, request_id: str, reason: str) -> Iterator[Out]:
        if self.requests.pop(request_id, None) is not None:
            yield from self.say("request_gone", requestId=request_id, reason=reason)

    def done(self, still: Sequence[int] = (), *, failed: bool = False, **metadata: Any) -> Iterator[Out]:
        """The turn is over. It did not answer the messages of `still`: the agent goes on with them."""
        if not self.running:
            return
        yield from self.end_stream()
        for request_id in list(self.requests):
            yield from self.withdraw(request_id, "the turn is over")
        told = {"aborted": True if self.aborting else None, "error": True if failed else None, **metadata}
        answers = [seq for seq in self.seqs if seq not in still]
        known = {name: each for name, each in told.items() if each is not None}
        yield from self.say("done", answers=answers or None, metadata=known)
        self.seqs = [seq for seq in self.seqs if seq in still]
        self.running = bool(self.seqs)
        self.aborting = self._left_out = False
        self._said_again = 0

    def refuse(self, seq: int | None) -> Iterator[Out]:
        """No turn answers this message: the agent never gets it."""
        yield from self.say("done", answers=None if seq is None else [seq], metadata={"error": True})

    def over(self) -> Iterator[Out]:
        """The process is gone: send what was gathered."""
        yield from self._flush()


def _one(kind: str, members: dict[str, Any]) -> ToGateway:
    return ToGateway([frame(kind, members)])
