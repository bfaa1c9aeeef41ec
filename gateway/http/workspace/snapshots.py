"""A session's snapshots: listed, compared, exported, checked, and used as the start of a session. Reading them loads no
session.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from dataclasses import asdict
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import ADMINS, LIFECYCLE_SESSION
from gateway.http.access import looked_at, note_asked, owned
from gateway.http.concurrency import ConcurrencyLimit
from gateway.http.responses import UNCACHED, LongResponse, answer, long_answer, read_body
from gateway.http.sessions.answers import SessionJson
from gateway.http.workspace.answers import (
    CollectedLine,
    CollectProgressLine,
    Released,
    SnapshotDiff,
    Snapshots,
    SnapshotShown,
    VerifiedLine,
    VerifyProgressLine,
)
from gateway.http.workspace.file_lookup import some, written
from gateway.http.workspace.progress_stream import LINES, Tell, Told, narrated
from gateway.protocol.errors import ApiError
from gateway.routing.json_types import Error, JsonBody, Nothing, meaning, must
from gateway.routing.parameters import FlagParameter, Parameter
from gateway.routing.route import LinesOf, route
from gateway.session.catalogue import Catalogue
from gateway.session.creation.branch import SessionBranching
from gateway.session.drain import SessionDrain
from gateway.session.registry import SessionRegistry
from persistence.record import Session
from persistence.record_json import iso
from sandbox.protocol.entry import Kind
from sync.errors import NoSuchSnapshot
from sync.format.manifest import StoredTree
from sync.format.pointer import Generation
from sync.ports import ObjectsUnavailable
from sync.snapshots.gc import Collected
from sync.snapshots.service import SnapshotService

NAMED = 1000  # skipped and unsettled files of one answer
COMPARED = 10_000  # paths of one comparison
LARGEST_NUMBER = 2**53
LOOKS, EXPORTS = 2, 4  # of one user at once: each holds a whole tree
SNAPSHOTS, ONE = "/api/sandboxes/{id}/snapshots", "/api/sandboxes/{id}/snapshots/{generation}"
STORED = (500, 502, 503)  # statuses that reading snapshots may answer
NUMBERED = {
    "type": "string", "pattern": "^(newest|[1-9][0-9]{0,15})$", "description": "its number, or `newest`",
}  # fmt: skip
GENERATION = Parameter("generation", NUMBERED, where="path")
TO = Parameter("to", {**NUMBERED, "default": "newest"})
DRY_RUN = FlagParameter("dryRun", "1: only look")
NARRATED = "lines of JSON: progress now and then, at least each 10 s, and a result at last"
VERIFYING = LinesOf("VerifyLine", (VerifyProgressLine, VerifiedLine, Error), NARRATED)
COLLECTING = LinesOf("CollectLine", (CollectProgressLine, CollectedLine, Error), NARRATED)


class Restore(JsonBody):
    in_place: Annotated[bool, meaning("this session, which must be paused"), must("true or false")] = False


class SnapshotRoutes:
    def __init__(
        self,
        registry: SessionRegistry,
        catalogue: Catalogue,
        branching: SessionBranching,
        drain: SessionDrain,
        vault: SnapshotService,
    ) -> None:
        self._registry = registry
        self._catalogue = catalogue
        self._branching = branching
        self._drain = drain
        self._vault = vault
        self._looks = ConcurrencyLimit(LOOKS, "looks into snapshots")
        self._exports = ConcurrencyLimit(EXPORTS, "exports of snapshots")
        self._verifying: set[str] = set()  # users: verifying is charged to them, one at a time

    # -- looking ------------------------------------------------------------------------------------------------------

    @route(
        "GET", SNAPSHOTS, LIFECYCLE_SESSION, "listSnapshots", "The session's snapshots, the newest first",
        answers={200: Snapshots}, refusals=(400, 404, *STORED),
    )  # fmt: skip
    async def index(self, request: Request) -> Response:
        """The newest first; none is no error."""
        session = await looked_at(request, self._catalogue)
        try:
            pointer = await self._vault.pointer(session.user_id, session.id)
        except NoSuchSnapshot:
            return answer({"snapshots": [], "newest": None, "origin": None})
        listed = [heading(generation) for generation in pointer.older_first]
        return answer({"snapshots": listed, "newest": pointer.newest.number, "origin": pointer.origin or None})

    @route(
        "GET", ONE, LIFECYCLE_SESSION, "getSnapshot", "One snapshot, with its skipped and unsettled files",
        answers={200: SnapshotShown}, parameters=(GENERATION,), refusals=(400, 404, *STORED),
    )  # fmt: skip
    async def show(self, request: Request) -> Response:
        session = await looked_at(request, self._catalogue)
        with ExitStack() as place:
            place.callback(await self._looks.enter(request))
            generation, tree = await self._tree(session, _wanted(request))
            shown = {**heading(generation), **await asyncio.to_thread(inventory, tree)}
            return long_answer(shown, over=place.pop_all().close)

    @route(
        "GET", ONE + "/diff", LIFECYCLE_SESSION, "diffSnapshots", "What changed from this snapshot to another",
        answers={200: SnapshotDiff}, parameters=(GENERATION, TO), refusals=(400, 404, *STORED),
    )  # fmt: skip
    async def diff(self, request: Request) -> Response:
        """The changes that make the one tree into that of `to`, the newest by default."""
        session = await looked_at(request, self._catalogue)
        wanted, to = _wanted(request), _number(request.query_params.get("to", "newest"))
        with ExitStack() as place:
            place.callback(await self._looks.enter(request))
            before, old = await self._tree(session, wanted)
            after, new = await self._tree(session, to)
            compared = await asyncio.to_thread(compare, old, new)
            shown = {"from": before.number, "to": after.number, **compared}
            return long_answer(shown, over=place.pop_all().close)

    @route(
        "GET", ONE + "/export", LIFECYCLE_SESSION, "exportSnapshot", "The snapshot's tree as a tar",
        parameters=(GENERATION,), refusals=(400, 404, *STORED),
        media={"application/x-tar": "`workspace/` and `agent/`"},
    )  # fmt: skip
    async def export(self, request: Request) -> Response:
        session = await looked_at(request, self._catalogue)
        with ExitStack() as place:
            place.callback(await self._exports.enter(request))
            generation, tree = await self._tree(session, _wanted(request))
            headers = {
                **UNCACHED,
                "Content-Disposition": f'attachment; filename="{session.id}-{generation.number}.tar"',
                "X-Holdfast-Generation": str(generation.number),
            }
            tar, over = self._tar(session, tree), place.pop_all().close
            return LongResponse(tar, headers=headers, media_type="application/x-tar", over=over)

    async def _tar(self, session: Session, tree: StoredTree) -> AsyncGenerator[bytes, None]:
        async for piece in self._vault.tar(session.user_id, tree):
            yield piece
            if self._drain.draining:
                raise ObjectsUnavailable("the gateway is shutting down")

    async def _tree(self, session: Session, number: int | None) -> tuple[Generation, StoredTree]:
        return await self._vault.tree(session.user_id, session.id, number)

    # -- deciding -----------------------------------------------------------------------------------------------------

    @route(
        "POST", ONE + "/branch", LIFECYCLE_SESSION, "branch", "A new session that begins with the snapshot's tree",
        body=Nothing, answers={201: SessionJson}, parameters=(GENERATION,), refusals=(400, 404, 409, *STORED),
    )  # fmt: skip
    async def branch(self, request: Request) -> Response:
        session = await looked_at(request, self._catalogue)
        number = _wanted(request)
        await read_body(request, Nothing)
        note_asked(request, self._catalogue, session.user_id, "branch", generation=number)
        return answer((await self._branching.branch(session, number, "branch")).describe(), 201)

    @route(
        "POST", ONE + "/restore", LIFECYCLE_SESSION, "restore",
        "The snapshot's tree in a new session; or in place, in this one", body=Restore,
        answers={200: SessionJson, 201: SessionJson}, parameters=(GENERATION,), refusals=(400, 404, 409, *STORED),
    )  # fmt: skip
    async def restore(self, request: Request) -> Response:
        """A new session that begins with that tree; or, in place, the tree of this very session, which is paused."""
        session = await looked_at(request, self._catalogue)
        number = _wanted(request)
        in_place = (await read_body(request, Restore)).in_place
        note_asked(request, self._catalogue, session.user_id, "restore", generation=number, in_place=in_place)
        if not in_place:
            return answer((await self._branching.branch(session, number, "restored")).describe(), 201)
        found = await self._find(session, number)
        actor = await owned(request, self._registry)
        return answer(await actor.put_back(found.number))

    @route(
        "POST", ONE + "/release", LIFECYCLE_SESSION, "release", "Let a pinned snapshot go when its turn comes",
        body=Nothing, answers={200: Released}, parameters=(GENERATION,), refusals=(400, 404, 409, *STORED),
    )  # fmt: skip
    async def release(self, request: Request) -> Response:
        session = await looked_at(request, self._catalogue)
        number = _wanted(request)
        await read_body(request, Nothing)
        note_asked(request, self._catalogue, session.user_id, "release", generation=number)
        found = await self._find(session, number)
        pointer = await self._vault.release(session.user_id, session.id, found.number)
        kept = any(generation.number == found.number for generation in pointer.generations)
        return answer(Released(found.number, bool(found.pinned), kept))

    async def _find(self, session: Session, number: int | None) -> Generation:
        return (await self._vault.pointer(session.user_id, session.id)).find(number)

    # -- long work ----------------------------------------------------------------------------------------------------

    @route(
        "POST", SNAPSHOTS + "/verify", LIFECYCLE_SESSION, "verifySnapshots",
        "Read all that the snapshots name, and compare it with its hashes",
        body=Nothing, refusals=(400, 404, 429, *STORED), media={LINES: VERIFYING},
    )  # fmt: skip
    async def verify(self, request: Request) -> Response:
        """Reads everything that the session's generations refer to."""
        session = await looked_at(request, self._catalogue)
        await read_body(request, Nothing)
        await self._find(session, None)
        user = session.user_id
        if user in self._verifying:  # a courtesy, no lock: two that begin in the same moment harm no one
            raise ApiError(429, "busy", "snapshots of this user are being verified: wait for that to end")

        async def work(tell: Tell) -> Told:
            self._verifying.add(user)
            try:
                verdicts = await self._vault.verify(
                    user, session.id, lambda done, of: tell({"done": done, "of": of, "what": "frames"})
                )
            finally:
                self._verifying.discard(user)
            found = [
                {"generation": each.generation.number, "at": iso(each.generation.at), "problems": list(each.problems)}
                for each in reversed(verdicts)
            ]
            return {"whole": not any(each.problems for each in verdicts), "generations": found}

        return narrated(request, work, self._leaving)

    @route(
        "POST", "/internal/snapshots/gc", ADMINS, "collectSnapshots",
        "Remove what no snapshot names any more, of all users",
        body=Nothing, parameters=(DRY_RUN,), refusals=(400, *STORED), media={LINES: COLLECTING},
    )  # fmt: skip
    async def collect(self, request: Request) -> Response:
        """For all users: removes the objects that two passes found unreferenced."""
        dry_run = DRY_RUN.read(request)
        await read_body(request, Nothing)

        async def work(tell: Tell) -> Told:
            removed = 0

            def told(_: str) -> None:
                nonlocal removed
                removed += 1
                tell({"removed": removed})

            return collected(await self._vault.collect(dry_run=dry_run, told=told), dry_run=dry_run)

        return narrated(request, work, self._leaving)

    def _leaving(self) -> bool:
        return self._drain.draining


def heading(generation: Generation) -> dict[str, Any]:
    return {
        "generation": generation.number,
        "at": iso(generation.at),
        "files": generation.files,
        "bytes": generation.bytes,
        "pinned": generation.pinned or None,
        "note": generation.note or None,
        "manifest": generation.manifest,
    }


def inventory(tree: StoredTree) -> dict[str, Any]:
    """The numbers of a tree's entries, and the entries that are skipped or unsettled."""
    kinds = [entry.kind for entry in tree.entries.values()]
    unsettled = sorted((entry for entry in tree.entries.values() if entry.unsettled), key=lambda entry: entry.path)
    return {
        "counts": {
            "files": kinds.count(Kind.FILE),
            "directories": kinds.count(Kind.DIRECTORY),
            "symlinks": kinds.count(Kind.SYMLINK),
            "skipped": tree.skipped_count,
            "unsettled": len(unsettled),
        },
        "skipped": [written("path", path) for path in sorted(tree.skipped)[:NAMED]],
        "unsettled": some(unsettled, NAMED),
    }


def compare(old: StoredTree, new: StoredTree) -> dict[str, Any]:
    """The paths that were added, changed and removed: all of them counted, the first COMPARED of them named."""
    before, after = old.entries, new.entries
    added = sorted(path for path in after if path not in before)
    removed = sorted(path for path in before if path not in after)
    changed = sorted(path for path, entry in after.items() if path in before and before[path] != entry)
    room = COMPARED
    shown: dict[str, list[dict[str, Any]]] = {}
    for name, paths, entries in (("added", added, after), ("changed", changed, after), ("removed", removed, before)):
        shown[name] = some((entries[path] for path in paths), room)
        room -= len(shown[name])
    for told, path in zip(shown["changed"], changed, strict=False):
        told["content"] = _content(before[path]) != _content(after[path])
    counts = {"added": len(added), "changed": len(changed), "removed": len(removed)}
    return {**shown, "counts": counts, "truncated": sum(counts.values()) > COMPARED}


def _content(entry: Any) -> tuple[Any, ...]:
    return entry.kind, entry.target, entry.chunks


def collected(found: Collected, *, dry_run: bool) -> dict[str, Any]:
    told = asdict(found)
    told["packBytes"], told["removedBytes"] = told.pop("pack_bytes"), told.pop("removed_bytes")
    return {**told, "problem": found.problem or None, "dryRun": dry_run}


def _wanted(request: Request) -> int | None:
    return _number(request.path_params["generation"])


def _number(text: str) -> int | None:
    """The number of a generation; None is the newest."""
    if text == "newest":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 16 and 0 < int(text) <= LARGEST_NUMBER):
        raise ApiError(404, "no_snapshot", "a snapshot is named by its generation's number, or newest")
    return int(text)
