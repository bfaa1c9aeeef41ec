"""The checker: compares the clients' promises, history and the agent's real input. Pure.

The agent's own notes are the truth about its input and output; a client's acks are the truth about the promises.
`judge` looks for every way in which history could contradict either.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.participant import Participant

REJECTED = "rejected"  # the type of the marker in place of a record that the store refused


@dataclass
class Evidence:
    """The notes that one session's agent left in its workspace."""

    heard: list[dict[str, Any]]
    said: dict[str, list[dict[str, Any]]]  # run -> its output

    @classmethod
    def of(cls, workspace: Path) -> "Evidence":
        heard = workspace / "heard.log"
        lines = heard.read_text().splitlines() if heard.exists() else []
        said = {
            path.stem.removeprefix("said-"): [json.loads(line) for line in path.read_text().splitlines()]
            for path in workspace.glob("said-*.log")
        }
        return cls([json.loads(line) for line in lines], said)

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [note for note in self.heard if note["type"] == "message"]


@dataclass
class Verdict:
    cases: int = 0
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    interrupted: int = 0
    expired: int = 0
    refused: int = 0
    recovered: list[bool] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        return [*self.lost, *self.duplicated, *self.reordered, *self.wrong]

    def line(self, name: str, seed: int, **more: object) -> str:
        further = "".join(f", {key}={value}" for key, value in more.items())
        return (
            f"{name}: {self.cases} cases, {len(self.lost)} lost, {len(self.duplicated)} dup, "
            f"{len(self.reordered)} reorder, {self.interrupted} interrupted, {self.expired} expired, "
            f"{self.refused} refused, resumed {sum(self.recovered)}/{len(self.recovered)}{further}, seed={seed}"
        )


def answered(history: Sequence[dict[str, Any]]) -> list[str]:
    """The cids that have a finished answer in history, in its order."""
    return [
        record["metadata"]["answers"]
        for record in history
        if record["role"] == "assistant" and record["status"] == "complete"
    ]


def unsettled(history: Sequence[dict[str, Any]]) -> list[str]:
    """Messages about which history has not said its last word."""
    done = set(answered(history))
    return [
        record["cid"]
        for record in history
        if record["role"] == "user"
        and record["type"] != REJECTED
        and (record["status"] == "stored" or (record["status"] == "delivered" and record["cid"] not in done))
    ]


def judge(
    session_id: str,
    history: Sequence[dict[str, Any]],
    evidence: Evidence,
    participants: Sequence[Participant],
    verdict: Verdict,
) -> None:
    """Add the problems of one session to `verdict`."""
    _judge_history(session_id, history, participants, verdict)
    _judge_agent(session_id, history, evidence, verdict)
    for participant in participants:
        verdict.wrong += participant.violations
        verdict.recovered += participant.recovered
        _judge_view(participant, evidence, verdict)


def _judge_history(
    session_id: str, history: Sequence[dict[str, Any]], participants: Sequence[Participant], verdict: Verdict
) -> None:
    if [record["seq"] for record in history] != list(range(1, len(history) + 1)):
        verdict.wrong.append(f"{session_id}: seq has gaps: {[record['seq'] for record in history]}")
    users = [record for record in history if record["role"] == "user" and record["type"] != REJECTED]
    places: dict[str, int] = {}
    for record in users:
        if record["type"] == "duplicate" or places.setdefault(record["cid"], record["seq"]) != record["seq"]:
            verdict.duplicated.append(f"{session_id}: {record['cid']} is in history twice")
        if record["content"] != record["cid"]:
            verdict.wrong.append(f"{session_id}: content of {record['cid']} is {record['content']!r}")
    for participant in participants:
        verdict.cases += participant.settled
        verdict.refused += len(participant.refused)
        for cid, seq in participant.acked.items():
            if places.get(cid) != seq:
                verdict.lost.append(f"{session_id}: {cid} was acked as {seq}, history has {places.get(cid)}")
        for cid in participant.refused.keys() & places.keys():
            if participant.sent[cid] == 1:
                verdict.wrong.append(f"{session_id}: {cid} was refused and is in history")
        mine = [cid for cid in places if cid.startswith(f"{participant.name}-")]
        if mine != sorted(mine, key=lambda cid: int(cid.rpartition("-")[2])):
            verdict.reordered.append(f"{session_id}: the messages of {participant.name}: {mine}")
    verdict.interrupted += sum(record["status"] == "interrupted" for record in users)
    verdict.expired += sum(record["status"] == "expired" for record in users)


def _judge_agent(session_id: str, history: Sequence[dict[str, Any]], evidence: Evidence, verdict: Verdict) -> None:
    got = [note["cid"] for note in evidence.messages]
    seqs = [note["seq"] for note in evidence.messages]
    if len(set(got)) != len(got):
        verdict.duplicated.append(f"{session_id}: the agent got a message twice: {got}")
    if seqs != sorted(seqs):
        verdict.reordered.append(f"{session_id}: the agent got {seqs}")
    done = answered(history)
    if len(set(done)) != len(done):
        verdict.duplicated.append(f"{session_id}: an answer is stored twice: {done}")
    # The agent may have got an accepted message before the store refused it: a marker has its place.
    numbers = {
        record["metadata"]["cid"] if record["type"] == REJECTED else record["cid"]: record["seq"]
        for record in history
        if record["role"] == "user"
    }
    for note in evidence.messages:
        if numbers.get(note["cid"]) != note["seq"]:
            verdict.wrong.append(f"{session_id}: the agent got {note}, history has {numbers.get(note['cid'])}")
    finished = set(done)
    for record in history:
        if record["role"] == "assistant" and record["status"] == "complete":
            cid = record["metadata"]["answers"]
            if record["content"] != "".join(f"{cid}/{part};" for part in range(3)):
                verdict.wrong.append(f"{session_id}: the answer to {cid} is {record['content']!r}")
        if record["role"] != "user" or record["type"] == REJECTED:
            continue
        cid, status = record["cid"], record["status"]
        if (status == "delivered") != (cid in finished):
            verdict.wrong.append(f"{session_id}: {cid} is {status}, its answer is {cid in finished}")
        if status not in ("delivered", "interrupted", "expired"):
            verdict.wrong.append(f"{session_id}: {cid} ended as {status}")
        if status == "delivered" and cid not in got:
            verdict.wrong.append(f"{session_id}: {cid} is delivered and the agent never got it")
        if status == "expired" and cid in got:
            verdict.wrong.append(f"{session_id}: {cid} is expired and the agent got it")


def _judge_view(participant: Participant, evidence: Evidence, verdict: Verdict) -> None:
    """Every seen frame is the agent's output at that place; one epoch is one run."""
    for epoch, frames in participant.output.items():
        runs = {frame["run"] for frame in frames.values()}
        if len(runs) != 1:
            verdict.wrong.append(f"{participant.name}: epoch {epoch} shows runs {runs}")
            continue
        truth = evidence.said.get(runs.pop(), [])
        for offset, frame in frames.items():
            wrote = truth[offset - 1] if offset <= len(truth) else None
            shown = {key: value for key, value in frame.items() if key not in ("messageId", "seq")}
            if shown != wrote:
                verdict.wrong.append(f"{participant.name}: frame {offset} of {epoch} is {shown}, written was {wrote}")
