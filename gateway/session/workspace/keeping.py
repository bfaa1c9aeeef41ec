"""The limits and the snapshot service that the workspaces of all sessions share."""

from dataclasses import dataclass, field

from gateway.session.workspace.fair_semaphore import FairSemaphore
from sandbox.protocol.tree import ScanAsk
from sync.machine.state import SyncLimits
from sync.snapshots.service import SnapshotService


@dataclass(frozen=True, slots=True)
class WorkspaceLimits:
    sync: SyncLimits = field(default_factory=SyncLimits)
    rules: ScanAsk = field(default_factory=ScanAsk)
    restore_seconds: float = 60.0  # without progress
    attempt_seconds: float = 1800.0  # for one attempt at a sync
    restores_at_once: int = 4  # one user gets at most half of them
    syncs_at_once: int = 8  # likewise


class Keeping:
    """The snapshots, and the slots for restores and syncs."""

    def __init__(self, vault: SnapshotService, limits: WorkspaceLimits | None = None) -> None:
        self.vault = vault
        self.limits = limits or WorkspaceLimits()
        self.restoring = FairSemaphore(self.limits.restores_at_once)
        self.syncing = FairSemaphore(self.limits.syncs_at_once)
