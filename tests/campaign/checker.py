"""The judge of a campaign: a separate process, written from the promises alone. It imports none of our code.

The promises (README, docs/protocol/): every send ends in an ack, a nack or an `expired`; an acknowledged message,
also an `accepted` one, is stored once, unchanged, at the seq of its ack; a session's `seq` has no gap; each sender's
messages are in the order it first sent them; no ack says `stored` before the store has the record; a known `cid` sent
again is answered with its first `seq`.

It knows the campaign's journal, and reads history in three ways: through the internal API, straight from the
database, and as a second client that resends acknowledged messages. `python -m tests.campaign.checker CASE.json`
prints one line of counts, then one line for each problem; the exit code is 1 if there is any, and 2 if it could not
judge.
"""

import asyncio
import json
import sqlite3
import sys
import traceback
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import asyncpg
import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, WebSocketException

KINDS = ("lost", "duplicate", "reordered", "gap", "phantom", "corrupted", "silent", "early")
OWNER_MOVED = 4409
ACKS = ("accepted", "stored")
MARKERS = ("duplicate", "rejected")
SENT_AGAIN = 8  # oldest and newest of each session
REMEMBERED = 10_000  # cids that are answered without a trace; an older one leaves a marker
ROWS = """SELECT s.id, m.seq, m.cid, m.role, m.type, m.created_at, m.payload
    FROM messages m JOIN sessions s ON s.no = m.session_no ORDER BY s.id, m.seq"""
LETTERS = "SELECT s.id, d.seq, d.cid FROM dead_letters d JOIN sessions s ON s.no = d.session_no"


@dataclass(frozen=True, slots=True)
class Row:
    """One record, however it was read."""

    seq: int
    cid: str
    role: str
    type: str
    content: Any
    metadata: Any
    created_at: float = field(default=0.0, compare=False)


@dataclass
class Sent:
    """What one sender knows of one message."""

    sender: str
    sha256: str
    times: int = 0
    last: float = 0.0  # when it was last sent
    seqs: set[int] = field(default_factory=set)
    stages: list[str] = field(default_factory=list)
    nacks: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    during: int = 0  # which of the store's absences it was first sent in; 0 if in none

    @property
    def promised(self) -> bool:
        return bool(self.stages) and "rejected" not in self.nacks

    @property
    def answered(self) -> bool:
        return "stored" in self.stages or bool(self.nacks)


@dataclass
class Findings:
    problems: list[tuple[str, str]] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    stored: int = 0
    nacked: int = 0

    def add(self, kind: str, what: str) -> None:
        self.problems.append((kind, what))

    def line(self, name: str, seed: int) -> str:
        counts = Counter(kind for kind, _ in self.problems)
        kinds = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS)
        reached = ", ".join(f"{what} {times}" for what, times in sorted(self.reached.items()))
        return (
            f"{name}: {self.sent} sent, {self.stored} stored, {self.nacked} nacked: {kinds}; "
            f"reached: {reached}; replay: HOLDFAST_TEST_SEED={seed}"
        )


# -- the journal ------------------------------------------------------------------------------------------------------


def read_journal(lines: list[dict[str, Any]], findings: Findings) -> dict[str, dict[str, Sent]]:
    """The sends and answers of each session's senders, in the order of the first send."""
    sessions: dict[str, dict[str, Sent]] = {}
    absences, away = 0, 0  # how many there were; which one this is, or 0
    for line in lines:
        event = line["event"]
        if event == "fault":
            findings.reached[line["kind"]] += 1
            absences += line["kind"] == "store away"
            away = {"store away": absences, "store back": 0}.get(line["kind"], away)
            continue
        said = sessions.setdefault(line["session"], {})
        if event == "invoke":
            sent = said.setdefault(line["cid"], Sent(line["sender"], line["sha256"]))
            sent.times += 1
            sent.last = line["at"]
            sent.during = away if sent.times == 1 else sent.during
            findings.reached["resent"] += sent.times == 2
            continue
        if line["cid"] not in said:
            findings.add("phantom", f"{line['session']}: {event} for {line['cid']}, which nobody sent")
            continue
        _hear(said[line["cid"]], line, away, findings)
    return sessions


def _hear(sent: Sent, line: dict[str, Any], away: int, findings: Findings) -> None:
    event = line["event"]
    if event in ACKS:
        findings.reached["stored after accepted"] += event == "stored" and "accepted" in sent.stages
        findings.reached["accepted"] += event == "accepted" and not sent.stages
        sent.stages.append(event)
        sent.seqs.add(line["seq"])
        if event == "stored" and away and sent.during == away:
            findings.add("early", f"{line['session']}: {line['cid']} was told `stored` while the store was away")
    elif event == "nack":
        findings.reached[f"nack {line['reason']}"] += 1
        sent.nacks.append(line["reason"])
    else:
        findings.reached[event] += 1
        sent.ended.add(event)


# -- the three ways to read -------------------------------------------------------------------------------------------


async def through_the_api(case: dict[str, Any], session_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    headers = {"X-Service-Token": case["internal_token"]}
    async with httpx.AsyncClient(base_url=case["url"], headers=headers, timeout=30, trust_env=False) as client:
        while True:
            query = {"after": found[-1]["seq"] if found else 0, "limit": 500}
            answer = await client.get(f"/internal/sessions/{session_id}/messages", params=query)
            answer.raise_for_status()
            page = answer.json()["messages"]
            found += page
            if len(page) < 500:
                return found


async def from_the_database(store: str) -> tuple[dict[str, list[Row]], list[tuple[str, int, str]]]:
    """Every session's records, and the dead letters, as they lie there."""
    if store.startswith("sqlite:///"):
        with sqlite3.connect(f"file:{store.removeprefix('sqlite:///')}?mode=ro", uri=True) as db:
            rows, letters = db.execute(ROWS).fetchall(), db.execute(LETTERS).fetchall()
        db.close()
    else:
        connection = await asyncpg.connect(store)
        try:
            rows, letters = await connection.fetch(ROWS), await connection.fetch(LETTERS)
        finally:
            await connection.close()
    found: dict[str, list[Row]] = {}
    for session_id, seq, cid, role, type, created_at, payload in rows:
        body = json.loads(payload)
        row = Row(seq, cid, role, type, body.get("content"), body.get("metadata"), created_at)
        found.setdefault(session_id, []).append(row)
    return found, [(session_id, seq, cid) for session_id, seq, cid in letters]


async def as_a_second_client(
    case: dict[str, Any], session_id: str, said: dict[str, Sent], last_seq: int, findings: Findings
) -> None:
    """Connect, note the last number, and resend acknowledged messages: nothing may change. A gateway that has lost
    the session to another learns it at its first write and says so: then connect again, as the protocol demands."""
    acked = [cid for cid, sent in said.items() if "stored" in sent.stages]
    again = (acked[:SENT_AGAIN] if last_seq < REMEMBERED else []) + acked[SENT_AGAIN:][-SENT_AGAIN:]
    async with asyncio.timeout(60):
        problems = await _at_its_owner(case, session_id, {cid: said[cid] for cid in again}, last_seq, findings)
        if problems:
            # By a spool its first write may be one that the other has stored, at the same number: then it has learnt
            # nothing by it but that record.
            problems = await _at_its_owner(case, session_id, {cid: said[cid] for cid in again}, last_seq, findings)
    findings.problems += problems
    findings.reached["acked for a second client"] += len(again)


async def _at_its_owner(
    case: dict[str, Any], session_id: str, again: dict[str, Sent], last_seq: int, findings: Findings
) -> list[tuple[str, str]]:
    while (problems := await _visit(case, session_id, again, last_seq)) is None:
        findings.reached["owner moved"] += 1
    return problems


async def _visit(
    case: dict[str, Any], session_id: str, again: dict[str, Sent], last_seq: int
) -> list[tuple[str, str]] | None:
    """The problems found; None if another gateway has the session."""
    problems: list[tuple[str, str]] = []
    try:
        await _send_again(case, session_id, again, last_seq, problems)
    except ConnectionClosed as closed:
        if closed.rcvd is None or closed.rcvd.code != OWNER_MOVED:
            raise
        return None
    return problems


async def _send_again(
    case: dict[str, Any], session_id: str, again: dict[str, Sent], last_seq: int, problems: list[tuple[str, str]]
) -> None:
    url = case["url"].replace("http", "ws", 1) + f"/ws/v2?sessionId={session_id}"
    headers = {"Authorization": f"Bearer {case['token']}"}
    async with connect(url, additional_headers=headers, compression=None, proxy=None) as socket:
        welcome = json.loads(await socket.recv())
        if welcome["lastSeq"] != last_seq:
            problems.append(("gap", f"{session_id}: welcome says {welcome['lastSeq']}, history ends at {last_seq}"))
        for cid, sent in again.items():
            await socket.send(json.dumps({"type": "message", "cid": cid, "content": cid}))
            frame: dict[str, Any] = {}
            # `accepted` is not final: a gateway that has lost the session takes it on its own disk, and is refused
            # later.
            while frame.get("cid") != cid or (frame["type"] != "nack" and frame.get("stage") != "stored"):
                frame = json.loads(await socket.recv())
                if frame["type"] == "record" and frame["record"]["role"] == "user":
                    problems.append(("duplicate", f"{session_id}: {cid}, sent again, became record {frame['seq']}"))
            if frame.get("reason") == "owner_moved":
                await socket.recv()  # the close comes next
            if {frame.get("seq")} != sent.seqs:
                problems.append(("duplicate", f"{session_id}: {cid} was {sent.seqs}, sent again it is {frame}"))


# -- the judgement ----------------------------------------------------------------------------------------------------


def judge(session_id: str, said: dict[str, Sent], rows: list[Row], buried: set[str], findings: Findings) -> None:
    """Compare history with the senders' answers."""
    if [row.seq for row in rows] != list(range(1, len(rows) + 1)):
        findings.add("gap", f"{session_id}: {_holes([row.seq for row in rows])}")
    places: dict[str, Row] = {}
    for row in rows:
        if row.type == "duplicate" or row.cid in places:
            findings.add("duplicate", f"{session_id}: {row}")
        if row.type in MARKERS:
            findings.reached[f"{row.type} marker"] += 1
            continue
        places.setdefault(row.cid, row)
        if row.role != "user":
            continue
        sent = said.get(row.cid)
        if sent is None or (sent.times == 1 and sent.nacks and not sent.stages):
            findings.add("phantom", f"{session_id}: {row}, of which the senders say {sent}")
        elif sha256(str(row.content).encode()).hexdigest() != sent.sha256:
            findings.add("corrupted", f"{session_id}: {row}")
    rejected = {row.metadata["cid"]: row.seq for row in rows if row.type == "rejected"}
    for cid, sent in said.items():
        _judge_one(session_id, cid, sent, places.get(cid), rejected.get(cid), cid in buried, findings)
    for sender in {sent.sender for sent in said.values()}:
        first_sent = [cid for cid, sent in said.items() if sent.sender == sender and cid in places]
        if first_sent != (stored := sorted(first_sent, key=lambda cid: places[cid].seq)):
            findings.add("reordered", f"{session_id}: {sender} sent {first_sent[:50]}, stored is {stored[:50]}")


def _judge_one(
    session_id: str, cid: str, sent: Sent, row: Row | None, marker: int | None, buried: bool, findings: Findings
) -> None:
    findings.sent += 1
    # The resend came after the record was made: its first ack was lost on the way.
    findings.reached["ack lost"] += row is not None and sent.times > 1 and row.created_at < sent.last
    findings.stored += row is not None
    findings.nacked += bool(sent.nacks)
    if not sent.answered:
        findings.add("silent", f"{session_id}: {cid} of {sent.sender}: {sent}")
    if sent.promised and (row is None or sent.seqs != {row.seq}):
        findings.add("lost", f"{session_id}: {cid} was acknowledged as {sent.seqs}, history has {row}")
    if "rejected" in sent.nacks:
        findings.reached["dead letter"] += buried
        if not buried or (sent.seqs and sent.seqs != {marker}):
            findings.add("lost", f"{session_id}: {cid} was rejected: dead letter {buried}, marker {marker}, {sent}")


def _holes(seqs: list[int]) -> str:
    expected = set(range(1, max(seqs, default=0) + 1))
    return f"{len(seqs)} records, missing {sorted(expected - set(seqs))[:20]}, ends at {max(seqs, default=0)}"


def compare(session_id: str, api: list[dict[str, Any]], rows: list[Row], findings: Findings) -> None:
    """The API and the database must agree."""
    shown = [Row(m["seq"], m["cid"], m["role"], m["type"], m["content"], m["metadata"] or None) for m in api]
    lying = [Row(r.seq, r.cid, r.role, r.type, r.content, r.metadata or None) for r in rows]
    for one, other in zip(shown, lying, strict=False):
        if one != other:
            findings.add("corrupted", f"{session_id}: the API says {one}, the database {other}")
            return
    if len(shown) != len(lying):
        findings.add("corrupted", f"{session_id}: the API has {len(shown)} records, the database {len(lying)}")


async def check(case: dict[str, Any]) -> Findings:
    findings = Findings()
    lines = [json.loads(line) for line in Path(case["journal"]).read_text().splitlines()]
    sessions = read_journal(lines, findings)
    stored, letters = await from_the_database(case["store"])
    for session_id, said in sessions.items():
        rows = stored.get(session_id, [])
        buried = {cid for owner, _, cid in letters if owner == session_id}
        judge(session_id, said, rows, buried, findings)
        if case.get("url"):
            try:
                compare(session_id, await through_the_api(case, session_id), rows, findings)
                await as_a_second_client(case, session_id, said, len(rows), findings)
            except (httpx.HTTPStatusError, WebSocketException, TimeoutError) as refusal:
                findings.add("lost", f"{session_id}: the gateway does not show it: {refusal!r}")
    return findings


def main(case: dict[str, Any]) -> int:
    findings = asyncio.run(check(case))
    sys.stdout.write(findings.line(case["name"], case["seed"]) + "\n")
    for kind, what in findings.problems:
        sys.stdout.write(f"{kind}: {what[:2000]}\n")
    return 1 if findings.problems else 0


if __name__ == "__main__":
    try:
        code = main(json.loads(Path(sys.argv[1]).read_text()))
    except Exception:
        traceback.print_exc()
        code = 2
    sys.exit(code)
