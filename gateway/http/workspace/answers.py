"""Files and snapshots as the API shows them."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from gateway.routing.json_types import Base64, JsonAnswer, Number, Time, Whole, Yes, meaning, one_of


class FileEntry(JsonAnswer):
    name: str
    type: Annotated[str, one_of("file", "directory", "symlink", "other")]
    size: Whole
    mode: Annotated[str, Meta(pattern="^[0-7]{4}$"), meaning("octal")]
    mtime: Time | None
    name_base64: Base64 | UnsetType = UNSET
    target: Annotated[str | UnsetType, meaning("of a symlink, as it is")] = UNSET
    target_base64: Base64 | UnsetType = UNSET
    unsettled: Annotated[Yes | UnsetType, meaning("it changed while it was read, each time it was tried")] = UNSET


class DirectoryJson(JsonAnswer):
    path: Annotated[str, meaning("relative to its root")]
    root: Annotated[str, one_of("workspace", "agent")]
    source: Annotated[str, one_of("live", "synced")]
    generation: Whole | None
    entries: list[FileEntry]
    truncated: bool
    path_base64: Base64 | UnsetType = UNSET


class Snapshot(JsonAnswer):
    generation: Number
    at: Time
    files: Annotated[Whole, meaning("regular files and symlinks")]
    bytes: Whole
    pinned: Annotated[str | None, meaning("why it stays until it is released")]
    note: Annotated[str | None, meaning("where it came from, if not from a sync")]
    manifest: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Snapshots(JsonAnswer):
    snapshots: list[Snapshot]
    newest: Whole | None
    origin: Annotated[str | None, meaning("of a branch: `<session id>@<generation>`")]


class PathEntry(JsonAnswer):
    path: Annotated[str, meaning("with its root")]
    type: Annotated[str, one_of("file", "directory", "symlink")]
    size: Whole
    path_base64: Base64 | UnsetType = UNSET


class SkippedPath(JsonAnswer):
    """Socket, FIFO, device or unreadable file."""

    path: str
    path_base64: Base64 | UnsetType = UNSET


class SnapshotCounts(JsonAnswer):
    files: Whole
    directories: Whole
    symlinks: Whole
    skipped: Whole
    unsettled: Whole


class SnapshotShown(Snapshot):
    counts: SnapshotCounts
    skipped: list[SkippedPath]
    unsettled: list[PathEntry]


class ChangedPath(JsonAnswer):
    path: Annotated[str, meaning("with its root")]
    type: Annotated[str, one_of("file", "directory", "symlink")]
    size: Whole
    content: Annotated[bool, meaning("false: only its mode or time")]
    path_base64: Base64 | UnsetType = UNSET


class DiffCounts(JsonAnswer):
    added: Whole
    changed: Whole
    removed: Whole


class SnapshotDiff(JsonAnswer):
    from_: Whole = field(name="from")
    to: Whole
    added: list[PathEntry]
    changed: list[ChangedPath]
    removed: list[PathEntry]
    counts: DiffCounts
    truncated: bool


class Released(JsonAnswer):
    generation: Whole
    was_pinned: bool
    kept: bool


class VerifyProgress(JsonAnswer):
    done: Whole | UnsetType = UNSET
    of: Whole | UnsetType = UNSET
    what: str | UnsetType = UNSET


class VerifyProgressLine(JsonAnswer):
    progress: VerifyProgress


class VerifiedGeneration(JsonAnswer):
    generation: Whole
    at: Time
    problems: list[str]


class Verified(JsonAnswer):
    whole: bool
    generations: list[VerifiedGeneration]


class VerifiedLine(JsonAnswer):
    result: Verified


class CollectProgress(JsonAnswer):
    removed: Whole | UnsetType = UNSET


class CollectProgressLine(JsonAnswer):
    progress: CollectProgress


class CollectedJson(JsonAnswer):
    sessions: Whole
    generations: Whole
    packs: Whole
    pack_bytes: Whole
    marked: Whole
    removed: Whole
    removed_bytes: Whole
    problem: Annotated[str | None, meaning("why nothing was removed")]
    dry_run: bool


class CollectedLine(JsonAnswer):
    result: CollectedJson
