"""The tokens that a model's answer cost, read while the answer passes by. Pure.

Each kind of API states them in its own way: in events of a stream, or in one JSON document. A meter is fed the bytes as
they come, in any pieces, and keeps little of them: at most LINE_BYTES of an event, and of a longer one, as of a
document, only the position (`counts.py`). Garbage counts as nothing, and is no error: the answer is the agent's,
whatever its content.

Numbers within one answer only grow, so the greatest of each counts. A stream that was cut off, or that states no
tokens, is estimated: an event of a stream is about a token, and so are four bytes of a document.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from gateway.egress.counts import CountFinder, FoundCounts, Path, found_in
from gateway.egress.providers import Api

LINE_BYTES = 64 << 10
BYTES_A_TOKEN = 4
_EVENT, _DONE = b"data:", b"[DONE]"


@dataclass(frozen=True, slots=True)
class Tokens:
    """`input` excludes tokens that were read from or written to a cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write


@dataclass(frozen=True, slots=True)
class MeterReading:
    """`exact`: the model stated the tokens itself, at the end. `model` is its own name for itself; "": it gave none."""

    tokens: Tokens
    exact: bool
    model: str = ""


# The places of the counts in a document of each kind, the final one first; and the place of the model's name.
_USAGE: Mapping[Api, tuple[Path, ...]] = {
    Api.ANTHROPIC: (("usage",), ("message", "usage")),
    Api.RESPONSES: (("response", "usage"), ("usage",)),
    Api.CHAT: (("usage",),),
    Api.GOOGLE: (("usageMetadata",),),
    Api.GIT: (),
}
_MODEL: Mapping[Api, tuple[Path, ...]] = {
    Api.ANTHROPIC: (("model",), ("message", "model")),
    Api.RESPONSES: (("model",), ("response", "model")),
    Api.CHAT: (("model",),),
    Api.GOOGLE: (("modelVersion",),),
    Api.GIT: (),
}


class Meter:
    """The meter of one answer with status 200."""

    def __init__(self, api: Api, *, streamed: bool) -> None:
        self._api = api
        self._counts: dict[str, int] = {}
        self._model = ""
        self._events = 0
        self._bytes = 0
        self._finished = False
        self._line = bytearray()
        self._document = None if streamed else CountFinder(_USAGE[api], _MODEL[api])
        self._long: CountFinder | None = None  # an event longer than LINE_BYTES
        self._skips = False  # skip bytes up to the next line

    def feed(self, data: bytes) -> None:
        """The next piece of the body."""
        self._bytes += len(data)
        if self._document is not None:
            return self._document.feed(data)
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._take(piece)
            self._end_line()
        self._take(rest)

    def read(self, *, sent_bytes: int = 0, whole: bool = True) -> MeterReading:
        """The counts so far. `sent_bytes` is the length of the question; `whole`: the answer came to its end."""
        if self._document is not None:
            self._notice(self._document.found)
        counted = _tokens(self._api, self._counts)
        exact = whole and bool(self._counts) and (self._finished or self._document is not None)
        if exact:
            return MeterReading(counted, True, self._model)
        heard = self._events if self._document is None else self._bytes // BYTES_A_TOKEN
        unheard = counted.total == counted.output
        guessed = Tokens(
            input=sent_bytes // BYTES_A_TOKEN if unheard else counted.input,
            output=max(counted.output, heard),
            cache_read=counted.cache_read,
            cache_write=counted.cache_write,
        )
        return MeterReading(guessed, False, self._model)

    def _take(self, piece: bytes) -> None:
        """More bytes of a line."""
        if self._long is not None:
            return self._long.feed(piece)
        if self._skips:
            return
        self._line += piece
        if len(self._line) > LINE_BYTES:
            self._skips = True
            if self._line.startswith(_EVENT):
                self._long = CountFinder(_USAGE[self._api], _MODEL[self._api])
                self._long.feed(bytes(self._line[len(_EVENT) :]))
            self._line.clear()

    def _end_line(self) -> None:
        if self._long is not None:
            self._events += 1
            self._notice(self._long.found)
        elif self._line.startswith(_EVENT) and not self._skips:
            self._event(bytes(self._line[len(_EVENT) :]).strip())
        self._long, self._skips = None, False
        self._line.clear()

    def _event(self, data: bytes) -> None:
        if data == _DONE:
            return
        self._events += 1
        if b'"usage' in data or b'"model' in data:
            try:
                said = msgspec.json.decode(data)
            except (msgspec.DecodeError, RecursionError):
                return
            self._notice(found_in(said, _USAGE[self._api], _MODEL[self._api]))

    def _notice(self, found: FoundCounts) -> None:
        for name, count in found.counts.items():
            self._counts[name] = max(count, self._counts.get(name, 0))
        self._model = found.model or self._model
        self._finished = self._finished or bool(found.places.intersection(_USAGE[self._api][:1]))


def _tokens(api: Api, counts: Mapping[str, int]) -> Tokens:
    def count(*names: str) -> int:
        return sum(counts.get(name, 0) for name in names)

    match api:
        case Api.ANTHROPIC:
            return Tokens(
                input=count("input_tokens"),
                output=count("output_tokens"),
                cache_read=count("cache_read_input_tokens"),
                cache_write=count("cache_creation_input_tokens"),
            )
        case Api.RESPONSES:
            cached = count("input_tokens_details.cached_tokens")
            return Tokens(max(0, count("input_tokens") - cached), count("output_tokens"), cached)
        case Api.CHAT:
            cached = count("prompt_tokens_details.cached_tokens")
            return Tokens(max(0, count("prompt_tokens") - cached), count("completion_tokens"), cached)
        case Api.GOOGLE:
            cached = count("cachedContentTokenCount")
            given = count("promptTokenCount", "toolUsePromptTokenCount")
            return Tokens(max(0, given - cached), count("candidatesTokenCount", "thoughtsTokenCount"), cached)
        case _:
            return Tokens()
