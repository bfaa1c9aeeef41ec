"""A campaign's knowledge of a session's generations, and its verdict on a restored tree.

The editor notes the disk's tree while nobody changes it, and requests a sync: the answered generation must be exactly
that tree, now and after every crash. A generation made while somebody wrote is known from the store alone; a restore
must give exactly that.
"""

from collections import Counter
from hashlib import sha256

from sandbox.protocol.entry import Kind
from sync.snapshots.service import SnapshotService
from tests.support.trees import Print, differences

Tree = dict[bytes, Print]
SHOWN = 6  # differences of one problem


class Ledger:
    """One session's generations. `problems` are sentences; `counts` are the outcomes."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.known: dict[int, Tree] = {}  # written down while it was quiet
        self.reported = 0  # the newest one that was reported to somebody
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()

    def told(self, generation: int, tree: Tree | None = None) -> None:
        """A sync was answered with `generation`; `tree` is the disk's tree, if nobody was editing."""
        if generation < self.reported:
            self._accuse(f"told of generation {generation} after {self.reported}")
        self.reported = max(self.reported, generation)
        if tree is not None:
            self._agree(generation, tree, "told twice of one generation, for two trees")
            self.known[generation] = tree

    def came_back(self, generation: int, disk: Tree, stored: Tree, newest: int) -> None:
        """`generation` was restored to `disk`; in the store its tree is `stored`, and `newest` is the newest one."""
        self.counts["restored"] += 1
        if generation < self.reported:
            self._accuse(f"generation {generation} came back although {self.reported} was told to be kept")
        if generation != newest:
            self._accuse(f"generation {generation} came back although {newest} is there")
        self._compare(disk, stored, f"generation {generation} came back as another tree than the store has")
        self._agree(generation, disk, f"generation {generation} came back as another tree than was synced")

    def holds(self, generation: int, stored: Tree) -> None:
        """In the store, the tree of `generation` is `stored`."""
        self.counts["compared"] += 1
        self._agree(generation, stored, f"generation {generation} is stored as another tree than was synced")

    def says(self, problem: str) -> None:
        self._accuse(problem)

    def _agree(self, generation: int, tree: Tree, what: str) -> None:
        if generation in self.known:
            self._compare(tree, self.known[generation], what)

    def _compare(self, tree: Tree, other: Tree, what: str) -> None:
        if found := differences(tree, other):
            self._accuse(f"{what}: {len(found)} differences: " + "; ".join(found[:SHOWN]))

    def _accuse(self, problem: str) -> None:
        self.problems.append(f"{self.session_id}: {problem}")


def is_replaced(disk: Tree, stored: Tree) -> bool:
    """Whether `stored`, the newest generation, replaces `disk` after a crash. By docs/snapshots.md it does if the
    disk has no files, or fewer than half of them."""
    left, had = files_in(disk), files_in(stored)
    return 2 * left < had or (left == 0 and disk != stored)


def files_in(tree: Tree) -> int:
    """Regular files and symlinks."""
    return sum(entry.kind != "directory" for entry in tree.values())


async def stored_tree(
    vault: SnapshotService, user_id: str, session_id: str, number: int | None = None
) -> tuple[int, Tree]:
    """A generation's number, and its tree as the store has it."""
    generation, stored = await vault.tree(user_id, session_id, number)
    contents = vault.contents(user_id, stored)
    tree: Tree = {}
    for path, entry in stored.entries.items():
        match Kind(entry.kind):
            case Kind.DIRECTORY:
                tree[path] = Print("directory", entry.mode, entry.mtime_ns, 0, b"")
            case Kind.SYMLINK:
                tree[path] = Print("symlink", 0o777, entry.mtime_ns, 0, entry.target)
            case Kind.FILE:
                digest = sha256()
                async for piece in contents.read(entry):
                    digest.update(piece)
                tree[path] = Print("file", entry.mode, entry.mtime_ns, entry.size, digest.digest())
    return generation.number, tree
