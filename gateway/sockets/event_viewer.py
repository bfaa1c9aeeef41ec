"""One page that watches a user's sessions. It is up with the news, or it is behind: then what it is owed waits with it,
within bounds, until its socket has taken what it was given. One that takes nothing for `STUCK_SECONDS`, or is owed too
much, is closed with 4408: it comes back, and is given the whole list anew.
"""

from collections.abc import Callable

from gateway import wire
from gateway.arrears import Arrears, Debts
from gateway.close_codes import CloseCode
from gateway.sockets.viewers import Outlet
from sandbox.framing import frame_text

HIGH_WATER = 256 << 10
STUCK_SECONDS = 20.0


class EventViewer:
    """Begins behind: nothing is sent before the list. `on_behind` is called when it falls behind later on."""

    __slots__ = ("_arrears", "_least", "_since", "begun", "on_behind", "outlet")

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet
        self.on_behind: Callable[[], None] = lambda: None
        self._arrears: Arrears | None = Arrears()
        self.begun = False  # it was given the list
        self._least = 0  # that its socket had to send yet, since it fell behind
        self._since: float | None = None  # when that was

    @property
    def behind(self) -> bool:
        """Whether it waits for its socket; before the list it waits for that."""
        return self.begun and self._arrears is not None

    # All frames are wire-ready: the same bytes go to every page.

    def say(self, frame: bytes) -> None:
        """What is to be heard word by word, in order."""
        if (arrears := self._owed()) is None:
            self.outlet.send_text_prepared(frame)
        elif not arrears.say(frame):
            self.close(CloseCode.TOO_SLOW)

    def show(self, session_id: str, frame: bytes) -> None:
        """A session as it is now."""
        if (arrears := self._owed()) is None:
            self.outlet.send_text_prepared(frame)
        elif not arrears.changed(session_id):
            self.close(CloseCode.TOO_SLOW)

    def tell_gone(self, session_id: str, frame: bytes) -> None:
        if (arrears := self._owed()) is None:
            self.outlet.send_text_prepared(frame)
        elif not arrears.gone(session_id, frame):
            self.close(CloseCode.TOO_SLOW)

    def _owed(self) -> Arrears | None:
        if self._arrears is None and self.outlet.buffered > HIGH_WATER:
            self._arrears, self._since = Arrears(), None
            self.on_behind()
        return self._arrears

    def begin(self, listed: bytes) -> Debts:
        """The list, then what happened since it was made."""
        self.begun = True
        self.outlet.send_text_prepared(listed)
        return self._settle()

    def catch_up(self, now: float) -> Debts | None:
        """Called now and then while it is behind: what it is still owed once its socket has room, else None."""
        unsent = self.outlet.buffered
        if unsent <= HIGH_WATER:
            return self._settle()
        if self._since is None or unsent < self._least:
            self._since, self._least = now, unsent
        elif now - self._since > STUCK_SECONDS:
            self.close(CloseCode.TOO_SLOW)
        return None

    def _settle(self) -> Debts:
        assert self._arrears is not None
        debts, self._arrears = self._arrears.debts(), None
        for frame in (*debts.words, *debts.gone):
            self.outlet.send_text_prepared(frame)
        return debts

    # What its pass tells it

    def tell_expiring(self, at: str) -> None:
        self.say(frame_text(wire.dump("auth_expiring", at=at)))

    def tell_trouble(self, code: str, reason: str) -> None:
        self.say(frame_text(wire.dump("error", code=code, error=reason)))

    def close(self, code: CloseCode, reason: str | None = None) -> None:
        self.outlet.close(code, reason or code.reason)
