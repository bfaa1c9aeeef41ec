"""A user of a page: web/client in its own Node process, commanded by a test that reads its view."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.node import NODE
from tests.support.waiting import until

CLIENT = Path(__file__).parents[2] / "web" / "client"
PERSON = CLIENT / "test" / "e2e" / "person.ts"
PATIENCE_SECONDS = 90.0
LONGEST_LINE = 64 << 20


@dataclass
class WebClient:
    """`told` is all its output but its reports, in order; `printed` is its terminal's output while it ran."""

    process: asyncio.subprocess.Process
    told: list[dict[str, Any]] = field(default_factory=list)
    printed: bytes = b""
    _reports: list[dict[str, Any]] = field(default_factory=list)

    async def do(self, what: str, **details: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **details}).encode() + b"\n")
        await self.process.stdin.drain()

    async def send(self, text: str) -> str:
        """Send a message; its cid."""
        await self.do("send", text=text)
        return str((await self.tells(lambda told: told.get("text") == text))["sent"])

    async def tells(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first output that is `wanted`, however long ago."""
        await self.until(lambda: any(map(wanted, self.told)), "what is wanted")
        return next(filter(wanted, self.told))

    async def connected(self, times: int) -> None:
        """Return when it has been welcomed so often."""
        await self.until(
            lambda: sum(told.get("state") == "online" for told in self.told) >= times, f"{times} times online"
        )

    async def until(self, met: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            there = met()
            if not there and self.process.returncode is not None:
                raise RuntimeError(f"the client ended before {what}; it told {self.told[-20:]}")
            return there

        await until(look, lambda: f"{what}; it told {self.told[-20:]}")

    async def report(self) -> dict[str, Any]:
        asked = len(self._reports)
        await self.do("report")
        await self.until(lambda: len(self._reports) > asked, "a report")
        return self._reports[-1]

    async def shows(self, met: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """The first report of which `met` is true."""

        async def look() -> dict[str, Any]:
            report = await self.report()
            assert met(report), json.dumps(report)[:4000]
            return report

        return await until(look, lambda: f"{what}; it told {self.told[-20:]}")

    async def listen(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            told = json.loads(line)
            if "report" in told:
                self._reports.append(told["report"])
            elif "bytes" in told:
                self.printed += base64.b64decode(told["bytes"])
            else:
                self.told.append(told)


@asynccontextmanager
async def web_client(url: str, session: str, token: str, **options: object) -> AsyncIterator[WebClient]:
    """Leaving ends it. Its stderr is the test's."""
    process = await asyncio.create_subprocess_exec(
        NODE, PERSON, json.dumps({"url": url, "session": session, "token": token, **options}),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LONGEST_LINE,
    )  # fmt: skip
    client = WebClient(process)
    listening = asyncio.create_task(client.listen(), name="web-client")
    try:
        yield client
    finally:
        if process.returncode is None:
            process.kill()
        await listening
        await process.wait()
