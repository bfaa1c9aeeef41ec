"""A vault and a session's tree together, for tests of kept workspaces: in memory, or on a disk."""

from pathlib import Path

from sandbox.ports.tree import Tree
from sandbox.protocol.entry import Entry
from sandbox.protocol.tree import ScanAsk
from sandbox.providers.memory.tree import MemoryRoots, MemoryTree
from sync.objects.memory import MemoryObjects
from sync.ports import ObjectStore
from sync.snapshots.push import Pushed
from sync.snapshots.restore import RestoreResult
from sync.snapshots.service import SnapshotLimits, SnapshotService
from tests.support.trees import DirectoryTree, differences, fingerprint

USER = "user"
DAY = 86_400.0


class Clock:
    """Time that passes when a test says so: both clocks of a vault."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def __call__(self) -> float:
        return self.seconds


class MemorySession:
    """A session whose roots are `roots`."""

    def __init__(self, session_id: str = "s", user_id: str = USER) -> None:
        self.id, self.user_id = session_id, user_id
        self.roots = MemoryRoots()
        self.tree = MemoryTree(lambda: self.roots)

    def entries(self) -> dict[bytes, Entry]:
        return self.roots.entries()


def vault_on(store: ObjectStore | None = None, clock: Clock | None = None, *, keep: int = 10) -> SnapshotService:
    """A gateway's vault; a second one on the same store is a restarted gateway, or another one."""
    clock = clock or Clock()
    return SnapshotService(store or MemoryObjects(), SnapshotLimits(keep, DAY), now=clock, utcnow=clock)


async def push(vault: SnapshotService, session: MemorySession) -> Pushed:
    return await push_tree(vault, session.tree, session.id, session.user_id)


async def push_tree(vault: SnapshotService, tree: Tree, session_id: str = "s", user_id: str = USER) -> Pushed:
    return await vault.push(user_id, session_id, tree, ScanAsk(), lambda: None)


async def restore_into(vault: SnapshotService, tree: Tree, session_id: str = "s", user_id: str = USER) -> RestoreResult:
    return await vault.restore(user_id, session_id, tree, aside=False, told=lambda _: None)


async def restored_entries(vault: SnapshotService, session: MemorySession) -> dict[bytes, Entry]:
    """The entries of another sandbox after a restore of the session, which must be of its newest generation."""
    other = MemorySession()
    restored = await restore_into(vault, other.tree, session.id, session.user_id)
    assert restored.degraded is None
    return other.entries()


async def problems(vault: SnapshotService, session_id: str = "s", user_id: str = USER) -> list[str]:
    """The problems of the session's generations."""
    verdicts = await vault.verify(user_id, session_id, lambda done, of: None)
    return [f"{verdict.generation.number}: {problem}" for verdict in verdicts for problem in verdict.problems]


async def restores_to(vault: SnapshotService, tree: DirectoryTree, elsewhere: Path, session_id: str = "s") -> list[str]:
    """How the tree that a restore makes `elsewhere` differs from the disk of `tree`."""
    restored = await restore_into(vault, DirectoryTree(elsewhere / "home", elsewhere / "state"), session_id)
    assert restored.degraded is None
    return differences(fingerprint(tree.home), fingerprint(elsewhere / "home"))
