"""A workspace and its sync, as the API describes them. Pure."""

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
    """The part of the description's member `sync` that only a loaded session has."""
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
    """The progress of a restore."""
    return {
        "generation": progress.generation,
        "files": progress.files,
        "ofFiles": progress.of_files,
        "bytes": progress.bytes,
        "ofBytes": progress.of_bytes,
    }


def unread_members(pushed: Pushed) -> Mapping[str, Any]:
    """The files that a sync could not read; for none, one shared value, since most sessions have none."""
    if not pushed.unread_count:
        return ALL_READ
    return {"count": pushed.unread_count, "paths": [printable(path) for path in pushed.unread[:SHOWN_UNREAD]]}
