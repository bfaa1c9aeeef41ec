"""Where a session's program runs, and how the gateway talks to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from sandbox.protocol.values import AgentExit, Hello, Position

if TYPE_CHECKING:  # a bridge starts without what trees are made of
    from sandbox.ports.terminals import SandboxTerminals
    from sandbox.ports.tree import SandboxTree


class SandboxFailed(Exception):
    """The sandbox could not be started. The text is for the user: what went wrong and what to do."""


class LinkRefused(Exception):
    """No link to the bridge: it is gone, or does not answer, or is not ours."""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What a session runs in. `env` holds secrets: it is never written down, logged, or put on a command line."""

    session_id: str
    incarnation: int
    agent: tuple[str, ...]
    network: str = "none"  # or "outbound"
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    repo_url: str | None = None
    repo_branch: str | None = None
    hold: bool = False  # the agent may not start before `Tree.release`
    empty: bool = False  # begin with empty roots; what was there stays beside them


class LinkEvents(Protocol):
    """What a link tells its owner. Called from the event loop, in order, never concurrently; must not block.

    After `connect`: on_hello; then, for each agent process whose frames are not confirmed yet, on_epoch, on_frames...,
    on_exit if it ended; then the same live. on_lost comes once, last, unless the owner closed the link itself.
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

    def on_problem(self, reason: str) -> None:
        """Something the user should read: the agent could not be started, a line was too long."""
        ...

    def on_changed(self) -> None:
        """Something in the two roots may have changed: a hint, at most about one a second. Without it nothing is
        known either way."""
        ...

    def on_lost(self, reason: str) -> None: ...


class Link(Protocol):
    """The gateway's connection to one bridge. All methods return at once; after on_lost they do nothing."""

    def start(self, line: bytes | None) -> None:
        """Run the agent if it does not run; `line` (the kept `start` frame) is the first it reads. Answered by
        on_epoch; while the agent is held, by on_problem.
        """
        ...

    def deliver(self, seq: int, line: bytes) -> None:
        """Hand one record to the agent, in order, once. What the bridge has not taken when the agent exits or the
        link is lost is forgotten by the bridge: deliver it again after the next on_epoch or on_hello.
        """
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
        """Let go without on_lost. The sandbox and its agent go on."""
        ...


class SandboxProvider(Protocol):
    """Starts, finds, and ends sandboxes. A sandbox outlives the gateway; every method is safe to repeat."""

    name: str  # "local", "memory", ...

    @property
    def level(self) -> str:
        """`trusted`, `contained`, ..."""
        ...

    async def open(self) -> None:
        """Check that the provider can work here; raises SandboxFailed saying what to install or set."""
        ...

    def check(self, spec: SandboxSpec) -> None:
        """Raise SandboxFailed, in words for the user, if such a sandbox could never start here. Looks nothing up."""
        ...

    async def start(self, spec: SandboxSpec) -> None:
        """Run the sandbox until its bridge answers. If one runs for this session, it is that one's end first: a new
        start is a new incarnation. Clones `repo_url` into an empty workspace. The roots are as the last stop, or a
        killed sandbox, left them, unless `empty`. Raises SandboxFailed."""
        ...

    async def connect(self, session_id: str, events: LinkEvents, after: Position | None) -> Link:
        """Attach to a running sandbox; its frames after `after` follow (all unconfirmed ones if None or not known).
        A new link ends the one before. Raises LinkRefused."""
        ...

    async def running(self) -> list[str]:
        """Session ids of sandboxes that run now, also those an earlier gateway process started."""
        ...

    async def stop(self, session_id: str) -> None:
        """End the sandbox and every process in it; keep its two roots."""
        ...

    async def kill(self, session_id: str) -> bool:
        """SIGKILL the bridge: nothing is done in order, as if the sandbox had died by itself. Its link is lost; `start`
        begins anew with what is on the disk, `stop` ends what is left. False: none ran."""
        ...

    async def destroy(self, session_id: str) -> None:
        """Stop, and remove everything it kept."""
        ...

    def tree(self, session_id: str) -> "SandboxTree":
        """The two roots of a running sandbox. Looks nothing up: if none runs, its methods raise TreeFailed."""
        ...

    def terminals(self, session_id: str) -> "SandboxTerminals":
        """The terminals of a running sandbox. Looks nothing up, likewise."""
        ...

    async def logs(self, session_id: str, *, limit: int = 65536) -> bytes:
        """The last `limit` bytes of what the agent and the bridge wrote to their logs; b"" if there are none."""
        ...

    async def close(self) -> None:
        """Let go of everything; sandboxes go on running."""
        ...
