"""The tree that was remembered last, in memory and in the cache file, which follow each other."""

from pathlib import Path

from sandbox.tree.index import Section, TreeIndex
from sandbox.tree.index_file import TreeIndexFile


class TreeIndexStore:
    """`edition` is new after every change. `new_inodes`: files have other inodes than when the cache was written."""

    def __init__(self, cache_path: Path, *, new_inodes: bool = False) -> None:
        self._new_inodes = new_inodes
        self._cache = TreeIndexFile(cache_path)
        self._tree: TreeIndex | None = None
        self.edition = 0

    @property
    def tree(self) -> TreeIndex:
        """Read from the file when it is first asked for."""
        if self._tree is None:
            self._tree = self._cache.load()
            if self._new_inodes:
                self._tree.renumber()
        return self._tree

    def change(self, token: str, rules: dict[str, bytes], sections: list[Section]) -> None:
        """The tree with these differences is called `token`. Costs what is different. Raises TreeProblem if it cannot
        be saved; it is remembered all the same."""
        tree = self.tree
        if sections or (tree.token, tree.rules) != (token, rules):
            self.edition += 1
            tree.apply(sections)
            tree.token, tree.rules = token, rules
            self._cache.save(tree, sections)

    def replace(self, tree: TreeIndex) -> None:
        """Remember `tree`, which has a token, instead of the present one. Raises TreeProblem as `change` does."""
        self.edition += 1
        self._tree = tree
        self._cache.save(tree, None)
