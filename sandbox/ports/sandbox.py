"""One session's sandbox, as the gateway sees it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sandbox.ports.link import Link, LinkEvents
from sandbox.ports.resources import Resources
from sandbox.ports.terminals import SandboxTerminals
from sandbox.ports.tree import LiveFile, LiveListing, SandboxTree
from sandbox.protocol.values import Position


class SandboxFailed(Exception):
    """The sandbox could not be started or removed. The text is for the user: what went wrong and what to do."""


class SandboxUnavailable(Exception):
    """The provider does not answer, so nothing is known: the sandbox may run or not. Whoever hears this stops nothing,
    starts nothing, gives nothing up, and asks again later. The text is for the user."""


class CommandRefused(Exception):
    """The bridge does not run this command. The text says why."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run to its end. `cwd` is below the workspace; None is as the sandbox's settings say. `env` holds
    secrets."""

    argv: tuple[str, ...]
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: float | None = None
    max_output: int | None = None  # bytes, of each of the two


@dataclass(frozen=True, slots=True)
class CommandResult:
    exit_code: int  # 128 and more: killed by a signal
    stdout: str
    stderr: str
    timed_out: bool = False
    truncated: bool = False


class Sandbox(Protocol):
    """A handle of the sandbox of one session, whether it runs or not. Making one looks nothing up. A sandbox outlives
    the gateway; every method is safe to repeat. Every method that waits may raise SandboxUnavailable, but for `files`
    and what `tree` and `terminals` return: these say TreeFailed (`silent`) and LinkRefused, as of a bridge that does
    not answer."""

    @property
    def session_id(self) -> str: ...

    @property
    def provider(self) -> str:
        """The name of its fleet."""
        ...

    @property
    def level(self) -> str:
        """`trusted`, `contained`, ..."""
        ...

    @property
    def mounts_roots(self) -> bool:
        """Whether each root is a mount to its programs. A mount stays with its directory, so after a restore they would
        see the tree of before: `Tree.release` fails until the sandbox is started anew."""
        ...

    async def runs(self) -> bool:
        """Whether it runs now, also if an earlier gateway process started it."""
        ...

    async def connect(self, events: LinkEvents, after: Position | None) -> Link:
        """Attach to its agent; frames after `after` follow (all unconfirmed ones if None or not known). A new link
        ends the one before. Raises LinkRefused."""
        ...

    def tree(self) -> SandboxTree:
        """Its two roots. Looks nothing up: if it does not run, the tree's methods raise TreeFailed."""
        ...

    def terminals(self) -> SandboxTerminals:
        """Its terminals. Looks nothing up, likewise."""
        ...

    async def files(
        self, root: bytes, path: bytes, *, start: int = 0, length: int | None = None
    ) -> LiveListing | LiveFile | None:
        """What is at `path` below `root`, symlinks followed within the root; None if nothing is. Of a file, `length`
        bytes from `start`, fewer at its end. Raises TreeFailed: `absent`, if it does not run; `bad_path`, if the path
        leads out or names what cannot be read."""
        ...

    async def exec(self, command: Command) -> CommandResult:
        """Run a command in it to its end, or its timeout. Raises LinkRefused if the sandbox does not run or does not
        answer, CommandRefused if it does not run the command."""
        ...

    async def logs(self, *, limit: int = 65536) -> bytes:
        """The last `limit` bytes of what the agent and the bridge wrote to their logs; b"" if there are none."""
        ...

    async def resources(self) -> Resources | None:
        """What it is held to and what it uses now; None if it does not run, or nobody counts. Quick, and never more
        than a few reads."""
        ...

    async def stop(self) -> None:
        """End it and every process in it; keep its two roots."""
        ...

    async def kill(self) -> bool:
        """SIGKILL the bridge: nothing is done in order, as if the sandbox had died by itself. Its link is lost;
        `Fleet.start` begins anew with what is on the disk, `stop` ends what is left. False: it did not run."""
        ...

    async def destroy(self) -> None:
        """Stop, and remove everything it kept. Raises SandboxFailed."""
        ...
