"""The gateway's end of a bridge connection.

One asyncio protocol per link: no task, one timer. All messages of one turn of the event loop leave in one write, and
its deliveries in one message. `sandbox.protocol.agent` checks the bridge's messages before the owner gets them. A
bridge that breaks the rules, floods, or falls silent loses its link, with a reason, and costs no memory.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from sandbox.client.endpoint import BridgeConnection, Endpoint, open_link
from sandbox.client.handshake import Handshake
from sandbox.ports.link import LinkEvents, LinkRefused
from sandbox.protocol import agent as wire
from sandbox.protocol.messages import WireError
from sandbox.protocol.values import AgentExit, Hello, Position
from sandbox.protocol.websocket_frames import BINARY, CLOSE, PING, PONG, TEXT, FrameError, FrameReader, client_frame

MAX_FRAGMENTS = 1024
MAX_UNSENT = 16 * 1024 * 1024  # a bridge that leaves this much unread is lost
CONFIRM_SECONDS = 0.1  # a confirmation only frees the bridge's memory: it may wait for company
MAX_ASIDES = 1000  # messages beside output and confirmations that a bridge may send between two pings


@dataclass(frozen=True, slots=True)
class Timings:
    handshake_seconds: float = 10.0
    ping_seconds: float = 10.0
    pong_seconds: float = 15.0


DEFAULT_TIMINGS = Timings()


async def connect(
    endpoint: Endpoint, events: LinkEvents, after: Position | None, *, timings: Timings = DEFAULT_TIMINGS
) -> "BridgeLink":
    """Open a link. Events come only after the caller has it. Raises LinkRefused."""
    opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    link = BridgeLink(endpoint, events, after, timings, opened)
    return await open_link(endpoint, link, opened, timings.handshake_seconds)


class BridgeLink(BridgeConnection):
    """Implements sandbox.ports.link.Link."""

    __slots__ = (
        "_after",
        "_asides",
        "_asked",
        "_closed",
        "_configures",
        "_confirming",
        "_deliveries",
        "_delivery_bytes",
        "_events",
        "_handshake",
        "_heard_at",
        "_ledger",
        "_loop",
        "_opening",
        "_out",
        "_paused",
        "_ping",
        "_reader",
        "_recalls",
        "_seen",
        "_sending",
        "_setup",
        "_timer",
        "_timings",
        "_transport",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        events: LinkEvents,
        after: Position | None,
        timings: Timings,
        opened: "asyncio.Future[None]",
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._events = events
        self._after = after
        self._timings = timings
        self._transport: asyncio.Transport | None = None
        self._handshake: Handshake | None = Handshake(endpoint, "/agent")  # None when it is over
        self._reader = FrameReader(wire.MAX_UP, MAX_FRAGMENTS, masked=False)
        self._ledger = wire.LinkRules()
        self._deliveries: list[tuple[int, bytes]] = []
        self._delivery_bytes = 0
        self._out: list[bytes] = []  # of this turn
        self._recalls = self._configures = False
        self._setup: Callable[[], wire.AgentSetup] | None = None
        self._seen: Position | None = None
        self._confirming = False
        self._sending = False
        self._asides = 0
        self._ping = 0
        self._asked = False
        self._heard_at = 0.0
        self._paused = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._opening: asyncio.Future[None] | None = opened  # None when it is open

    @property
    def closed(self) -> bool:
        return self._closed

    # Link

    def configure(self, setup: Callable[[], wire.AgentSetup]) -> None:
        self._setup = setup

    def start(self, line: bytes | None) -> None:
        try:
            if self._setup is not None and self._configures:
                self._control(self._setup())
            text = None if line is None else line.decode()
            self._control(wire.Start(text))
        except (UnicodeDecodeError, WireError):
            self._tell_problem_soon("the start frame cannot be sent to the agent")

    def deliver(self, seq: int, line: bytes) -> None:
        if self._closed:
            return
        if b"\n" in line or len(line) > wire.MAX_DELIVERY:
            raise ValueError("a delivery is one line of bounded length")
        if self._deliveries and self._delivery_bytes + len(line) > wire.MAX_DELIVERY:
            self._seal_deliveries()
        self._deliveries.append((seq, line))
        self._delivery_bytes += len(line) + 24
        self._ledger.delivered(seq)
        self._send_soon()

    def inject(self, line: bytes) -> None:
        try:
            self._control(wire.Inject(line.decode()))
        except (UnicodeDecodeError, WireError):
            self._tell_problem_soon("a line cannot be sent to the agent")

    def recall(self, seq: int) -> bool:
        if not self._recalls:
            return not self._ledger.greeted  # before its hello this link has delivered nothing: the hello will say
        if self._can_send():
            self._ledger.recall(seq)
            self._control(wire.Recall(seq))
        return True

    def drop(self, seq: int) -> None:
        if self._recalls:
            self._control(wire.Drop(seq))

    def interrupt(self) -> None:
        self._control(wire.Interrupt())

    def stop_agent(self) -> None:
        self._control(wire.StopAgent())

    def kill_agent(self) -> None:
        self._control(wire.Kill())

    def confirm(self, position: Position) -> None:
        if self._closed:
            return
        self._seen = position
        if not self._confirming:
            self._confirming = True
            self._loop.call_later(CONFIRM_SECONDS, self._confirm)

    def pause_reading(self) -> None:
        if not self._closed and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._closed and self._paused and self._transport is not None:
            self._paused = False
            self._heard_at = self._loop.time()  # the bridge's messages from meanwhile are still unread
            self._transport.resume_reading()

    def close(self) -> None:
        if self._closed:
            return
        if self._transport is not None and self._handshake is None:
            self._send()
            self._transport.write(client_frame(CLOSE, b"\x03\xe8"))
        self._end()
        if self._transport is not None:
            self._transport.close()

    # Sending

    def _tell_problem_soon(self, reason: str) -> None:
        self._loop.call_soon(lambda: None if self._closed else self._events.on_problem(reason))

    def _control(self, message: wire.Down) -> None:
        if self._can_send():
            text = wire.encode(message)
            if len(text) > wire.MAX_DOWN:
                raise WireError("too long to be sent")
            self._seal_deliveries()
            self._out.append(client_frame(TEXT, text))
            self._send_soon()

    def _confirm(self) -> None:
        self._confirming = False
        if self._seen is not None:
            self._send_soon()

    def _can_send(self) -> bool:
        return not self._closed and self._handshake is None

    def _seal_deliveries(self) -> None:
        if self._deliveries and self._can_send():
            self._out.append(client_frame(BINARY, wire.join_deliveries(self._deliveries)))
            self._deliveries.clear()
            self._delivery_bytes = 0

    def _send_soon(self) -> None:
        if not self._sending:
            self._sending = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._sending = False
        if self._transport is None or not self._can_send():
            return
        self._seal_deliveries()
        if self._seen is not None:
            self._out.append(client_frame(TEXT, wire.encode(wire.Seen(self._seen.epoch, self._seen.offset))))
            self._seen = None
        out, self._out = self._out, []
        self._transport.write(b"".join(out))
        if self._transport.get_write_buffer_size() > MAX_UNSENT:
            self._lose("the bridge does not read")

    # Receiving

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._closed or self._handshake is None:
            self._transport.abort()
        else:
            self._transport.write(self._handshake.request)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose("the bridge closed the connection")

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        self._heard_at = self._loop.time()
        if self._handshake is not None:
            data = self._shake_hands(self._handshake, data)
        try:
            self._reader.feed(data)
            while not self._closed and (found := self._reader.read()) is not None:
                self._on_frame(*found)
        except (FrameError, WireError) as exc:
            self._lose(f"the bridge broke the protocol: {exc}")

    def _shake_hands(self, handshake: Handshake, data: bytes) -> bytes:
        """Finish the handshake, if its answer is complete; return the bytes behind it."""
        try:
            rest = handshake.feed(data)
        except LinkRefused as exc:
            self._lose(str(exc))
            return b""
        if rest is None:
            return b""
        self._handshake = None
        self._open()
        return rest

    def _open(self) -> None:
        if self._opening is not None and not self._opening.done():
            self._opening.set_result(None)
        self._opening = None
        self._control(wire.Attach.of(self._after))
        self._after = None
        self._timer = self._loop.call_later(self._timings.handshake_seconds, self._lose, "the bridge says no hello")

    def _on_frame(self, opcode: int, payload: bytes) -> None:
        if opcode == BINARY:
            lines = wire.split_lines(payload)
            first = self._ledger.frames(len(lines))
            self._events.on_frames(self._ledger.epoch, first, lines)
        elif opcode == TEXT:
            self._on_control(wire.decode_up(payload))
        elif opcode == CLOSE:
            code = int.from_bytes(payload[:2], "big")
            self._lose(_CLOSE_REASONS.get(code, "the bridge closed the link"))
        else:
            self._count_aside()
            if opcode == PING:
                self._out.append(client_frame(PONG, payload))
                self._send_soon()

    def _on_control(self, message: wire.Up) -> None:
        if type(message) is wire.Taken:  # with every delivery; the others are rare
            self._ledger.taken(message.seq)
            self._events.on_taken(message.seq)
            return
        if not self._ledger.greeted and not isinstance(message, Hello):
            raise WireError("no hello")
        match message:
            case Hello():
                self._ledger.hello(message)
                self._recalls, self._configures = message.recalls, message.configures
                self._beat_later()
                self._events.on_hello(message)
            case wire.Epoch(epoch, base):
                self._count_aside()
                self._ledger.begin(message)
                self._control(wire.Ready(epoch))
                self._events.on_epoch(epoch, base)
            case AgentExit():
                self._count_aside()
                self._ledger.exit(message)
                self._events.on_exit(message)
            case wire.Recalled(seq):
                self._ledger.recalled(seq)
                self._events.on_recalled(seq)
            case wire.Problem(reason):
                self._count_aside()
                self._events.on_problem(reason)
            case wire.Changed():
                self._count_aside()
                self._events.on_changed()
            case wire.Pong(n, core, unknown):
                if n != self._ping or not self._asked:
                    raise WireError("a pong that was not asked for")
                self._beat_later()
                if unknown:
                    self._events.on_unknown(core, unknown)

    def _count_aside(self) -> None:
        self._asides += 1
        if self._asides > MAX_ASIDES:
            raise WireError("flood")

    # Heartbeat

    def _beat_later(self) -> None:
        self._asked = False
        self._set_timer(self._timings.ping_seconds, self._beat)

    def _beat(self) -> None:
        self._asides = 0
        self._ping += 1
        self._asked = True
        self._control(wire.Ping(self._ping))
        self._set_timer(self._timings.pong_seconds, self._miss)

    def _miss(self) -> None:
        # While the owner does not read, silence means nothing; any bytes show life, even before the pong.
        silent = 0.0 if self._paused else self._loop.time() - self._heard_at
        if silent < self._timings.pong_seconds:
            self._set_timer(self._timings.pong_seconds - silent, self._miss)
        else:
            self._lose("the bridge fell silent")

    def _set_timer(self, seconds: float, then: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, then)

    # The end

    def _lose(self, reason: str) -> None:
        if self._closed:
            return
        self._end()
        if self._transport is not None:
            self._transport.abort()
        if self._opening is None:
            self._events.on_lost(reason)
        elif not self._opening.done():
            self._opening.set_exception(LinkRefused(reason))

    def _end(self) -> None:
        self._closed = True
        self._deliveries.clear()
        self._out.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_CLOSE_REASONS: dict[int, str] = {
    4400: "the bridge could not read what we sent",
    4408: "the bridge heard nothing from us",
    4409: "another gateway attached",
}
