"""The checker can fail: each kind of broken promise is found, an honest campaign is not accused, and it knows nothing
of the code it judges."""

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.campaign import checker
from tests.campaign.checker import Findings, Row, compare, judge, main, read_journal
from tests.campaign.journal import Journal, digest


class Case:
    """Two senders in one session: three messages stored, one refused, one accepted and then dead."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.rows: list[Row] = []
        for cid in ("a-1", "b-1", "a-2"):
            self.say("invoke", cid, sha256=digest(cid))
            self.rows.append(Row(len(self.rows) + 1, cid, "user", "message", cid, None))
            self.say("stored", cid, seq=len(self.rows))
        self.say("invoke", "a-3", sha256=digest("a-3"))
        self.say("nack", "a-3", reason="busy")
        self.say("invoke", "b-2", sha256=digest("b-2"))
        self.say("accepted", "b-2", seq=4)
        self.say("nack", "b-2", reason="rejected")
        self.rows.append(Row(4, "rejected:4", "user", "rejected", None, {"cid": "b-2"}))
        self.rows.append(Row(5, "agent:1", "assistant", "message", "yes", None))
        self.buried = {"b-2"}

    def say(self, event: str, cid: str, **members: Any) -> None:
        self.lines.append({"at": 1.0, "event": event, "session": "s", "sender": cid[0], "cid": cid, **members})

    def fault(self, kind: str) -> None:
        self.lines.append({"at": 1.0, "event": "fault", "kind": kind})

    def judged(self) -> Findings:
        findings = Findings()
        judge("s", read_journal(self.lines, findings)["s"], self.rows, self.buried, findings)
        return findings


def test_an_honest_campaign_is_not_accused() -> None:
    findings = Case().judged()
    assert findings.problems == []
    assert (findings.sent, findings.stored, findings.nacked) == (5, 3, 2)
    assert "0 lost, 0 duplicate, 0 reordered, 0 gap, 0 phantom, 0 corrupted, 0 silent, 0 early" in findings.line("x", 7)
    assert findings.line("x", 7).endswith("replay: HOLDFAST_TEST_SEED=7")


def _lose(case: Case) -> None:
    case.rows[2] = replace(case.rows[2], cid="agent:0", role="assistant")


def _lose_accepted(case: Case) -> None:
    case.say("invoke", "b-3", sha256=digest("b-3"))
    case.say("accepted", "b-3", seq=6)
    case.say("nack", "b-3", reason="storage_unavailable")


def _move(case: Case) -> None:
    case.lines[1]["seq"] = 5


def _bury_nothing(case: Case) -> None:
    case.buried.clear()


def _store_twice(case: Case) -> None:
    case.rows.append(replace(case.rows[0], seq=6))


def _leave_a_marker(case: Case) -> None:
    case.rows.append(Row(6, "duplicate:6", "user", "duplicate", None, {"cid": "a-1"}))


def _swap(case: Case) -> None:
    first, third = case.rows[0], case.rows[2]
    case.rows[0], case.rows[2] = replace(third, seq=1), replace(first, seq=3)


def _leave_a_gap(case: Case) -> None:
    del case.rows[3]


def _invent(case: Case) -> None:
    case.rows.append(Row(6, "nobody-1", "user", "message", "nobody-1", None))


def _keep_what_was_refused(case: Case) -> None:
    case.rows.append(Row(6, "a-3", "user", "message", "a-3", None))


def _answer_what_was_not_sent(case: Case) -> None:
    case.say("stored", "nobody-1", seq=1)


def _change(case: Case) -> None:
    case.rows[1] = replace(case.rows[1], content="b-1 ")


def _say_nothing(case: Case) -> None:
    case.say("invoke", "a-4", sha256=digest("a-4"))


def _say_accepted_and_no_more(case: Case) -> None:
    case.say("invoke", "b-3", sha256=digest("b-3"))
    case.say("accepted", "b-3", seq=6)
    case.rows.append(Row(6, "b-3", "user", "message", "b-3", None))


def _say_stored_without_a_store(case: Case) -> None:
    case.fault("store away")
    case.say("invoke", "a-4", sha256=digest("a-4"))
    case.say("stored", "a-4", seq=6)
    case.fault("store back")
    case.rows.append(Row(6, "a-4", "user", "message", "a-4", None))


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        (_lose, "lost"),
        (_lose_accepted, "lost"),
        (_move, "lost"),
        (_bury_nothing, "lost"),
        (_store_twice, "duplicate"),
        (_leave_a_marker, "duplicate"),
        (_swap, "reordered"),
        (_leave_a_gap, "gap"),
        (_invent, "phantom"),
        (_keep_what_was_refused, "phantom"),
        (_answer_what_was_not_sent, "phantom"),
        (_change, "corrupted"),
        (_say_nothing, "silent"),
        (_say_accepted_and_no_more, "silent"),
        (_say_stored_without_a_store, "early"),
    ],
)
def test_every_broken_promise_is_found(harm: Callable[[Case], None], kind: str) -> None:
    case = Case()
    harm(case)
    assert kind in {found for found, _ in case.judged().problems}


def test_what_was_stored_before_the_next_outage_may_be_told_during_it() -> None:
    case = Case()
    case.fault("store away")
    case.say("invoke", "a-4", sha256=digest("a-4"))
    case.fault("store back")
    case.fault("store away")
    case.say("stored", "a-4", seq=6)
    case.rows.append(Row(6, "a-4", "user", "message", "a-4", None))
    assert case.judged().problems == []


def test_an_api_that_tells_another_story_than_the_database_is_found() -> None:
    rows = Case().rows
    told = [{"metadata": None} | {name: getattr(row, name) for name in Row.__slots__} for row in rows]
    for shown, problems in ((told, 0), (told[:-1], 1), ([*told[:-1], told[-1] | {"content": "no"}], 1)):
        findings = Findings()
        compare("s", shown, rows, findings)
        assert [kind for kind, _ in findings.problems] == ["corrupted"] * problems


def test_it_reads_a_journal_and_a_database_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(tmp_path / "journal")
    journal.note("invoke", session="s", sender="a", cid="a-1", sha256=digest("a-1"))
    journal.note("stored", session="s", sender="a", cid="a-1", seq=1)
    journal.close()
    _database(tmp_path / "empty.db", [])
    _database(tmp_path / "good.db", [(1, 1, "a-1", "user", "message", json.dumps({"content": "a-1"}), 1.0, "stored")])
    for name, code, said in (("good", 0, "0 lost"), ("empty", 1, "1 lost")):
        store = f"sqlite:///{tmp_path}/{name}.db"
        assert main({"name": name, "seed": 7, "journal": str(tmp_path / "journal"), "store": store}) == code
        assert said in capsys.readouterr().out


def _database(path: Path, messages: list[tuple[Any, ...]]) -> None:
    import sqlite3

    from persistence.migrations import shipped

    db = sqlite3.connect(path)
    for migration in shipped("sqlite"):
        db.executescript(migration.sql)
    db.execute("INSERT INTO sessions (id, user_id, created_at, spec, state) VALUES ('s', 'ada', 1.0, x'', x'')")
    columns = "session_no, seq, cid, role, type, payload, created_at, status"
    for message in messages:
        values = [value.encode() if place == 5 else value for place, value in enumerate(message)]
        db.execute(f"INSERT INTO messages ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
    db.commit()
    db.close()


def test_it_imports_nothing_of_what_it_judges() -> None:
    tree = ast.parse(Path(checker.__file__).read_text())
    modules = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert {module.partition(".")[0] for module in modules}.isdisjoint({"gateway", "persistence", "sandbox", "tests"})
