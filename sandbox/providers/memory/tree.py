"""The kept roots of a sandbox that exists only in this process: a real adapter of sandbox/ports/tree.py, without files.

Tests write into `MemoryRoots` as a program writes into its workspace. They script trouble with `failures` (by the name
of a step) and `step_seconds` (how long each step takes). Not implemented: `.holdfastignore`, `agent_skip`, holes, and
everything that a file system can do and a dict cannot.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence

from sandbox.ports.tree import LiveEntry, LiveFile, LiveListing, TreeFailed
from sandbox.protocol.chunk_frames import groups, pack, unpack
from sandbox.protocol.entry import ROOTS, BadEntry, Chunk, Entry, Frame, Kind, check_entry, chunk_id
from sandbox.protocol.tree import Batch, Offer, ScanAsk, ScanDone, Survey

SMALL_FILE, CHUNK_BYTES = 16 << 10, 64 << 10
ENTRIES_A_BATCH = 100
_FILE_MODE, _DIRECTORY_MODE, _SYMLINK_MODE = 0o644, 0o755, 0o777


class MemoryRoots:
    """The content of the two roots. Paths begin with `workspace/` or `agent/`. Directories of files exist implicitly;
    `directories` names empty ones. `modes` and `mtimes` have the entries that differ from the default.

    Each step of an operation (`greet scan next fetch remember restore plan put finish survey quiet release files`)
    takes `step_seconds`, and fails with the first of its `failures`, if there are any. `steps` lists the steps done.
    """

    def __init__(self) -> None:
        self.files: dict[bytes, bytes] = {}
        self.symlinks: dict[bytes, bytes] = {}
        self.directories: set[bytes] = set()
        self.modes: dict[bytes, int] = {}
        self.mtimes: dict[bytes, int] = {}
        self.asides: list[dict[bytes, bytes]] = []  # the files of replaced trees that were kept, newest last
        self.known: tuple[str, Mapping[bytes, Entry]] | None = None
        self.held = False
        self.mounted = False  # if so, programs see a restored tree only after the next boot
        self.outdated = False
        self.boots = 0  # counts boots: an operation fails if the sandbox has booted since it began
        self.step_seconds = 0.0
        self.beats = False  # a scan shows that it is alive during a long step
        self.failures: dict[str, list[TreeFailed]] = {}
        self.steps: list[str] = []
        self.turn = asyncio.Lock()
        self.begun: tuple[str, dict[bytes, bytes]] = ("", {})  # a restore's token, and the chunks received so far

    def clear(self) -> None:
        for part in (self.files, self.symlinks, self.directories, self.modes, self.mtimes):
            part.clear()

    def begin_empty(self) -> None:
        if self.files:
            self.asides.append(dict(self.files))
        self.clear()

    def entries(self) -> dict[bytes, Entry]:
        """The tree as a scan reports it."""
        found = {path: self._entry(path, Kind.FILE, chunks=chunks_of(self.files[path])) for path in self.files}
        found |= {path: self._entry(path, Kind.SYMLINK, target=self.symlinks[path]) for path in self.symlinks}
        for path in [*self.directories, *(path.rpartition(b"/")[0] for path in found)]:
            while path.count(b"/") > 0:  # the roots themselves are not entries
                found[path] = self._entry(path, Kind.DIRECTORY)
                path = path.rpartition(b"/")[0]
        return dict(sorted(found.items()))

    def _entry(self, path: bytes, kind: Kind, *, chunks: tuple[Chunk, ...] = (), target: bytes = b"") -> Entry:
        usual = {Kind.FILE: _FILE_MODE, Kind.DIRECTORY: _DIRECTORY_MODE, Kind.SYMLINK: _SYMLINK_MODE}[kind]
        size = sum(chunk.size for chunk in chunks)
        return Entry(path, kind, self.modes.get(path, usual), self.mtimes.get(path, 0), size, target, chunks)

    def put_back(self, entries: Sequence[Entry], content: Mapping[bytes, bytes]) -> None:
        self.clear()
        for entry in entries:
            if entry.kind == Kind.FILE:
                self.files[entry.path] = b"".join(content.get(c.id, b"") or bytes(c.size) for c in entry.chunks)
            elif entry.kind == Kind.SYMLINK:
                self.symlinks[entry.path] = entry.target
            else:
                self.directories.add(entry.path)
            self.modes[entry.path], self.mtimes[entry.path] = entry.mode, entry.mtime_ns

    def content(self) -> dict[bytes, bytes]:
        """The bytes of every chunk, by chunk id."""
        return {chunk_id(piece): piece for whole in self.files.values() for piece in _pieces(whole)}


class MemoryTree:
    """Implements SandboxTree. `find` returns the roots of the running sandbox, or raises TreeFailed. `agent_runs` says
    whether the sandbox's agent runs; `end_programs` stops it."""

    def __init__(
        self,
        find: Callable[[], MemoryRoots],
        agent_runs: Callable[[], bool] = lambda: False,
        end_programs: Callable[[], None] = lambda: None,
    ) -> None:
        self._find = find
        self._agent_runs = agent_runs
        self._end_programs = end_programs

    async def greet(self) -> None:
        await _Operation(self._find).step("greet")

    @contextlib.asynccontextmanager
    async def scan(self, asked: ScanAsk) -> AsyncIterator["MemoryScan"]:
        async with self._operation("scan") as operation:
            yield MemoryScan(operation, asked)

    @contextlib.asynccontextmanager
    async def restore(self, token: str, *, aside: bool) -> AsyncIterator["MemoryRestore"]:
        async with self._operation("restore") as operation:
            if self._agent_runs():
                raise TreeFailed("busy", "the agent runs: stop it first")
            yield MemoryRestore(operation, token, aside=aside)

    async def survey(self, agent_skip: Sequence[str]) -> Survey:
        async with self._operation("survey") as operation:
            roots = operation.roots
            token, known = roots.known or (None, {})
            now = roots.entries()
            changed = sum(now.get(path) != known.get(path) for path in now.keys() | known.keys()) if token else 0
            return Survey(roots.held, token, changed, sum(entry.kind != Kind.DIRECTORY for entry in now.values()))

    async def quiet(self) -> None:
        operation = _Operation(self._find)
        await operation.step("quiet")
        operation.roots.held = True
        self._end_programs()
        while self._agent_runs():  # noqa: ASYNC110 - an agent that does not end is killed, and the time is virtual
            await asyncio.sleep(0.1)

    async def release(self) -> None:
        operation = _Operation(self._find)
        await operation.step("release")
        if operation.roots.outdated:
            raise TreeFailed("failed", "programs would not see the restored files: start the sandbox again")
        operation.roots.held = False

    async def files(
        self, root: bytes, path: bytes, *, start: int = 0, length: int | None = None
    ) -> LiveListing | LiveFile | None:
        async with self._operation("files") as operation:
            roots = operation.roots
            whole = b"/".join(part for part in (root, path) if part)
            if whole in roots.files:
                content = roots.files[whole]
                return _live_file(content, start, len(content) if length is None else length)
            entries = roots.entries()
            if root not in ROOTS or (path and (whole not in entries or entries[whole].kind != Kind.DIRECTORY)):
                return None
            inside = [entry for entry in entries.values() if entry.path.rpartition(b"/")[0] == whole]
            return LiveListing(tuple(map(_live_entry, inside)))

    @contextlib.asynccontextmanager
    async def _operation(self, name: str) -> AsyncIterator["_Operation"]:
        operation = _Operation(self._find)
        async with operation.roots.turn:
            await operation.step(name)
            yield operation


class _Operation:
    """One running operation."""

    def __init__(self, find: Callable[[], MemoryRoots]) -> None:
        self._find = find
        self.roots = find()
        self._boot = self.roots.boots

    async def step(self, name: str) -> None:
        """Do one step. Raises TreeFailed if the test scripted a failure, or if the sandbox has ended."""
        await asyncio.sleep(self.roots.step_seconds)
        if self._find() is not self.roots or self.roots.boots != self._boot:
            raise TreeFailed("failed", "the bridge ended the connection")
        self.roots.steps.append(name)
        if failures := self.roots.failures.get(name):
            raise failures.pop(0)


class MemoryScan:
    """Implements TreeScan."""

    def __init__(self, operation: _Operation, asked: ScanAsk) -> None:
        self._operation = operation
        self._roots = operation.roots
        self._asked = asked
        self._now: dict[bytes, Entry] = {}
        self._base: str | None = None
        self._content: dict[bytes, bytes] = {}
        self._batches: Iterator[Batch] | None = None
        self._batch: Batch | None = None

    @property
    def lived_at(self) -> float:
        """When the scan last showed that it is alive: now if it `beats`, else never."""
        return asyncio.get_running_loop().time() if self._roots.beats else 0.0

    async def next(self) -> Batch | ScanDone:
        assert self._batch is None, "fetch first"
        await self._operation.step("next")
        if self._batches is None:
            self._batches = self._begin()
        self._batch = next(self._batches, None)
        return self._batch or self._done()

    async def fetch(self, wanted: Sequence[int]) -> AsyncIterator[Frame]:
        assert self._batch is not None, "next first"
        await self._operation.step("fetch")
        offers = [self._batch.offers[number] for number in wanted]
        for group in groups((Chunk(offer.id, offer.size), self._content[offer.id]) for offer in offers):
            yield pack(group)
        self._batch = None

    async def remember(self, token: str) -> None:
        await self._operation.step("remember")
        self._roots.known = (token, self._now)

    def _begin(self) -> Iterator[Batch]:
        roots, limits = self._roots, self._asked.limits
        self._now, self._content = roots.entries(), roots.content()
        if len(self._now) > limits.files:
            raise TreeFailed("too_many", f"more than {limits.files} files")
        if sum(entry.size for entry in self._now.values()) > limits.total_bytes:
            raise TreeFailed("too_large", f"more than {limits.total_bytes} bytes (HOLDFAST_SYNC_MAX_BYTES)")
        before: Mapping[bytes, Entry] = {}
        if roots.known is not None and roots.known[0] == self._asked.base:
            self._base, before = roots.known
        changed = [entry for entry in self._now.values() if before.get(entry.path) != entry]
        removed = tuple(path for path in before if path not in self._now)
        if removed:
            yield Batch(removed=removed)
        offered: set[bytes] = set()
        for start in range(0, len(changed), ENTRIES_A_BATCH):
            entries = tuple(changed[start : start + ENTRIES_A_BATCH])
            chunks = {chunk for entry in entries for chunk in entry.chunks if chunk.id not in offered}
            offered |= {chunk.id for chunk in chunks}
            yield Batch(entries, offers=tuple(Offer(chunk.id, chunk.size) for chunk in chunks))

    def _done(self) -> ScanDone:
        files = sum(entry.kind != Kind.DIRECTORY for entry in self._now.values())
        size = sum(entry.size for entry in self._now.values())
        return ScanDone(self._base, files, size, size)


class MemoryRestore:
    """Implements TreeRestore."""

    def __init__(self, operation: _Operation, token: str, *, aside: bool) -> None:
        self._operation = operation
        self._roots = operation.roots
        self._aside = aside
        self._entries: Sequence[Entry] = ()
        self._lacking: set[bytes] = set()
        self._token = token
        if self._roots.begun[0] != token:
            self._roots.begun = (token, {})

    async def plan(self, entries: Sequence[Entry]) -> set[bytes]:
        await self._operation.step("plan")
        try:
            for entry in entries:
                check_entry(entry)
        except BadEntry as exc:
            raise TreeFailed("failed", str(exc)) from exc
        self._entries = entries
        self._lacking = {chunk.id for entry in entries for chunk in entry.chunks if chunk.id}
        self._lacking -= self._roots.begun[1].keys()
        return set(self._lacking)

    async def put(self, frame: Frame) -> None:
        await self._operation.step("put")
        try:
            for chunk, piece in zip(frame.chunks, unpack(frame), strict=True):
                self._roots.begun[1][chunk.id] = bytes(piece)
                self._lacking.discard(chunk.id)
        except BadEntry as exc:
            raise TreeFailed("bad_chunk", str(exc)) from exc

    def progress(self) -> tuple[int, int]:
        whole = [entry for entry in self._entries if not any(chunk.id in self._lacking for chunk in entry.chunks)]
        return sum(entry.kind == Kind.FILE for entry in whole), sum(entry.size for entry in whole)

    async def finish(self) -> None:
        await self._operation.step("finish")
        if self._lacking:
            raise TreeFailed("failed", f"{len(self._lacking)} chunks have not come")
        if self._aside and self._roots.files:
            self._roots.asides.append(dict(self._roots.files))
        self._roots.put_back(self._entries, self._roots.begun[1])
        self._roots.begun = ("", {})
        if self._roots.mounted:
            self._roots.outdated = self._roots.held = True
        self._roots.known = (self._token, {entry.path: entry for entry in self._entries})


def chunks_of(content: bytes) -> tuple[Chunk, ...]:
    return tuple(Chunk(chunk_id(piece), len(piece)) for piece in _pieces(content))


def _pieces(content: bytes) -> Iterator[bytes]:
    size = SMALL_FILE if len(content) <= SMALL_FILE else CHUNK_BYTES
    for start in range(0, len(content), size):
        yield content[start : start + size]


def _live_entry(entry: Entry) -> LiveEntry:
    kind = {Kind.FILE: "file", Kind.DIRECTORY: "directory", Kind.SYMLINK: "symlink"}[Kind(entry.kind)]
    name = entry.path.rpartition(b"/")[2]
    return LiveEntry(name, kind, entry.mode, entry.mtime_ns, entry.size, entry.target)


def _live_file(content: bytes, start: int, length: int) -> LiveFile:
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield content[start : start + length]

    return LiveFile(len(content), start, len(content[start : start + length]), pieces())
