"""One attached browser connection, as its session sees it."""

from typing import Protocol

from gateway.protocol import chat_frames
from gateway.protocol.close_codes import CloseCode


class Outlet(Protocol):
    """The writing half of an accepted WebSocket. Nothing here waits; a peer that does not read is closed by the
    guard.
    """

    @property
    def buffered(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def send_text(self, payload: bytes) -> bool: ...
    def send_text_prepared(self, frame: bytes) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self, code: int, reason: str) -> None: ...
    def abort(self) -> None: ...


class Viewer:
    """A chat viewer gets the gateway's frames and the agent's, numbered; a raw one gets the agent's lines only.

    `cursor` is None while the viewer is up to date. Otherwise it is the last offset that was sent: the viewer is
    behind, and is fed from the session's ring as fast as it reads, so that being slow costs no memory of its own.
    """

    __slots__ = ("cursor", "leaving", "outlet", "raw", "stuck_since")

    def __init__(self, outlet: Outlet, *, raw: bool = False) -> None:
        self.outlet = outlet
        self.raw = raw
        self.cursor: int | None = None
        self.leaving = False  # told to come back: it is not read any more
        self.stuck_since: float | None = None

    def send(self, payload: bytes) -> None:
        """Send one of the gateway's own frames to this viewer alone."""
        if not self.raw:
            self.outlet.send_text(payload)

    def tell_expiring(self, at: str) -> None:
        self.send(chat_frames.dump("auth_expiring", at=at))

    def tell_trouble(self, code: str, reason: str) -> None:
        self.send(chat_frames.dump("error", code=code, error=reason))

    def close(self, code: CloseCode, reason: str | None = None) -> None:
        self.outlet.close(code, reason or code.reason)

    def abort(self) -> None:
        """End the connection now, without a close frame."""
        self.outlet.abort()
