"""The parts of opencode's messages in one turn: text and thinking as they grow, tools, tokens and cost. Pure.

The server sends a part again each time it changes, and also sends its text in pieces. It must become a message only
once: text that another text or a tool follows ends without an event, and is sent again as a whole later.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sandbox.agents import opencode_words as words
from sandbox.agents.core import Out
from sandbox.agents.json_lines import amount, members, text
from sandbox.agents.turn import REPEATED, Turn

MAX_PARTS = 4096


@dataclass(slots=True)
class OpencodeParts:
    kinds: dict[str, str] = field(default_factory=dict)  # of parts, by name: chunk, thinking
    over: set[str] = field(default_factory=set)
    growing: str = ""  # the text part that grows
    said: str = ""  # its text, since the last message
    usage: dict[str, int] = field(default_factory=dict)
    cost: float = 0.0

    def grown(self, turn: Turn, name: str, piece: str) -> Iterator[Out]:
        """A piece was added to a part."""
        kind = self.kinds.get(name)
        if kind is None or not turn.running:
            return
        if kind == "chunk":
            if name != self.growing:
                yield from self.end_text(turn)
                self.growing = name
            if len(self.said) <= REPEATED:
                self.said += piece
        yield from turn.piece(kind, piece)

    def end_text(self, turn: Turn) -> Iterator[Out]:
        """The text so far becomes a message: a tool or another text follows, or the turn is over."""
        if self.said:
            self.over.add(self.growing)
            said, self.said = self.said, ""
            yield from turn.message("assistant", [{"type": "text", "text": said}])

    def updated(self, turn: Turn, part: dict[str, Any]) -> Iterator[Out]:
        """A part as it is now."""
        name = words.kept_name(part.get("id"))
        if not name or len(self.kinds) + len(self.over) > MAX_PARTS:
            return
        match part:
            case {"type": "text" | "reasoning" as kind}:
                self.kinds[name] = "chunk" if kind == "text" else "thinking"
                if kind == "text" and "end" in members(part.get("time")) and part.get("ignored") is not True:
                    yield from self._text_over(turn, name, text(part.get("text")))
            case {"type": "tool", "state": dict(state)}:
                yield from self.end_text(turn)
                yield from self._tool(turn, name, part, state)
            case {"type": "step-finish"} if name not in self.over:
                self.over.add(name)
                words.add_usage(self.usage, members(part.get("tokens")))
                self.cost += amount(part.get("cost")) or 0.0

    def _text_over(self, turn: Turn, name: str, whole: str) -> Iterator[Out]:
        if name in self.over:
            if self.growing == name:
                yield from self.end_text(turn)
            return
        self.over.add(name)
        streamed = self.growing == name and bool(self.said)
        if streamed:
            self.said = ""
        else:
            yield from self.end_text(turn)
        yield from turn.message("assistant", [{"type": "text", "text": whole}] if whole else [], streamed=streamed)

    def _tool(self, turn: Turn, name: str, part: dict[str, Any], state: dict[str, Any]) -> Iterator[Out]:
        status, call = state.get("status"), text(part.get("callID"))
        if not call or status not in ("running", "completed", "error"):
            return
        if f"{name} began" not in self.over:
            self.over.add(f"{name} began")
            use = {"type": "tool_use", "id": call, "name": text(part.get("tool")), "input": members(state.get("input"))}
            yield from turn.message("assistant", [use])
        if status != "running" and name not in self.over:
            self.over.add(name)
            yield from turn.message("user", [words.result(call, state)])
