"""The port through which sync reads and restores the tree of a running sandbox."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from sandbox.protocol.entry import Entry, Frame
from sandbox.protocol.tree import Batch, ScanAsk, ScanDone, Survey


class TreeFailed(Exception):
    """An operation on a sandbox's tree did not come to its end. `code` as in `Trouble` of sandbox/protocol/tree.py."""

    def __init__(self, code: str, error: str) -> None:
        super().__init__(error)
        self.code, self.error = code, error


class TreeScan(Protocol):
    """A scan under way. Every method may raise TreeFailed; after that, or after leaving it, the scan is over."""

    @property
    def lived_at(self) -> float:
        """When the other end last showed that it is alive, on the loop's clock."""
        ...

    async def next(self) -> Batch | ScanDone:
        """The next batch, once `fetch` has been called for the last one; ScanDone at the end."""
        ...

    def fetch(self, wanted: Sequence[int]) -> AsyncIterator[Frame]:
        """The content of these offers of the last batch, in frames that nobody has checked. The caller must read it to
        its end, even if it wants nothing."""
        ...

    async def remember(self, token: str) -> None:
        """After ScanDone: call this tree `token`."""
        ...


class TreeRestore(Protocol):
    """A restore under way. Every method may raise TreeFailed."""

    async def plan(self, entries: Sequence[Entry]) -> set[bytes]:
        """Send the whole tree; returns the ids of the missing chunks."""
        ...

    async def put(self, frame: Frame) -> None:
        """Send content. The writer checks it: TreeFailed("bad_chunk") if it does not match its ids."""
        ...

    def progress(self) -> tuple[int, int]:
        """Files and bytes written so far, including those of an interrupted restore: never less than before, never
        more than `plan` was given, all of it after `finish`."""
        ...

    async def finish(self) -> None:
        """Replace the old tree by the new one; returns when it is there, whole and durable."""
        ...


class ScannedTree(Protocol):
    """A tree that can be read."""

    def scan(self, asked: ScanAsk) -> AbstractAsyncContextManager[TreeScan]: ...


class Tree(ScannedTree, Protocol):
    """The kept roots of one running sandbox. One operation at a time; a second one waits for the first, but for
    `quiet`, which waits for none, and `release`, which waits for a restore only."""

    def restore(self, token: str, *, aside: bool) -> AbstractAsyncContextManager[TreeRestore]:
        """Leaving it before `finish` has returned leaves the old tree in place; the next restore reuses the content
        so far."""
        ...

    async def survey(self, agent_skip: Sequence[str]) -> Survey: ...

    async def quiet(self) -> None:
        """End every program in the sandbox but the bridge, and hold the agent: none starts until `release`, not even
        one that was requested before. If this raises TreeFailed, the agent may be held all the same."""
        ...

    async def release(self) -> None:
        """The tree is proven: the agent may start. Fails after a restore in a sandbox that mounts its roots
        (`Sandbox.mounts_roots`)."""
        ...


@dataclass(frozen=True, slots=True)
class LiveEntry:
    """One name in a directory, now. Only its shape has been checked."""

    name: bytes
    kind: str  # file, directory, symlink, other
    mode: int
    mtime_ns: int
    size: int = 0
    target: bytes = b""


@dataclass(frozen=True, slots=True)
class LiveListing:
    """The entries of a directory; `cut` if some are left out."""

    entries: tuple[LiveEntry, ...]
    cut: bool = False


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file of `size` bytes; `content` is `length` of them from `start`. The caller reads it to its end, or calls
    `close`. It raises TreeFailed if it does not come whole."""

    size: int
    start: int
    length: int
    content: AsyncGenerator[bytes, None]
    release: Callable[[], None] = lambda: None

    async def close(self) -> None:
        """Safe to repeat."""
        await self.content.aclose()
        self.release()


class SandboxTree(Tree, Protocol):
    """A tree as a running sandbox has it."""

    async def greet(self) -> None:
        """Returns when the sandbox has answered. Raises TreeFailed; within seconds, if it does not."""
        ...
