"""A user's sessions as they were at one moment, in frames that are the same for every page. Pure.

A list may have thousands of sessions and take a while to be made and to be read, so several pages are sent the same
one. A page that gets it late is also owed the changes since it was begun (`since`): so the list serves newcomers as
long as those are few; above that, a new list is cheaper.
"""

from collections.abc import Iterable, Iterator

import orjson

from gateway.feed.viewer_backlog import ViewerBacklog
from sandbox.protocol.websocket_frames import frame_text

FRAME_BYTES = 256 << 10  # of a frame's sessions, unless a single one has more
MOST_SINCE = 1_000  # sessions


class SessionList:
    """Empty at first. From then on it must be told of every session that pages are told of (`changed`, `gone`)."""

    __slots__ = ("__weakref__", "_frames", "_made", "_open", "_open_bytes", "since")

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._open: list[bytes] = []  # sessions of the next frame
        self._open_bytes = 0
        self._made = False
        self.since = ViewerBacklog()

    def __iter__(self) -> Iterator[bytes]:
        """Its frames, one after the other, once it is made; an iterator that is not at its end keeps all of it in
        memory."""
        for number in range(len(self._frames)):
            yield self._frames[number]

    def add(self, described: Iterable[dict[str, object]]) -> None:
        for session in described:
            encoded = orjson.dumps(session)
            if self._open and self._open_bytes + len(encoded) > FRAME_BYTES:
                self._close_frame(b'],"more":true}')
            self._open.append(encoded)
            self._open_bytes += len(encoded) + 1

    def end(self) -> None:
        self._close_frame(b"]}")
        self._made = True

    @property
    def current(self) -> bool:
        """True if it is made, and good for a page that comes now."""
        return self._made and len(self.since) <= MOST_SINCE

    def _close_frame(self, end: bytes) -> None:
        self._frames.append(frame_text(b'{"type":"sandboxes","sandboxes":[' + b",".join(self._open) + end))
        self._open, self._open_bytes = [], 0

    def changed(self, session_id: str) -> None:
        if self._is_shared:
            self.since.changed(session_id)

    def gone(self, session_id: str, word: bytes) -> None:
        if self._is_shared:
            self.since.gone(session_id, word)

    @property
    def _is_shared(self) -> bool:
        """While it is being made pages share it, however much changes."""
        return self.current or not self._made
