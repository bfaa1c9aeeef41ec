"""The floor: the barest Python program between the same browsers and the same stand-in. With a database it also makes
both commits. It shows what Python can do if a durable relay has no other work.

It uses uvloop and our own frames. A message becomes a row of Holdfast's own table, with its two indices, and updates
the row of its session. After the commit, the browser gets its ack and its record, and the agent gets the message. The
answer's chunks are passed on with a receipt. The answer becomes a row in the same way; then its record and `done` are
written. These are the three writes of a gateway. What arrives during a commit shares the next one. Without a database
the program only passes frames on.

It leaves out: sessions that outlive a connection, tokens, limits, checks of frames (it cuts out a cid and parses
nothing), reliable numbers, duplicates, resumes, several viewers, sandboxes, the link (it speaks plain frames to the
agent), snapshots, errors, metrics, logs, backpressure, a clean end.

    python -m bench.floor UPSTREAM_PORT [--database PATH] [--package browser|link]
"""

import argparse
import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, cast

import uvloop
from websockets.utils import accept_key

from bench.codecs import Codec, OwnCodec, PackageCodec
from bench.load import DONE, handshake
from bench.processes import raise_descriptor_limit
from persistence.sqlite.store import SqliteStore

INSERT = "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
HEAD = "UPDATE sessions SET last_seq = ?, stored_bytes = stored_bytes + ? WHERE no = ?"
SESSIONS = 20_000  # rows made at the start; each connection takes the next one
CREATE = f"""WITH RECURSIVE n(no) AS (SELECT 1 UNION ALL SELECT no + 1 FROM n WHERE no < {SESSIONS})
    INSERT INTO sessions (no, id, user_id, created_at, spec, state)
    SELECT no, 's' || no, 'ann', 1, CAST('{{}}' AS BLOB), CAST('{{}}' AS BLOB) FROM n"""
MOVE_LOG_AT = 4000  # pages of SQLite's log; as in Holdfast, a checkpoint is rare and never during a message

Row = tuple[int, int, str, str, str, bytes, float, str]


class Kept(NamedTuple):
    """A row to be committed, and the callback for when it is durable."""

    row: Row
    durable: Callable[[], None]


class Writer:
    """A thread that commits what came since its last commit. It needs no lock, because one batch is out at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Kept] = []
        self._busy = False
        self._batches: SimpleQueue[list[Kept]] = SimpleQueue()
        threading.Thread(target=self._run, name="writer", daemon=True).start()

    def put(self, kept: Kept) -> None:
        self._waiting.append(kept)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._hand_over)  # together with the rest of this turn of the loop

    def _hand_over(self) -> None:
        batch, self._waiting = self._waiting, []
        self._batches.put(batch)

    def _committed(self, batch: list[Kept]) -> None:
        if self._waiting:
            self._hand_over()
        else:
            self._busy = False
        for kept in batch:
            kept.durable()

    def _run(self) -> None:
        database = sqlite3.connect(self._path, isolation_level=None)
        database.execute("PRAGMA synchronous = FULL")
        database.execute(f"PRAGMA wal_autocheckpoint = {MOVE_LOG_AT}")
        while True:
            batch = self._batches.get()
            heads: dict[int, tuple[int, int]] = {}
            for (number, seq, _, _, _, payload, _, _), _ in batch:
                heads[number] = seq, heads.get(number, (0, 0))[1] + len(payload)
            database.execute("BEGIN IMMEDIATE")
            database.executemany(INSERT, [kept.row for kept in batch])
            database.executemany(HEAD, [(seq, size, number) for number, (seq, size) in heads.items()])
            database.execute("COMMIT")
            self._loop.call_soon_threadsafe(self._committed, batch)


class House:
    """The state that all connections share."""

    def __init__(self, upstream_port: int, writer: Writer | None, package: str) -> None:
        self.upstream_port = upstream_port
        self.writer = writer
        self._package = package
        self._sessions = 0

    def next_session(self) -> int:
        self._sessions += 1
        return self._sessions

    def codec(self, side: str) -> Codec:
        return (PackageCodec if self._package == side else OwnCodec)(client=side == "link")


class Agent(asyncio.Protocol):
    """The connection to the agent, behind a browser's connection."""

    def __init__(self, browser: "Browser") -> None:
        self._browser: Browser | None = browser
        self._head = b""
        self._open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(handshake("/plain", None))

    def connection_lost(self, exc: Exception | None) -> None:
        self._browser = None

    def data_received(self, data: bytes) -> None:
        if self._browser is None:
            return
        if not self._open:
            self._head += data
            _, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            self._open = True
            self._browser.begin(self._transport)
        if data:
            self._browser.answered(data)


class Browser(asyncio.Protocol):
    """A browser's connection, with the agent's behind it. uvloop sends the writes of one turn of the loop together."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._number = house.next_session()
        self._seq = 0
        self._near, self._far = house.codec("browser"), house.codec("link")
        self._head = b""
        self._open = False
        self._answer: list[bytes] = []
        self._agent: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._agent is not None:
            self._agent.abort()

    def data_received(self, data: bytes) -> None:
        if not self._open:
            self._head += data
            if b"\r\n\r\n" in self._head:
                self._open = True
                loop = asyncio.get_running_loop()
                dial = loop.create_connection(lambda: Agent(self), "127.0.0.1", self._house.upstream_port)
                self._dialling = loop.create_task(dial)
            return
        for payload in self._near.read(data):
            self._asked(payload)

    def begin(self, agent: asyncio.Transport) -> None:
        """The agent is connected. The browser's upgrade is answered only now, so no message has to wait."""
        self._agent = agent
        key = self._head.lower().partition(b"sec-websocket-key:")[2].partition(b"\r\n")[0]
        at = self._head.lower().index(key)
        accept = accept_key(self._head[at : at + len(key)].strip().decode())
        self._head = b""
        self._transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept.encode()
        )

    def _asked(self, payload: bytes) -> None:
        assert self._agent is not None
        if self._house.writer is None:
            self._agent.write(self._far.write(payload))
            return
        cid = payload.partition(b'"cid":"')[2].partition(b'"')[0].decode()
        seq = self._keep(cid, "user", payload, lambda: self._is_stored(seq, cid, payload))

    def _is_stored(self, seq: int, cid: str, payload: bytes) -> None:
        assert self._agent is not None
        write = self._near.write
        ack = write(b'{"type":"ack","cid":"%b","status":"stored","seq":%d}' % (cid.encode(), seq))
        self._transport.write(ack + write(b'{"type":"record","seq":%d,"record":%b}' % (seq, payload)))
        self._agent.write(self._far.write(payload))

    def answered(self, data: bytes) -> None:
        payloads = self._far.read(data)
        if self._house.writer is None:
            self._transport.write(b"".join(map(self._near.write, payloads)))
            return
        for payload in payloads:
            if DONE not in payload:
                if not self._answer:
                    self._transport.write(self._near.write(b'{"type":"receipt","seq":%d}' % self._seq))
                self._answer.append(payload)
                self._transport.write(self._near.write(payload))
            else:
                self._keep_answer(payload)

    def _keep_answer(self, done: bytes) -> None:
        answer = b'{"type":"assistant","content":[%b]}' % b",".join(self._answer)
        self._answer = []
        seq = self._keep("", "assistant", answer, lambda: self._is_answered(seq, answer, done))

    def _is_answered(self, seq: int, answer: bytes, done: bytes) -> None:
        write = self._near.write
        self._transport.write(write(b'{"type":"record","seq":%d,"record":%b}' % (seq, answer)) + write(done))

    def _keep(self, cid: str, role: str, payload: bytes, durable: Callable[[], None]) -> int:
        assert self._house.writer is not None
        self._seq = seq = self._seq + 1
        row = (self._number, seq, cid or f"a{seq}", role, "message", payload, time.time(), "stored")
        self._house.writer.put(Kept(row, durable))
        return seq


async def main(upstream_port: int, database: Path | None, package: str) -> None:
    raise_descriptor_limit()
    writer = None
    if database is not None:
        async with SqliteStore(database):  # makes the tables
            pass
        with sqlite3.connect(database) as made:
            made.execute(CREATE)
        made.close()
        writer = Writer(database)
    house = House(upstream_port, writer, package)
    server = await asyncio.get_running_loop().create_server(lambda: Browser(house), "127.0.0.1", 0, backlog=4096)
    print("port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.floor")
    parser.add_argument("upstream_port", type=int)
    parser.add_argument("--database", type=Path)
    parser.add_argument("--package", choices=("browser", "link"), default="", help="where not to use our own frames")
    chosen = parser.parse_args()
    uvloop.run(main(chosen.upstream_port, chosen.database, chosen.package))
