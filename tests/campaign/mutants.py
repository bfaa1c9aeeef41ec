"""Deliberately broken gateways. Each patch replaces one behaviour of a real class by a classic mistake, in a gateway
process that the launcher has forked. The campaign must notice each of them, or nobody could trust it."""

import asyncio
import resource
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partialmethod
from typing import Any

from msgspec import structs

from gateway.config.settings import Settings
from gateway.server import viewer
from gateway.server.front_door import GuardLimits
from gateway.session import inbox
from gateway.session.conversation import sequence
from gateway.session.model import delivery_window
from gateway.session.sandbox.lifecycle import life
from gateway.session.sandbox.restart_policy import RestartPolicy
from persistence.commit_plan import Plan, plan
from persistence.errors import StoreUnavailable
from persistence.migrations import Migration, shipped
from persistence.postgres import batch as postgres_batch
from persistence.postgres import store as postgres
from persistence.queue import backlog
from persistence.record import Fenced, Outcome, Record, Stored, Write
from persistence.spool import drainer, spool
from persistence.spool.ports import SpoolRow
from persistence.sqlite import batch, file
from persistence.sqlite import store as sqlite
from sandbox.providers.container.engine import Engine

LATER_SECONDS = 0.05
SILENT_SECONDS = 5.0
FEW_WRITES = 6
FEW_RETRIES = 3


def put(owner: object, name: str, replacement: object) -> None:
    """Replace an attribute of a class or module, which must be there."""
    getattr(owner, name)
    setattr(owner, name, replacement)


def limit_files(size: int) -> None:
    """Past this size the system answers a write to any file with an error that is not "no space": a failing disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _as_if_stored(writes: Sequence[Write]) -> list[Outcome]:
    return [Stored(write.append.seq if write.append else 0) for write in writes]


# -- no mistakes: settings that make a fault quick
# --------------------------------------------------------------------


def impatient() -> None:
    """A locked database is noticed at once."""
    put(file, "BUSY_SECONDS", 0.02)


def forgiving() -> None:
    """A session that is killed again and again does not count as one that crashes in a loop."""
    put(life, "RestartPolicy", lambda _, window: RestartPolicy(1000, window))


def hasty() -> None:
    """A dead process is restarted at once, however often it died."""
    put(RestartPolicy, "pause", lambda *_: 0.0)


def impatient_with_engines() -> None:
    """A silent container engine is not waited for."""
    put(Engine, "__init__", partialmethod(Engine.__init__, timeout=SILENT_SECONDS))


def impatient_with_slow_viewers() -> None:
    """A viewer that takes nothing, or is silent, is closed after seconds, in the same order, and has all the time to
    read why. This holds for reading viewers, too, which may not run for a while on a busy machine."""
    make = GuardLimits.of

    def of(settings: Settings) -> GuardLimits:
        times = replace(make(settings), ping_after=9.0, dead_after=17.0, stall_seconds=20.0)
        return replace(times, sweep_seconds=0.25, close_seconds=60.0)

    put(GuardLimits, "of", of)


def impatient_guard() -> None:
    """A peer that is silent, takes nothing or does not answer a close is noticed within seconds."""
    limits = GuardLimits(ping_after=1.0, dead_after=6.0, stall_seconds=3.0, close_seconds=3.0, sweep_seconds=0.1)
    put(GuardLimits, "of", lambda settings: limits)


# -- mistakes in keeping ----------------------------------------------------------------------------------------------


def ack_before_commit() -> None:
    """Senders get `stored` when the batch is taken; it is written a moment later."""
    commit = sqlite.SqliteStore.commit
    line: dict[sqlite.SqliteStore, asyncio.Task[None]] = {}

    async def commit_later(self: sqlite.SqliteStore, writes: Sequence[Write]) -> list[Outcome]:
        before = line.get(self)

        async def work() -> None:
            if before is not None:
                await before
            await asyncio.sleep(LATER_SECONDS)
            await commit(self, writes)

        line[self] = asyncio.create_task(work(), name="later")
        return _as_if_stored(writes)

    put(sqlite.SqliteStore, "commit", commit_later)


def no_unique_cid() -> None:
    """Nothing checks whether a cid is known: not the session, not the store, not its index."""

    def without_index(database: str) -> list[Migration]:
        return [
            structs.replace(each, sql=each.sql.replace(",\n    UNIQUE (session_no, cid)", ""))
            for each in shipped(database)
        ]

    put(file, "shipped", without_index)
    put(batch, "questions", lambda *_, **__: set())
    put(sequence.MessageSequence, "seq_of", lambda *_: None)


def drop_after_three_retries() -> None:
    """A batch that failed three times is dropped, and nobody is told."""
    commit = sqlite.SqliteStore.commit
    failures = 0

    async def commit_or_give_up(self: sqlite.SqliteStore, writes: Sequence[Write]) -> list[Outcome]:
        nonlocal failures
        try:
            outcomes = await commit(self, writes)
        except StoreUnavailable:
            failures += 1
            if failures < FEW_RETRIES:
                raise
            outcomes = _as_if_stored(writes)
        failures = 0
        return outcomes

    put(sqlite.SqliteStore, "commit", commit_or_give_up)


def drop_oldest() -> None:
    """A full queue makes room by dropping the oldest writes."""
    offer = backlog.WriteBacklog.offer

    def make_room(self: Any, write: Write, then: backlog.Then | None, *, now: float, refusable: bool) -> bool:
        appends = [entry for entry in self._waiting if entry.write.append is not None]
        if write.append is not None and len(appends) >= FEW_WRITES:
            self._waiting.remove(appends[0])
            self.bytes -= appends[0].size
            if self._last.get(appends[0].write.session_id) is appends[0]:
                del self._last[appends[0].write.session_id]
            if appends[0].then is not None:
                appends[0].then(Stored(appends[0].write.append.seq))
        return offer(self, write, then, now=now, refusable=refusable)

    put(backlog.WriteBacklog, "offer", make_room)


def synchronous_off() -> None:
    """COMMIT returns before the bytes are on the disk."""
    open_writer = file.SqliteFile._open_writer

    def open_carelessly(self: file.SqliteFile) -> sqlite3.Connection:
        db = open_writer(self)
        db.execute("PRAGMA synchronous = OFF")
        return db

    put(file.SqliteFile, "_open_writer", open_carelessly)


# -- mistakes in a session --------------------------------------------------------------------------------------------


def deliver_before_durable() -> None:
    """The agent gets messages before they are stored."""
    admit = delivery_window.DeliveryWindow.admit

    def admit_as_durable(self: delivery_window.DeliveryWindow, entry: delivery_window.WindowEntry) -> None:
        entry.durable = True
        admit(self, entry)

    put(delivery_window.DeliveryWindow, "admit", admit_as_durable)


def newest_first() -> None:
    """A session handles the frames of one moment in reverse order."""
    hear = inbox.Inbox.hear
    waiting: dict[inbox.Inbox, list[tuple[Any, ...]]] = {}

    def hear_the_last_first(self: inbox.Inbox) -> None:
        for heard in reversed(waiting.pop(self)):
            hear(self, *heard)

    def hear_later(self: inbox.Inbox, *heard: Any) -> None:
        if self not in waiting:
            waiting[self] = []
            asyncio.get_running_loop().call_later(LATER_SECONDS, hear_the_last_first, self)
        waiting[self].append(heard)

    put(inbox.Inbox, "hear", hear_later)


def expire_silently() -> None:
    """A message that expired in the window is dropped in silence."""
    expire = delivery_window.DeliveryWindow.expire

    def expire_and_forget(self: delivery_window.DeliveryWindow, now: float) -> list[delivery_window.WindowEntry]:
        expire(self, now)
        return []

    put(delivery_window.DeliveryWindow, "expire", expire_and_forget)


def swallow_nacks() -> None:
    """Refusals are not sent."""
    send = viewer.Viewer.send

    def send_good_news(self: viewer.Viewer, payload: bytes) -> None:
        if not payload.startswith(b'{"type":"nack"'):
            send(self, payload)

    put(viewer.Viewer, "send", send_good_news)


def one_cid_for_all_sessions() -> None:
    """A cid of any session counts as a resend in all of them."""
    enter, everywhere = sequence.MessageSequence.enter, dict[str, int]()

    def enter_everywhere(self: sequence.MessageSequence, cid: str) -> int:
        everywhere[cid] = enter(self, cid)
        return everywhere[cid]

    by_cid = sqlite.SqliteStore.by_cid

    async def by_cid_alone(self: sqlite.SqliteStore, session_id: str, cid: str) -> Record | None:
        others = [session.id for session in await self.sessions() if session.id != session_id]
        found = [await by_cid(self, each, cid) for each in (session_id, *others)]
        return next(filter(None, found), None)

    put(sequence.MessageSequence, "enter", enter_everywhere)
    put(sequence.MessageSequence, "seq_of", lambda self, cid: self._cids.get(cid) or everywhere.get(cid))
    put(sqlite.SqliteStore, "by_cid", by_cid_alone)


# -- mistakes before and in PostgreSQL --------------------------------------------------------------------------------


def spool_rows_removed_first() -> None:
    """A row leaves the spool when the store gets it, not when the store has stored it."""
    first = spool.Spool.first

    async def take(self: spool.Spool, *arguments: Any, **named: Any) -> list[SpoolRow]:
        rows = await first(self, *arguments, **named)
        await self.remove([row.no for row in rows])
        return rows

    put(spool.Spool, "first", take)


def replay_skipped() -> None:
    """Rows that an earlier process left in the spool are dropped at the start."""
    recall = spool.Spool._recall

    async def start_afresh(self: spool.Spool) -> None:
        await recall(self)
        for session_id in list(self.tails.by_session):
            await self.forget(session_id)

    put(spool.Spool, "_recall", start_afresh)


def settled_too_early() -> None:
    """Spooled writes are reported as stored."""
    accept = drainer.Drainer.accept

    def accept_and_tell(self: drainer.Drainer, rows: Sequence[SpoolRow]) -> None:
        accept(self, rows)
        for record in (row.write.append for row in rows):
            if record is not None:
                self._tell(record, Stored(record.seq))

    put(drainer.Drainer, "accept", accept_and_tell)


def retried_as_new() -> None:
    """A batch whose reply was lost is stored once more, as if it were another."""
    commit, failed = postgres.PostgresStore.commit, set[str]()

    async def commit_again(self: postgres.PostgresStore, writes: Sequence[Write]) -> list[Outcome]:
        anew = [await renewed(self, write) for write in writes]
        try:
            outcomes = await commit(self, anew)
        except StoreUnavailable:
            failed.update(write.append.cid for write in writes if write.append)
            raise
        return [
            Stored(write.append.seq) if write.append and write.append.cid in failed else outcome
            for write, outcome in zip(writes, outcomes, strict=True)
        ]

    async def renewed(self: postgres.PostgresStore, write: Write) -> Write:
        if write.append is None or write.append.cid not in failed:
            return write
        session = await self.find(write.session_id)
        seq = session.last_seq + 1 if session else 0
        return structs.replace(write, append=structs.replace(write.append, seq=seq, cid=f"again-{write.append.cid}"))

    put(postgres.PostgresStore, "commit", commit_again)


def _on_plans(change: Callable[[Plan], None]) -> None:
    def changed(*arguments: Any) -> Plan:
        decided = plan(*arguments)
        change(decided)
        return decided

    put(postgres_batch, "plan", changed)


def dead_without_marker() -> None:
    """A record that the database refuses leaves a hole."""

    def leave_a_hole(decided: Plan) -> None:
        decided.rows = [row for row in decided.rows if row.type != "rejected"]

    _on_plans(leave_a_hole)


def dead_thrown_away() -> None:
    """A record that the database refuses vanishes."""
    _on_plans(lambda decided: decided.dead.clear())


def fence_checked_before() -> None:
    """The fence is checked, and the write follows a moment later."""
    commit = postgres.PostgresStore.commit

    async def look_then_commit(self: postgres.PostgresStore, writes: Sequence[Write]) -> list[Outcome]:
        fenced = []
        async with self._connections.pooled("fence") as connection:
            for write in writes:
                fence = await connection.fetchval("SELECT fence FROM sessions WHERE id = $1", write.session_id)
                fenced.append(write.fence is not None and write.fence != fence)
        await asyncio.sleep(LATER_SECONDS)
        passed = [structs.replace(write, fence=None) for write, stale in zip(writes, fenced, strict=True) if not stale]
        outcomes = iter(await commit(self, passed))
        return [Fenced() if stale else next(outcomes) for stale in fenced]

    believing = postgres_batch.PARTS["stepped"].replace("AND s.fence = x.was_fence", "")
    assert believing != postgres_batch.PARTS["stepped"]
    postgres_batch.PARTS["stepped"] = believing
    put(postgres.PostgresStore, "commit", look_then_commit)


PATCHES: dict[str, Callable[[], None]] = {
    patch.__name__: patch
    for patch in (
        impatient,
        forgiving,
        hasty,
        impatient_with_engines,
        impatient_with_slow_viewers,
        impatient_guard,
        ack_before_commit,
        no_unique_cid,
        drop_after_three_retries,
        drop_oldest,
        synchronous_off,
        deliver_before_durable,
        newest_first,
        expire_silently,
        swallow_nacks,
        one_cid_for_all_sessions,
        spool_rows_removed_first,
        replay_skipped,
        settled_too_early,
        retried_as_new,
        dead_without_marker,
        dead_thrown_away,
        fence_checked_before,
    )
}
