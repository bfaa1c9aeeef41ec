"""The two roots of a sandbox's tree, as they are walked: each by its own rules."""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from sandbox.protocol.entry import ROOTS
from sandbox.system.mapped_files import MappedFile, find_mapped
from sandbox.system.problem import TreeProblem, UnreadableFile, is_forbidden
from sandbox.tree.ignore import IGNORE_FILE, Rules, agent_rules, workspace_rules
from sandbox.tree.index import TreeIndex
from sandbox.tree.walk import NO_DIRECTORY, OPEN_DIRECTORY, UNREAD, VANISHED, Visit, Walk

WORKSPACE, AGENT = (os.fsdecode(root) for root in ROOTS)
NO_RULES: Final = {WORKSPACE: Rules(b"", "", IGNORE_FILE), AGENT: Rules(b"", "")}


class Roots:
    """`workspace` and `agent` below `home`. Decisions of their rules are remembered for as long as the rules are the
    same."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._rules: dict[str, Rules] = {}

    def rules(self, agent_skip: Sequence[str], *, lenient: bool = False) -> Mapping[str, Rules]:
        """The present rules of each root. Unreadable ones are as they were, or leave nothing out. Raises TreeProblem;
        with `lenient`, rules that cannot be had leave nothing out instead."""
        for root, read in ((WORKSPACE, self._workspace_rules), (AGENT, partial(agent_rules, agent_skip))):
            try:
                self._rules[root] = read(self._rules.get(root))
            except TreeProblem as problem:
                if lenient:
                    self._rules[root] = NO_RULES[root]
                elif isinstance(problem, UnreadableFile):
                    self._rules.setdefault(root, NO_RULES[root])
                else:
                    raise
        return dict(self._rules)

    def _workspace_rules(self, before: Rules | None) -> Rules:
        top = self._open(WORKSPACE)
        try:
            return workspace_rules(top, before)
        finally:
            os.close(top)

    def visits(
        self, walk: Walk, known: TreeIndex, rules: Mapping[str, Rules], *, may_be_missing: bool = False
    ) -> Iterator[Visit]:
        """The places where the roots differ from the known tree. Raises TreeProblem, also for a missing root, unless
        it `may_be_missing`: a tree without one half is not one in which that half was removed."""
        for root, directory in known.roots.items():
            try:
                top = self._open(root)
            except TreeProblem as problem:
                if walk.leave_out(problem, root):
                    yield from walk.below(UNREAD, root, directory, rules[root], recheck=False)
                    continue
                if not may_be_missing:
                    raise
                if isinstance(problem.__cause__, OSError) and problem.__cause__.errno in NO_DIRECTORY:
                    yield Visit(root, VANISHED, directory, gone=list(directory.stamps))
                else:
                    walk.pass_over(problem, directory)
                continue
            recheck = known.rules.get(root) != rules[root].fingerprint
            yield from walk.below(top, root, directory, rules[root], recheck=recheck)

    def mapped(self) -> MappedFile:
        return find_mapped(self._home)

    def have_moved(self, walk: Walk, since_ns: int) -> bool:
        """Whether directories of `walk` have changed since; then it may have missed files that moved."""
        return walk.has_moved(self._home, since_ns)

    def _open(self, root: str) -> int:
        try:
            return os.open(self._home / root, OPEN_DIRECTORY)
        except OSError as error:
            kind = UnreadableFile if is_forbidden(error) else TreeProblem
            raise kind("failed", f"the directory {root} cannot be read: {error.strerror}") from error
