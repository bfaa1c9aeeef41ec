"""How a batch is kept in PostgreSQL: what the contract of all stores cannot ask."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from persistence.errors import StoreBusy, StoreUnavailable
from persistence.heads import RememberedHeads
from persistence.postgres.batch import LONE, PARTS
from persistence.postgres.store import PostgresStore
from persistence.record import Dead, Duplicate, Fenced, Outcome, Record, Rejected, Session, Status, Stored, Usage, Write
from tests.support.postgres import execute
from tests.support.records import said


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_url) as store:
        yield store


@pytest.fixture
async def other(postgres_url: str, store: PostgresStore) -> AsyncIterator[PostgresStore]:
    """Another gateway on the same database."""
    async with PostgresStore(postgres_url, node="other") as other:
        yield other


@pytest.fixture
async def database(postgres_url: str, store: PostgresStore) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """Somebody with SQL."""
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def opened(store: PostgresStore, *session_ids: str) -> dict[str, int]:
    """Create and load sessions; return their fences."""
    fences = {}
    for session_id in session_ids:
        await store.create(Session(session_id, "ann", 1.0))
        loaded = await store.load(session_id)
        assert loaded is not None
        fences[session_id] = loaded.fence
    return fences


async def seqs(store: PostgresStore, session_id: str) -> list[int]:
    return [record.seq for record in await store.messages(session_id, limit=10_000)]


async def test_what_another_gateway_wrote_is_found_although_it_was_not_expected(
    store: PostgresStore, other: PostgresStore
) -> None:
    await opened(store, "s", "t")
    assert await store.commit([said("s", 1), said("t", 1)]) == [Stored(1), Stored(1)]
    assert await other.commit([said("s", 2, "theirs"), Write("s", delivered=1)]) == [Stored(2), Stored(0)]
    outcomes = await store.commit([said("t", 2), said("s", 2, "ours"), said("s", 3, "theirs"), said("t", 3)])
    assert outcomes == [Stored(2), Rejected("seq 2 does not follow 2"), Duplicate(2), Stored(3)]
    assert await store.commit([said("s", 4), said("t", 4)]) == [Stored(4), Stored(4)]
    assert await seqs(store, "s") == await seqs(store, "t") == [1, 2, 3, 4]


async def test_a_session_that_another_gateway_loaded_is_fenced_and_its_neighbours_are_stored(
    store: PostgresStore, other: PostgresStore, database: "asyncpg.Connection[Any]"
) -> None:
    fences = await opened(store, "s", "t")
    assert await store.commit([replace(said(s, 1), fence=fences[s]) for s in "st"]) == [Stored(1), Stored(1)]
    taken = await other.load("s")
    assert taken is not None
    assert await store.commit([replace(said(s, 2), fence=fences[s]) for s in "st"]) == [Fenced(), Stored(2)]
    assert await other.commit([replace(said("s", 2), fence=taken.fence)]) == [Stored(2)]
    assert await database.fetchval("SELECT owner FROM sessions WHERE id = 's'") == "other"


async def test_a_lone_record_is_kept_with_all_that_its_write_says(store: PostgresStore) -> None:
    await opened(store, "s")
    both = [said("s", 1), said("s", 2)]
    assert await store.commit(both) == [Stored(1), Stored(2)]
    whole = replace(said("s", 3), delivered=2, state=b"new", spec=b"spec")
    assert await store.commit([whole]) == [Stored(3)]
    assert await store.commit([said("s", 4)]) == [Stored(4)]
    loaded = await store.load("s")
    assert loaded is not None
    assert (loaded.session.state, loaded.session.spec) == (b"new", b"spec")
    assert (loaded.session.last_seq, loaded.session.delivered) == (4, 2)
    kept = [write.append for write in (*both, whole, said("s", 4)) if write.append is not None]
    statuses = [Status.DELIVERED, Status.DELIVERED, Status.STORED, Status.STORED]
    assert await store.messages("s") == [replace(r, status=s) for r, s in zip(kept, statuses, strict=True)]
    assert await store.usage("ann") == Usage(1, sum(len(record.payload) for record in kept), 0)


async def test_a_lone_record_after_another_gateways_is_never_kept_on_a_belief(
    store: PostgresStore, other: PostgresStore
) -> None:
    fences = await opened(store, "s")
    assert await store.commit([said("s", 1)]) == [Stored(1)]
    assert await other.commit([said("s", 2, "theirs")]) == [Stored(2)]
    stale = replace(said("s", 2, "ours"), state=b"ours")
    assert await store.commit([stale]) == [Rejected("seq 2 does not follow 2")]
    assert await store.commit([said("s", 3, "theirs")]) == [Duplicate(2)]
    taken = await other.load("s")
    assert taken is not None
    late = replace(said("s", 4, "late"), fence=fences["s"], state=b"late")
    assert await store.commit([late]) == [Fenced()]
    found = await other.find("s")
    assert found is not None
    assert (found.state, await seqs(store, "s")) == (b"{}", [1, 2, 3])
    assert [record.cid for record in await store.messages("s")] == ["c1", "theirs", "duplicate:3"]


async def test_an_id_that_is_used_again_never_meets_an_old_writers_number(store: PostgresStore) -> None:
    fences = await opened(store, "s")
    await store.purge("s")
    again = await opened(store, "s")
    assert again["s"] > fences["s"]
    assert await store.commit([replace(said("s", 1), fence=fences["s"])]) == [Fenced()]


async def test_two_gateways_race_for_a_session_and_no_seq_is_given_twice(
    store: PostgresStore, other: PostgresStore
) -> None:
    await opened(store, "s", "t")

    async def commit(gateway: PostgresStore, batch: list[Write]) -> Sequence[Outcome]:
        """As the queue does: whoever finds a session locked for too long tries again."""
        while True:
            try:
                return await gateway.commit(batch)
            except StoreBusy:
                await asyncio.sleep(0)

    async def write(gateway: PostgresStore, who: str) -> int:
        kept = 0
        for seq in range(1, 41):
            batch = [said("s", seq, f"{who}{seq}"), said("t", seq, f"{who}{seq}")]
            outcomes = await commit(gateway, batch if who == "a" else batch[::-1])
            kept += sum(isinstance(outcome, Stored) for outcome in outcomes)
        return kept

    kept = await asyncio.gather(write(store, "a"), write(other, "b"))
    found = await seqs(store, "s"), await seqs(store, "t")
    assert found == (list(range(1, len(found[0]) + 1)), list(range(1, len(found[1]) + 1)))
    assert sum(kept) == len(found[0]) + len(found[1])


@pytest.mark.parametrize("bad", [{3}, {1, 2, 3}, {2, 5, 6, 9}, set(range(1, 11))], ids=str)
async def test_what_the_database_refuses_is_found_among_the_rest_and_buried(
    store: PostgresStore, database: "asyncpg.Connection[Any]", bad: set[int]
) -> None:
    await database.execute("ALTER TABLE messages ADD CHECK (position('curse' in encode(payload, 'escape')) = 0)")
    await opened(store, "s", "t")
    batch = []
    for seq in range(1, 11):
        batch += [said("s", seq, content="curse" if seq in bad else "hello"), said("t", seq)]
    outcomes = await store.commit(batch)
    expected: list[type[Outcome]] = [Dead if seq in bad else Stored for seq in range(1, 11)]
    assert [type(outcome) for outcome in outcomes[::2]] == expected
    assert outcomes[1::2] == [Stored(seq) for seq in range(1, 11)]
    again = await store.commit(batch)  # the reply was lost
    assert [type(outcome) for outcome in again] == [type(outcome) for outcome in outcomes]
    letters = await store.dead_letters()
    assert {letter.record.seq for letter in letters} == bad
    assert all("violates check constraint" in letter.reason for letter in letters)
    assert await seqs(store, "s") == list(range(1, 11))
    still = await store.retry_dead_letter(letters[0].number)
    assert isinstance(still, Dead)
    assert len(await store.dead_letters()) == len(bad)


async def test_a_cid_too_long_for_its_index_is_dead(store: PostgresStore) -> None:
    await opened(store, "s")
    long = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(5000))  # does not compress
    outcomes = await store.commit([said("s", 1), said("s", 2, long), said("s", 3)])
    assert [type(outcome) for outcome in outcomes] == [Stored, Dead, Stored]


async def test_a_trigger_that_says_no_buries_the_record_and_one_that_never_says_yes_sets_the_session_aside(
    store: PostgresStore, database: "asyncpg.Connection[Any]"
) -> None:
    await opened(store, "s", "t")
    await database.execute(
        """CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.role = 'user' AND (NEW.cid = 'bad' OR (SELECT id FROM sessions WHERE no = NEW.session_no) = 't')
            THEN RAISE EXCEPTION 'not in my house'; END IF; RETURN NEW; END $$;
        CREATE TRIGGER judge BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION judge()"""
    )
    assert await store.commit([said("s", 1), said("s", 2, "bad")]) == [Stored(1), Dead("not in my house")]
    with pytest.raises(StoreBusy, match="not in my house") as busy:
        await store.commit([said("s", 3), said("t", 1)])
    assert busy.value.session_ids == {"t"}
    assert await seqs(store, "s") == [1, 2]


async def test_a_write_without_a_record_that_is_refused_is_rejected_alone(
    store: PostgresStore, database: "asyncpg.Connection[Any]"
) -> None:
    await opened(store, "s")
    await database.execute("ALTER TABLE sessions ADD CHECK (state <> 'curse')")
    outcomes = await store.commit([said("s", 1), Write("s", state=b"curse"), said("s", 2)])
    assert [type(outcome) for outcome in outcomes] == [Stored, Rejected, Stored]


@pytest.mark.parametrize(
    "harm",
    [
        "ALTER TABLE messages RENAME TO elsewhere",
        "ALTER TABLE messages RENAME COLUMN payload TO body",
        "ALTER DATABASE {} SET default_transaction_read_only = on",
    ],
    ids=["no table", "no column", "read only"],
)
async def test_what_is_wrong_with_the_database_itself_buries_nobody(
    postgres_url: str, store: PostgresStore, harm: str
) -> None:
    await opened(store, "s")
    async with PostgresStore(postgres_url) as late:  # which has no connection for commits yet
        execute(postgres_url, harm.format(postgres_url.rpartition("/")[2]))
        for gateway in (late, store) if "ALTER TABLE" in harm else (late,):
            with pytest.raises(StoreUnavailable):
                await gateway.commit([said("s", 1)])


async def test_a_locked_session_is_named_and_the_others_can_go_on(
    store: PostgresStore, database: "asyncpg.Connection[Any]"
) -> None:
    await opened(store, "s", "t", "u")
    batch = [said("s", 1), said("t", 1), said("u", 1)]
    async with database.transaction():
        await database.execute("SELECT FROM sessions WHERE id = 't' FOR UPDATE")
        for _ in range(2):  # quickly, and carefully
            with pytest.raises(StoreBusy) as busy:
                await store.commit(batch)
            assert busy.value.session_ids == {"t"}
        assert await store.commit([batch[0], batch[2]]) == [Stored(1), Stored(1)]
    assert await store.commit(batch) == [Stored(1)] * 3


async def test_marks_checkpoints_and_state_travel_with_the_records(store: PostgresStore) -> None:
    """All in the one statement, on sessions that are remembered."""
    await opened(store, "s", "t")
    question = Record("s", 2, "q", "assistant", "question", b"{}", 1.0, Status.OPEN)
    await store.commit([said("s", 1), Write("s", question), Write("t", checkpoint=b"half")])
    dead = Write("t", Record("t", 1, "c\0", "user", "message", b"{}", 1.0, Status.STORED))
    batch = [
        Write("s", said("s", 3).append, marks=((1, "expired"), (3, "interrupted")), state=b"new", checkpoint=b"part"),
        Write("s", marks=((2, "answered"), (3, "expired")), delivered=1, spec=b"spec"),
        Write("t", checkpoint=b""),
        dead,
    ]
    outcomes = await store.commit(batch)
    assert [type(outcome) for outcome in outcomes] == [Stored, Stored, Stored, Dead]
    assert [record.status for record in await store.messages("s")] == ["expired", "answered", "expired"]
    s, t = await store.load("s"), await store.load("t")
    assert s is not None
    assert t is not None
    assert (s.session.state, s.session.spec, s.session.delivered, s.checkpoint) == (b"new", b"spec", 1, b"part")
    assert (t.session.state, t.checkpoint, len(await store.dead_letters("t"))) == (b"{}", b"", 1)


async def test_sessions_that_are_forgotten_are_only_slower(store: PostgresStore) -> None:
    store._heads = RememberedHeads(most=2)
    await opened(store, *"stuv")
    for seq in (1, 2, 3):
        assert await store.commit([said(s, seq) for s in "stuv"]) == [Stored(seq)] * 4


async def test_a_checkpoint_that_another_gateway_wrote_is_removed_by_who_knows_of_none(
    store: PostgresStore, other: PostgresStore
) -> None:
    await opened(store, "s")
    assert await store.commit([Write("s", checkpoint=b"")]) == [Stored(0)]
    assert await other.commit([Write("s", checkpoint=b"theirs")]) == [Stored(0)]
    assert await store.commit([said("s", 1)]) == [Stored(1)]
    assert await store.commit([Write("s", checkpoint=b"")]) == [Stored(0)]
    loaded = await store.load("s")
    assert loaded is not None
    assert loaded.checkpoint == b""


async def test_no_part_of_a_batch_reads_through_a_large_table(
    store: PostgresStore, database: "asyncpg.Connection[Any]"
) -> None:
    """Ten times the history must not slow it down, and no statistics are needed for that."""
    await database.execute(
        """INSERT INTO sessions (id, user_id, created_at, spec, state) SELECT 's' || n, 'u', 1, '', ''
            FROM generate_series(1, 500) n;
        INSERT INTO messages SELECT no, seq, 'c' || seq, 'user', 'message', '{}', 1, 'stored'
            FROM sessions, generate_series(1, 100) seq;
        SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off"""
    )
    types = {"stepped": "session_stride", "added": "new_message", "marked": "new_mark", "kept": "new_checkpoint"}
    types |= {"buried": "new_dead_letter", "removed": "bigint"}
    for part, sql in PARTS.items():
        await database.execute(f"PREPARE {part} ({types[part]}[]) AS {sql % '$1'}")
        plan = "\n".join(row[0] for row in await database.fetch(f"EXPLAIN EXECUTE {part} ('{{}}')"))
        assert "Seq Scan" not in plan, plan
    assert set(types) == set(PARTS)
    await database.execute(f"PREPARE lone AS {LONE}")
    nothing = ", ".join(["NULL"] * 15)
    plan = "\n".join(row[0] for row in await database.fetch(f"EXPLAIN EXECUTE lone ({nothing})"))
    assert "Seq Scan" not in plan, plan
