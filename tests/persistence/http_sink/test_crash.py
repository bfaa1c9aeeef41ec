"""kill -9 in the middle of posting: the service gets everything that was accepted, once per key, in order."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

from persistence.http_sink.store import HttpStore
from persistence.record import Session
from sandbox.client.http_client import connect_tcp
from tests.support.sink import TOKEN, Rule, SinkProcess
from tests.support.waiting import until

KILLS = 8
SESSIONS = 6

# Each life loads where the last one ended, sends as fast as it is accepted, and prints what was accepted and settled.
WRITER = """
import asyncio, os, sys
from pathlib import Path
from random import Random
from persistence.queue.backlog import QueueLimits
from persistence.queue.queue import PersistenceQueue
from persistence.record import Record, Spooled, Status, Stored, Write
from persistence.http_sink.store import HttpStore
from sandbox.client.http_client import connect_tcp

class Ear:
    def grown(self, session_id):
        pass
    def settled(self, session_id, seq, outcome):
        assert outcome == Stored(seq), outcome
        os.write(1, f"settled {session_id} {seq} -\\n".encode())

async def main(url, token, path, life):
    store = HttpStore(url, token, Path(path), connect_tcp, rng=Random(int(life)))
    store.heard = Ear()
    async with store, PersistenceQueue(store, QueueLimits(), Random(1)) as queue:
        def send(session_id, seq):
            cid = f"{life}.{seq}"
            def accepted(outcome):
                assert outcome == Spooled(seq, unique=True), outcome
                os.write(1, f"accepted {session_id} {seq} {cid}\\n".encode())
                send(session_id, seq + 1)
            record = Record(session_id, seq, cid, "user", "message", b'{"content":"x"}', 1.0, Status.STORED)
            queue.put(Write(session_id, record), accepted)
        for session in await store.sessions():
            send(session.id, session.last_seq + 1)
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_everything_accepted_before_a_kill_is_posted_once_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    names = [f"s{number}" for number in range(SESSIONS)]
    async with SinkProcess() as sink:
        async with HttpStore(sink.url, TOKEN, path, connect_tcp, rng=Random(1)) as store:
            for name in names:
                await store.create(Session(name, "ann", 1.0))
        rng = Random(4)
        told: list[list[str]] = []
        for life in range(KILLS):
            faults = [Rule(cut=True, keep=True, times=3), Rule(status=503, times=3), Rule(session="s0", status=503)]
            await sink.misbehave(*faults[life % 3 :])
            told += await asyncio.to_thread(_live_and_die, sink.url, path, life, rng.randint(20, 200))
        await sink.misbehave()
        async with HttpStore(sink.url, TOKEN, path, connect_tcp, rng=Random(1)) as store:
            await until(lambda: not store.stats()["waiting"], "all that was accepted before", 120)
            stored = {name: await store.messages(name, limit=10**9) for name in names}
        kept = {name: [e["message"] for e in await sink.kept() if e["session"] == name] for name in names}
        figures = await sink.figures()
    assert sum(what == "settled" for what, *_ in told) > KILLS
    assert figures["conflicts"] == []
    assert figures["repeats"] > 0  # or no reply was ever lost
    for name in names:
        assert [(m["seq"], m["cid"]) for m in kept[name]] == [(record.seq, record.cid) for record in stored[name]]
        assert [m["seq"] for m in kept[name]] == list(range(1, len(kept[name]) + 1))
    for _, name, seq, cid in (line for line in told if line[0] == "accepted"):
        assert kept[name][int(seq) - 1]["cid"] == cid


def _live_and_die(url: str, path: Path, life: int, after_lines: int) -> list[list[str]]:
    """Start a writer, kill it when it has printed so many lines, and return all whole lines it printed."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, url, TOKEN, str(path), str(life)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    ) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(after_lines)]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.readlines()
    assert writer.returncode == -signal.SIGKILL
    return [line.decode().split() for line in lines if line.endswith(b"\n")]
