"""A service that stores messages, as an HTTP sink of Holdfast expects one, in its own process.

`python -m tests.support.sink --token T` prints its port and serves. It stores a record once per idempotency key, and
misbehaves on command over `/control`. With `--journal` its records survive a kill. `SinkProcess` controls it.
"""

import argparse
import asyncio
import json
import os
import re
import ssl
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

ROUTE = re.compile(r"(?:/base)?/internal/sessions/([^/]+)/messages")
TOKEN = "sink-token-of-the-tests"


@dataclass(slots=True)
class Rule:
    """How to misbehave: the first rule that fits a post is used, `times` times."""

    session: str | None = None  # None: any
    seq: int | None = None
    times: int = 10**9
    delay: float = 0.0
    hang: bool = False
    cut: bool = False  # the connection, instead of an answer
    keep: bool = False  # store the record, whatever the answer is: a lost reply
    status: int = 201
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    flood: bool = False  # a body without end

    def fits(self, session: str, seq: int) -> bool:
        return self.times > 0 and self.session in (None, session) and self.seq in (None, seq)


class Sink:
    def __init__(self, token: str, journal: Path | None) -> None:
        self.token = token
        self.rules: list[Rule] = []
        self.kept: dict[str, dict[str, Any]] = {}  # by key, in order of arrival
        self.seen: dict[str, int] = {}  # posts by status
        self.conflicts: list[str] = []  # keys that came again with another body
        self.repeats = 0
        self.busy: Counter[str] = Counter()
        self.most_at_once = self.most_per_session = 0
        self.journal = journal.open("a+") if journal else None
        if self.journal:
            self.journal.seek(0)
            for line in self.journal:
                entry = json.loads(line)
                self.kept[entry["key"]] = entry

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, EOFError):
            pass
        finally:
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read a request and answer it; False: the connection is over."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if path.startswith("/control/"):
            answer = self._control(path.removeprefix("/control/"), body)
            return await _reply(writer, 200, {}, json.dumps(answer))
        route = ROUTE.fullmatch(path)
        if route is None or method != "POST":
            return await _reply(writer, 404, {}, "no such route")
        session = route[1]
        self.busy[session] += 1
        self.most_at_once = max(self.most_at_once, self.busy.total())
        self.most_per_session = max(self.most_per_session, self.busy[session])
        try:
            return await self._post(writer, session, headers, body)
        finally:
            self.busy[session] -= 1

    async def _post(self, writer: asyncio.StreamWriter, session: str, headers: dict[str, str], body: bytes) -> bool:
        message = json.loads(body)
        rule = next((rule for rule in self.rules if rule.fits(session, message["seq"])), None) or Rule(keep=True)
        rule.times -= 1
        await asyncio.sleep(rule.delay)
        if rule.keep and headers.get("x-service-token") == self.token:
            self._keep(session, headers, message)
        if rule.hang:
            await asyncio.Event().wait()
        if rule.cut:
            return False
        if rule.flood:
            await _flood(writer)
        status = rule.status if headers.get("x-service-token") == self.token else 401
        self.seen[str(status)] = self.seen.get(str(status), 0) + 1
        body_text = rule.body or (json.dumps({"messageId": headers["idempotency-key"]}) if status < 300 else "no")
        return await _reply(writer, status, rule.headers, body_text)

    def _keep(self, session: str, headers: dict[str, str], message: dict[str, Any]) -> None:
        key = headers["idempotency-key"]
        entry = {"key": key, "session": session, "message": message, "type": headers.get("content-type")}
        if known := self.kept.get(key):
            self.repeats += 1
            if known != entry:
                self.conflicts.append(key)
            return
        self.kept[key] = entry
        if self.journal:
            self.journal.write(json.dumps(entry) + "\n")
            self.journal.flush()
            os.fsync(self.journal.fileno())

    def _control(self, what: str, body: bytes) -> Any:
        match what:
            case "rules":
                self.rules = [Rule(**rule) for rule in json.loads(body)]
            case "kept":
                return list(self.kept.values())
            case "forget":
                self.kept.clear()
        return {
            "seen": self.seen,
            "kept": len(self.kept),
            "repeats": self.repeats,
            "conflicts": self.conflicts,
            "busy": self.busy.total(),
            "most_at_once": self.most_at_once,
            "most_per_session": self.most_per_session,
        }


async def _reply(writer: asyncio.StreamWriter, status: int, headers: dict[str, str], body: str) -> bool:
    raw = body.encode()
    lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(raw)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + raw)
    await writer.drain()
    return True


async def _flood(writer: asyncio.StreamWriter) -> None:
    """A gigabyte, or until the other side has had enough."""
    writer.write(b"HTTP/1.1 200 Said\r\ncontent-length: %d\r\n\r\n" % 2**30)
    for _ in range(2**14):
        writer.write(b"x" * 2**16)
        await writer.drain()


async def _main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--token", default=TOKEN)
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--journal", type=Path)
    options.add_argument("--certificate", type=Path, help="PEM with key: serve https")
    chosen = options.parse_args()
    tls = None
    if chosen.certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(chosen.certificate)
    sink = Sink(chosen.token, chosen.journal)
    server = await asyncio.start_server(sink.serve, "127.0.0.1", chosen.port, ssl=tls, limit=2**26)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # ends with the process that started it
    os._exit(0)


class SinkProcess:
    """The service, started and controlled. It ends with this process, or when left."""

    def __init__(self, *, journal: Path | None = None, certificate: Path | None = None) -> None:
        self._options = [f"--journal={journal}"] if journal else []
        self._certificate = certificate
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._certificate else 'http'}://127.0.0.1:{self.port}/base"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    async def start(self) -> None:
        """At the same port each time."""
        options = [*self._options, *([f"--certificate={self._certificate}"] if self._certificate else [])]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.support.sink", f"--port={self.port}", *options,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert self._process.stdout is not None
        self.port = int(await self._process.stdout.readline())

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.communicate()

    async def misbehave(self, *rules: Rule) -> None:
        """These rules instead of those before; none: behave."""
        await self._ask("rules", [asdict(rule) for rule in rules])

    async def kept(self) -> list[dict[str, Any]]:
        """Its records, in order of arrival: key, session, message."""
        kept: list[dict[str, Any]] = await self._ask("kept")
        return kept

    async def seqs(self, session: str) -> list[int]:
        """The seqs it keeps of a session, in order of arrival."""
        return [entry["message"]["seq"] for entry in await self.kept() if entry["session"] == session]

    async def figures(self) -> dict[str, Any]:
        figures: dict[str, Any] = await self._ask("figures")
        return figures

    async def forget(self) -> None:
        await self._ask("forget")

    async def _ask(self, what: str, body: object = None) -> Any:
        async with httpx.AsyncClient(verify=False, trust_env=False, timeout=60) as client:
            address = f"{self.url.removesuffix('/base')}/control/{what}"
            return (await client.post(address, content=json.dumps(body))).json()


if __name__ == "__main__":
    asyncio.run(_main())
