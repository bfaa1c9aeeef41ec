"""The checker can fail: each way of breaking a promise is found, and an honest session is not accused."""

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from tests.campaign.participant import Participant
from tests.campaign.verdict import Evidence, Verdict, judge, unsettled

RUN = "r1"


class Case:
    """One sender, three messages: two answered, the third interrupted while it ran."""

    def __init__(self) -> None:
        self.ada = Participant("ada", "s1", 0, address=lambda: "", token=lambda: "", rng=Random(0))
        self.history: list[dict[str, Any]] = []
        said: list[dict[str, Any]] = []
        heard = []
        for number in (1, 2, 3):
            cid = f"ada-{number}"
            status = "interrupted" if number == 3 else "delivered"
            seq = self._add(role="user", cid=cid, content=cid, status=status, metadata={})
            heard.append({"run": RUN, "type": "message", "cid": cid, "seq": seq})
            self.ada.acked[cid], self.ada.sent[cid] = seq, 1
            said += [
                {"type": "chunk", "run": RUN, "n": len(said) + part + 1, "text": f"{cid}/{part};"} for part in range(3)
            ]
            if number < 3:
                said.append({"type": "done", "run": RUN, "n": len(said) + 1, "metadata": {"answers": cid}})
                text = "".join(f"{cid}/{part};" for part in range(3))
                self._add(
                    role="assistant", cid=f"agent:{number}", content=text, status="complete", metadata={"answers": cid}
                )
        self.evidence = Evidence(heard, {RUN: said})
        self.ada.output = {"e1": {frame["n"]: deepcopy(frame) for frame in said}}

    def _add(self, **members: Any) -> int:
        seq = len(self.history) + 1
        self.history.append({"seq": seq, "type": "message", **members})
        return seq

    def judged(self) -> Verdict:
        verdict = Verdict()
        judge("s1", self.history, self.evidence, [self.ada], verdict)
        return verdict


def test_an_honest_session_is_not_accused() -> None:
    case = Case()
    verdict = case.judged()
    assert verdict.problems == []
    assert (verdict.cases, verdict.interrupted) == (3, 1)
    assert unsettled(case.history) == []
    assert "3 cases, 0 lost, 0 dup, 0 reorder, 1 interrupted" in verdict.line("x", 7)


def _lose(case: Case) -> None:
    case.ada.acked["ada-9"] = 9


def _gap(case: Case) -> None:
    case.history[-1]["seq"] += 1


def _store_twice(case: Case) -> None:
    case.history.append({**case.history[0], "seq": len(case.history) + 1})


def _swap(case: Case) -> None:
    first, second = case.history[0], case.history[2]
    first["cid"], second["cid"] = second["cid"], first["cid"]
    first["content"], second["content"] = second["content"], first["content"]
    case.ada.acked |= {"ada-1": 3, "ada-2": 1}


def _hand_over_twice(case: Case) -> None:
    case.evidence.heard.append(case.evidence.heard[-1])


def _hand_over_out_of_order(case: Case) -> None:
    case.evidence.heard.reverse()


def _forget_to_say_interrupted(case: Case) -> None:
    case.history[-1]["status"] = "delivered"


def _never_hand_over(case: Case) -> None:
    del case.evidence.heard[0]


def _expire_what_was_handed_over(case: Case) -> None:
    case.history[-1]["status"] = "expired"


def _change_an_answer(case: Case) -> None:
    case.history[1]["content"] = "something else"


def _show_what_was_not_said(case: Case) -> None:
    case.ada.output["e1"][2]["text"] = "something else"


def _show_two_runs_as_one(case: Case) -> None:
    case.ada.output["e1"][2]["run"] = "r2"


def _keep_what_was_refused(case: Case) -> None:
    case.ada.refused["ada-1"] = "busy"


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        (_lose, "lost"),
        (_gap, "wrong"),
        (_store_twice, "duplicated"),
        (_swap, "reordered"),
        (_hand_over_twice, "duplicated"),
        (_hand_over_out_of_order, "reordered"),
        (_forget_to_say_interrupted, "wrong"),
        (_never_hand_over, "wrong"),
        (_expire_what_was_handed_over, "wrong"),
        (_change_an_answer, "wrong"),
        (_show_what_was_not_said, "wrong"),
        (_show_two_runs_as_one, "wrong"),
        (_keep_what_was_refused, "wrong"),
    ],
)
def test_every_broken_promise_is_found(harm: Callable[[Case], None], kind: str) -> None:
    case = Case()
    harm(case)
    assert getattr(case.judged(), kind) != []


def test_a_viewer_notices_holes_and_lies_of_the_gateway() -> None:
    def viewer() -> Participant:
        ada = Case().ada
        ada.output.clear()
        ada._welcomed_back({"type": "welcome", "epoch": "e1", "offset": 4, "lastSeq": 3}, None)
        return ada

    frames: list[dict[str, Any]] = [
        {"_offset": 6, "type": "chunk"},
        {"type": "welcome", "epoch": "e1", "offset": 9, "lastSeq": 3},
        {"type": "record", "seq": 5},
        {"type": "ack", "cid": "ada-1", "seq": 77, "stage": "stored"},
        {"type": "ack", "cid": "ada-1", "seq": 1, "stage": "accepted"},
    ]
    for frame in frames:
        ada = viewer()
        ada._hear(frame)
        assert len(ada.violations) == 1, frame
    asked = ("e1", 2)
    for answer in ({"offset": 3, "recovered": True}, {"offset": 2}, {"offset": 2, "epoch": "e2", "recovered": True}):
        ada = Case().ada
        ada._welcomed_back({"type": "welcome", "epoch": "e1", "lastSeq": 0, **answer}, asked)
        assert len(ada.violations) == 1, answer
