"""One named terminal: a program, its screen, and the connections of all its viewers.

The room (sandbox/terminal/room.py) decides; this module turns its decisions into reads and writes. The output of one
read is framed once, and written once to each viewer. The screen is drawn beside that, a slice at a time.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from sandbox.bridge.base.config import Config
from sandbox.bridge.terminal.pty import Pty
from sandbox.bridge.terminal.viewer import FULL_BYTES, HELD, START_FAILED, TOO_MANY, BridgeViewer, Turned
from sandbox.protocol.terminal import MAX_BYTES, Exit, Greeting, Open, Size, TerminalTrouble, encode
from sandbox.protocol.terminal_requests import ExitStatus, TerminalStatus
from sandbox.protocol.websocket_frames import BINARY, frame, frame_text
from sandbox.system.child import READ_BYTES, describe_exit
from sandbox.system.log import log
from sandbox.terminal.room import Bytes, Paint, Room, Seat
from sandbox.terminal.screen.screen import Screen
from sandbox.terminal.screen_follower import ScreenFollower

DRAW_SECONDS = 0.02  # between two slices of drawing


@dataclass(frozen=True, slots=True)
class Program:
    """What a terminal runs."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(repr=False)


class Terminal:
    """`may_start` is whether programs may start now. `on_unwatched` is called while the terminal has no viewer, again
    and again: after an exit, after the last viewer left, and when it has been silent for its time."""

    def __init__(
        self,
        name: str,
        program: Program,
        config: Config,
        size: Size,
        *,
        may_start: Callable[[], bool],
        on_unwatched: Callable[["Terminal"], None],
    ) -> None:
        self.name = name
        self.program = program
        self._config = config
        self._limits = config.limits
        self._may_start = may_start
        self._on_unwatched = on_unwatched
        self._loop = asyncio.get_running_loop()
        self._room = Room(
            self._limits.terminal_ring_bytes,
            hold_seconds=self._limits.terminal_hold_seconds,
            read_bytes=READ_BYTES,
            policy=config.sizes,
            size=size,
        )
        self._size = size  # that the program knows
        self._pty: Pty | None = None
        self._painter: ScreenFollower
        self._viewers: dict[BridgeViewer, Seat] = {}
        self._by_seat: dict[Seat, BridgeViewer] = {}
        self._drawing: asyncio.TimerHandle | None = None
        self._holding: asyncio.TimerHandle | None = None
        self._unwatched: asyncio.TimerHandle | None = None
        self.touched_at = self._loop.time()
        self.start()

    # The program

    @property
    def alive(self) -> bool:
        return self._pty is not None

    @property
    def watched(self) -> bool:
        return bool(self._viewers)

    def start(self, program: Program | None = None) -> None:
        """Run `program`, or the one before it; none runs. Raises Turned; then nothing has changed."""
        if not self._may_start():
            raise Turned(TerminalTrouble("held", "the terminal waits for its workspace"), HELD)
        program = program or self.program
        env = {
            **self._config.environment,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            **program.env,
            "HOLDFAST_TERMINAL": self.name,
        }
        try:
            pty = Pty(program.argv, cwd=program.cwd, env=env, size=self._room.size, on_output=self._on_output)
        except (OSError, ValueError) as exc:
            cause = exc.strerror if isinstance(exc, OSError) else str(exc)
            log("terminal.start_failed", name=self.name, cause=cause)
            reason = f"cannot run {program.argv[0]!r} in {program.cwd!r}: {cause}"
            raise Turned(TerminalTrouble("start_failed", reason), START_FAILED) from exc
        self._pty = pty
        self.program = program
        self._room.begin(secrets.token_urlsafe(9))
        self._size = size = self._room.size
        screen = Screen(size.cols, size.rows, scrollback=int(self._limits.terminal_scrollback))
        self._painter = ScreenFollower(screen, self._room.ring)
        self.touched_at = self._loop.time()
        log("terminal.started", name=self.name, pid=pty.pid, epoch=self._room.epoch)
        pty.ended.add_done_callback(lambda _: self._on_ended(pty))
        self._tell_all()
        self._watch_for_neglect()

    def _on_output(self, chunk: bytes) -> None:
        if not chunk:
            return self._finish_if_over()
        live = self._room.wrote(chunk)
        if live:
            frames = _frames(chunk)
            for seat in live:
                self._by_seat[seat].write(frames)
        self._painter.grew()
        self.touched_at = self._loop.time()
        if self._drawing is None:
            self._drawing = self._loop.call_later(DRAW_SECONDS, self._draw)
        self._set_reading()

    def _draw(self) -> None:
        """Draw a slice if it is worth it now: when the program is quiet, or so slow that drawing keeps up."""
        self._drawing = None
        if self._painter.is_near or self._loop.time() - self.touched_at >= DRAW_SECONDS:
            self._painter.draw_some()
        if not self._painter.is_done:
            self._drawing = self._loop.call_later(DRAW_SECONDS, self._draw)

    def _set_reading(self) -> None:
        if self._pty is None:
            return
        now = self._loop.time()
        if self._room.reads(now):
            self._pty.output.resume()
            return
        self._pty.output.pause()
        until = self._room.deadline(now)
        if until is not None and self._holding is None:
            self._holding = self._loop.call_at(until, self._stop_holding)

    def _stop_holding(self) -> None:
        self._holding = None
        self._set_reading()

    def _on_ended(self, pty: Pty) -> None:
        pty.output.end_when_silent(self._limits.drain_seconds)
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        pty = self._pty
        if pty is not None and pty.output.done and pty.ended.done():
            self._finish(pty)

    def _finish(self, pty: Pty) -> None:
        pty.close()
        self._pty = None
        code, name, reason = describe_exit(pty.ended.result())
        log("terminal.exited", name=self.name, epoch=self._room.epoch, reason=reason)
        self._room.ended(Exit(code, name))
        self._tell_all()
        self._watch_for_neglect()

    async def end(self) -> None:
        """Hang up on the program, and kill it if it stays. Some of its output may still be unread."""
        pty = self._pty
        if pty is not None and not pty.ended.done():
            pty.hang_up()
            await asyncio.wait({pty.ended}, timeout=self._limits.terminal_hang_up_seconds)
            pty.kill()
            await asyncio.shield(pty.ended)

    def retire(self) -> None:
        """The terminal will close: nothing starts in it any more."""
        self._may_start = lambda: False

    def close(self, code: int, reason: str) -> None:
        """The terminal is gone, and its program ended before: tell all viewers."""
        if self._pty is not None and self._pty.ended.done():
            self._finish(self._pty)
        for viewer in list(self._viewers):
            viewer.close(code, reason)
        for timer in (self._drawing, self._holding, self._unwatched):
            if timer is not None:
                timer.cancel()

    # Viewers

    def join(self, viewer: BridgeViewer, wish: Open) -> None:
        """Raises Turned."""
        if len(self._viewers) >= self._limits.terminal_viewers:
            raise Turned(TerminalTrouble("too_many", "too many look at this terminal"), TOO_MANY)
        if wish.anew and self._pty is None:
            self.start()
        seat = self._room.join(wish)
        self._viewers[viewer] = seat
        self._by_seat[seat] = viewer
        viewer.entered(self)
        if self._unwatched is not None:
            self._unwatched.cancel()
        self._apply_size()
        self._pump(viewer, seat)
        self._set_reading()

    def on_left(self, viewer: BridgeViewer) -> None:
        seat = self._viewers.pop(viewer)
        del self._by_seat[seat]
        self._room.leave(seat, self._loop.time())
        self._apply_size()
        self._set_reading()
        self._watch_for_neglect()

    def on_full(self, viewer: BridgeViewer) -> None:
        self._viewers[viewer].full = True
        self._set_reading()

    def on_drained(self, viewer: BridgeViewer) -> None:
        seat = self._viewers[viewer]
        seat.full = False
        self._pump(viewer, seat)
        self._set_reading()

    def on_typed(self, viewer: BridgeViewer, payload: bytes) -> None:
        seat = self._viewers[viewer]
        if not self._room.takes(seat, payload, self._loop.time()):
            return
        self._apply_size()
        self.touched_at = self._loop.time()
        try:
            if self._pty is None:
                self.start()
            if self._pty is not None and not self._pty.type(payload):
                self._complain(
                    seat, TerminalTrouble("input_full", "the program does not read its input; this input was dropped")
                )
        except Turned as exc:
            self._complain(seat, exc.trouble)

    def _complain(self, seat: Seat, trouble: TerminalTrouble) -> None:
        self._room.tell(seat, trouble)
        self._pump(self._by_seat[seat], seat)

    def on_wanted(self, viewer: BridgeViewer, size: Size) -> None:
        self._room.wants(self._viewers[viewer], size)
        self._apply_size()

    def set_size(self, size: Size) -> None:
        self._room.set_size(size)
        self._apply_size()

    def _apply_size(self) -> None:
        size = self._room.size
        if size != self._size:
            self._size = size
            self._painter.resize(size)
            if self._pty is not None:
                self._pty.resize(size)
            self._tell_all()

    def _tell_all(self) -> None:
        for viewer, seat in list(self._viewers.items()):
            self._pump(viewer, seat)
        self._set_reading()

    def _pump(self, viewer: BridgeViewer, seat: Seat) -> None:
        """Write what this viewer is to get, until its connection is full."""
        now = self._loop.time()
        while not seat.full:
            pieces: list[bytes] = []
            size = 0
            while size < FULL_BYTES and (step := self._room.step(seat, MAX_BYTES, now)) is not None:
                match step:
                    case Bytes(payload):
                        pieces.append(frame(BINARY, payload))
                    case Paint(message):
                        picture = frame(BINARY, self._painter.picture())
                        pieces.append(frame_text(encode(self._titled(message))) + picture)
                    case _:
                        pieces.append(frame_text(encode(self._titled(step.message))))
                size += len(pieces[-1])
            if not pieces:
                return
            viewer.write(b"".join(pieces))

    def _titled(self, message: Any) -> Any:
        return replace(message, title=self._painter.title) if isinstance(message, Greeting) else message

    # Neglect

    def _watch_for_neglect(self) -> None:
        if self._unwatched is not None:
            self._unwatched.cancel()
            self._unwatched = None
        if self._viewers:
            return
        if self._pty is None:
            seconds = self._limits.terminal_exit_seconds
        elif self._limits.terminal_idle_seconds:
            seconds = max(self.touched_at + self._limits.terminal_idle_seconds - self._loop.time(), 0.01)
        else:
            return
        self._unwatched = self._loop.call_later(seconds, self._on_neglected)

    def _on_neglected(self) -> None:
        idle = self._loop.time() - self.touched_at
        if self._pty is None or idle >= self._limits.terminal_idle_seconds:
            self._on_unwatched(self)
        else:
            self._watch_for_neglect()

    # Telling

    def describe(self) -> TerminalStatus:
        room, exit = self._room, self._room.exit
        return TerminalStatus(
            name=self.name,
            epoch=room.epoch,
            base=room.ring.base,
            offset=room.ring.end,
            cols=room.size.cols,
            rows=room.size.rows,
            viewers=len(self._viewers),
            idle_seconds=round(self._loop.time() - self.touched_at, 3),
            alive=self.alive,
            exit=None if exit is None else ExitStatus(exit.code, exit.signal),
            title=self._painter.title,
            command=list(self.program.argv),
        )


def _frames(payload: bytes) -> bytes:
    """Output as frames, ready for the wire and the same for every viewer."""
    if len(payload) <= MAX_BYTES:
        return frame(BINARY, payload)
    return b"".join(frame(BINARY, payload[at : at + MAX_BYTES]) for at in range(0, len(payload), MAX_BYTES))
