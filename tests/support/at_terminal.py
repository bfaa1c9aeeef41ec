"""A person at a terminal: runs a command on its own PTY, as its controlling terminal, and collects the output."""

import asyncio
import fcntl
import os
import pty
import struct
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.support.launcher import Launched, launch
from tests.support.waiting import until

PATIENCE_SECONDS = 60  # on a busy machine every command takes its time to start
ANSWERS = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?62;c"}  # as every terminal does


class PersonAtTerminal:
    """`seen` is all output of the command; the terminal replies to its queries."""

    def __init__(self, descriptor: int, theirs: int, process: Launched) -> None:
        self._descriptor = descriptor
        self._theirs = theirs  # kept open, so that the terminal's settings can be read afterwards
        self.process = process
        self.seen = b""
        self.before = termios.tcgetattr(theirs)
        self._answered: dict[bytes, int] = {}
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        chunk = os.read(self._descriptor, 65536)
        self.seen += chunk
        for question, answer in ANSWERS.items():
            asked = self.seen.count(question)
            os.write(self._descriptor, answer * (asked - self._answered.get(question, 0)))
            self._answered[question] = asked

    @property
    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._theirs)

    def type(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def resize(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    async def until(self, words: bytes, *, times: int = 1) -> None:
        await until(lambda: self.seen.count(words) >= times, lambda: f"{words!r}; seen: {self.seen[-2000:]!r}")

    async def finish(self) -> int:
        """Wait for the command's end; its exit code."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        os.close(self._theirs)


@asynccontextmanager
async def at_terminal(
    *words: str, env: Mapping[str, str], cols: int = 90, rows: int = 30
) -> AsyncIterator[PersonAtTerminal]:
    """`holdfast WORDS` on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
    process = await launch(
        *words,
        stdin=theirs, stdout=theirs, stderr=theirs, env=env, terminal=True,
    )  # fmt: skip
    person = PersonAtTerminal(ours, theirs, process)
    try:
        yield person
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        person.close()
