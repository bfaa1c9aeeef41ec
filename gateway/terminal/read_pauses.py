"""How long a terminal's viewer may pause its output. Pure: the time is an argument.

Paused time adds up. Going on pays it back: a second for each second, and a second for each `SECOND_BYTES` of output
that the viewer took. So a page that pauses a hundred times a second to draw a flood never runs out, and one that goes
on for only a moment now and then does.
"""

PATIENCE_SECONDS = 30.0  # the bridge would close a link that takes nothing after 60 s
SECOND_BYTES = 64 * 1024


class ReadPauses:
    __slots__ = ("_owed", "_paused", "_since")

    def __init__(self) -> None:
        self._owed = 0.0  # seconds, as of `_since`; at most PATIENCE_SECONDS
        self._paused = False
        self._since = float("-inf")

    def pause(self, now: float, *, took: int) -> None:
        """The viewer pauses, after it took so many bytes; or it is paused still."""
        if not self._paused:
            self._owed = max(0.0, self._owed - (now - self._since) - took / SECOND_BYTES)
            self._paused, self._since = True, now

    def go_on(self, now: float) -> None:
        if self._paused:
            self._owed = PATIENCE_SECONDS - self.left(now)
            self._paused, self._since = False, now

    def forgive(self, now: float) -> None:
        """The viewer's user is there: the count starts again."""
        self._owed, self._since = 0.0, now

    def left(self, now: float) -> float:
        """The seconds for which it may stay paused; 0 when its time is up."""
        passed = now - self._since if self._paused else 0.0
        return max(0.0, PATIENCE_SECONDS - self._owed - passed)
