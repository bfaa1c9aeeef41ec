"""What every MessageStore promises. An adapter's test class inherits this and gives the `store` fixture."""

import json
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from persistence.listener import NobodyListens
from persistence.ports import MessageStore
from persistence.record import (
    NO_USER,
    Dead,
    Duplicate,
    Fenced,
    Loaded,
    Record,
    Rejected,
    Session,
    Status,
    Stored,
    Usage,
    Write,
)
from tests.contract.user_store import UserStoreContract
from tests.support.records import said
from tests.support.waiting import until


async def _open(store: MessageStore, *session_ids: str) -> None:
    for session_id in session_ids or ("s",):
        await store.create(Session(session_id, "ann", 1.0))


def _poison(session_id: str, seq: int) -> Write:
    """A record that no store takes, because its cid is no text."""
    return Write(session_id, Record(session_id, seq, f"\ud800{seq}", "user", "message", b"{}", 1.0, Status.STORED))


async def _everything(store: MessageStore) -> tuple[Loaded, list[Record]]:
    loaded = await store.load("s")
    assert loaded is not None
    return replace(loaded, fence=0), await store.messages("s")


class Ear(NobodyListens):
    """Remembers which conversations grew."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()

    def grown(self, session_id: str) -> None:
        self.sessions.add(session_id)


class MessageStoreContract(UserStoreContract):
    async def test_the_first_id_of_the_installation_is_kept(self, store: MessageStore) -> None:
        assert [await store.installation(proposed) for proposed in ("first", "second")] == ["first", "first"]

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

    async def test_a_session_without_a_user_is_listed_with_all_and_with_nobodys(self, store: MessageStore) -> None:
        for session_id, user in (("a", "ann"), ("b", NO_USER), ("c", " ")):
            assert (await store.create(Session(session_id, user, 1.0))).user_id == user
        assert {each.id for each in await store.sessions()} == {"a", "b", "c"}
        assert [each.id for each in await store.sessions("ann")] == ["a"]
        assert [each.id for each in await store.sessions(" ")] == ["c"]
        assert (await store.usage(" ")).sessions == 1
        assert (await store.load("b")) is not None
        found = await store.find("b")
        assert found is not None
        assert found.user_id == NO_USER

    async def test_an_appended_record_comes_back_byte_for_byte(self, store: MessageStore) -> None:
        await _open(store)
        payload = '{"content":"gr\u00fc\u00dfe \U0001f642\\u0000","metadata":{}}'.encode()
        record = Record("s", 1, "c\u00efd", "user", "message", payload, 1.25, Status.STORED)
        assert await store.commit([Write("s", record)]) == [Stored(1)]
        assert await store.messages("s") == [record]
        assert await store.by_cid("s", "c\u00efd") == record
        assert await store.by_cid("s", "c\u00efd\x00") is None
        assert await store.by_cid("t", "c\u00efd") is None
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
            Record("t", 1, "c", "user", "message", b"{}", 1.0),
            Record("s", 1, "duplicate:1", "user", "message", b"{}", 1.0),
            Record("s", 1, "rejected:1", "user", "message", b"{}", 1.0),
        ],
        ids=["other session", "reserved for duplicates", "reserved for the rejected"],
    )
    async def test_a_record_that_makes_no_sense_is_rejected_alone(self, store: MessageStore, record: Record) -> None:
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
        before = await _everything(store)
        assert first == [Stored(0), Stored(2), Duplicate(1), Stored(0), Stored(0)]
        assert await store.commit(batch) == first
        assert await _everything(store) == before
        assert await store.commit([*batch, said("s", 4)]) == [*first, Stored(4)]
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
        self, store: MessageStore, window: dict[str, Any], seqs: list[int]
    ) -> None:
        await _open(store)
        await store.commit([said("s", seq) for seq in range(1, 7)])
        assert [record.seq for record in await store.messages("s", **window)] == seqs
        assert await store.messages("t", **window) == []

    @pytest.mark.parametrize("newest", [False, True])
    async def test_messages_are_read_in_pages_of_so_many_bytes(self, store: MessageStore, newest: bool) -> None:
        """Each page has at least one record, and ends with the one that reaches the bound; or earlier."""
        await _open(store)
        sizes = [100, 5000, 200, 300, 9000, 10, 10]
        await store.commit([_long("s", seq, size) for seq, size in enumerate(sizes, 1)])
        found: list[Record] = []
        while True:
            after, before = (0, found[0].seq if found else 100) if newest else (found[-1].seq if found else 0, None)
            page = await store.messages("s", after=after, before=before, limit=5, max_bytes=4000)
            if not page:
                break
            others = page[1:] if newest else page[:-1]
            assert sum(len(record.payload) for record in others) < 4000
            assert len(page) <= 5
            found = page + found if newest else found + page
        assert [len(record.payload) for record in found] == sizes

    @pytest.mark.parametrize(
        "record",
        [
            Record("s", 1, "\ud800", "user", "message", b"{}", 1.0, Status.STORED),
            Record("s", 1, "c\x00", "user", "message", b"{}", 1.0, Status.STORED),
            Record("s", 1, "c", "\udfff", "message", b"{}", 1.0, Status.STORED),
            Record("s", 1, "c", "user", "message", b"{}", float("nan"), Status.STORED),
        ],
        ids=["cid is no text", "cid with NUL", "role is no text", "no time"],
    )
    async def test_a_record_that_cannot_be_kept_is_dead_and_its_conversation_goes_on(
        self, store: MessageStore, record: Record
    ) -> None:
        await _open(store, "s", "t")
        batch = [said("t", 1), Write("s", record, state=b"kept all the same"), said("s", 2)]
        outcomes = await store.commit(batch)
        assert [type(outcome) for outcome in outcomes] == [Stored, Dead, Stored]
        marker, after = await store.messages("s")
        assert (marker.seq, marker.cid, marker.type, marker.status) == (1, "rejected:1", "rejected", "rejected")
        assert json.loads(marker.payload)["metadata"]["reason"] == outcomes[1].reason  # type: ignore[union-attr]
        assert after.seq == 2
        again = await store.commit(batch)  # the reply was lost
        assert [type(outcome) for outcome in again] == [Stored, Dead, Stored]
        (letter,) = await store.dead_letters()
        assert (letter.record.session_id, letter.record.seq, letter.record.payload) == ("s", 1, b"{}")
        assert letter.record.status == Status.INTERRUPTED
        assert letter.buried_at > 0
        loaded = await store.load("s")
        assert loaded is not None
        assert loaded.session.state == b"kept all the same"
        assert list(loaded.cids.values()) == [2]
        assert [waiting.seq for waiting in loaded.waiting] == [2]

    async def test_dead_letters_are_listed_by_number_and_by_session(self, store: MessageStore) -> None:
        await _open(store, "s", "t")
        await store.commit([_poison("s", 1), _poison("t", 1), _poison("s", 2)])
        first, second, third = await store.dead_letters()
        assert first.number < second.number < third.number
        assert [letter.record.session_id for letter in (first, second, third)] == ["s", "t", "s"]
        assert await store.dead_letters("s") == [first, third]
        assert await store.dead_letters(after=first.number, limit=1) == [second]
        assert await store.dead_letters("nowhere") == []

    async def test_a_dead_letter_that_can_be_kept_after_all_takes_its_place(self, store: MessageStore) -> None:
        await _open(store)
        await store.commit([_poison("s", 1), said("s", 2), Write("s", delivered=2)])
        (letter,) = await store.dead_letters()
        assert await store.retry_dead_letter(letter.number) == Stored(1)
        assert await store.messages("s", limit=1) == [letter.record]
        assert (await store.by_cid("s", letter.record.cid)) == letter.record
        assert await store.dead_letters() == []
        assert await store.retry_dead_letter(letter.number) is None

    async def test_a_dead_letter_whose_cid_was_stored_meanwhile_is_only_forgotten(self, store: MessageStore) -> None:
        await _open(store)
        await store.commit([_poison("s", 1)])
        (letter,) = await store.dead_letters()
        await store.commit([said("s", 2, letter.record.cid)])
        assert await store.retry_dead_letter(letter.number) == Duplicate(2)
        assert [record.status for record in await store.messages("s")] == ["rejected", "stored"]
        assert await store.dead_letters() == []

    async def test_a_dead_letter_whose_place_was_trimmed_stays_one(self, store: MessageStore) -> None:
        await _open(store)
        await store.commit([_poison("s", 1), said("s", 2)])
        await store.trim("s", older_than=None, keep=1, below=2)
        (letter,) = await store.dead_letters()
        assert isinstance(await store.retry_dead_letter(letter.number), Rejected)
        assert await store.dead_letters() == [letter]

    async def test_a_dropped_dead_letter_leaves_its_marker(self, store: MessageStore) -> None:
        await _open(store)
        await store.commit([_poison("s", 1)])
        (letter,) = await store.dead_letters()
        assert await store.drop_dead_letter(letter.number)
        assert not await store.drop_dead_letter(letter.number)
        assert await store.dead_letters() == []
        assert [record.status for record in await store.messages("s")] == ["rejected"]

    async def test_only_the_newest_writer_writes(self, store: MessageStore) -> None:
        await _open(store, "s", "t")
        old = await store.load("s")
        assert old is not None
        first = replace(said("s", 1), fence=old.fence)
        assert await store.commit([first]) == [Stored(1)]
        new = await store.load("s")
        assert new is not None
        assert new.fence > old.fence
        late = replace(said("s", 2, "late"), fence=old.fence, state=b"late", delivered=1, marks=((1, "expired"),))
        state = Write("s", state=b"late", fence=old.fence)
        assert await store.commit([late, said("t", 1), state, first]) == [Fenced(), Stored(1), Fenced(), Fenced()]
        assert await store.commit([replace(said("s", 2, "new"), fence=new.fence)]) == [Stored(2)]
        assert [(record.cid, record.status) for record in await store.messages("s")] == [
            ("c1", "stored"),
            ("new", "stored"),
        ]
        assert (await store.find("s") or old.session).state == b"{}"

    async def test_messages_are_chosen_by_role_and_type(self, store: MessageStore) -> None:
        await _open(store)
        for seq in range(1, 9):
            role, kind = ("user", "message") if seq % 2 else ("assistant", "question" if seq % 4 else "message")
            await store.commit([Write("s", Record("s", seq, f"c{seq}", role, kind, b"{}", 1.0))])
        assert [record.seq for record in await store.messages("s", role="user", limit=2)] == [1, 3]
        assert [record.seq for record in await store.messages("s", type="message", after=3)] == [4, 5, 7, 8]
        assert [record.seq for record in await store.messages("s", role="assistant", type="message")] == [4, 8]
        assert [record.seq for record in await store.messages("s", role="user", before=7, limit=2)] == [3, 5]
        assert await store.messages("s", role="nobody") == []

    async def test_a_long_spec_is_listed_without_what_only_its_agent_reads(self, store: MessageStore) -> None:
        """Whatever stands in it: a listing that fails for one session fails for all."""
        start = {"type": "start", "text": 'x" \\ \u0000 \\u0000 \u2028 \U0001f600' * 1000, "n": [1e300, 2**60, 1.0]}
        members = {"title": "t \u00e9", "metadata": {"b": 1, "a": [None, {"start": 1}]}, "started": True}
        spec = orjson.dumps(members | {"start": start, "pending": [{"requestId": "r"}]})
        await store.create(Session("long", "ada", 1.0, spec))
        await store.create(Session("short", "ada", 1.0, b'{"start":{"a":1}}'))
        short, long = await store.sessions("ada")
        assert short.spec == b'{"start":{"a":1}}'
        assert orjson.loads(long.spec) == members
        assert list(orjson.loads(long.spec)["metadata"]) == ["b", "a"]
        kept = await store.find("long")
        assert kept is not None
        assert kept.spec == spec
        loaded = await store.load("long")
        assert loaded is not None
        assert loaded.session.spec == spec

    async def test_sessions_are_listed_in_pages(self, store: MessageStore) -> None:
        for number in range(5):
            await store.create(Session(f"s{number}", "ann" if number % 2 else "bob", 1.0))
        assert [session.id for session in await store.sessions(limit=2)] == ["s4", "s3"]
        assert [session.id for session in await store.sessions(after="s3", limit=2)] == ["s2", "s1"]
        assert [session.id for session in await store.sessions("bob", after="s3")] == ["s2", "s0"]
        assert await store.sessions(after="s0") == []
        assert await store.sessions(after="nowhere") == []

    @pytest.mark.parametrize(
        ("asked", "left"),
        [
            ({"keep": 2}, [5, 6]),
            ({"older_than": 3.5}, [4, 5, 6]),
            ({"keep": 4, "older_than": 4.5}, [5, 6]),
            ({"keep": 5, "older_than": 2.5}, [3, 4, 5, 6]),
            ({"keep": 2, "below": 3}, [3, 4, 5, 6]),
            ({"keep": 2, "limit": 1}, [2, 3, 4, 5, 6]),
            ({"keep": 0}, []),
            ({}, [1, 2, 3, 4, 5, 6]),
        ],
        ids=str,
    )
    async def test_the_oldest_records_are_trimmed(
        self, store: MessageStore, asked: dict[str, Any], left: list[int]
    ) -> None:
        await _open(store, "s", "t")
        for seq in range(1, 7):
            record = Record("s", seq, f"c{seq}", "user", "message", b"{}", float(seq))
            await store.commit([Write("s", record), said("t", seq)])
        assert await store.trim("s", **{"older_than": None, "keep": None, "below": 100, **asked}) == 6 - len(left)
        assert [record.seq for record in await store.messages("s")] == left
        session = await store.find("s")
        assert session is not None
        assert (session.first_seq, session.last_seq) == (7 - len(left), 6)
        assert len(await store.messages("t")) == 6
        assert await store.commit([said("s", 7), Write("s", marks=((1, "expired"),))]) == [Stored(7), Stored(0)]
        loaded = await store.load("s")
        assert loaded is not None
        assert list(loaded.cids.values()) == [*left, 7]

    async def test_what_somebody_waits_for_is_not_trimmed(self, store: MessageStore) -> None:
        await _open(store)
        asked = Record("s", 2, "q", "assistant", "question", b"{}", 1.0, Status.OPEN)
        await store.commit([said("s", 1), Write("s", asked), said("s", 3), Write("s", delivered=1)])
        assert await store.trim("s", older_than=9.0, keep=0, below=9) == 1
        await store.commit([Write("s", marks=((2, "answered"),))])
        assert await store.trim("s", older_than=9.0, keep=0, below=9) == 1
        assert [record.seq for record in await store.messages("s")] == [3]
        assert await store.trim("nowhere", older_than=9.0, keep=0, below=9) == 0

    async def test_who_listens_hears_which_conversations_grew(self, store: MessageStore) -> None:
        heard = Ear()
        store.heard = heard
        await _open(store, "s", "t", "u")
        await store.commit([said("s", 1), said("s", 2), Write("u", state=b"x"), said("t", 1), said("u", 9)])
        await until(lambda: heard.sessions >= {"s", "t"}, "both were heard of")
        assert heard.sessions == {"s", "t"}

    async def test_what_a_user_has_is_counted(self, store: MessageStore) -> None:
        assert await store.usage("ann") == Usage()
        for session_id, user_id in [("s", "ann"), ("t", "ann"), ("u", "bob")]:
            await store.create(Session(session_id, user_id, 1.0, state=b'{"snapshot_bytes":1000,"tree":"x"}'))
        size = len(said("s", 1).append.payload)  # type: ignore[union-attr]
        await store.commit([said("s", 1), said("s", 2), said("t", 1), said("u", 1)])
        assert await store.usage("ann") == Usage(2, 3 * size, 2000)
        await store.commit([Write("s", delivered=2, state=b'{"snapshot_bytes":500}'), Write("t", state=b"no json")])
        assert await store.trim("s", older_than=None, keep=1, below=3) == 1
        assert await store.usage("ann") == Usage(2, 2 * size, 500)
        await store.purge("s")
        assert await store.usage("ann") == Usage(1, size, 0)
        assert await store.usage("bob") == Usage(1, size, 1000)

    async def test_a_purged_session_is_gone_and_its_id_is_free(self, store: MessageStore) -> None:
        await _open(store, "s", "t")
        await store.commit(
            [said("s", 1), Write("s", checkpoint=b"part"), said("t", 1), _poison("s", 2), _poison("t", 2)]
        )
        await store.purge("s")
        await store.purge("s")
        assert [letter.record.session_id for letter in await store.dead_letters()] == ["t"]
        assert await store.find("s") is None
        assert await store.load("s") is None
        assert await store.messages("s") == []
        assert await store.commit([said("s", 2)]) == [Rejected("no such session")]
        await _open(store)
        loaded = await store.load("s")
        assert loaded is not None
        assert (loaded.session.last_seq, loaded.checkpoint, loaded.cids) == (0, b"", {})
        assert [record.seq for record in await store.messages("t")] == [1, 2]

    async def test_the_number_of_a_purged_session_may_be_another_sessions(self, store: MessageStore) -> None:
        """Whatever a store remembers of the first must not be held against the second."""
        for records in (3, 2, 1):
            await _open(store)
            batch = [said("s", seq) for seq in range(1, records + 1)]
            assert await store.commit(batch) == [Stored(seq) for seq in range(1, records + 1)]
            assert await store.commit([Write("s", delivered=1, state=b"x", checkpoint=b"part")]) == [Stored(0)]
            await store.purge("s")

    async def test_a_checkpoint_is_kept_until_it_is_removed(self, store: MessageStore) -> None:
        async def kept() -> bytes:
            loaded = await store.load("s")
            assert loaded is not None
            return loaded.checkpoint

        await _open(store)
        await store.commit([Write("s", checkpoint=b"")])
        await store.commit([said("s", 1)])
        await store.commit([Write("s", checkpoint=b"one")])
        await store.commit([said("s", 2)])
        await store.commit([Write("s", checkpoint=b"")])
        assert await kept() == b""
        await store.commit([Write("s", checkpoint=b"two"), said("s", 3)])
        assert await kept() == b"two"
        await store.commit([Write("s", checkpoint=b"")])
        await store.commit([Write("s", checkpoint=b"three"), Write("s", state=b"x")])
        await store.commit([said("s", 9), Write("s", checkpoint=b"")])
        assert await kept() == b""


def _long(session_id: str, seq: int, size: int) -> Write:
    payload = b'{"content":"' + b"x" * (size - 14) + b'"}' if size > 14 else b"{%s}" % (b" " * (size - 2))
    return Write(session_id, Record(session_id, seq, f"long-{seq}", "user", "message", payload, 1.0))
