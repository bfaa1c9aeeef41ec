"""The turn of an agent that works on one message at a time, as the gateway hears it. Pure.

It is begun by a message and ends with one `done`, which names all messages that it answered: a message may be folded
into a turn that runs (*steer*). Between the two go text and thinking in pieces, messages, requests.

**Pieces are gathered.** An agent writes a few characters at a time, and a frame for each would be four times the text.
The first piece goes at once; what comes within GATHER_SECONDS after it is one frame, or one for each GATHER_BYTES. Any
other frame sends what was gathered before it, so the order stays.

**Text goes once.** A message repeats the text that was streamed. Of one turn the first REPEATED characters are said
again, so that clients which show messages alone have them; what is beyond is left out of the messages, from there to
the end of the turn: in the answer, text of a message replaces what was streamed before it, and must not be a part.

**Requests end with their turn.** What is still open then is withdrawn (`request_gone`): most agents do not say so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox.agents.core import Out, ToGateway, WakeAfter
from sandbox.agents.json_lines import frame, text

GATHER = "gather"
GATHER_SECONDS = 0.03
GATHER_BYTES = 4096
REPEATED = 48 << 10
MAX_REQUESTS = 256
MAX_IDENTITY = 200  # characters
MAX_ID = 256  # characters of a request's id that the gateway takes, and of other names that cores keep


@dataclass(slots=True)
class Turn:
    """`seqs` are the messages that the turn answers, `requests` what the agent asked and nobody answered."""

    running: bool = False
    aborting: bool = False
    seqs: list[int] = field(default_factory=list)
    requests: dict[str, Any] = field(default_factory=dict)
    identity: dict[str, str] = field(default_factory=dict)  # what was told of the agent
    streaming: bool = False
    _kind: str = ""  # of the pieces that are gathered
    _pieces: list[str] = field(default_factory=list)
    _size: int = 0
    _waking: bool = False
    _said_again: int = 0
    _left_out: bool = False  # a request was, in this turn

    def begin(self, seq: int | None) -> None:
        """A message goes to the agent: it begins a turn, or is folded into the one that runs."""
        self.running = True
        if seq is not None:
            self.seqs.append(seq)

    def say(self, kind: str, **members: Any) -> Iterator[Out]:
        """One frame, after all that was gathered."""
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
        """Who the agent says that it is: `name`, `version`, `session`, `model`. Only what is new is told."""
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
        """A message as the agent has it. `streamed`: its text came in pieces before."""
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
        """The agent asks something; `kept` is given back with the answer. What cannot be shown is told once a turn."""
        if self.running and 0 < len(request_id) <= MAX_ID and len(self.requests) < MAX_REQUESTS:
            self.requests[request_id] = kept
            yield from self.say(kind, requestId=request_id, **members)
        elif self.running and not self._left_out:
            self._left_out = True
            many = len(self.requests) >= MAX_REQUESTS
            why = f"more than {MAX_REQUESTS} of its requests are open" if many else "its request has no usable name"
            yield from self.say("error", code="agent", error=f"the agent asks what is not shown, and may wait: {why}")

    def answered(self, request_id: Any) -> Any:
        """What was kept with a request that is answered now; None if nobody asks it."""
        return self.requests.pop(request_id, None) if isinstance(request_id, str) else None

    def withdraw(self, request_id: str, reason: str) -> Iterator[Out]:
        if self.requests.pop(request_id, None) is not None:
            yield from self.say("request_gone", requestId=request_id, reason=reason)

    def done(self, still: Sequence[int] = (), *, failed: bool = False, **metadata: Any) -> Iterator[Out]:
        """The turn is over. `still` are messages that it did not answer: the agent goes on with them."""
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
        """No turn answers this message: the agent never has it."""
        yield from self.say("done", answers=None if seq is None else [seq], metadata={"error": True})

    def over(self) -> Iterator[Out]:
        """The process is gone: say what was held back."""
        yield from self._flush()


def _one(kind: str, members: dict[str, Any]) -> ToGateway:
    return ToGateway([frame(kind, members)])
