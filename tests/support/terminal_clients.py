"""Terminal clients of other projects, each in its own Node process: a test commands them and reads their screens."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.support.node import CLIENTS, NODE

PATIENCE_SECONDS = 60.0
LONGEST_LINE = 1 << 20


class TerminalClient:
    """A driver of tests/clients. `screen` is its present screen, `told` has all other output, in order."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._heard = 0
        self.screen: list[str] = []
        self.history = 0
        self.told: list[dict[str, Any]] = []

    @property
    def shown(self) -> str:
        return "\n".join(self.screen)

    async def do(self, what: str, **details: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **details}).encode() + b"\n")
        await self._process.stdin.drain()

    async def type(self, text: str) -> None:
        await self.do("type", text=text)

    async def shows(self, text: str) -> None:
        """Return when `text` is on the screen."""
        await self._until(lambda: text in self.shown, f"{text!r} on the screen")

    async def shows_line(self, line: str) -> None:
        """Return when one line of the screen is exactly this: an echo of the command that prints it is another."""
        await self._until(lambda: line in self.screen, f"the line {line!r}")

    async def tells(self, **members: object) -> dict[str, Any]:
        """Its next output with these members."""
        found: list[dict[str, Any]] = []

        def met() -> bool:
            while not found and self._heard < len(self.told):
                told = self.told[self._heard]
                self._heard += 1
                if members.items() <= told.items():
                    found.append(told)
            return bool(found)

        await self._until(met, str(members))
        return found[0]

    async def _until(self, met: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not met():
                    await self._listen(what)
        except TimeoutError:
            raise AssertionError(f"never {what}; it showed\n{self.shown}\nand told {self.told}") from None

    async def _listen(self, what: str) -> None:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, f"the client ended before {what}; it showed\n{self.shown}\nand told {self.told}"
        told = json.loads(line)
        if "screen" in told:
            self.screen, self.history = told["screen"], told["history"]
        else:
            self.told.append(told)


@asynccontextmanager
async def terminal_client(
    driver: str, *, cols: int = 80, rows: int = 24, **options: object
) -> AsyncIterator[TerminalClient]:
    """`tests/clients/{driver}.mjs`; leaving ends it. Its stderr is the test's."""
    process = await asyncio.create_subprocess_exec(
        NODE, f"{driver}.mjs", json.dumps({"cols": cols, "rows": rows, **options}),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=CLIENTS, limit=LONGEST_LINE,
    )  # fmt: skip
    try:
        yield TerminalClient(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
