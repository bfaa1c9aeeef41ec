"""`holdfast record SESSION`: records a terminal as asciicast v2, while it happens.

The file can be played at every moment: each line is one write, and nothing is held back except a character whose bytes
have not all come. Only a kill in the middle of a write can leave the last line unfinished.
"""

import asyncio
import os
import stat
import sys
import time
from contextlib import aclosing
from dataclasses import dataclass

from gateway.cli.client.api import CommandFailed, GatewayApi
from gateway.cli.client.chat import ConnectionEnded, Lost
from gateway.cli.client.terminal import TerminalClient
from gateway.cli.client.terminal_view import Event, Greeted, Output, Painted, Told
from gateway.cli.commands.terminal_access import TerminalAccess, TerminalChoice
from gateway.cli.console.asciicast import Recording
from gateway.cli.console.blocking_writer import BlockingWriter
from gateway.cli.console.exits import Left, in_words, leaving_by_signal
from gateway.cli.console.output import complain
from gateway.cli.console.progress import size_in_words
from gateway.config.settings import Settings
from sandbox.protocol.terminal import Exit, Resized, Size, TerminalTrouble
from sandbox.protocol.values import Position

CONTINUATION = bytes(range(0x80, 0xC0))  # bytes of a character that began before


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """`output` is a file's name, or `-` for stdout. `most_seconds` count from the first connection."""

    output: str
    from_ring: bool
    idle_time_limit: float | None
    most_seconds: float | None


async def record(settings: Settings, chosen: TerminalChoice, options: RecordOptions) -> int:
    """Until the program ends, the time is over, or Ctrl-C. The terminal and its users notice nothing."""
    door = TerminalAccess(settings, chosen)
    async with door.api() as api:
        await door.check(api)
        after = await _oldest(door, api) if options.from_ring else None
    descriptor = _open(options.output)
    title = f"{chosen.session_id} {chosen.name}"
    recorder = Recorder(descriptor, title, options, from_ring=after is not None)
    try:
        async with door.link("view", None, after) as link:
            complain(f"recording {chosen.name} of {chosen.session_id} to {_named(options.output)}; Ctrl-C ends it")
            with leaving_by_signal(lambda _: recorder.leave(Left(0))):
                left = await recorder.run(link)
    finally:
        if options.output != "-":
            os.close(descriptor)
            if not recorder.written and stat.S_ISREG(os.stat(options.output).st_mode):
                os.unlink(options.output)  # without a header it is no recording
    if left.words:
        complain(left.words)
    complain(f"{recorder.seconds:.1f} s, {size_in_words(recorder.written)} in {_named(options.output)}")
    return left.code


def _named(output: str) -> str:
    return "stdout" if output == "-" else output


async def _oldest(door: TerminalAccess, api: GatewayApi) -> Position | None:
    listed = await door.terminal(api)
    if listed is None:
        complain("there is no such terminal yet: recording begins when it is made")
        return None
    return Position(str(listed["epoch"]), int(listed["base"]))


def _open(output: str) -> int:
    """A new file. An existing file is another recording, and stays; a pipe or a device is used."""
    if output == "-":
        if sys.stdout.isatty():
            raise CommandFailed("stdout is a terminal: name a file with -o, or pipe it on")
        return sys.stdout.fileno()
    try:
        if os.path.exists(output) and not os.path.isfile(output):
            return os.open(output, os.O_WRONLY)
        return os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    except FileExistsError:
        raise CommandFailed(f"{output} exists: choose another name, or remove it") from None
    except OSError as error:
        raise CommandFailed(f"cannot write {output}: {error.strerror or error}") from error


class Recorder:
    """One terminal into one descriptor. `written` counts bytes, `seconds` how long it takes to play."""

    def __init__(self, descriptor: int, title: str, options: RecordOptions, *, from_ring: bool) -> None:
        self._writer = BlockingWriter(descriptor)
        self._title = title
        self._limit = options.idle_time_limit
        self._most_seconds = options.most_seconds
        self._from_ring = from_ring
        self._left: asyncio.Future[Left] = asyncio.get_running_loop().create_future()
        self._recording: Recording | None = None  # from the first sight of a program
        self._began = 0.0
        self._fresh = False  # only the header is written
        self._replaying = False  # the ring's bytes, at time 0
        self._told = ""
        self.written = 0
        self.seconds = 0.0

    def leave(self, left: Left) -> None:
        if not self._left.done():
            self._left.set_result(left)

    async def run(self, link: TerminalClient) -> Left:
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(self._listen(link), name="record.listen")
            left = await self._left
            listening.cancel()
        if self._recording is not None:
            self._writer.finish(self._recording.finished(self._now()))
        return left

    async def _listen(self, link: TerminalClient) -> None:
        try:
            async with aclosing(link.events()) as events:
                async for event in events:
                    await self._take(event)
        except BrokenPipeError:  # its reader has closed the pipe
            self.leave(Left(0))
        except OSError as error:
            self.leave(Left(1, f"cannot write: {error.strerror or error}"))

    async def _take(self, event: Event | Lost | ConnectionEnded) -> None:
        match event:
            case Greeted():
                await self._greeted(event)
            case Output(old, new):
                await self._output(old, new)
            case Painted(picture, size):
                await self._painted(picture, size)
            case Resized() if self._recording is not None:
                await self._write(self._recording.resized(event.size, self._now()))
            case Exit():
                self.leave(Left(0, f"ended, {in_words(event)}"))
            case Told("sleeping"):
                self._tell("asleep: recording goes on when the session wakes")
            case TerminalTrouble(_, reason):
                self._tell(reason)
            case Lost(reason):
                self._tell(f"{reason}; trying again")
            case ConnectionEnded(reason, failed):
                self.leave(Left(int(failed), reason))

    async def _greeted(self, event: Greeted) -> None:
        self._told = ""
        if self._most_seconds is not None:
            asyncio.get_running_loop().call_later(self._most_seconds, self.leave, Left(0))
            self._most_seconds = None
        if event.absent:
            return
        if self._recording is None:
            self._replaying = event.goes_on
            if self._from_ring and not event.goes_on:
                self._tell("the ring has moved on meanwhile: the recording begins with the screen")
            await self._begin(event.size)
        else:
            await self._write(self._recording.resized(event.size, self._now()))

    async def _begin(self, size: Size) -> None:
        self._recording = Recording(size, timestamp=int(time.time()), title=self._title, idle_time_limit=self._limit)
        self._began = asyncio.get_running_loop().time()
        self._fresh = True
        await self._write(self._recording.header)

    async def _output(self, old: bytes, new: bytes) -> None:
        assert self._recording is not None  # there is no output without a program
        if self._replaying and self._fresh:
            old = old.lstrip(CONTINUATION)
        self._fresh = False
        await self._write(self._recording.output(old, 0.0 if self._replaying else self._now()))
        if new:
            self._replaying = False
            await self._write(self._recording.output(new, self._now()))

    async def _painted(self, picture: bytes, size: Size) -> None:
        if self._recording is None:
            await self._begin(size)
        assert self._recording is not None
        if self._fresh:
            await self._write(self._recording.resized(size, 0.0) + self._recording.output(picture, 0.0))
        else:
            await self._write(self._recording.painted(picture, size, self._now()))
        self._fresh = self._replaying = False

    def _now(self) -> float:
        self.seconds = asyncio.get_running_loop().time() - self._began
        return self.seconds

    async def _write(self, lines: bytes) -> None:
        for line in lines.splitlines(keepends=True):
            self.written += len(line)
            await self._writer.write(line)

    def _tell(self, words: str) -> None:
        if words != self._told:
            self._told = words
            complain(words)
