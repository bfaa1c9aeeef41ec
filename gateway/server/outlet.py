"""The short way for frames: past the ASGI queue, straight between a socket's owner and its transport."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.limits.allowance import SMALL_BYTES
from gateway.limits.inbound_bytes import InboundBytes
from gateway.protocol.close_codes import CloseCode
from sandbox.protocol.websocket_frames import frame_text

if TYPE_CHECKING:
    from gateway.server.spliced_socket import SplicedOwner, SplicedSocket
    from gateway.server.websocket import GuardedSocket

OUTLET = "holdfast.outlet"  # its name among the extensions of an ASGI scope
_TURN_BYTES = 64 << 10  # beyond, a turn's frames leave in pieces, so that the kernel's answer is heard


class SocketOutlet:
    """A WebSocket's short way: whole text messages in by a call, frames out by a write. On the event loop only.

    `on_text`, once set, is given each text message as bytes (valid UTF-8) and the ASGI `receive` sees only the
    disconnect; a binary message then ends the connection. What is sent within one turn of the loop leaves in one
    system call: on a busy gateway those calls are what a frame costs most.
    """

    __slots__ = ("_socket", "_unsent", "_unsent_bytes", "heir", "limit", "on_text", "room")

    def __init__(self, socket: "GuardedSocket", limit: int) -> None:
        self._socket = socket
        self._unsent: list[bytes] | None = None  # of this turn
        self._unsent_bytes = 0
        self.limit = limit
        self.on_text: Callable[[bytes], None] | None = None
        self.room: InboundBytes | None = None  # what long messages of its user wait for; None: nobody counts
        self.heir: SplicedSocket | None = None  # whose the connection is, once it was handed over

    def charge_to(self, user: str | None) -> None:
        """Before the accept: whose allowance it uses. None: a service's, which has no bound."""
        self._socket.charge_to(user)

    def hand_over(self, owner: "SplicedOwner", *, passes: bool) -> "SplicedSocket":
        """Take the accepted connection out of ASGI's hands: the endpoint returns, and the connection goes on. Raises
        uvicorn's ClientDisconnected if it is gone."""
        self.heir = self._socket.hand_over(owner, passes=passes)
        return self.heir

    def send_text(self, payload: bytes) -> bool:
        """Write one text message (UTF-8). False: not written, the connection is closed, or now closing as too slow."""
        return self.send_text_prepared(frame_text(payload))

    def send_text_prepared(self, frame: bytes) -> bool:
        """Write what `frame_text` made, or several of them joined; the same bytes may go to any number of outlets."""
        socket = self._socket
        if socket.close_sent or socket.disconnected:
            return False
        if self._unsent is None:  # the rest of a turn adds at most _TURN_BYTES to what is looked at here
            if (unsent := socket.transport.get_write_buffer_size()) > SMALL_BYTES and unsent > socket.room:
                self.close(CloseCode.TOO_SLOW, CloseCode.TOO_SLOW.reason)
                return False
            self._unsent = [frame]
            socket.loop.call_soon(self.flush)
        else:
            self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        if self._unsent_bytes > _TURN_BYTES:
            self.flush()
        return True

    def flush(self) -> None:
        """Write what was sent in this turn, now."""
        unsent, self._unsent, self._unsent_bytes = self._unsent, None, 0
        transport = self._socket.transport
        if unsent is not None and not transport.is_closing():
            transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    @property
    def buffered(self) -> int:
        """Bytes sent and not yet taken by the kernel."""
        return 0 if self._socket.disconnected else self._socket.transport.get_write_buffer_size() + self._unsent_bytes

    @property
    def closed(self) -> bool:
        return self._socket.close_sent or self._socket.disconnected

    def close(self, code: int, reason: str = "") -> None:
        """Say goodbye and end `receive`; a peer that does not answer within a few seconds is cut off."""
        self._socket.begin_close(code, reason)

    def abort(self) -> None:
        """End the connection now, without a word."""
        self._socket.cut()

    def pause_reading(self) -> None:
        """Take no further message until `resume_reading`, not even those that one read brought together."""
        self._socket.hold(True)

    def resume_reading(self) -> None:
        self._socket.hold(False)
