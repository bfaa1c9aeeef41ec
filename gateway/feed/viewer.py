"""One page that watches a user's sessions. It is up to date, or it is behind: then its frames wait with it, within
bounds, until its socket has taken the earlier ones. One that takes nothing for `STUCK_SECONDS`, or is behind by too
much, is closed with 4408: it comes back, and gets the whole list again.
"""

from collections.abc import Callable, Iterator

from gateway.feed.session_list import SessionList
from gateway.feed.viewer_backlog import ViewerBacklog
from gateway.protocol import chat_frames
from gateway.protocol.close_codes import CloseCode
from gateway.server.viewer import Outlet
from sandbox.protocol.websocket_frames import frame_text

HIGH_WATER = 256 << 10
STUCK_SECONDS = 20.0


class EventViewer:
    """A viewer is behind at first: nothing is sent before the list. `on_behind` is called when it falls behind later
    on."""

    __slots__ = ("_arrears", "_least", "_listed", "_since", "begun", "on_behind", "outlet")

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet
        self.on_behind: Callable[[], None] = lambda: None
        self._arrears: ViewerBacklog | None = ViewerBacklog()
        self.begun = False  # it was given the list
        self._listed: Iterator[bytes] = iter(())  # the rest of the list
        self._least = 0  # the fewest unsent bytes of its socket since it fell behind
        self._since: float | None = None  # the time of that

    @property
    def behind(self) -> bool:
        """True while it waits for its socket; before the list it waits for that."""
        return self.begun and self._arrears is not None

    # All frames are wire-ready: the same bytes go to every page.

    def say(self, frame: bytes) -> None:
        """Send a frame of which each one counts, in order."""
        if (arrears := self._owed()) is None:
            self.outlet.send_text_prepared(frame)
        elif not arrears.say(frame):
            self.close(CloseCode.TOO_SLOW)

    def show(self, session_id: str, frame: bytes) -> None:
        """Send a session's present description."""
        if (arrears := self._owed()) is None:
            self.outlet.send_text_prepared(frame)
        elif not arrears.changed(session_id):
            self.close(CloseCode.TOO_SLOW)

    def tell_gone(self, session_id: str, frame: bytes) -> None:
        if (arrears := self._owed()) is None:
            self.outlet.send_text_prepared(frame)
        elif not arrears.gone(session_id, frame):
            self.close(CloseCode.TOO_SLOW)

    def _owed(self) -> ViewerBacklog | None:
        if self._arrears is None and self.outlet.buffered > HIGH_WATER:
            self._arrears, self._since = ViewerBacklog(), None
            self.on_behind()
        return self._arrears

    def await_list(self, listing: SessionList) -> None:
        """Begin with this list, which may have been begun earlier, and with the changes since then."""
        self._listed, self._arrears = iter(listing), listing.since.copy()

    def begin(self, now: float) -> tuple[str, ...] | None:
        """Send the list, which is made by now, then the changes since it was begun; returns as `catch_up`."""
        self.begun = True
        return self.catch_up(now)

    def catch_up(self, now: float) -> tuple[str, ...] | None:
        """Called now and then while the viewer is behind. Send as much as its socket has room for: of the list, then of
        its backlog. When all is sent, it is up to date, except for the sessions that are returned; before that, return
        None."""
        unsent = self.outlet.buffered
        if unsent > HIGH_WATER:
            if self._since is None or unsent < self._least:
                self._since, self._least = now, unsent
            elif now - self._since > STUCK_SECONDS:
                self.close(CloseCode.TOO_SLOW)
            return None
        assert self._arrears is not None
        self._since = None
        while (frame := next(self._listed, None) or self._arrears.pay()) is not None:
            self.outlet.send_text_prepared(frame)
            if self.outlet.closed or self.outlet.buffered > HIGH_WATER:
                return None
        changed, self._arrears = self._arrears.left, None
        return changed

    # Called by its AccessWatch

    def tell_expiring(self, at: str) -> None:
        self.say(frame_text(chat_frames.dump("auth_expiring", at=at)))

    def tell_trouble(self, code: str, reason: str) -> None:
        self.say(frame_text(chat_frames.dump("error", code=code, error=reason)))

    def close(self, code: CloseCode, reason: str | None = None) -> None:
        self._listed = iter(())  # frees the list before its peer has answered
        self.outlet.close(code, reason or code.reason)

    def abort(self) -> None:
        self.outlet.abort()
