"""The gateway's connection to the agent of one sandbox."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sandbox.protocol.agent import AgentSetup
from sandbox.protocol.values import AgentExit, Hello, Position


class LinkRefused(Exception):
    """No link to the bridge: it is gone, or does not answer, or is not ours."""


class LinkEvents(Protocol):
    """A link calls these for its owner: from the event loop, in order, never concurrently. They must not block.

    After `connect`: on_hello; then, for each agent process with unconfirmed frames, on_epoch, on_frames..., on_exit if
    it ended; then the same live. on_lost comes once, last, unless the owner closed the link itself.
    """

    def on_hello(self, hello: Hello) -> None: ...
    def on_epoch(self, epoch: str, base: int) -> None:
        """Frames of `epoch` follow, the first is base + 1. Also called when an old link's replay starts in the
        middle.
        """
        ...

    def on_frames(self, epoch: str, first: int, lines: Sequence[bytes]) -> None:
        """Lines of agent output without their newline, numbered first, first + 1, ..."""
        ...

    def on_exit(self, exit: AgentExit) -> None: ...
    def on_taken(self, seq: int) -> None:
        """Every record delivered on this link up to `seq` was handed to the agent."""
        ...

    def on_recalled(self, seq: int) -> None:
        """The bridge holds back the record, and those behind it, until `drop`."""
        ...

    def on_problem(self, reason: str) -> None:
        """A text for the user: the agent could not start, a line was too long."""
        ...

    def on_unknown(self, core: str, counts: Mapping[str, int]) -> None:
        """The number of the agent's events that its core does not know, by kind: a few short words that the agent
        chose. Sent with the link's heartbeat; a lost link may lose some."""
        ...

    def on_changed(self) -> None:
        """Something in the two roots may have changed: a hint, at most about one a second. No hint means nothing."""
        ...

    def on_lost(self, reason: str) -> None: ...


class Link(Protocol):
    """The gateway's connection to one bridge. All methods return at once; after on_lost they do nothing."""

    def configure(self, setup: Callable[[], AgentSetup]) -> None:
        """`setup` is called with each start: what the agent's next process gets of its user's configuration. A bridge
        of an earlier version gives it nothing."""
        ...

    def start(self, line: bytes | None) -> None:
        """Run the agent if it does not run; `line` (the kept `start` frame) is the first it reads. Answered by
        on_epoch; while the agent is held, by on_problem.
        """
        ...

    def deliver(self, seq: int, line: bytes) -> None:
        """Give one record to the agent, once, and in order: only an answer to the agent's request may pass waiting
        messages. When the agent exits or the link is lost, the bridge forgets records that it has not taken: deliver
        them again after the next on_epoch or on_hello."""
        ...

    def recall(self, seq: int) -> bool:
        """Ask the bridge to hold back a record that was delivered, unless the agent has it. Answered by on_recalled; if
        the agent has it, by on_taken; if its process ends, or the link, as ever. False: this bridge cannot.
        """
        ...

    def drop(self, seq: int) -> None:
        """A held record will not be delivered: the bridge forgets it, and goes on behind it."""
        ...

    def inject(self, line: bytes) -> None:
        """Write a line to the agent past the queue, unnumbered (abort)."""
        ...

    def interrupt(self) -> None:
        """SIGINT to the agent's process group."""
        ...

    def stop_agent(self) -> None:
        """End the agent process: close its input, then SIGTERM, then SIGKILL. Answered by on_exit."""
        ...

    def kill_agent(self) -> None:
        """SIGKILL to the agent's process group: no last words. Answered by on_exit."""
        ...

    def confirm(self, position: Position) -> None:
        """Everything up to `position` is durable here: the bridge may forget it."""
        ...

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None:
        """Close without on_lost. The sandbox and its agent go on."""
        ...
