"""Where a session's program runs, and how the gateway talks to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from sandbox.ports.link import Link, LinkEvents
from sandbox.protocol.values import Position

if TYPE_CHECKING:  # a bridge starts without what trees are made of
    from sandbox.ports.terminals import SandboxTerminals
    from sandbox.ports.tree import SandboxTree


class SandboxFailed(Exception):
    """The sandbox could not be started. The text is for the user: what went wrong and what to do."""


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
