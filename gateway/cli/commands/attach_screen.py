"""A remote terminal on the person's own: output is drawn, keys are sent, and few notices appear in between.

A notice over a program's screen spoils it, so after that the whole screen is asked for again. A connection that is back
within `SILENT_SECONDS` causes no notice. Where there is no program (asleep, ended) there is no screen to spoil, and
notices are printed in lines.
"""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import aclosing

from gateway.cli.client.chat import ConnectionEnded, Lost
from gateway.cli.client.terminal import TerminalClient
from gateway.cli.client.terminal_view import Event, Greeted, Output, Painted, Told
from gateway.cli.console.detach_keys import DetachKeys
from gateway.cli.console.exits import Left, exit_code, in_words
from gateway.cli.console.query_filter import QueryFilter
from gateway.cli.console.tty import SAVE_TITLE, Tty
from sandbox.protocol.terminal import Exit, Resized, Size, TerminalTrouble

SILENT_SECONDS = 1.0
HUNG_UP_SECONDS = 3.0
READ_SECONDS = 3.0  # a notice over a screen stays so long
INTENT = ": type to wake it"
ABSENT = {
    "sleeping": f"asleep{INTENT}",
    "paused": "paused: resume it to go on",
    "error": f"the session failed{INTENT}",
    "unrestored": f"the workspace could not be restored{INTENT}",
    "needs_env": "the session needs its variables again: resume it with them to go on",
    "archived": "the session was deleted",
}
INTERRUPT = 3


class Attachment:
    """One link on one terminal. `drives`: keys are sent; otherwise Ctrl-C leaves."""

    def __init__(self, link: TerminalClient, tty: Tty, keys: DetachKeys, *, drives: bool, leaving_keys: str) -> None:
        self._link = link
        self._tty = tty
        self._keys = keys
        self._drives = drives
        self._leaving_keys = leaving_keys
        self._questions = QueryFilter()
        self._left: asyncio.Future[Left] = asyncio.get_running_loop().create_future()
        self._tasks = asyncio.TaskGroup()
        self._begun = False
        self._present = False  # there is a program, and its screen is shown
        self._typed = False
        self._spoiled = False
        self._speaking: asyncio.Task[None] | None = None  # a notice about the connection, or the wait until one is read
        self._away = False
        self._said = ""  # in the last line of its own
        self._too_large: Size | None = None
        self._unpainted: Size | None = None  # size of a terminal that has shown nothing yet

    def leave(self, left: Left) -> None:
        if not self._left.done():
            self._left.set_result(left)

    async def run(self) -> Left:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._resized)
        loop.add_signal_handler(signal.SIGCONT, self._continued)
        try:
            async with self._tasks:
                tasks = [
                    self._tasks.create_task(self._until_gone(self._listen()), name="attach.listen"),
                    self._tasks.create_task(self._until_gone(self._type()), name="attach.type"),
                ]
                left = await self._left
                for task in [*tasks, *filter(None, [self._speaking])]:
                    task.cancel()
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            loop.remove_signal_handler(signal.SIGCONT)
        return left

    async def _until_gone(self, doing: Coroutine[None, None, None]) -> None:
        try:
            await doing
        except OSError:  # the person's terminal is gone
            self.leave(Left(128 + signal.SIGHUP))

    # keys

    async def _type(self) -> None:
        loop = asyncio.get_running_loop()
        while (typed := await self._tty.read(self._keys.deadline)) != b"":
            keys, leaves = (self._keys.due(), False) if typed is None else self._keys.type(typed, now=loop.time())
            if leaves or (not self._drives and INTERRUPT in keys):
                self.leave(Left(0, detached=True))
            if keys and self._drives:
                await self._send(keys)
        self.leave(Left(128 + signal.SIGHUP))

    async def _send(self, keys: bytes) -> None:
        if self._away:  # a beep instead of blind typing: another program may run when the connection is back
            await self._tty.write(b"\a")
            return
        self._typed = True
        await self._link.type(keys)

    def _resized(self) -> None:
        if self._drives:
            self._link.resize(self._tty.size)

    def _continued(self) -> None:
        self._tty.take()
        self._resized()

    # output

    async def _listen(self) -> None:
        await self._tty.write(SAVE_TITLE)
        async with aclosing(self._link.events()) as events:
            async for event in events:
                await self._show(event)

    async def _show(self, event: Event | Lost | ConnectionEnded) -> None:
        match event:
            case Output(old, new):
                self._present = True
                await self._tty.write(self._questions.old(old) + self._questions.new(new))
                if self._unpainted is not None:
                    await self._tell_too_large(self._unpainted)
            case Painted(picture, size):
                self._present = True
                await self._clear(picture)
                await self._tell_too_large(size)
            case Greeted():
                await self._greeted(event)
            case Resized():
                await self._tell_too_large(event.size)
            case Exit():
                await self._ended(event)
            case Told(status):
                await self._told(status)
            case TerminalTrouble(_, reason):
                await self._say(reason)
            case Lost(reason):
                self._lost(reason)
            case ConnectionEnded(reason, failed):
                self.leave(Left(int(failed), reason))

    async def _greeted(self, event: Greeted) -> None:
        self._away = False
        self._hush()
        if not self._begun:
            self._begun = True
            rows = self._tty.size.rows
            await self._tty.write(b"\x1b[%d;1H" % rows + b"\n" * rows)  # moves the present lines into the scrollback
        if not event.goes_on:
            self._present = not event.absent
            self._unpainted = event.size
            await self._clear(b"")
        elif self._spoiled:
            await self._link.repaint()

    async def _clear(self, picture: bytes) -> None:
        self._spoiled, self._said = False, ""
        await self._tty.write(self._questions.forget() + self._tty.modes.clear() + picture)

    async def _ended(self, exit: Exit) -> None:
        if self._drives and not self._typed and not self._link.viewer.lively:  # it ended before this viewer came
            await self._close_screen()
            await self._say(f"ended, {in_words(exit)}: press Enter to start it again")
            return
        left = Left(exit_code(exit), f"ended, {in_words(exit)}" if exit_code(exit) else "")
        if exit.signal != "SIGHUP":
            self.leave(left)
        else:  # perhaps its sandbox is being stopped: then that is the notice to show
            self._hush()
            self._speaking = self._tasks.create_task(self._leave_later(left), name="attach.hung_up")

    async def _leave_later(self, left: Left) -> None:
        await asyncio.sleep(HUNG_UP_SECONDS)
        self.leave(left)

    async def _told(self, status: str) -> None:
        if status in ABSENT:
            self._hush()
            await self._close_screen()
            await self._say(ABSENT[status] if self._drives else ABSENT[status].removesuffix(INTENT))
        elif status == "starting" and not self._present:
            await self._say("starting…")

    async def _close_screen(self) -> None:
        """There is no program any more: undo its modes of the terminal, and leave its output to be read."""
        if self._present:
            self._present = False
            await self._tty.write(self._questions.forget() + self._tty.modes.undo())

    # notices

    async def _say(self, words: str) -> None:
        """In a line where there is no screen; otherwise over the last line, which is painted again later."""
        if self._present:
            await self._draw_over(words)
            self._hush()
            self._speaking = self._tasks.create_task(self._repaint(), name="attach.repaint")
        elif words != self._said:
            self._said = words
            await self._tty.write(f"\r\n\x1b[0m[{words}]\r\n".encode())

    async def _draw_over(self, words: str) -> None:
        self._spoiled = True
        self._link.viewer.start_over()
        cols, rows = self._tty.size.cols, self._tty.size.rows
        shown = f" {words} "[:cols].encode()
        await self._tty.write(
            self._questions.forget() + b"\x1b7\x1b[%d;1H\x1b[0;7m%b\x1b[0m\x1b[K\x1b8" % (rows, shown)
        )

    async def _repaint(self) -> None:
        await asyncio.sleep(READ_SECONDS)
        await self._link.repaint()

    async def _tell_too_large(self, size: Size) -> None:
        self._unpainted = None
        own = self._tty.size
        if self._drives or size == self._too_large or (size.cols <= own.cols and size.rows <= own.rows):
            return
        self._too_large = size
        await self._say(f"the terminal is {size.cols}x{size.rows}, this one only {own.cols}x{own.rows}")

    def _lost(self, reason: str) -> None:
        if self._speaking is None or self._speaking.done():
            self._speaking = self._tasks.create_task(self._tell_away(reason), name="attach.away")

    async def _tell_away(self, reason: str) -> None:
        await asyncio.sleep(SILENT_SECONDS)
        self._away = True
        await self._draw_over(f"reconnecting… ({reason}; {self._leaving_keys} leaves)")

    def _hush(self) -> None:
        if self._speaking is not None:
            self._speaking.cancel()
            self._speaking = None
