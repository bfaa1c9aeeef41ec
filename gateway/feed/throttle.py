"""When to tell of things that change often: soon after the first change, then not too often, and the last always. Pure.

Each thing has its own pace. What has not changed since it was told of costs nothing.
"""

from itertools import islice


class Throttle:
    """`stir` when something changes; what is `due` is to be told of as it is then."""

    __slots__ = ("_due", "_interval", "_soon", "_told")

    def __init__(self, *, soon: float, interval: float) -> None:
        """Seconds: what comes `soon` after a change is told with it; of two tellings the second is `interval` later."""
        self._soon = soon
        self._interval = interval
        self._due: dict[str, float] = {}  # what changed, and when to tell of it
        self._told: dict[str, float] = {}  # what was told of a moment ago, and when

    @property
    def next(self) -> float | None:
        """When something is due; None if nothing changed."""
        return min(self._due.values(), default=None)

    def stir(self, name: str, now: float) -> float | None:
        """Return when it is due; None if it was to be told of already."""
        if name in self._due:
            return None
        told = self._told.get(name)
        self._due[name] = due = now + self._soon if told is None else max(now + self._soon, told + self._interval)
        return due

    def forget(self, name: str) -> None:
        """It is no more: nothing is to be told of it."""
        self._due.pop(name, None)
        self._told.pop(name, None)

    def due(self, now: float, most: int | None = None) -> list[str]:
        """What is to be told of now, in the order in which it changed first; beyond `most`, the rest stays due."""
        found = list(islice((name for name, when in self._due.items() if when <= now), most))
        self._told = {name: when for name, when in self._told.items() if when + self._interval > now}
        for name in found:
            del self._due[name]
            self._told[name] = now
        return found
