"""The batch planner against a model that decides one write at a time."""

from dataclasses import dataclass, field
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persistence.commit_plan import Head, Plan, plan, questions
from persistence.record import Dead, Duplicate, Fenced, Outcome, Record, Rejected, Stored, Write
from tests.support.records import said

SESSIONS = ("a", "b", "nowhere")


@st.composite
def writes(draw: st.DrawFn) -> Write:
    """A write that is often right: it appends the next record of a short conversation, or changes what is near."""
    session_id = draw(st.sampled_from(SESSIONS))
    seq = draw(st.integers(0, 6))
    record = said(session_id, seq, draw(st.sampled_from(("x", "y", "z", "w", "duplicate:2", "\ud800")))).append
    return Write(
        session_id,
        record if draw(st.booleans()) else None,
        fence=draw(st.sampled_from((None, 7, 7, 6))),
        marks=tuple(draw(st.lists(st.tuples(st.integers(0, 6), st.sampled_from(("expired", "open"))), max_size=2))),
        delivered=draw(st.none() | st.integers(-1, 6)),
        state=draw(st.none() | st.sampled_from((b"1", b"2"))),
        checkpoint=draw(st.none() | st.sampled_from((b"", b"part"))),
    )


@dataclass
class Model:
    """One conversation, kept the slow and obvious way."""

    cids: list[str] = field(default_factory=list)
    first_asked: dict[int, str] = field(default_factory=dict)  # seq of a marker -> the cid it stands for
    buried: list[int] = field(default_factory=list)  # seqs of the dead
    statuses: list[str] = field(default_factory=list)
    delivered: int = 0
    state: bytes = b"{}"
    checkpoint: bytes = b""

    def apply(self, write: Write) -> Outcome | None:
        """The outcome, or None for a rejection."""
        if write.fence not in (None, 7):
            return Fenced()
        last = len(self.cids)
        outcome: Outcome = Stored(0)
        new: tuple[str, str] | None = None
        if (record := write.append) is not None:
            known = self.cids.index(record.cid) + 1 if record.cid in self.cids else None
            if known == record.seq:
                outcome = Stored(record.seq)
            elif known is not None and record.seq in self.first_asked:
                outcome = Duplicate(known)
            elif record.seq in self.buried:
                outcome = Dead("")
            elif record.seq != last + 1 or record.cid == "duplicate:2":
                return None
            elif record.cid == "\ud800":
                last += 1
                outcome, new = Dead(""), (f"rejected:{last}", "rejected")
            else:
                last += 1
                outcome = Stored(last) if known is None else Duplicate(known)
                new = (record.cid, record.status) if known is None else (f"duplicate:{last}", "duplicate")
        if write.delivered is not None and not 0 <= write.delivered <= last:
            return None
        if any(not 1 <= seq <= last for seq, _ in write.marks):
            return None
        if new is not None and isinstance(outcome, Dead):
            self.buried.append(last)
        if new is not None:
            self.cids.append(new[0])
            self.statuses.append(new[1])
            if isinstance(outcome, Duplicate) and write.append is not None:
                self.first_asked[last] = write.append.cid
        self.delivered = max(self.delivered, write.delivered or 0)
        for seq, status in write.marks:
            self.statuses[seq - 1] = status
        self.state = self.state if write.state is None else write.state
        self.checkpoint = self.checkpoint if write.checkpoint is None else write.checkpoint
        return outcome


@dataclass
class Kept:
    """A store that performs plans: rows by session, and what an adapter would answer about them."""

    rows: dict[str, list[Record]]
    statuses: dict[tuple[str, int], str] = field(default_factory=dict)
    heads: dict[str, Head] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)
    checkpoints: dict[str, bytes] = field(default_factory=dict)
    dead: list[Record] = field(default_factory=list)

    def commit(self, batch: list[Write]) -> list[Outcome]:
        stored = {(sid, record.cid): record.seq for sid, rows in self.rows.items() for record in rows}
        asked = questions(batch, self.heads, retries_only=False)
        decided: Plan = plan(batch, self.heads, {key: seq for key, seq in stored.items() if key in asked})
        for record in decided.rows:
            self.rows[record.session_id].append(record)
            self.statuses[record.session_id, record.seq] = record.status
        for status, session_id, seq in decided.marks:
            self.statuses[session_id, seq] = status
        assert decided.heads.items() <= decided.after.items()
        self.heads.update(decided.after)
        self.states.update(decided.states)
        self.checkpoints.update(decided.checkpoints)
        self.dead += [record for record, _ in decided.dead]
        return decided.outcomes


@given(batches=st.lists(st.lists(writes(), max_size=8), max_size=6))
def test_batches_do_what_the_model_does_write_by_write(batches: list[list[Write]]) -> None:
    kept = Kept({"a": [], "b": []}, heads={"a": Head(0, 0, 7), "b": Head(0, 0, 7)})
    models = {"a": Model(), "b": Model()}
    for batch in batches:
        outcomes = kept.commit(batch)
        for write, outcome in zip(batch, outcomes, strict=True):
            model = models.get(write.session_id)
            expected = model.apply(write) if model else None
            if isinstance(expected, Dead):
                assert isinstance(outcome, Dead)
            else:
                assert isinstance(outcome, Rejected) if expected is None else outcome == expected
        for session_id, model in models.items():
            rows = kept.rows[session_id]
            assert [record.seq for record in rows] == list(range(1, len(rows) + 1))
            assert [record.cid for record in rows] == model.cids
            assert [kept.statuses[session_id, record.seq] for record in rows] == model.statuses
            head = kept.heads[session_id]
            assert head == Head(len(rows), model.delivered, 7, head.checkpoint)
            assert head.checkpoint or not model.checkpoint, "a checkpoint that is there is never forgotten"
            assert [record.seq for record in kept.dead if record.session_id == session_id] == model.buried
            assert kept.states.get(session_id, b"{}") == model.state
            assert kept.checkpoints.get(session_id, b"") == model.checkpoint


@given(conversation=st.lists(st.sampled_from("vwxyz"), min_size=1, max_size=8), state=st.sampled_from((None, b"late")))
def test_a_batch_whose_reply_was_lost_ends_the_same_when_tried_again(
    conversation: list[str], state: bytes | None
) -> None:
    kept = Kept({"a": []}, heads={"a": Head(0, 0)})
    batch: list[Write] = []
    for seq, cid in enumerate(conversation, 1):
        batch += [Write("a", state=b"%d" % seq), Write("a", said("a", seq, cid).append, state=state, delivered=seq - 1)]
    outcomes = kept.commit(batch)
    before = repr(kept)
    assert kept.commit(batch) == outcomes
    assert repr(kept) == before


def test_planning_does_not_touch_the_heads_it_was_given() -> None:
    heads = {"a": Head(0, 0)}
    plan([said("a", 1), Write("a", delivered=1)], heads, {})
    assert heads == {"a": Head(0, 0)}


def test_only_a_taken_seq_is_asked_about_when_the_store_checks_uniqueness_itself() -> None:
    heads = {"a": Head(2, 0)}
    batch = [said("a", 2, "x"), said("a", 3, "y"), Write("a", state=b""), said("nowhere", 1)]
    assert questions(batch, heads, retries_only=True) == {("a", "x"), ("a", "duplicate:2"), ("a", "rejected:2")}
    assert questions(batch, heads, retries_only=False) == {
        ("a", "x"),
        ("a", "duplicate:2"),
        ("a", "rejected:2"),
        ("a", "y"),
    }


def test_a_write_that_the_database_refused_is_buried_and_the_rest_goes_on() -> None:
    batch = [said("a", 1), said("a", 2), Write("a", state=b"x"), said("a", 3)]
    decided = plan(batch, {"a": Head(0, 0)}, {}, poison={1: "a rule says no", 2: "another"})
    assert decided.outcomes == [Stored(1), Dead("a rule says no"), Rejected("another"), Stored(3)]
    assert [record.cid for record in decided.rows] == ["c1", "rejected:2", "c3"]
    assert [(record.cid, record.status, reason) for record, reason in decided.dead] == [
        ("c2", "interrupted", "a rule says no")
    ]
    assert decided.states == {}


def test_a_write_may_change_everything_about_its_session_at_once() -> None:
    write = replace(
        said("a", 3), marks=((1, "expired"), (3, "open")), delivered=2, state=b"st", spec=b"sp", checkpoint=b"part"
    )
    decided = plan([write, replace(write, append=None, marks=((2, "answered"),))], {"a": Head(2, 0)}, {})
    assert decided.outcomes == [Stored(3), Stored(0)]
    assert decided.marks == [("expired", "a", 1), ("open", "a", 3), ("answered", "a", 2)]
    assert (decided.heads, decided.states, decided.specs) == ({"a": Head(3, 2)}, {"a": b"st"}, {"a": b"sp"})
    assert decided.after == decided.heads
    assert decided.checkpoints == {"a": b"part"}


def test_a_checkpoint_is_removed_only_if_there_may_be_one() -> None:
    none = {"a": Head(0, 0, checkpoint=False)}
    decided = plan([Write("a", checkpoint=b"", state=b"st")], none, {})
    assert (decided.checkpoints, decided.after["a"].checkpoint) == ({}, False)
    decided = plan([Write("a", checkpoint=b"part"), Write("a", checkpoint=b"")], none, {})
    assert (decided.checkpoints, decided.after["a"].checkpoint) == ({"a": b""}, False)
    decided = plan([Write("a", checkpoint=b"part"), Write("a", state=b"st")], none, {})
    assert (decided.checkpoints, decided.after["a"].checkpoint) == ({"a": b"part"}, True)
    decided = plan([Write("a", checkpoint=b"")], {"a": Head(0, 0)}, {})
    assert (decided.checkpoints, decided.after["a"].checkpoint) == ({"a": b""}, False)


@pytest.mark.parametrize(
    "mark",
    [(0, "expired"), (4, "expired"), (1, "\ud800")],
    ids=["before the first", "after the last", "no text"],
)
def test_a_mark_that_fits_no_record_rejects_its_whole_write(mark: tuple[int, str]) -> None:
    write = replace(said("a", 3), marks=((1, "expired"), mark), state=b"st")
    decided = plan([write], {"a": Head(2, 0)}, {})
    assert decided.outcomes == [Rejected(f"mark on {mark[0]} is not within 3")]
    assert (decided.rows, decided.marks, decided.states) == ([], [], {})


def test_a_record_of_another_session_and_a_cid_of_markers_are_rejected() -> None:
    foreign = replace(said("b", 1), session_id="a")
    batch = [foreign, said("a", 1, "duplicate:1"), said("a", 1, "rejected:1"), said("a", 1)]
    outcomes = plan(batch, {"a": Head(0, 0)}, {}).outcomes
    assert outcomes == [
        Rejected("record of another session"),
        Rejected("reserved cid"),
        Rejected("reserved cid"),
        Stored(1),
    ]


def test_a_record_that_no_database_can_keep_is_dead_and_stays_so_when_tried_again() -> None:
    batch = [said("a", 1, "\ud800"), _at(said("a", 2), nan)]
    kept = Kept({"a": []}, heads={"a": Head(0, 0)})
    why = Dead("it is not made of characters and times")
    assert kept.commit(batch) == [why, why]
    assert [(record.cid, record.created_at) for record in kept.dead] == [("\\ud800", 1.0), ("c2", 0.0)]
    assert kept.commit(batch) == [Dead("the store refused it")] * 2
    assert [record.cid for record in kept.rows["a"]] == ["rejected:1", "rejected:2"]
    assert len(kept.dead) == 2


def test_a_session_grows_by_the_payloads_of_its_rows() -> None:
    batch = [said("a", 1, content="x" * 100), said("b", 1), said("a", 2), said("a", 2)]
    decided = plan(batch, {"a": Head(0, 0), "b": Head(0, 0)}, {})
    sizes = [len(write.append.payload) for write in batch if write.append]
    assert decided.grown == {"a": sizes[0] + sizes[2], "b": sizes[1]}
    assert plan([], {}, {}).grown == {}


def _at(write: Write, created_at: float) -> Write:
    assert write.append is not None
    return replace(write, append=replace(write.append, created_at=created_at))
