"""What the spool knows of a session is what its writes say, one after the other."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persistence.record import Record, Session, Status, Write
from persistence.spool.overlay import SpoolOverlay, Tail, merge

small = st.integers(1, 9)
blobs = st.none() | st.binary(max_size=2)
statuses = st.sampled_from(("stored", "expired", "open"))
records = st.builds(
    lambda seq, status: Record("a", seq, f"c{seq}", "user", "message", b"", 1.0, status), small, statuses
)
marked = st.lists(st.tuples(small, statuses), max_size=2).map(tuple)
writes = st.builds(
    Write, st.just("a"), st.none() | records, marked, st.none() | small, state=blobs, checkpoint=blobs, spec=blobs
)


@given(st.lists(writes, max_size=6))
def test_a_tail_says_what_its_writes_say(kept: list[Write]) -> None:
    tails = SpoolOverlay()
    for write in kept:
        tails.add(write, write.size)
    assert (tails.writes, tails.bytes) == (len(kept), sum(write.size for write in kept))
    seqs = [write.append.seq for write in kept if write.append]
    stored = [write.append.seq for write in kept if write.append and write.append.status == Status.STORED]
    delivered = max((write.delivered or 0 for write in kept), default=0)
    tail = tails.by_session.get("a", Tail())
    assert (tail.last_seq, tail.records, tail.last_stored) == (max([0, *seqs]), len(seqs), max([0, *stored]))
    session = Session("a", "ann", 1.0, b"old spec", b"old state", 4, 2)
    states = [write.state for write in kept if write.state is not None]
    specs = [write.spec for write in kept if write.spec is not None]
    assert tail.over(session) == replace(
        session,
        spec=[session.spec, *specs][-1],
        state=[session.state, *states][-1],
        last_seq=max(4, tail.last_seq),
        delivered=max(2, delivered),
    )
    marks = {seq: status for write in kept for seq, status in write.marks}
    for seq in range(1, 10):
        status = marks.get(seq, "stored")
        expected = "delivered" if status == "stored" and seq <= delivered else status
        assert tail.seen(Record("a", seq, "c", "user", "message", b"", 1.0, "stored")).status == expected
    tails.remove([("a", write.append is not None, write.size) for write in kept])
    assert (tails.writes, tails.bytes, tails.by_session) == (0, 0, {})


@given(st.sets(small), st.sets(small), st.integers(1, 9), st.booleans())
def test_a_page_is_the_first_or_the_newest_of_both(here: set[int], there: set[int], limit: int, newest: bool) -> None:
    spooled = [Record("a", seq, "here", "user", "message", b"", 1.0) for seq in sorted(here)]
    stored = [Record("a", seq, "there", "user", "message", b"", 1.0) for seq in sorted(there)]
    page = merge(stored, spooled, None, limit, newest=newest)
    every = sorted(here | there)
    assert [record.seq for record in page] == (every[-limit:] if newest else every[:limit])
    assert all(record.cid == ("there" if record.seq in there else "here") for record in page)
    assert merge(stored, spooled, Tail(marks={1: "expired"}), 99, newest=False)[:1] == [
        replace(record, status="expired") if record.seq == 1 else record
        for record in merge(stored, spooled, None, 1, newest=False)
    ]
