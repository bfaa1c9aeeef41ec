"""Listens to one link: its events go through the session's inbox, and count only while the link is in use."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from gateway.session.conversation.outbound import AgentOutput
from gateway.session.model.ports import Tasks
from sandbox.protocol.values import AgentExit, Hello

PIECE_LINES = 128  # per event: one message may bring a million empty ones


class LinkHearer(Protocol):
    """Receives the events of the link itself, in the session's task."""

    def said_hello(self, link: int, hello: Hello) -> None: ...
    def agent_exited(self, link: int, exit: AgentExit) -> None: ...
    def had_problem(self, link: int, reason: str) -> None: ...
    def files_changed(self) -> None: ...
    def lost(self, link: int, reason: str) -> None: ...


class LinkListener:
    """Listens to the link of that number. Events before `open` wait: the link is not in its place yet."""

    __slots__ = ("_closed", "_early", "_hearer", "_output", "_tasks", "number")

    def __init__(self, number: int, hearer: LinkHearer, output: AgentOutput, tasks: Tasks) -> None:
        self.number = number
        self._hearer = hearer
        self._output = output
        self._tasks = tasks
        self._closed = False
        self._early: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = []

    def open(self) -> None:
        early, self._early = self._early or [], None
        for handler, arguments in early:
            self._tasks.post(self._deal, handler, arguments)

    def close(self) -> None:
        """Drop all events of this link, also those in the inbox."""
        self._closed = True

    def _pass_on(self, handler: Callable[..., None], *arguments: Any) -> None:
        if self._early is not None:
            self._early.append((handler, arguments))
        elif not self._closed:
            self._tasks.post(self._deal, handler, arguments)

    def _deal(self, handler: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not self._closed:
            handler(*arguments)

    def on_hello(self, hello: Hello) -> None:
        self._pass_on(self._hearer.said_hello, self.number, hello)

    def on_epoch(self, epoch: str, base: int) -> None:
        self._pass_on(self._output.on_epoch, epoch, base)

    def on_frames(self, epoch: str, first: int, lines: Sequence[bytes]) -> None:
        self._output.coming(len(lines))
        if len(lines) <= PIECE_LINES:
            self._pass_on(self._output.on_frames, epoch, first, lines)
            return
        for start in range(0, len(lines), PIECE_LINES):
            self._pass_on(self._output.on_frames, epoch, first + start, lines[start : start + PIECE_LINES])

    def on_exit(self, exit: AgentExit) -> None:
        self._pass_on(self._hearer.agent_exited, self.number, exit)

    def on_taken(self, seq: int) -> None:
        self._pass_on(self._output.on_taken, seq)

    def on_recalled(self, seq: int) -> None:
        self._pass_on(self._output.on_taken, seq, True)

    def on_problem(self, reason: str) -> None:
        self._pass_on(self._hearer.had_problem, self.number, reason)

    def on_unknown(self, core: str, counts: Mapping[str, int]) -> None:
        self._output.count_unknown(core, counts)

    def on_changed(self) -> None:
        self._pass_on(self._hearer.files_changed)

    def on_lost(self, reason: str) -> None:
        self._pass_on(self._hearer.lost, self.number, reason)
