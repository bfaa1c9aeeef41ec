"""The two roots of a sandbox's tree, as they are walked: each by its own rules."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from sandbox.tree.entry import ROOTS
from sandbox.tree.ignore import Rules, agent_rules, workspace_rules
from sandbox.tree.kept import KeptTree
from sandbox.tree.problem import TreeProblem
from sandbox.tree.walk import OPEN_DIRECTORY, VANISHED, Visit, Walk

WORKSPACE, AGENT = (os.fsdecode(root) for root in ROOTS)
NO_RULES: Final = {root: Rules(b"", "") for root in (WORKSPACE, AGENT)}


class Roots:
    """`workspace` and `agent` below `home`. What their rules decided is remembered for as long as they are the same."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._rules: dict[str, Rules] = {}

    def rules(self, agent_skip: Sequence[str]) -> Mapping[str, Rules]:
        """The rules of each root as they are now. Raises TreeProblem."""
        top = self._open(WORKSPACE)
        try:
            workspace = workspace_rules(top, self._rules.get(WORKSPACE))
        finally:
            os.close(top)
        self._rules = {WORKSPACE: workspace, AGENT: agent_rules(agent_skip, self._rules.get(AGENT))}
        return self._rules

    def visits(
        self, walk: Walk, known: KeptTree, rules: Mapping[str, Rules], *, may_be_missing: bool = False
    ) -> Iterator[Visit]:
        """Where the roots are not as they are known. Raises TreeProblem, also for a root that is not there, unless it
        `may_be_missing`: a tree of which half is missing is not one in which half was removed."""
        for root, directory in known.roots.items():
            try:
                top = self._open(root)
            except TreeProblem:
                if not may_be_missing:
                    raise
                yield Visit(root, VANISHED, directory, gone=list(directory.stamps))
                continue
            recheck = known.rules.get(root) != rules[root].fingerprint
            yield from walk.below(top, root, directory, rules[root], recheck=recheck)

    def have_moved(self, walk: Walk, since_ns: int) -> bool:
        """Whether directories of `walk` have changed since; then it may have missed what was moved."""
        return walk.has_moved(self._home, since_ns)

    def _open(self, root: str) -> int:
        try:
            return os.open(self._home / root, OPEN_DIRECTORY)
        except OSError as error:
            raise TreeProblem("failed", f"the directory {root} cannot be read: {error.strerror}") from error
