"""A terminal for scripts: lines of stdin are typed, and new output goes to stdout as it is.

The end of the input is typed as Ctrl-D, so that a shell ends, and its exit code is the command's. Ctrl-D is typed again
and again: a shell that edits its lines does not see one that came while a command ran. Output from before this viewer
came is not printed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from gateway.cli.client.api import CommandFailed
from gateway.cli.client.chat import ConnectionEnded, Lost
from gateway.cli.client.terminal import TerminalClient
from gateway.cli.client.terminal_view import Event, Greeted, Output, Painted, Told
from gateway.cli.console.blocking_writer import BlockingWriter
from gateway.cli.console.exits import Left, exit_code, in_words
from gateway.cli.console.output import complain
from gateway.cli.console.stdin_lines import input_lines
from sandbox.protocol.terminal import Exit, TerminalTrouble

ENTER, END_OF_INPUT = b"\r", b"\x04"
FIRST_AGAIN, LAST_AGAIN = 0.5, 5.0  # seconds
STOPPED = frozenset({"paused", "error", "archived", "unrestored", "needs_env"})


class PipedAttachment:
    """`wake` starts the sandbox of a session that sleeps. `ended` is a process that had ended before. All messages go
    to stderr."""

    def __init__(self, link: TerminalClient, wake: Callable[[], Awaitable[None]], *, drives: bool, ended: str) -> None:
        self._link = link
        self._wake = wake
        self._drives = drives
        self._ended = ended
        self._left: asyncio.Future[Left] = asyncio.get_running_loop().create_future()
        self._writer = BlockingWriter(1)
        self._greeted = asyncio.Event()
        self._present = asyncio.Event()  # there is a program to type to
        self._epoch = ""  # that program
        self._fresh = False  # a greeting that did not go on has just come: the next picture belongs to it

    def leave(self, left: Left) -> None:
        if not self._left.done():
            self._left.set_result(left)

    async def run(self) -> Left:
        async with asyncio.TaskGroup() as tasks:
            doing = [tasks.create_task(self._listen(), name="attach.listen")]
            if self._drives:
                doing.append(tasks.create_task(self._type(), name="attach.type"))
            left = await self._left
            for task in doing:
                task.cancel()
        self._writer.finish()
        return left

    async def _type(self) -> None:
        try:
            async for line in input_lines():
                await self._begin()
                await self._link.type(line.rstrip(b"\r") + ENTER)
            await self._begin()
            pause = FIRST_AGAIN
            while True:
                await self._link.type(END_OF_INPUT)
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, LAST_AGAIN)
        except CommandFailed as failure:
            self.leave(Left(1, str(failure)))

    async def _begin(self) -> None:
        """Wait for a program; have one started if there is none."""
        await self._greeted.wait()
        if not self._present.is_set():
            if self._link.viewer.epoch == "":
                await self._wake()
            else:
                await self._link.type(ENTER)  # starts it again
        await self._present.wait()

    async def _listen(self) -> None:
        async with aclosing(self._link.events()) as events:
            async for event in events:
                try:
                    await self._show(event)
                except OSError:  # the reader of the output has gone
                    self.leave(Left(0))

    async def _show(self, event: Event | Lost | ConnectionEnded) -> None:
        match event:
            case Output(old, new):
                self._fresh = False
                await self._writer.write(old + new)
            case Greeted() | Painted():
                self._meet(event)
            case Exit() if self._link.viewer.epoch != self._ended or not self._drives:
                self.leave(Left(exit_code(event), "" if event.signal is None else f"ended, {in_words(event)}"))
            case Told("sleeping") if not self._drives:
                complain("asleep: output comes when the session wakes")
            case Told(status) if status in STOPPED:
                self.leave(Left(1, f"the session's status is {status} now"))
            case TerminalTrouble(code, reason):
                complain(reason)
                if code == "start_failed":
                    self.leave(Left(1))
            case Lost(reason, seconds):
                complain(f"{reason}; trying again in {seconds:.1f} s")
            case ConnectionEnded(reason, failed):
                self.leave(Left(int(failed), reason if failed else ""))

    def _meet(self, event: Greeted | Painted) -> None:
        epoch = self._link.viewer.epoch
        if self._epoch not in ("", epoch):
            self.leave(Left(1, "the program is gone: input that it has not read is dropped, not typed into another"))
        elif self._epoch and not self._fresh and not (isinstance(event, Greeted) and event.goes_on):
            complain("some of the output was lost on the way")
        self._fresh = isinstance(event, Greeted) and not event.goes_on
        if epoch not in ("", self._ended):
            self._epoch = epoch
            self._present.set()
        self._greeted.set()
