"""Many connections that send as much as is taken, from a process of their own.

`python -m tests.support.attack` reads one JSON object from stdin, connects, says `ready`, sends for so many seconds,
and says in JSON what became of it. `Attack` starts it.
"""

import asyncio
import base64
import json
import selectors
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

READ_BYTES = 1 << 18


@dataclass(frozen=True)
class Attack:
    """Each connection sends its `opening`; then, unless it upgrades, or once it has, `unit` again and again, up to
    `most` bytes. With `reads` it takes what it is sent; with `returns`, whoever is closed comes back."""

    openings: Sequence[bytes]
    unit: bytes
    seconds: float
    reads: bool = True
    returns: bool = False
    most: int = 1 << 40

    @asynccontextmanager
    async def on(self, host: str, port: int) -> AsyncIterator["Running"]:
        """Under way while the block runs; what is in it should end with `Running.result`."""
        members = asdict(self) | {"openings": [_text(each) for each in self.openings], "unit": _text(self.unit)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.support.attack",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"host": host, "port": port, **members}).encode() + b"\n")
            await process.stdin.drain()
            assert await process.stdout.readline() == b"ready\n"
            yield Running(process.stdout)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            process.stdin.close()


class Running:
    def __init__(self, said: asyncio.StreamReader) -> None:
        self._said = said

    async def result(self) -> dict[str, Any]:
        """Wait for its end: `sent` bytes, how many are `open` still, `closed`, `came` back, and one's `last` words."""
        found: dict[str, Any] = json.loads(await self._said.readline())
        return found


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class _Peer:
    def __init__(self, address: tuple[str, int], opening: bytes) -> None:
        self.opening = opening
        self.socket = socket.create_connection(address)
        self.sent = 0
        if b"Upgrade: websocket" in opening:
            self.socket.sendall(opening)
            head = b""
            while b"\r\n\r\n" not in head and (piece := self.socket.recv(4096)):
                head += piece
            self.upgraded = b" 101 " in head[:20]
        else:
            self.upgraded = True
            self.socket.sendall(opening)
        self.socket.setblocking(False)


def _run(plan: dict[str, Any]) -> dict[str, Any]:
    address = plan["host"], plan["port"]
    openings = [base64.b64decode(text) for text in plan["openings"]]
    unit = base64.b64decode(plan["unit"])
    blob = unit * max(1, READ_BYTES // len(unit)) if unit else b""
    watching = selectors.DefaultSelector()
    counts = {"sent": 0, "closed": 0, "came": 0}
    last = b""
    peers: set[_Peer] = set()

    def come(opening: bytes) -> None:
        try:
            peer = _Peer(address, opening)
        except OSError:
            counts["closed"] += 1
            return
        counts["came"] += 1
        peers.add(peer)
        events = (selectors.EVENT_READ if plan["reads"] else 0) | (selectors.EVENT_WRITE if blob else 0)
        if events:
            watching.register(peer.socket, events, peer)

    def gone(peer: _Peer) -> None:
        watching.unregister(peer.socket)
        peer.socket.close()
        peers.discard(peer)
        counts["closed"] += 1
        if plan["returns"] and time.monotonic() < end:
            come(peer.opening)

    end = time.monotonic() + 1e9
    for opening in openings:
        come(opening)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    end = time.monotonic() + plan["seconds"]
    while time.monotonic() < end and peers:
        for key, events in watching.select(0.05):
            peer: _Peer = key.data
            try:
                if events & selectors.EVENT_READ:
                    found = peer.socket.recv(READ_BYTES)
                    if not found:
                        raise ConnectionError
                    last = found[-200:]
                if events & selectors.EVENT_WRITE:
                    at = peer.sent % len(blob)
                    sent = peer.socket.send(blob[at:])
                    peer.sent += sent
                    counts["sent"] += sent
                    if peer.sent >= plan["most"]:  # from here on it only waits
                        watching.modify(peer.socket, selectors.EVENT_READ, peer)
            except BlockingIOError:
                pass
            except OSError:
                gone(peer)
    return {**counts, "open": len(peers), "last": last.decode("latin-1")}


if __name__ == "__main__":
    done = _run(json.loads(sys.stdin.readline()))
    sys.stdout.write(json.dumps(done) + "\n")
    sys.stdout.flush()
