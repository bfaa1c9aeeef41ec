"""The viewers of a session, and the ring that lets them join, fall behind and come back.

Replay and joining the live stream happen in one step: otherwise a frame that came between them would reach no viewer. A
viewer whose socket is full is not queued for; it keeps its position and is fed from the ring as its socket drains. One
that has not drained for STUCK_SECONDS, or that the ring has left behind, is closed with 4408 and may resume.

Bounds: the ring (256 KiB, with an unfinished answer 4 MiB) and, per viewer, the outlet's buffer. A crash loses the
ring; the bridge still has everything since the last confirmed position.
"""

from collections.abc import Iterator

from gateway.protocol.close_codes import CloseCode
from gateway.server.viewer import Viewer
from gateway.session.model.ports import SessionClock, Timer
from sandbox.protocol.agent_stream import Ring
from sandbox.protocol.websocket_frames import frame_text

HIGH_WATER = 256 << 10
DRAIN_POLL_SECONDS = 0.05
STUCK_SECONDS = 20.0


class Broadcast:
    __slots__ = ("_clock", "_feeding", "_raw", "_viewers", "ring")

    def __init__(self, clock: SessionClock) -> None:
        self._clock = clock
        self._viewers: dict[Viewer, None] = {}
        self._raw = 0  # those that get the agent's lines only
        self._feeding: Timer | None = None
        self.ring = Ring()

    def __len__(self) -> int:
        return len(self._viewers)

    def __iter__(self) -> Iterator[Viewer]:
        return iter(list(self._viewers))

    def join(self, viewer: Viewer, after: int) -> None:
        """Send the viewer every frame after `after`, which the ring must hold, from here on."""
        self._viewers[viewer] = None
        if viewer.raw:
            self._raw += 1
        else:
            viewer.cursor = after
            self._feed()

    def leave(self, viewer: Viewer) -> None:
        if self._viewers.pop(viewer, 0) is None and viewer.raw:
            self._raw -= 1
        if not self._viewers:
            self._viewers.clear()  # frees the memory that the dict has grown to

    def tell(self, payload: bytes) -> None:
        """Send one of the gateway's own frames to every chat viewer."""
        framed: bytes | None = None
        for viewer in self._viewers:
            if not viewer.raw:
                framed = framed or frame_text(payload)
                viewer.outlet.send_text_prepared(framed)

    def relay(self, shown: bytes, line: bytes) -> None:
        """The agent's next frame: keep it, and send it to every viewer that is up to date. An empty `shown` only takes
        its number.
        """
        self.ring.append(shown, len(line))
        if not self._viewers:
            return
        if shown:
            self._show_live(shown)
        if self._raw:
            framed = frame_text(line)
            for viewer in self._viewers:
                if viewer.raw:
                    viewer.outlet.send_text_prepared(framed)

    def restart(self, epoch: str, base: int) -> list[Viewer]:
        """A new agent process, or a hole in the old one's frames. Return the viewers that were behind: they cannot
        catch up."""
        self.ring.begin(epoch, base)
        self.ring.pin(base)
        lost = [viewer for viewer in self._viewers if viewer.cursor is not None]
        for viewer in lost:
            viewer.cursor = None
        return lost

    def close_all(self, code: CloseCode) -> None:
        for viewer in list(self._viewers):
            viewer.close(code)

    def _show_live(self, shown: bytes) -> None:
        framed: bytes | None = None
        for viewer in self._viewers:
            if viewer.raw or viewer.cursor is not None:
                continue
            if viewer.outlet.buffered > HIGH_WATER:
                viewer.cursor = self.ring.end - 1
                self._schedule()
                continue
            framed = framed or frame_text(shown)
            viewer.outlet.send_text_prepared(framed)

    def _feed(self) -> None:
        """Send viewers that are behind as much as their sockets take."""
        self._feeding = None
        now = self._clock.now()
        for viewer in list(self._viewers):
            if viewer.cursor is not None:
                self._catch_up(viewer, now)
        if any(viewer.cursor is not None for viewer in self._viewers):
            self._schedule()

    def _catch_up(self, viewer: Viewer, now: float) -> None:
        assert viewer.cursor is not None
        if viewer.cursor < self.ring.base or viewer.outlet.closed:
            self._give_up(viewer)
            return
        if viewer.outlet.buffered > HIGH_WATER:  # first, because listing the missed frames costs more than waiting
            viewer.stuck_since = viewer.stuck_since or now
            if now - viewer.stuck_since > STUCK_SECONDS:
                self._give_up(viewer)
            return
        for offset, shown in self.ring.since(viewer.cursor) or ():
            if viewer.outlet.buffered > HIGH_WATER:
                return
            if shown:
                viewer.outlet.send_text(shown)
            viewer.cursor, viewer.stuck_since = offset, None
        viewer.cursor = None

    def _give_up(self, viewer: Viewer) -> None:
        viewer.cursor = None
        viewer.close(CloseCode.TOO_SLOW)

    def _schedule(self) -> None:
        if self._feeding is None:
            self._feeding = self._clock.call_at(self._clock.now() + DRAIN_POLL_SECONDS, self._feed)
