"""A batch of writes in SQLite: one transaction on the writer's thread.

The thread remembers the last state of sessions (`heads.py`), so a batch for sessions that wrote before needs no
query. That is safe: one process writes the file, all its changes happen on this thread, and every change outside a
batch calls `forget`. If a second connection has changed the file all the same, SQLite reports it (`data_version`),
inside the transaction in which nobody else can write: then everything is forgotten.
"""

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence

from persistence import crash_points
from persistence.commit_plan import Head, Plan, plan, questions
from persistence.heads import Remembered, RememberedHeads
from persistence.record import Record, Write
from persistence.sqlite.file import transaction

HEADS = "SELECT id, no, last_seq, delivered, fence FROM sessions WHERE id IN (SELECT value FROM json_each(?))"
KNOWN = "SELECT seq FROM messages WHERE session_no = ? AND cid = ?"
INSERT = "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
MARK = "UPDATE messages SET status = ? WHERE session_no = ? AND seq = ?"
HEAD = "UPDATE sessions SET last_seq = ?, delivered = ?, stored_bytes = stored_bytes + ? WHERE no = ?"
HEAD_AND_STATE = HEAD.replace(" WHERE", ", state = ? WHERE")  # both at once: two writes of a row cost twice
SPEC = "UPDATE sessions SET spec = ? WHERE no = ?"
CHECKPOINT = "INSERT INTO checkpoints VALUES (?, ?) ON CONFLICT (session_no) DO UPDATE SET body = excluded.body"
BURY = """INSERT INTO dead_letters (session_no, seq, cid, role, type, payload, created_at, status, reason, buried_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


class Batches:
    """All batches of one file; used on its writer's thread only."""

    def __init__(self) -> None:
        self._heads = RememberedHeads()
        self._version = -1  # of the file; changes of another connection move it

    def forget(self, session_id: str) -> None:
        """The session changes outside a batch."""
        self._heads.forget(session_id)

    def commit(self, db: sqlite3.Connection, writes: Sequence[Write]) -> Plan:
        # A query for every cid costs as much as storing it. So the unique index is the query, and only a batch that
        # collides is queried and done again.
        try:
            decided, left = transaction(db, lambda db: self._plan_and_perform(db, writes, trusting=True))
        except sqlite3.IntegrityError:
            decided, left = transaction(db, lambda db: self._plan_and_perform(db, writes, trusting=False))
        self._heads.learn(left)
        return decided

    def _plan_and_perform(
        self, db: sqlite3.Connection, writes: Sequence[Write], *, trusting: bool
    ) -> tuple[Plan, dict[str, Remembered]]:
        """The outcomes, and the sessions' new state. `trusting`: assume that a new seq has a new cid; raises
        IntegrityError if not."""
        sessions = self._sessions(db, {write.session_id for write in writes})
        heads = {session_id: known.head for session_id, known in sessions.items()}
        cids: dict[tuple[str, str], int] = {}
        for session_id, cid in questions(writes, heads, retries_only=trusting):
            row = db.execute(KNOWN, (sessions[session_id].no, cid)).fetchone()
            if row is not None:
                cids[session_id, cid] = row[0]
        decided = plan(writes, heads, cids)
        _perform(db, decided, sessions)
        crash_points.reached("store.written")
        for session_id, head in decided.after.items():
            sessions[session_id].head = head
        return decided, sessions

    def _sessions(self, db: sqlite3.Connection, session_ids: set[str]) -> dict[str, Remembered]:
        """The existing ones among them. They are forgotten until the transaction is through."""
        (version,) = db.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._heads.forget_all()
        sessions = self._heads.take(session_ids)
        if len(sessions) < len(session_ids):
            asked = json.dumps(list(session_ids - sessions.keys()))
            for session_id, no, last_seq, delivered, fence in db.execute(HEADS, (asked,)):
                sessions[session_id] = Remembered(no, Head(last_seq, delivered, fence))
        return sessions


def _perform(db: sqlite3.Connection, decided: Plan, sessions: Mapping[str, Remembered]) -> None:
    # str(): the driver takes a slow road for a subclass such as Status
    rows = [
        (sessions[r.session_id].no, r.seq, r.cid, r.role, r.type, r.payload, r.created_at, str(r.status))
        for r in decided.rows
    ]
    if rows:
        db.executemany(INSERT, rows)
    if decided.marks:
        db.executemany(MARK, [(str(status), sessions[session_id].no, seq) for status, session_id, seq in decided.marks])
    grown, states, after = decided.grown, decided.states, decided.after
    if heads := [
        (head.last_seq, head.delivered, grown.get(session_id, 0), sessions[session_id].no)
        for session_id, head in decided.heads.items()
        if session_id not in states
    ]:
        db.executemany(HEAD, heads)
    if states:
        both = [
            (after[key].last_seq, after[key].delivered, grown.get(key, 0), state, sessions[key].no)
            for key, state in states.items()
        ]
        db.executemany(HEAD_AND_STATE, both)
    if decided.specs:
        db.executemany(SPEC, [(spec, sessions[session_id].no) for session_id, spec in decided.specs.items()])
    if decided.checkpoints:
        kept = [(sessions[session_id].no, body) for session_id, body in decided.checkpoints.items() if body]
        removed = [(sessions[session_id].no,) for session_id, body in decided.checkpoints.items() if not body]
        db.executemany(CHECKPOINT, kept)
        db.executemany("DELETE FROM checkpoints WHERE session_no = ?", removed)
    for record, reason in decided.dead:
        bury(db, sessions[record.session_id].no, record, reason)


def bury(db: sqlite3.Connection, session_no: int, record: Record, reason: str) -> None:
    values = (record.seq, record.cid, record.role, record.type, record.payload, record.created_at, str(record.status))
    db.execute(BURY, (session_no, *values, reason, time.time()))
