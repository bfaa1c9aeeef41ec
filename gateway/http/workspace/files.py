"""A session's files, read from outside: the synced ones, or those that its sandbox has now. Reading wakes no
session."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import ADMINS_OR_OWNER
from gateway.http.access import looked_at
from gateway.http.concurrency import ConcurrencyLimit
from gateway.http.responses import long_answer
from gateway.http.workspace.answers import DirectoryJson
from gateway.http.workspace.file_lookup import (
    LISTED,
    ROOTS,
    children,
    content_tag,
    find,
    listed,
    read_path,
    when,
    written,
)
from gateway.http.workspace.file_responses import FileFound, file_answer
from gateway.protocol.errors import ApiError
from gateway.routing.parameters import PATH, ChoiceParameter, IntegerParameter, Parameter
from gateway.routing.route import route
from gateway.session.catalogue import Catalogue
from persistence.record import Session
from sandbox.ports.sandbox import Sandbox
from sandbox.ports.tree import LiveEntry, LiveFile, LiveListing, TreeFailed
from sandbox.protocol.entry import Entry, Kind
from sync.format.manifest import StoredTree
from sync.snapshots.service import SnapshotService

GENERATION = IntegerParameter("generation", 1, 2**53, None, "of what is synced; the newest unless it is given")
SOURCE = ChoiceParameter("source", ("auto", "live", "synced"), "live: what its sandbox has now")
ROOT = ChoiceParameter("root", tuple(ROOTS))
RANGE = Parameter("Range", {"type": "string"}, "one range of bytes", where="header")
TREES_OF_A_USER, LIVE_LOOKS_OF_A_USER, MOST_WAITING = 4, 4, 1000
TREES_AT_ONCE = 8  # looked up at the same time: requests for many files of one tree load it once or twice

_Look = Callable[[], Awaitable["FileFound | dict[str, Any] | None"]]


class FileRoutes:
    def __init__(self, catalogue: Catalogue, vault: SnapshotService) -> None:
        self._catalogue = catalogue
        self._vault = vault
        self._gate = asyncio.Semaphore(TREES_AT_ONCE)
        self._kept = ConcurrencyLimit(TREES_OF_A_USER, "looks into stored files", waiting=MOST_WAITING)
        # Separate: a sandbox that does not answer must not delay reads of stored files.
        self._live = ConcurrencyLimit(LIVE_LOOKS_OF_A_USER, "looks into live files", waiting=MOST_WAITING)

    @route(
        "GET", "/files/{id}/{path:path}", ADMINS_OR_OWNER, "readFile", "A directory's entries, or a file's bytes",
        answers={200: DirectoryJson}, media={"application/octet-stream": ""}, loose=True,
        parameters=(PATH, ROOT, SOURCE, GENERATION, RANGE), refusals=(400, 404, 409, 416, 500, 502, 503),
    )  # fmt: skip
    async def read(self, request: Request) -> Response:
        """A directory is a list, a file its bytes. `auto` is `live` if the sandbox runs, `synced` if it does not."""
        session = await looked_at(request, self._catalogue)
        asked = _Asked(request)
        if asked.source != "synced":
            reply = await self._answered(request, asked, self._live, lambda: self._look(session, asked))
            if reply is not None:
                return reply
            if asked.source == "live":
                told = "its sandbox does not run: wake it, or read the stored files with source=synced"
                raise ApiError(409, "not_running", told)
        reply = await self._answered(request, asked, self._kept, lambda: self._synced(session, asked))
        assert reply is not None
        return reply

    async def _answered(
        self, request: Request, asked: "_Asked", gates: ConcurrencyLimit, look: _Look
    ) -> Response | None:
        """The answer for the result of a look; None if there is none. The place is held during the look, and until a
        listing is read: a file's bytes do not hold it."""
        with ExitStack() as place:
            place.callback(await gates.enter(request))
            found = await look()
            if found is None:
                return None
            if not isinstance(found, FileFound):
                shown = written("path", asked.path.partition(b"/")[2])
                return long_answer({**shown, "root": asked.root, **found}, over=place.pop_all().close)
            if asked.must_be_directory:
                raise _nothing_there()
            return await file_answer(request, found)

    # -- stored files -------------------------------------------------------------------------------------------------

    async def _synced(self, session: Session, asked: "_Asked") -> "FileFound | dict[str, Any]":
        async with self._gate:
            generation, tree = await self._vault.tree(session.user_id, session.id, asked.generation)
        path, entry = find(tree.entries, asked.path)
        if entry is None or entry.kind == Kind.DIRECTORY:
            inside = await asyncio.to_thread(children, tree.entries, path)
            entries = [listed(each) for each in inside[:LISTED]]
            return _directory("synced", generation.number, entries, truncated=len(inside) > LISTED)

        def read(start: int, length: int) -> AsyncGenerator[bytes, None]:
            return self._stored(session.user_id, tree, entry, start, length)

        name = asked.path.rpartition(b"/")[2]
        tag = content_tag(entry)
        return FileFound(name, entry.size, "synced", read, generation.number, entry.mtime_ns, tag)

    async def _stored(
        self, user_id: str, tree: StoredTree, entry: Entry, start: int, length: int
    ) -> AsyncGenerator[bytes, None]:
        async for piece in self._vault.contents(user_id, tree).read(entry, start, length):
            yield piece

    # -- live files ---------------------------------------------------------------------------------------------------

    async def _look(self, session: Session, asked: "_Asked") -> "FileFound | dict[str, Any] | None":
        """The result of a look into the sandbox; None if it does not run."""
        sandbox = self._catalogue.sandbox(session)
        root, _, path = asked.path.partition(b"/")
        try:
            found = await sandbox.files(root, path, length=0)
        except TreeFailed as error:
            if error.code == "absent":
                return None
            raise _cannot(error) from error
        if found is None:
            raise _nothing_there()
        if isinstance(found, LiveListing):
            entries = [_live_entry(each) for each in sorted(found.entries, key=lambda each: each.name)[:LISTED]]
            return _directory("live", None, entries, truncated=found.cut or len(found.entries) > LISTED)
        await found.close()

        def read(start: int, length: int) -> AsyncGenerator[bytes, None]:
            return _live_bytes(sandbox, root, path, start, length)

        return FileFound(path.rpartition(b"/")[2], found.size, "live", read)


class _Asked:
    """The parameters of a request. Raises ApiError."""

    def __init__(self, request: Request) -> None:
        self.generation = GENERATION.read(request)
        self.source = SOURCE.read(request)
        self.root = ROOT.read(request)
        if self.generation is not None and self.source == "live":
            raise ApiError(400, "bad_parameter", "a generation has stored files only: leave out source=live")
        if self.generation is not None:
            self.source = "synced"
        self.path, self.must_be_directory = read_path(request.scope["raw_path"], self.root)


def _directory(
    source: str, generation: int | None, entries: list[dict[str, Any]], *, truncated: bool
) -> dict[str, Any]:
    return {"source": source, "generation": generation, "entries": entries, "truncated": truncated}


def _live_entry(entry: LiveEntry) -> dict[str, Any]:
    return {
        **written("name", entry.name),
        "type": entry.kind,
        "size": entry.size,
        "mode": f"{entry.mode & 0o7777:04o}",
        "mtime": when(entry.mtime_ns),
        **(written("target", entry.target) if entry.kind == "symlink" else {}),
    }


async def _live_bytes(
    sandbox: Sandbox, root: bytes, path: bytes, start: int, length: int
) -> AsyncGenerator[bytes, None]:
    """So many bytes of the file. Raises TreeFailed, also if the file is gone, or shorter than it was."""
    found = await sandbox.files(root, path, start=start, length=length)
    if not isinstance(found, LiveFile):
        raise TreeFailed("changed", "it is gone meanwhile")
    try:
        if found.length != length:
            raise TreeFailed("changed", "it became shorter meanwhile")
        async for piece in found.content:
            yield piece
    finally:
        await found.close()


def _cannot(error: TreeFailed) -> Exception:
    """To readers here, a path that leads out, or to something that is neither file nor directory, does not exist."""
    return ApiError(404, "cannot_be_read", error.error) if error.code == "bad_path" else error


def _nothing_there() -> ApiError:
    return ApiError(404, "no_such_file", "there is no such file or directory")
