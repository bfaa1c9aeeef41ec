"""What every MessageStore promises. An adapter's test class inherits this and gives the `store` fixture."""

import json

import pytest

from persistence.ports import MessageStore
from persistence.record import Duplicate, Record, Rejected, Session, Status, Stored, Write
from tests.support.records import said


async def _open(store: MessageStore, *session_ids: str) -> None:
    for session_id in session_ids or ("s",):
        await store.create(Session(session_id, "ann", 1.0))


class MessageStoreContract:
    async def test_a_session_is_found_as_it_was_created(self, store: MessageStore) -> None:
        session = Session("s", "ann", 12.5, spec=b'{"a":1}', state=b'{"b":2}')
        assert await store.create(session) == session
        assert await store.find("s") == session
        assert await store.find("t") is None

    async def test_creating_a_known_session_changes_nothing(self, store: MessageStore) -> None:
        first = await store.create(Session("s", "ann", 1.0, spec=b"first"))
        assert await store.create(Session("s", "bob", 2.0, spec=b"second")) == first
        assert await store.find("s") == first

    async def test_a_new_session_begins_at_zero_whatever_it_says(self, store: MessageStore) -> None:
        kept = await store.create(Session("s", "ann", 1.0, last_seq=7, delivered=7))
        assert (kept.last_seq, kept.delivered) == (0, 0)

    async def test_sessions_come_newest_first_and_by_user(self, store: MessageStore) -> None:
        for session_id, user_id, created_at in (("a", "ann", 3.0), ("b", "bob", 2.0), ("c", "ann", 1.0)):
            await store.create(Session(session_id, user_id, created_at))
        assert [session.id for session in await store.sessions()] == ["c", "b", "a"]
        assert [session.id for session in await store.sessions("ann")] == ["c", "a"]
        assert await store.sessions("eve") == []

    async def test_an_appended_record_comes_back_byte_for_byte(self, store: MessageStore) -> None:
        await _open(store)
        payload = '{"content":"gr\u00fc\u00dfe \U0001f642\\u0000","metadata":{}}'.encode()
        record = Record("s", 1, "c\u00efd\x00", "user", "message", payload, 1.25, Status.STORED)
        assert await store.commit([Write("s", record)]) == [Stored(1)]
        assert await store.messages("s") == [record]
        assert await store.by_cid("s", "c\u00efd\x00") == record
        assert await store.by_cid("s", "c\u00efd") is None
        assert await store.by_cid("t", "c\u00efd\x00") is None
        session = await store.find("s")
        assert session is not None
        assert session.last_seq == 1

    async def test_an_empty_batch_is_fine(self, store: MessageStore) -> None:
        assert await store.commit([]) == []

    async def test_seq_must_follow_the_last(self, store: MessageStore) -> None:
        await _open(store)
        outcomes = await store.commit([said("s", 2), said("s", 0), said("s", 1), said("s", 3), said("s", 2)])
        assert [type(outcome) for outcome in outcomes] == [Rejected, Rejected, Stored, Rejected, Stored]
        assert [record.seq for record in await store.messages("s")] == [1, 2]

    async def test_a_rejected_write_leaves_no_trace_and_harms_no_other(self, store: MessageStore) -> None:
        await _open(store, "s", "t")
        bad = Write("s", said("s", 5).append, delivered=0, state=b"bad", checkpoint=b"bad")
        outcomes = await store.commit([said("t", 1), bad, said("nowhere", 1), said("t", 2), said("s", 1)])
        assert [type(outcome) for outcome in outcomes] == [Stored, Rejected, Rejected, Stored, Stored]
        assert outcomes[2] == Rejected("no such session")
        loaded = await store.load("s")
        assert loaded is not None
        assert (loaded.session.state, loaded.checkpoint, loaded.session.last_seq) == (b"{}", b"", 1)

    @pytest.mark.parametrize(
        "record",
        [
            Record("s", 1, "\ud800", "user", "message", b"{}", 1.0),
            Record("s", 1, "c", "\udfff", "message", b"{}", 1.0),
            Record("s", 1, "c", "user", "message", b"{}", float("nan")),
            Record("t", 1, "c", "user", "message", b"{}", 1.0),
            Record("s", 1, "duplicate:1", "user", "message", b"{}", 1.0),
        ],
        ids=["cid is no text", "role is no text", "no time", "other session", "reserved cid"],
    )
    async def test_a_record_that_cannot_be_kept_is_rejected_alone(self, store: MessageStore, record: Record) -> None:
        await _open(store, "s", "t")
        outcomes = await store.commit([said("t", 1), Write("s", record), said("s", 1)])
        assert [type(outcome) for outcome in outcomes] == [Stored, Rejected, Stored]

    @pytest.mark.parametrize(
        "write",
        [
            Write("s", delivered=2),
            Write("s", delivered=-1),
            Write("s", marks=((2, "expired"),)),
            Write("s", marks=((0, "expired"),)),
            Write("s", marks=((1, "\ud800"),)),
            Write("s", marks=((2**70, "expired"),)),
            Write("s", said("s", 2).append, delivered=3),
            Write("\ud800", state=b"x"),
        ],
        ids=repr,
    )
    async def test_marks_and_delivery_beyond_the_last_record_are_rejected(
        self, store: MessageStore, write: Write
    ) -> None:
        await _open(store)
        assert isinstance((await store.commit([said("s", 1), write]))[1], Rejected)
        assert [record.status for record in await store.messages("s")] == [Status.STORED]

    async def test_a_batch_tried_again_answers_and_ends_the_same(self, store: MessageStore) -> None:
        """The reply to the first was lost. A plain write before an append must not win over it the second time."""
        await _open(store)
        await store.commit([said("s", 1, "x")])
        batch = [
            Write("s", state=b"old"),
            Write("s", said("s", 2).append, state=b"new", checkpoint=b"part"),
            said("s", 3, "x"),
            Write("s", delivered=2),
            Write("s", marks=((1, Status.EXPIRED),)),
        ]
        first = await store.commit(batch)
        before = await store.load("s"), await store.messages("s")
        assert first == [Stored(0), Stored(2), Duplicate(1), Stored(0), Stored(0)]
        assert await store.commit(batch) == first
        assert (await store.load("s"), await store.messages("s")) == before
        assert await store.commit([*batch, said("s", 4)]) == [*first, Stored(4)]
        assert before[0] is not None
        assert before[0].session.state == b"new"

    async def test_a_known_cid_at_a_new_seq_leaves_a_marker(self, store: MessageStore) -> None:
        await _open(store, "s", "t")
        await store.commit([said("s", 1, "x")])
        again = Write("s", said("s", 2, "x").append, state=b"kept all the same")
        assert await store.commit([again, said("t", 1, "x"), said("s", 3, "y")]) == [Duplicate(1), Stored(1), Stored(3)]
        marker = (await store.messages("s"))[1]
        assert (marker.seq, marker.cid, marker.role, marker.type) == (2, "duplicate:2", "user", "duplicate")
        assert marker.status == Status.DUPLICATE
        assert json.loads(marker.payload) == {"content": None, "metadata": {"cid": "x", "first": 1}}
        loaded = await store.load("s")
        assert loaded is not None
        assert loaded.session.state == b"kept all the same"
        assert loaded.cids == {"x": 1, "y": 3}
        assert [record.seq for record in loaded.waiting] == [1, 3]

    async def test_a_cid_used_twice_in_one_batch_is_stored_once(self, store: MessageStore) -> None:
        await _open(store)
        batch = [said("s", 1, "x"), said("s", 2, "x"), said("s", 2, "x"), said("s", 1, "x")]
        assert await store.commit(batch) == [Stored(1), Duplicate(1), Duplicate(1), Stored(1)]
        assert [record.cid for record in await store.messages("s")] == ["x", "duplicate:2"]

    async def test_delivery_is_a_watermark_that_only_grows(self, store: MessageStore) -> None:
        await _open(store)
        answer = Record("s", 2, "agent:e:1", "assistant", "message", b"{}", 1.0, Status.COMPLETE)
        await store.commit([said("s", 1), Write("s", answer), said("s", 3), said("s", 4)])
        await store.commit([Write("s", delivered=3), Write("s", delivered=1)])
        found = await store.messages("s")
        assert [record.status for record in found] == ["delivered", "complete", "delivered", "stored"]
        shown = await store.by_cid("s", found[0].cid)
        assert shown is not None
        assert shown.status == Status.DELIVERED
        loaded = await store.load("s")
        assert loaded is not None
        assert loaded.session.delivered == 3
        assert [record.seq for record in loaded.waiting] == [4]

    async def test_sessions_with_something_to_deliver_are_named(self, store: MessageStore) -> None:
        await _open(store, "a", "b", "c", "d")
        await store.commit([said("a", 1), said("b", 1), said("c", 1), said("c", 2)])
        assert sorted(await store.waiting()) == ["a", "b", "c"]
        await store.commit([Write("a", delivered=1), Write("b", marks=((1, Status.EXPIRED),)), Write("c", delivered=1)])
        assert await store.waiting() == ["c"]

    async def test_a_spec_is_replaced_and_nothing_else(self, store: MessageStore) -> None:
        await _open(store, "s", "t")
        await store.commit([Write("s", spec=b"first"), Write("s", state=b"here"), Write("s", spec=b"second")])
        assert await store.find("s") == Session("s", "ann", 1.0, spec=b"second", state=b"here")
        assert await store.find("t") == Session("t", "ann", 1.0)

    async def test_marks_change_status_and_the_last_wins(self, store: MessageStore) -> None:
        await _open(store)
        asked = Record("s", 2, "q", "assistant", "question", b"{}", 1.0, Status.OPEN)
        await store.commit([said("s", 1), Write("s", asked), said("s", 3)])
        loaded = await store.load("s")
        assert loaded is not None
        assert loaded.open == [asked]
        await store.commit(
            [
                Write("s", marks=((1, Status.INTERRUPTED), (2, Status.EXPIRED))),
                Write("s", said("s", 4).append, marks=((1, Status.EXPIRED), (2, Status.ANSWERED), (4, Status.EXPIRED))),
            ]
        )
        assert [record.status for record in await store.messages("s")] == ["expired", "answered", "stored", "expired"]
        loaded = await store.load("s")
        assert loaded is not None
        assert loaded.open == []
        assert [record.seq for record in loaded.waiting] == [3]

    async def test_a_checkpoint_is_overwritten_and_removed(self, store: MessageStore) -> None:
        await _open(store)
        for body in (b"Once", b"Once upon", b"", b""):
            await store.commit([Write("s", checkpoint=body)])
            loaded = await store.load("s")
            assert loaded is not None
            assert loaded.checkpoint == body

    async def test_the_newest_10000_cids_are_loaded_oldest_first(self, store: MessageStore) -> None:
        await _open(store)
        await store.commit([said("s", seq, f"c{seq}") for seq in range(1, 10_004)])
        loaded = await store.load("s")
        assert loaded is not None
        assert list(loaded.cids.items()) == [(f"c{seq}", seq) for seq in range(4, 10_004)]
        assert await store.load("t") is None

    @pytest.mark.parametrize(
        ("window", "seqs"),
        [
            ({}, [1, 2, 3, 4, 5, 6]),
            ({"limit": 2}, [1, 2]),
            ({"after": 2, "limit": 2}, [3, 4]),
            ({"after": 6}, []),
            ({"after": 99}, []),
            ({"before": 5, "limit": 2}, [3, 4]),
            ({"before": 99, "limit": 2}, [5, 6]),
            ({"before": 1}, []),
            ({"before": 0}, []),
            ({"after": 1, "before": 6, "limit": 3}, [2, 3, 4]),
            ({"after": -3, "limit": 1}, [1]),
            ({"limit": 0}, []),
            ({"limit": -1}, []),
        ],
        ids=str,
    )
    async def test_messages_are_read_in_windows(
        self, store: MessageStore, window: dict[str, int], seqs: list[int]
    ) -> None:
        await _open(store)
        await store.commit([said("s", seq) for seq in range(1, 7)])
        assert [record.seq for record in await store.messages("s", **window)] == seqs
        assert await store.messages("t", **window) == []

    async def test_a_purged_session_is_gone_and_its_id_is_free(self, store: MessageStore) -> None:
        await _open(store, "s", "t")
        await store.commit([said("s", 1), Write("s", checkpoint=b"part"), said("t", 1)])
        await store.purge("s")
        await store.purge("s")
        assert await store.find("s") is None
        assert await store.load("s") is None
        assert await store.messages("s") == []
        assert await store.commit([said("s", 2)]) == [Rejected("no such session")]
        await _open(store)
        loaded = await store.load("s")
        assert loaded is not None
        assert (loaded.session.last_seq, loaded.checkpoint, loaded.cids) == (0, b"", {})
        assert [record.seq for record in await store.messages("t")] == [1]
