"""One ear for one link: what is heard goes through the session's inbox, and only while this is the link that counts."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gateway.session.conversation.outbound import AgentOutput
from sandbox.protocol.values import AgentExit, Hello

PIECE_LINES = 128  # an event's worth: one message may bring a million empty ones


class LinkOwner(Protocol):
    """Whoever the link belongs to. `heard` posts to the inbox; the others are what it posts."""

    output: AgentOutput

    def heard(self, ear: "LinkListener", handler: Callable[..., None], arguments: tuple[Any, ...]) -> None: ...
    def said_hello(self, hello: Hello) -> None: ...
    def agent_exited(self, exit: AgentExit) -> None: ...
    def had_problem(self, reason: str) -> None: ...
    def lost(self, reason: str) -> None: ...
    def files_changed(self) -> None: ...


class LinkListener:
    """Hears one link. What it hears before `open` waits: the link is not in its place yet."""

    __slots__ = ("_early", "_life")

    def __init__(self, life: LinkOwner) -> None:
        self._life = life
        self._early: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = []

    def open(self) -> None:
        early, self._early = self._early or [], None
        for handler, arguments in early:
            self._life.heard(self, handler, arguments)

    def _pass_on(self, handler: Callable[..., None], *arguments: Any) -> None:
        if self._early is not None:
            self._early.append((handler, arguments))
        else:
            self._life.heard(self, handler, arguments)

    def on_hello(self, hello: Hello) -> None:
        self._pass_on(self._life.said_hello, hello)

    def on_epoch(self, epoch: str, base: int) -> None:
        self._pass_on(self._life.output.on_epoch, epoch, base)

    def on_frames(self, epoch: str, first: int, lines: Sequence[bytes]) -> None:
        self._life.output.coming(len(lines))
        if len(lines) <= PIECE_LINES:
            self._pass_on(self._life.output.on_frames, epoch, first, lines)
            return
        for start in range(0, len(lines), PIECE_LINES):
            self._pass_on(self._life.output.on_frames, epoch, first + start, lines[start : start + PIECE_LINES])

    def on_exit(self, exit: AgentExit) -> None:
        self._pass_on(self._life.agent_exited, exit)

    def on_taken(self, seq: int) -> None:
        self._pass_on(self._life.output.on_taken, seq)

    def on_problem(self, reason: str) -> None:
        self._pass_on(self._life.had_problem, reason)

    def on_changed(self) -> None:
        self._pass_on(self._life.files_changed)

    def on_lost(self, reason: str) -> None:
        self._pass_on(self._life.lost, reason)
