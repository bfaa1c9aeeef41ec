"""Many connections that send as much as the server takes, from a separate process.

`python -m tests.support.attack` reads one JSON object from stdin, connects, says `ready`, sends for so many seconds,
and prints the result as JSON. `attack` starts it.
"""

import asyncio
import base64
import json
import selectors
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

BLOB_BYTES = 1 << 18


@dataclass(frozen=True)
class Group:
    """So many equal connections. Each sends its `opening`, waits for the answer to an upgrade, then sends `unit`
    again and again, up to `most` bytes. With `reads` it reads the answers; with `returns` it comes back when closed."""

    count: int
    opening: bytes
    unit: bytes = b""
    reads: bool = True
    returns: bool = False
    most: int = 1 << 40


class Running:
    def __init__(self, said: asyncio.StreamReader) -> None:
        self._said = said

    async def result(self) -> dict[str, Any]:
        """Wait for its end: `sent` bytes, how many `came`, were `closed`, and are `open` still."""
        found: dict[str, Any] = json.loads(await self._said.readline())
        return found


@asynccontextmanager
async def attack(groups: Sequence[Group], seconds: float, host: str, port: int) -> AsyncIterator[Running]:
    """Under way while the block runs, once all are connected."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.attack",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    told = [asdict(each) | {"opening": _text(each.opening), "unit": _text(each.unit)} for each in groups]
    try:
        plan = {"host": host, "port": port, "seconds": seconds, "groups": told}
        process.stdin.write(json.dumps(plan).encode() + b"\n")
        await process.stdin.drain()
        assert await process.stdout.readline() == b"ready\n"
        yield Running(process.stdout)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        process.stdin.close()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class _Plan:
    """A group, decoded once for all of its connections."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = Group(**told)
        self.opening = base64.b64decode(told["opening"])
        unit = base64.b64decode(told["unit"])
        self.blob = unit * max(1, BLOB_BYTES // len(unit)) if unit else b""

    @property
    def events(self) -> int:
        return (selectors.EVENT_READ if self.told.reads else 0) | (selectors.EVENT_WRITE if self.blob else 0)


class _Peer:
    def __init__(self, address: tuple[str, int], plan: _Plan) -> None:
        self.plan = plan
        self.sent = 0
        self.socket = socket.create_connection(address)
        self.socket.sendall(plan.opening)
        head = b""
        while b"Upgrade: websocket" in plan.opening and b"\r\n\r\n" not in head:
            if not (piece := self.socket.recv(4096)):
                raise ConnectionError(head)
            head += piece
        if head and b" 101 " not in head[:20]:
            raise ConnectionError(head)
        self.socket.setblocking(False)


class _Flood:
    def __init__(self, told: dict[str, Any]) -> None:
        self._address = told["host"], told["port"]
        self._watching = selectors.DefaultSelector()
        self._end = 0.0
        self._seconds: float = told["seconds"]
        self.open = self.sent = self.came = self.closed = 0
        for group in told["groups"]:
            plan = _Plan(group)
            for _ in range(plan.told.count):
                self._come(plan)

    def _come(self, plan: _Plan) -> None:
        try:
            peer = _Peer(self._address, plan)
        except OSError:
            self.closed += 1
            return
        self.came += 1
        self.open += 1
        self._watching.register(peer.socket, plan.events or selectors.EVENT_READ, peer)

    def _gone(self, peer: _Peer) -> None:
        self._watching.unregister(peer.socket)
        peer.socket.close()
        self.closed += 1
        self.open -= 1
        if peer.plan.told.returns:
            self._come(peer.plan)

    def run(self) -> dict[str, int]:
        end = time.monotonic() + self._seconds
        while time.monotonic() < end and self.open:
            for key, events in self._watching.select(0.05):
                try:
                    self._serve(key.data, events)
                except BlockingIOError:
                    pass
                except OSError:
                    self._gone(key.data)
        return {"sent": self.sent, "came": self.came, "closed": self.closed, "open": self.open}

    def _serve(self, peer: _Peer, events: int) -> None:
        blob = peer.plan.blob
        if events & selectors.EVENT_READ and not peer.socket.recv(BLOB_BYTES):
            raise ConnectionError
        if events & selectors.EVENT_WRITE:
            sent = peer.socket.send(blob[peer.sent % len(blob) :])
            peer.sent += sent
            self.sent += sent
            if peer.sent >= peer.plan.told.most:  # from here on it only waits
                self._watching.modify(peer.socket, selectors.EVENT_READ, peer)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    flood = _Flood(json.loads(sys.stdin.readline()))
    _say("ready")
    _say(json.dumps(flood.run()))
