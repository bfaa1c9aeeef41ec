"""The gateway's end of a terminal's link: one connection to a bridge for one viewer.

One asyncio protocol and no task. The output of one read leaves in one call of `pass_on`, in its original frames. The
bridge is as untrusted as the programs beside it: a violation of sandbox/protocol/terminal.py, or of a bound, ends the
link, with a reason.

Bounds: the scan holds at most one unfinished frame (16 KiB; a picture 1 MiB). Input that the bridge does not take
waits in the transport, up to its high-water mark and one message; then the viewer is no longer read
(`on_input_full`).
"""

import asyncio
from typing import cast

from sandbox.client.endpoint import BridgeConnection, Endpoint, open_link
from sandbox.client.handshake import Handshake
from sandbox.ports.link import LinkRefused
from sandbox.ports.terminals import PassOn, TerminalEvents
from sandbox.protocol import terminal as wire
from sandbox.protocol.messages import WireError
from sandbox.protocol.terminal_frames import DownScan
from sandbox.protocol.websocket_frames import BINARY, CLOSE, PING, PONG, TEXT, FrameError, client_frame

HANDSHAKE_SECONDS = 10.0
CLOSE_SECONDS = 5.0
MAX_ASIDES = 10_000  # messages beside output that may come before the viewer has typed or resized again


async def connect(
    endpoint: Endpoint, name: str, opening: wire.Open, events: TerminalEvents, pass_on: PassOn
) -> "BridgeTerminalLink":
    """Open a link. Raises LinkRefused."""
    opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    link = BridgeTerminalLink(endpoint, name, opening, events, pass_on, opened)
    return await open_link(endpoint, link, opened, HANDSHAKE_SECONDS)


class BridgeTerminalLink(BridgeConnection):
    """Implements sandbox.ports.terminals.TerminalLink."""

    __slots__ = (
        "_asides",
        "_closed",
        "_events",
        "_greeting",
        "_opened",
        "_opening",
        "_pass_on",
        "_paused",
        "_scan",
        "_transport",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        name: str,
        opening: wire.Open,
        events: TerminalEvents,
        pass_on: PassOn,
        opened: asyncio.Future[None],
    ) -> None:
        """`opened` is set at the bridge's hello, or with the reason why there is none."""
        self._opening: tuple[Handshake, wire.Open] | None = Handshake(endpoint, f"/terminals/{name}/link"), opening
        self._events = events
        self._pass_on = pass_on
        self._scan = DownScan()
        self._greeting: wire.Greeting | wire.Reset | None = None  # its picture is still to come
        self._transport: asyncio.Transport | None = None
        self._asides = 0
        self._paused = False
        self._closed = False
        self._opened: asyncio.Future[None] | None = opened  # None once the bridge has said hello

    # TerminalLink

    @property
    def passed_bytes(self) -> int:
        return self._scan.passed_bytes

    def write(self, frames: bytes) -> None:
        if self._transport is not None and not self._closed:
            self._asides = 0
            self._transport.write(frames)

    def type(self, payload: bytes) -> None:
        self.write(client_frame(BINARY, payload))

    def resize(self, size: wire.Size) -> None:
        self.write(client_frame(TEXT, wire.encode(wire.Resize(size.cols, size.rows))))

    def pause_reading(self) -> None:
        if self._transport is not None and not self._closed and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._closed and self._paused:
            self._paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._transport is not None:
                if self._opening is None:
                    self._transport.write(client_frame(CLOSE, b"\x03\xe8"))
                self._transport.close()
                if self._transport.get_write_buffer_size():  # a bridge that does not read must not keep it for ever
                    asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._transport.abort)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._closed or self._opening is None:
            self._transport.abort()
        else:
            self._transport.write(self._opening[0].request)

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        if self._opened is None and self._scan.passes_whole(data):
            self._pass_on(data)
            return
        if self._opening is not None:
            data = self._shake_hands(*self._opening, data)
        try:
            scan = self._scan
            if passed := scan.feed(data):
                self._pass(passed)
            while scan.aside is not None and not self._closed:
                self._take_aside(*scan.take())
                if (passed := scan.feed(b"")) and not self._closed:
                    self._pass(passed)
        except (FrameError, WireError) as exc:
            self._lose(f"the bridge broke the protocol: {exc}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose("the bridge closed the connection")

    def pause_writing(self) -> None:
        if not self._closed:
            self._events.on_input_full(True)

    def resume_writing(self) -> None:
        if not self._closed:
            self._events.on_input_full(False)

    # Incoming

    def _shake_hands(self, handshake: Handshake, opening: wire.Open, data: bytes) -> bytes:
        """Finish the handshake, if its answer is complete; return the bytes behind it."""
        try:
            rest = handshake.feed(data)
        except LinkRefused as exc:
            self._lose(str(exc))
            return b""
        if rest is None:
            return b""
        self._opening = None
        self.write(client_frame(TEXT, wire.encode(opening)))
        return rest

    def _pass(self, frames: bytes) -> None:
        if self._opened is not None:
            raise WireError("output before hello")
        self._pass_on(frames)

    def _take_aside(self, opcode: int, payload: bytes) -> None:
        self._asides += 1
        if self._asides > MAX_ASIDES:
            raise WireError("flood")
        if opcode == TEXT:
            self._take_control(wire.decode_up(payload))
        elif opcode == BINARY:
            self._take_picture(payload)
        elif opcode == PING and self._transport is not None:
            self._transport.write(client_frame(PONG, payload))
        elif opcode == CLOSE:
            self._take_close(int.from_bytes(payload[:2], "big"))

    def _take_close(self, code: int) -> None:
        if code == _ENDED and self._opened is None:
            self.close()
            self._events.on_gone()
        else:
            self._lose(_CLOSE_REASONS.get(code, "the bridge closed the link"))

    def _take_control(self, message: wire.Up) -> None:
        early = isinstance(message, wire.Greeting | wire.TerminalTrouble)
        late = not isinstance(message, wire.Greeting)
        if self._greeting is not None or not (early if self._opened is not None else late):
            raise WireError("a message out of place")
        match message:
            case wire.Greeting():
                self._begin(message, message.picture)
            case wire.Reset():
                self._begin(message, True)
            case wire.Exit():
                self._events.on_exit(message)
            case wire.Resized():
                self._events.on_resized(message.size)
            case wire.TerminalTrouble():
                self._events.on_trouble(message)

    def _begin(self, message: wire.Greeting | wire.Reset, picture: bool) -> None:
        self._scan.passed_bytes = 0
        if picture:
            self._greeting = message
            self._scan.expect_picture()
        else:
            self._tell(message, None)

    def _take_picture(self, picture: bytes) -> None:
        message, self._greeting = self._greeting, None
        assert message is not None  # the scan makes no aside of any other binary frame
        self._tell(message, picture)

    def _tell(self, message: wire.Greeting | wire.Reset, picture: bytes | None) -> None:
        if isinstance(message, wire.Reset):
            self._events.on_reset(message, picture or b"")
            return
        opened, self._opened = self._opened, None
        if opened is not None and not opened.done():
            opened.set_result(None)
        self._events.on_hello(self, message, picture)

    def _lose(self, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        if self._transport is not None:
            self._transport.abort()
        if self._opened is None:
            self._events.on_lost(reason)
        elif not self._opened.done():
            self._opened.set_exception(LinkRefused(reason))


_ENDED = 4410
_CLOSE_REASONS: dict[int, str] = {
    1012: "the sandbox ends",
    4400: "the bridge could not read what we sent",
    4404: "nobody has opened this terminal yet",
    4408: "we took nothing for a long time",
    _ENDED: "the terminal was ended",
    4429: "there are too many terminals, or too many look at this one",
    4500: "its program cannot be run",
    4503: "no program may run there yet",
}
