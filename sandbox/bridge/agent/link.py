"""The bridge's end of a link: one gateway at a time, the newest wins.

One asyncio protocol per link: no task, one timer. All messages of one turn of the event loop leave in one write.

The way up needs no queue of its own: the backlog is the queue, and a cursor marks how far this gateway has read.
Everything else on the way up is either cumulative (taken, pong, changed: only the newest counts) or bounded
(problems). While the transport is full, nothing is sent. Messages on the way down are obeyed in order. While the
agent's queue is full, nothing is read: then the link holds at most the rest of one message, and what the same read
brought behind it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice

from sandbox.bridge.agent.agent import Agent, AgentFailed
from sandbox.bridge.base.config import Limits
from sandbox.protocol import agent as wire
from sandbox.protocol.agent_stream import BeginEpoch, Cursor, Frames
from sandbox.protocol.messages import WireError
from sandbox.protocol.websocket_frames import BINARY, CLOSE, PING, PONG, TEXT, FrameError, FrameReader, frame
from sandbox.system.log import log

PORTION_BYTES = 256 * 1024
PROBLEMS_KEPT = 16
MAX_FRAGMENTS = 64
GOODBYE_SECONDS = 1.0  # for the other end to answer a close, and to take what was sent before

GOING, BAD_FRAME, REPLACED, SILENT = 1012, 4400, 4409, 4408


class AgentLinkServer:
    """Lets gateways in, and the one before out. `attached` is whether one is connected."""

    def __init__(self, agent: Agent, limits: Limits) -> None:
        self._agent = agent
        self._limits = limits
        self._current: AgentLink | None = None
        self._unheard = False  # something changed while no gateway was connected
        self.on_attach: Callable[[], None] = lambda: None
        agent.on_change = self._wake
        agent.on_problem = self._tell_problem
        agent.on_room = self._go_on

    @property
    def attached(self) -> bool:
        return self._current is not None

    def tell_changed(self) -> None:
        """Something in the roots may have changed; the next gateway hears of it, too."""
        self._unheard = self._current is None
        if self._current is not None:
            self._current.tell_changed()

    def _wake(self) -> None:
        if self._current is not None:
            self._current.wake()

    def _go_on(self) -> None:
        if self._current is not None:
            self._current.go_on()

    def _tell_problem(self, reason: str) -> None:
        log("bridge.problem", reason=reason)
        if self._current is not None:
            self._current.tell_problem(reason)

    def expect(self) -> "AgentLink":
        """A link for a gateway that has been accepted: give it the connection, and wait until it is `gone`."""
        return AgentLink(self._agent, self._limits, self._enter, self._leave)

    def _enter(self, link: "AgentLink") -> None:
        before, self._current = self._current, link
        if before is not None:
            before.close(REPLACED)
        if self._unheard:
            self.tell_changed()
        self.on_attach()

    def _leave(self, link: "AgentLink") -> None:
        if self._current is link:
            self._current = None

    async def close(self) -> None:
        """Send the gateway the last news, and let it go; both within GOODBYE_SECONDS."""
        link = self._current
        if link is not None:
            link.say_goodbye()
            await asyncio.wait({link.gone}, timeout=2 * GOODBYE_SECONDS)


class AgentLink(asyncio.Protocol):
    """One gateway's connection. `on_attach` is called when it has sent `attach`, `on_leave` when it was attached and
    no longer is."""

    def __init__(
        self,
        agent: Agent,
        limits: Limits,
        on_attach: "Callable[[AgentLink], None]",
        on_leave: "Callable[[AgentLink], None]",
    ) -> None:
        self._agent = agent
        self._limits = limits
        self._on_attach = on_attach
        self._on_leave = on_leave
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(wire.MAX_DOWN, MAX_FRAGMENTS, masked=True)
        self._cursor: Cursor | None = None  # None until `attach`
        self._taken_told = 0
        self._out: list[bytes] = []  # goes before everything else
        self._pong: int | None = None
        self._echo: bytes | None = None  # payload of a WebSocket ping; of several the newest gets the pong
        self._changed = False
        self._problems: deque[str] = deque(maxlen=PROBLEMS_KEPT)  # full: the oldest is only in the log
        self._deliveries: deque[tuple[int, bytes]] = deque()  # deliveries that do not fit into the agent's queue
        self._telling = False
        self._is_full = False
        self._closing = False
        self._leaving = False
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport
        self.gone: asyncio.Future[None] = self._loop.create_future()

    def take(self, transport: asyncio.Transport, early: bytes) -> None:
        """The connection belongs to the link from here on."""
        self._transport = transport
        transport.set_protocol(self)
        self._arm(self._limits.attach_seconds, self._miss_attach)
        if early:
            self.data_received(early)

    def _arm(self, seconds: float, then: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, then)

    # Sending

    def tell_problem(self, reason: str) -> None:
        self._problems.append(reason)
        self.wake()

    def tell_changed(self) -> None:
        self._changed = True
        self.wake()

    def wake(self) -> None:
        """There is news; it leaves with all other news of this turn of the loop."""
        if not self._telling:
            self._telling = True
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._telling = False
        while not (self._is_full or self._closing):
            out = self._next_portion()
            if not out:
                break
            self._transport.write(out)

    def _next_portion(self) -> bytes:
        """What to send next: about a portion, b"" if nothing."""
        out, self._out = self._out, []
        if self._echo is not None:
            out.append(frame(PONG, self._echo))
            self._echo = None
        if self._cursor is None:
            return b"".join(out)
        if self._pong is not None:
            unknown = self._agent.unknown.take(wire.MOST_UNKNOWN)
            out.append(_framed(wire.Pong(self._pong, self._agent.core if unknown else "", unknown)))
            self._pong = None
        if self._changed:
            self._changed = False
            out.append(_framed(wire.Changed()))
        while self._problems:
            out.append(_framed(wire.Problem(self._problems.popleft())))
        size = 0
        while size < PORTION_BYTES and (step := self._agent.backlog.step(self._cursor, PORTION_BYTES)) is not None:
            if isinstance(step, Frames):
                out.append(frame(BINARY, wire.join_lines(step.lines)))
            elif isinstance(step, BeginEpoch):
                out.append(_framed(wire.Epoch(step.epoch, step.base)))
            else:
                self._add_taken(out)
                out.append(_framed(step))
            size += len(out[-1])
        self._add_taken(out)
        return b"".join(out)

    def _add_taken(self, out: list[bytes]) -> None:
        if self._agent.taken > self._taken_told:
            self._taken_told = self._agent.taken
            out.append(_framed(wire.Taken(self._taken_told)))

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if self._leaving:
            self._say_last()
        else:
            self._tell()

    # Reading

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._read()

    def _read(self) -> None:
        """Obey the messages that have come, as far as the agent's queue has room."""
        try:
            while not (self._deliveries or self.gone.done()) and (found := self._reader.read()) is not None:
                opcode, payload = found
                if opcode == CLOSE:
                    return self._on_close(payload)
                if not self._closing:
                    self._on_message(opcode, payload)
        except FrameError as exc:
            self._refuse(exc.reason)
            self._transport.pause_reading()  # the start of the next frame is unknown
        except WireError as exc:
            self._refuse(str(exc))

    def _on_message(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self._echo = payload
            self.wake()
            return
        if opcode == PONG:
            return
        self._heard_at = self._loop.time()
        if self._cursor is None:
            self._attach(opcode, payload)
        elif opcode == BINARY:
            self._deliveries.extend(wire.split_deliveries(payload))
            self._deliver()
        else:
            self._obey(wire.decode_down(payload))

    def _attach(self, opcode: int, payload: bytes) -> None:
        attach = wire.decode_down(payload) if opcode == TEXT else None
        if not isinstance(attach, wire.Attach):
            raise WireError("attach first")
        hello = self._agent.attach()
        self._cursor = self._agent.backlog.cursor(attach.after)
        self._taken_told = hello.taken
        self._out.append(_framed(hello))
        self.wake()
        self._arm(self._limits.silence_seconds, self._miss)
        self._on_attach(self)

    def _deliver(self) -> None:
        """Pass on what fits; while something is left over, nothing more is read."""
        accepted = self._agent.deliver(self._deliveries)
        if accepted == len(self._deliveries):
            self._deliveries.clear()
        else:
            self._deliveries = deque(islice(self._deliveries, accepted, None))
            self._transport.pause_reading()

    def go_on(self) -> None:
        """The agent's queue has room again."""
        if self._deliveries and not self._closing:
            self._loop.call_soon(self._go_on)  # the caller is in the middle of emptying the queue

    def _go_on(self) -> None:
        if not self._deliveries or self._closing or self._transport.is_closing():
            return
        self._heard_at = self._loop.time()
        self._deliver()
        if not self._deliveries:
            self._transport.resume_reading()
            self._read()

    def _obey(self, message: wire.Down) -> None:
        match message:
            case wire.Seen():
                self._agent.confirm(message.position)
            case wire.AgentSetup():
                self._agent.setup = message
            case wire.Start(line):
                try:
                    if self._agent.start(None if line is None else line.encode()):
                        self._agent.open_gate(self._agent.epoch)
                except AgentFailed as exc:
                    self.tell_problem(str(exc))
            case wire.Inject(line):
                self._agent.inject(line.encode())
            case wire.Interrupt():
                self._agent.interrupt()
            case wire.StopAgent():
                self._agent.stop()
            case wire.Kill():
                self._agent.kill()
            case wire.Ready(epoch):
                self._agent.open_gate(epoch)
            case wire.Recall(seq):
                if self._agent.hold_back(seq):
                    self._out.append(_framed(wire.Recalled(seq)))
                    self.wake()
            case wire.Drop(seq):
                self._agent.drop_held(seq)
            case wire.Ping(n):
                self._pong = n
                self.wake()
            case wire.Attach():
                raise WireError("a second attach")

    # The end

    def _miss_attach(self) -> None:
        self.close(BAD_FRAME)

    def _miss(self) -> None:
        """A silent gateway is gone. While the bridge does not read, silence means nothing."""
        now = self._loop.time()
        left = self._limits.silence_seconds - (0.0 if self._deliveries else now - self._heard_at)
        if left > 0:
            self._arm(left, self._miss)
        else:
            self.close(SILENT)

    def _refuse(self, reason: str) -> None:
        log("bridge.bad_frame", reason=reason)
        self.close(BAD_FRAME)

    def say_goodbye(self) -> None:
        """Close after all news has been sent."""
        self._leaving = True
        self._arm(GOODBYE_SECONDS, self._transport.abort)
        self._say_last()

    def _say_last(self) -> None:
        self._tell()
        if not self._is_full:
            self.close(GOING)

    def close(self, code: int) -> None:
        """Close after what was written. Nothing more is sent or obeyed."""
        if self._closing:
            return
        self._transport.write(frame(CLOSE, code.to_bytes(2, "big")))
        self._leave()

    def _leave(self) -> None:
        self._closing = True
        self._arm(GOODBYE_SECONDS, self._transport.abort)
        if self._deliveries:
            self._deliveries.clear()
            self._transport.resume_reading()
        self._on_leave(self)

    def _on_close(self, payload: bytes) -> None:
        if not self._closing:
            self._transport.write(frame(CLOSE, payload[:2]))
            self._leave()
        self._transport.close()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._deliveries.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._on_leave(self)
        if not self.gone.done():
            self.gone.set_result(None)


def _framed(message: wire.Up) -> bytes:
    return frame(TEXT, wire.encode(message))
