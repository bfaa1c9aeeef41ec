"""The newest generation of a workspace, as this process knows it, and its members in the session's state. Pure."""

from typing import Any

from gateway.session.model.state import SessionState
from sync.format.pointer import Generation
from sync.machine.driver import SyncView
from sync.snapshots.push import Standing


class KeptGeneration:
    """`begins_with_less`: the disk began with less than the newest generation, so few files on it are no sign of a
    loss."""

    __slots__ = ("begins_with_less", "newest")

    def __init__(self) -> None:
        self.newest: Generation | None = None  # the newest that this process has seen
        self.begins_with_less = False

    @property
    def members(self) -> dict[str, Any]:
        """Its members in the session's state."""
        return kept_members(self.newest)

    def number(self, state: SessionState) -> int:
        return state.generation if self.newest is None else self.newest.number

    def standing(self, state: SessionState) -> Standing:
        """The base of the next generation."""
        seen = 0 if self.newest is None else self.newest.number
        return Standing(max(seen, state.generation), begun_without=self.begins_with_less)


def kept_members(newest: Generation | None) -> dict[str, Any]:
    """The members of the session's state that describe the newest generation."""
    if newest is None:
        return {}
    return {
        "generation": newest.number,
        "tree": newest.manifest,
        "files": newest.files,
        "snapshot_bytes": newest.bytes,
        "synced_at": newest.at,
    }


def sync_changes(view: SyncView, newest: Generation | None, state: SessionState) -> dict[str, Any]:
    """The changes of the session's state that its sync calls for; empty if there are none."""
    error = (view.last_error or "it failed") if view.failing else ""
    moved = newest is not None and view.generation == newest.number and newest.manifest != state.tree
    if moved:
        return {"sync_error": error, **kept_members(newest), "degraded": "", "fresh": False}
    return {"sync_error": error} if error != state.sync_error else {}
