"""One session's sandbox, as the gateway sees it."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sandbox.ports.link import Link, LinkEvents
from sandbox.ports.resources import Resources
from sandbox.ports.terminals import SandboxTerminals
from sandbox.ports.tree import LiveFile, LiveListing, SandboxTree
from sandbox.protocol.values import Position


class SandboxFailed(Exception):
    """The sandbox could not start or be removed. The text is for the user: what went wrong and what to do."""


class SandboxUnavailable(Exception):
    """The provider does not answer, so the state is unknown: the sandbox may run or not. The caller stops nothing,
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
    """A handle of the sandbox of one session, whether it runs or not. Making one queries nothing. A sandbox outlives
    the gateway; every method is safe to repeat. Every method that waits may raise SandboxUnavailable, except `files`
    and the methods of what `tree` and `terminals` return: these raise TreeFailed (`silent`) and LinkRefused, as for a
    bridge that does not answer."""

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
        """Whether its programs have each root as a mount. A mount stays with its directory, so after a restore they
        would see the old tree: `Tree.release` fails until the sandbox starts again."""
        ...

    async def runs(self) -> bool:
        """Whether it runs now, even if an earlier gateway process started it."""
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
        """The file or directory at `path` below `root`, symlinks followed within the root; None if there is none. Of a
        file, `length` bytes from `start`, fewer at its end. Raises TreeFailed: `absent` if the sandbox does not run;
        `bad_path` if the path leads out of the root or names something unreadable."""
        ...

    async def exec(self, command: Command) -> CommandResult:
        """Run a command in it to its end, or its timeout. Raises LinkRefused if the sandbox does not run or does not
        answer, CommandRefused if it does not run the command."""
        ...

    async def egress(self) -> socket.socket | None:
        """The socket that it listens with on its own loopback, for a proxy to accept its programs' connections from;
        each time anew, and the caller's to close. None: it has none. It is as little trusted as all that comes from
        inside. Raises LinkRefused if the sandbox does not run or does not answer."""
        ...

    async def logs(self, *, limit: int = 65536) -> bytes:
        """The last `limit` bytes of the agent's and the bridge's logs; b"" if there are none."""
        ...

    async def resources(self) -> Resources | None:
        """Its limits and its present use; None if it does not run, or nothing counts them. Quick: a few reads at
        most."""
        ...

    async def stop(self) -> None:
        """End it and every process in it; keep its two roots."""
        ...

    async def kill(self) -> bool:
        """SIGKILL the bridge: nothing shuts down in order, as if the sandbox had died by itself. Its link is lost.
        `Fleet.start` starts a new one with the files on the disk; `stop` ends the rest of the old one. False: it did
        not run."""
        ...

    async def destroy(self) -> None:
        """Stop, and remove everything it kept. Raises SandboxFailed."""
        ...
