"""How the tree of a running sandbox is read and put back, as whoever keeps trees sees it."""

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
        """When the other end last showed that it lives, on the loop's clock."""
        ...

    async def next(self) -> Batch | ScanDone:
        """The next batch, once `fetch` has been called for the last one; ScanDone at the end."""
        ...

    def fetch(self, wanted: Sequence[int]) -> AsyncIterator[Frame]:
        """The content of these offers of the last batch, in frames whose content nobody has checked. To be read to
        its end, also when nothing is wanted."""
        ...

    async def remember(self, token: str) -> None:
        """After ScanDone: call this tree `token`."""
        ...


class TreeRestore(Protocol):
    """A restore under way. Every method may raise TreeFailed."""

    async def plan(self, entries: Sequence[Entry]) -> set[bytes]:
        """Send the whole tree; the ids of the chunks that are lacking."""
        ...

    async def put(self, frame: Frame) -> None:
        """Content, checked by whoever writes it: TreeFailed("bad_chunk") if it is not what its ids say."""
        ...

    def progress(self) -> tuple[int, int]:
        """Files and bytes written so far, with those an interrupted restore had written: never less than before, never
        more than `plan` was given, all of it after `finish`."""
        ...

    async def finish(self) -> None:
        """Put the new tree in the old one's place; returns when it is there, whole and durable."""
        ...


class ScannedTree(Protocol):
    """A tree that can be read."""

    def scan(self, asked: ScanAsk) -> AbstractAsyncContextManager[TreeScan]: ...


class Tree(ScannedTree, Protocol):
    """The kept roots of one running sandbox. One operation at a time; a second one waits for the first, but for
    `quiet`, which waits for none, and `release`, which waits for a restore only."""

    def restore(self, token: str, *, aside: bool) -> AbstractAsyncContextManager[TreeRestore]:
        """Leaving it before `finish` returned leaves the old tree as it was; what came so far is used next time."""
        ...

    async def survey(self, agent_skip: Sequence[str]) -> Survey: ...

    async def quiet(self) -> None:
        """End every program in the sandbox but the bridge, and hold the agent: until `release` none starts, also none
        that somebody has asked for already. If it raises TreeFailed it may be held all the same."""
        ...

    async def release(self) -> None:
        """The tree is what it should be: the agent may start. Fails after a restore in a sandbox that mounts its roots
        (`Sandbox.mounts_roots`)."""
        ...


@dataclass(frozen=True, slots=True)
class LiveEntry:
    """One name in a directory, as it is now. Nobody has checked it but for its shape."""

    name: bytes
    kind: str  # file, directory, symlink, other
    mode: int
    mtime_ns: int
    size: int = 0
    target: bytes = b""


@dataclass(frozen=True, slots=True)
class LiveListing:
    """What is in a directory; `cut` if not all of it is told."""

    entries: tuple[LiveEntry, ...]
    cut: bool = False


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file of `size` bytes, of which `content` is `length` from `start`. It is to be read to its end, or `close`d; it
    raises TreeFailed if it does not come whole."""

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
