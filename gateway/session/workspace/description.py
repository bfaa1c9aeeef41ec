"""What people are shown of a workspace and its sync. Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from persistence.record_json import iso
from sandbox.system.problem import printable
from sync.machine.driver import SyncView
from sync.snapshots.push import Pushed
from sync.snapshots.restore import RestoreProgress

SHOWN_UNREAD = 20  # names of files that could not be read
ALL_READ: Mapping[str, Any] = MappingProxyType({})


def sync_members(view: SyncView | None, unread: Mapping[str, Any], progress: RestoreProgress | None) -> dict[str, Any]:
    """What only a loaded session knows of the member `sync` of its description."""
    described: dict[str, Any] = {}
    if view is not None:
        described = {
            "state": view.state,
            "generation": view.generation,
            "lastError": view.last_error,
            "dirty": view.dirty,
            "attempt": view.attempt,
        }
        if view.last_success is not None:
            described["lastSuccess"] = iso(view.last_success)
    if unread:
        described["unread"] = unread
    if progress is not None:
        described["restore"] = progress_members(progress)
    return described


def progress_members(progress: RestoreProgress) -> dict[str, Any]:
    """How far a restore has come."""
    return {
        "generation": progress.generation,
        "files": progress.files,
        "ofFiles": progress.of_files,
        "bytes": progress.bytes,
        "ofBytes": progress.of_bytes,
    }


def unread_members(pushed: Pushed) -> Mapping[str, Any]:
    """What a sync could not read; one and the same value if there is nothing, as of most sessions."""
    if not pushed.unread_count:
        return ALL_READ
    return {"count": pushed.unread_count, "paths": [printable(path) for path in pushed.unread[:SHOWN_UNREAD]]}
