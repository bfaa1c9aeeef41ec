"""When to send things that change often: soon after the first change, then not too often, and always the last. Pure.

Each thing has its own pace. One that has not changed since it was sent costs nothing.
"""

from itertools import islice


class Throttle:
    """`stir` marks a change; `due` returns the sessions whose present state is to be sent now."""

    __slots__ = ("_due", "_interval", "_soon", "_told")

    def __init__(self, *, soon: float, interval: float) -> None:
        """Seconds: changes within `soon` of the first are sent together; the next sending comes `interval` later."""
        self._soon = soon
        self._interval = interval
        self._due: dict[str, float] = {}  # changed sessions, and when to send them
        self._told: dict[str, float] = {}  # recently sent ones, and when

    @property
    def next(self) -> float | None:
        """When the next session is due; None if none has changed."""
        return min(self._due.values(), default=None)

    def stir(self, name: str, now: float) -> float | None:
        """Return when it is due; None if it was due already."""
        if name in self._due:
            return None
        told = self._told.get(name)
        self._due[name] = due = now + self._soon if told is None else max(now + self._soon, told + self._interval)
        return due

    def forget(self, name: str) -> None:
        """The session is gone: send nothing of it."""
        self._due.pop(name, None)
        self._told.pop(name, None)

    def due(self, now: float, most: int | None = None) -> list[str]:
        """The sessions to send now, in the order of their first changes; beyond `most`, the rest stays due."""
        found = list(islice((name for name, when in self._due.items() if when <= now), most))
        self._told = {name: when for name, when in self._told.items() if when + self._interval > now}
        for name in found:
            del self._due[name]
            self._told[name] = now
        return found
