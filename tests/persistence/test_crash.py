"""kill -9 in the middle of storing: what was acknowledged is there, once, in order."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

from persistence.record import Session
from persistence.sqlite.store import SqliteStore

KILLS = 20
SESSIONS = 8

# Each life loads where the last one ended, then sends as fast as it can and prints each ack when it is told of it.
WRITER = """
import asyncio, os, sys
from pathlib import Path
from random import Random
from persistence.queue.backlog import QueueLimits
from persistence.queue.queue import PersistenceQueue
from persistence.record import Record, Status, Stored, Write
from persistence.sqlite.store import SqliteStore

async def main(path, life):
    async with SqliteStore(path) as store, PersistenceQueue(store, QueueLimits(), Random(1)) as queue:
        def send(session_id, seq):
            cid = f"{life}.{seq}"
            def acked(outcome):
                assert outcome == Stored(seq), outcome
                os.write(1, f"{session_id} {seq} {cid}\\n".encode())
                send(session_id, seq + 1)
            record = Record(session_id, seq, cid, "user", "message", b"{}", 1.0, Status.STORED)
            queue.put(Write(session_id, record), acked)
        for session in await store.sessions():
            send(session.id, session.last_seq + 1)
        await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


async def test_every_ack_printed_before_a_kill_is_stored_once_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "messages.db"
    names = [f"s{number}" for number in range(SESSIONS)]
    async with SqliteStore(path) as store:
        for name in names:
            await store.create(Session(name, "ann", 1.0))
    rng = Random(4)
    acks: list[tuple[str, int, str]] = []
    for life in range(KILLS):
        acks += await asyncio.to_thread(_live_and_die, path, life, rng.randint(1, 300))
    assert len(acks) >= KILLS
    async with SqliteStore(path) as store:
        for name in names:
            stored = await store.messages(name, limit=10**9)
            assert [record.seq for record in stored] == list(range(1, len(stored) + 1))
            assert len({record.cid for record in stored}) == len(stored)
            where = {record.cid: record.seq for record in stored}
            for _, seq, cid in (ack for ack in acks if ack[0] == name):
                assert where[cid] == seq


def _live_and_die(path: Path, life: int, after_acks: int) -> list[tuple[str, int, str]]:
    """Start a writer, kill it when it has printed so many acks, and return all whole lines it printed."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(life)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(after_acks)]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.readlines()
    assert writer.returncode == -signal.SIGKILL
    whole = [line.decode().split() for line in lines if line.endswith(b"\n")]
    return [(session_id, int(seq), cid) for session_id, seq, cid in whole]
