"""Counts the agent's events that its core does not know, by kind, until a gateway has got the counts. Pure.

A kind is the agent's own word; it is made printable and short. MOST_KINDS kinds are counted each, the rest together.
"""

import re

MOST_KINDS = 64
LONGEST = 80  # characters of a kind
OTHERS = "others"

_ODD = re.compile(r"[^ -~]")


class UnknownKinds:
    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, kind: str) -> str | None:
        """Count one. Returns its name if it is the first of that name."""
        name = _ODD.sub("_", kind[:LONGEST]) or "none"
        if name not in self._counts and len(self._counts) >= MOST_KINDS:
            name = OTHERS
        is_new = name not in self._counts
        self._counts[name] = self._counts.get(name, 0) + 1
        return name if is_new else None

    @property
    def counts(self) -> dict[str, int]:
        return dict(self._counts)

    def take(self, most: int) -> dict[str, int]:
        """At most so many kinds with their counts, which are then forgotten."""
        return {kind: self._counts.pop(kind) for kind in list(self._counts)[:most]}
