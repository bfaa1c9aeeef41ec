"""What only the HTTP sink does, against a real service in its own process."""

import asyncio
import sqlite3
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from persistence import crash_points
from persistence.errors import CannotOpen, StoreBroken, StoreFull, StoreUnavailable
from persistence.http_sink.scheduler import SUSPECTS
from persistence.http_sink.store import HttpStore
from persistence.record import Dead, Duplicate, Outcome, Record, Rejected, Session, Spooled, Stored, Write
from sandbox.client.http_client import connect_tcp
from tests.support.records import said
from tests.support.sink import TOKEN, Rule, SinkProcess
from tests.support.waiting import until


class Ear:
    """Remembers what was settled, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, Outcome]] = []

    def grown(self, session_id: str) -> None:
        pass

    def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        self.told.append((session_id, seq, outcome))


@pytest.fixture(scope="module")
async def service() -> AsyncIterator[SinkProcess]:
    async with SinkProcess() as service:
        yield service


@pytest.fixture
async def sink(service: SinkProcess) -> SinkProcess:
    """The service, as if it had just been started."""
    await service.misbehave()
    await service.forget()
    return service


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.db"


def opened(sink: SinkProcess, path: Path, *, post_seconds: float = 10.0, rng: Random | None = None) -> HttpStore:
    store = HttpStore(sink.url, TOKEN, path, connect_tcp, rng=rng or Random(1), post_seconds=post_seconds)
    store.heard = Ear()
    return store


def said_at(created_at: float, seq: int, content: str) -> Write:
    write = said("s", seq, content=content)
    assert write.append is not None
    return replace(write, append=replace(write.append, created_at=created_at))


async def begin(store: HttpStore, *session_ids: str) -> None:
    for session_id in session_ids or ("s",):
        await store.create(Session(session_id, "ann", 1.0))


def told(store: HttpStore, session_id: str = "s") -> list[tuple[int, Outcome]]:
    assert isinstance(store.heard, Ear)
    return [(seq, outcome) for session, seq, outcome in store.heard.told if session == session_id]


async def caught_up(store: HttpStore) -> None:
    await until(lambda: store.stats()["waiting"] == 0 and store.stats()["posting"] == 0)


async def test_a_record_is_accepted_then_posted_then_settled(sink: SinkProcess, path: Path) -> None:
    async with opened(sink, path) as store:
        await begin(store)
        outcomes = await store.commit([said("s", 1), Write("s", state=b"x"), said("s", 2, "c1"), said("s", 3)])
        assert outcomes == [Spooled(1, unique=True), Stored(0), Duplicate(1), Spooled(3, unique=True)]
        assert store.behind("s")
        assert told(store) == []
        await caught_up(store)
        assert not store.behind("s")
        assert told(store) == [(seq, Stored(seq)) for seq in (1, 2, 3)]
    first, third = await sink.kept()
    assert (first["key"], first["session"], first["type"]) == ("s.1.d8c2f56213ded87f", "s", "application/json")
    assert first["message"] == {
        "role": "user",
        "type": "message",
        "content": "hello",
        "metadata": {},
        "cid": "c1",
        "seq": 1,
        "createdAt": "1970-01-01T00:00:01.000Z",
    }
    assert third["key"].startswith("s.3.")


async def test_sessions_are_posted_side_by_side_and_each_in_order(sink: SinkProcess, path: Path) -> None:
    names = [f"s{number}" for number in range(50)]
    await sink.misbehave(Rule(keep=True, delay=0.02))
    async with opened(sink, path) as store:
        await begin(store, *names)
        for seq in range(1, 5):
            await store.commit([said(name, seq) for name in names])
        await caught_up(store)
    for name in names:
        assert await sink.seqs(name) == [1, 2, 3, 4]
    figures = await sink.figures()
    assert figures["most_per_session"] == 1
    assert 16 < figures["most_at_once"] <= 32


@pytest.mark.parametrize(
    "trouble",
    [
        Rule(status=500),
        Rule(status=503, headers={"retry-after": "0"}),
        Rule(status=408),
        Rule(status=429),
        Rule(status=302, headers={"location": "/base/internal/sessions/elsewhere/messages"}),
        Rule(status=401),
        Rule(status=403),
        Rule(status=200, body="<html>hello</html>"),
        Rule(status=200, body='{"ok":true}', keep=True),
        Rule(flood=True),
        Rule(cut=True),
        Rule(cut=True, keep=True),
        Rule(hang=True),
        Rule(hang=True, keep=True),
    ],
    ids=lambda rule: str({name: value for name, value in vars_of(rule).items() if value}),
)
async def test_what_may_heal_is_posted_until_it_is_taken_once(sink: SinkProcess, path: Path, trouble: Rule) -> None:
    trouble.times, trouble.seq = 2, 2
    await sink.misbehave(trouble)
    async with opened(sink, path, post_seconds=2 if trouble.hang else 60) as store:  # it holds for the good posts, too
        await begin(store)
        with capture_logs() as logs:
            await store.commit([said("s", seq) for seq in range(1, 4)])
            await caught_up(store)
        assert told(store) == [(seq, Stored(seq)) for seq in range(1, 4)]
        assert store.stats()["retries"] == 2
        assert store.failing is None
        assert await store.dead_letters() == []
    assert [entry["event"] for entry in logs] == ["sink.failing", "sink.recovered"]
    assert (logs[0]["log_level"] == "error") == (
        trouble.status in (302, 401, 403) or bool(trouble.body or trouble.flood)
    )
    assert TOKEN not in str(logs)
    assert await sink.seqs("s") == [1, 2, 3]
    assert await sink.seqs("elsewhere") == []
    assert (await sink.figures())["conflicts"] == []


def vars_of(rule: Rule) -> dict[str, object]:
    return {name: getattr(rule, name) for name in ("status", "headers", "body", "flood", "cut", "keep", "hang")}


async def test_a_service_that_is_not_there_is_waited_for(tmp_path: Path, path: Path) -> None:
    async with SinkProcess(journal=tmp_path / "journal") as sink:
        async with opened(sink, path) as store:
            await begin(store)
            await store.commit([said("s", 1)])
            await caught_up(store)
            await sink.kill()
            assert await store.commit([said("s", 2)]) == [Spooled(2, unique=True)]
            await until(lambda: store.failing is not None)
            assert store.failing is not None
            assert "Connect" in store.failing
            assert store.behind("s")
            await sink.start()
            await caught_up(store)
        assert await sink.seqs("s") == [1, 2]


async def test_retry_after_is_honoured_and_holds_up_nobody_else(sink: SinkProcess, path: Path) -> None:
    await sink.misbehave(Rule(session="slow", status=429, headers={"retry-after": "300"}))
    async with opened(sink, path) as store:
        await begin(store, "slow", "well")
        await store.commit([said("slow", 1)])
        await until(lambda: store.failing is not None)
        for seq in range(1, 30):
            await store.commit([said("well", seq)])
            await until(lambda: not store.behind("well"))
        assert store.behind("slow")
        assert (store.stats()["retries"], store.stats()["failing_sessions"]) == (1, 1)


async def test_many_sessions_that_hang_delay_no_other(sink: SinkProcess, path: Path) -> None:
    """More of them than there are turns: without a part kept free, everybody would wait for their time-outs."""
    hanging = [f"h{number}" for number in range(60)]
    await sink.misbehave(*[Rule(session=name, status=503) for name in hanging])
    async with opened(sink, path, post_seconds=1000.0) as store:
        await begin(store, "well", *hanging)
        await store.commit([said(name, 1) for name in hanging])
        await until(lambda: store.stats()["failing_sessions"] == 60)
        await sink.misbehave(*[Rule(session=name, hang=True) for name in hanging])
        await until(lambda: busy(sink, SUSPECTS))
        for seq in range(1, 11):
            await store.commit([said("well", seq)])
            await until(lambda: not store.behind("well"))
        assert store.stats()["waiting"] == 60
    assert len(await sink.seqs("well")) == 10


async def test_a_refused_record_is_buried_and_the_next_goes_on(sink: SinkProcess, path: Path) -> None:
    await sink.misbehave(Rule(seq=2, status=422, body=f"no \x1b[2J {TOKEN} " + "x" * 500))
    async with opened(sink, path) as store:
        await begin(store)
        with capture_logs() as logs:
            await store.commit([said("s", seq) for seq in range(1, 4)])
            await caught_up(store)
        assert [seq for seq, _ in told(store)] == [1, 2, 3]
        outcome = told(store)[1][1]
        assert isinstance(outcome, Dead)
        assert outcome.reason.startswith("422: no \\x1b[2J *** xxx")
        assert len(outcome.reason) < 320
        assert [record.cid for record in await store.messages("s")] == ["c1", "rejected:2", "c3"]
        (letter,) = await store.dead_letters()
        assert (letter.record.seq, letter.record.cid, letter.reason) == (2, "c2", outcome.reason)
        assert (store.stats()["rejected"], store.stats()["retries"], store.failing) == (1, 0, None)
        assert TOKEN not in str(logs)
        assert await store.commit([said("s", 2)]) == [Dead("the store refused it")]  # its reply was lost
    async with opened(sink, path) as store:
        assert not store.behind("s")
    assert await sink.seqs("s") == [1, 3]


async def test_a_record_that_is_no_json_is_buried_unposted(sink: SinkProcess, path: Path) -> None:
    async with opened(sink, path) as store:
        await begin(store)
        await store.commit([Write("s", Record("s", 1, "c1", "user", "message", b"{nonsense", 1.0)), said("s", 2)])
        await caught_up(store)
        assert [type(outcome) for _, outcome in told(store)] == [Dead, Stored]
        assert store.posts == 1


async def test_a_dead_letter_is_posted_again_and_takes_its_place(sink: SinkProcess, path: Path) -> None:
    await sink.misbehave(Rule(seq=1, status=400, times=2), Rule(seq=1, status=503, times=1))
    async with opened(sink, path) as store:
        await begin(store)
        await store.commit([said("s", 1), said("s", 2)])
        await caught_up(store)
        (letter,) = await store.dead_letters()
        assert isinstance(await store.retry_dead_letter(letter.number), Dead)
        with pytest.raises(StoreUnavailable, match="503"):
            await store.retry_dead_letter(letter.number)
        assert await store.dead_letters() == [letter]
        assert await store.retry_dead_letter(letter.number) == Stored(1)
        assert await store.retry_dead_letter(letter.number) is None
        assert [record.cid for record in await store.messages("s")] == ["c1", "c2"]
    assert await sink.seqs("s") == [2, 1]


async def test_a_dead_letter_without_a_place_is_not_posted(sink: SinkProcess, path: Path) -> None:
    await sink.misbehave(Rule(seq=1, status=400), Rule(seq=2, status=400))
    async with opened(sink, path) as store:
        await begin(store)
        await store.commit([said("s", 1), said("s", 2)])
        await caught_up(store)
        await store.commit([said("s", 3, "c2")])
        await store.trim("s", older_than=None, keep=2, below=2)
        gone, known = await store.dead_letters()
        assert isinstance(await store.retry_dead_letter(gone.number), Rejected)
        assert await store.retry_dead_letter(known.number) == Duplicate(3)
        await caught_up(store)
    assert await sink.seqs("s") == [3]


async def test_after_a_restart_the_rest_is_posted_before_anything_new(sink: SinkProcess, path: Path) -> None:
    await sink.misbehave(Rule(status=503))
    async with opened(sink, path) as store:
        await begin(store, "s", "t")
        for seq in range(1, 71):  # more than two pages
            await store.commit([said("s", seq)])
        await store.commit([said("t", 1, "x"), said("t", 2, "x")])
        with capture_logs() as logs:
            await store.__aexit__(None, None, None)
        assert [(entry["event"], entry["records"]) for entry in logs] == [("sink.left_behind", 71)]
    await sink.misbehave()
    async with opened(sink, path) as store:
        assert store.behind("s")
        await store.commit([said("s", 71)])
        await caught_up(store)
        assert told(store) == [(seq, Stored(seq)) for seq in range(1, 72)]
        assert told(store, "t") == [(1, Stored(1)), (2, Stored(2))]  # the last is a marker
        assert store.stats()["oldest_age_seconds"] == 0.0
    assert await sink.seqs("s") == list(range(1, 72))
    assert await sink.seqs("t") == [1]


async def test_what_was_taken_is_not_posted_again_after_a_restart(sink: SinkProcess, path: Path) -> None:
    before = (await sink.figures())["repeats"]
    for seq in (1, 2, 3):
        async with opened(sink, path) as store:
            await begin(store)
            await store.commit([said("s", seq)])
            await caught_up(store)
    assert (await sink.figures())["repeats"] == before
    assert await sink.seqs("s") == [1, 2, 3]


async def test_cursors_are_kept_now_and_then(sink: SinkProcess, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[str] = []
    monkeypatch.setattr(crash_points, "reached", reached.append)
    async with opened(sink, path) as store:
        await begin(store)
        await store.commit([said("s", seq) for seq in range(1, 21)])
        await until(lambda: "sink.kept" in reached)
        assert reached.count("sink.posted") == 20
        assert reached.count("sink.kept") == 1
        assert await store.all_behind() == []


async def test_a_purged_session_is_forgotten_and_its_id_begins_anew(sink: SinkProcess, path: Path) -> None:
    """Its next life has the same seqs: with the old keys or the old cursor the service would never get them."""
    async with opened(sink, path, post_seconds=2.0) as store:
        for life, content in enumerate(("first", "second", "third")):
            await begin(store)
            await store.commit([said_at(life, seq, content) for seq in (1, 2, 3)])
            await caught_up(store)
            if content == "second":
                await sink.misbehave(Rule(seq=4, hang=True, times=1))
                await store.commit([said("s", 4), said("s", 5)])
                await until(lambda: busy(sink, 1))
            await store.purge("s")
            assert not store.behind("s")
            assert store.stats()["waiting"] == 0
        await caught_up(store)
    assert [(entry["message"]["seq"], entry["message"]["content"]) for entry in await sink.kept()] == [
        (seq, content) for content in ("first", "second", "third") for seq in (1, 2, 3)
    ]


@pytest.mark.parametrize("kept", [0, 1, 2], ids=["lost", "old", "a little old"])
async def test_a_data_directory_that_is_lost_or_set_back_gets_no_new_record_lost(
    sink: SinkProcess, path: Path, kept: int
) -> None:
    """Its seqs begin again where it was, with other records than the service has for them."""
    async with opened(sink, path) as store:
        await begin(store)
        await store.commit([said_at(1, seq, "before") for seq in range(1, kept + 1)])
        await caught_up(store)
    backup = path.read_bytes()
    async with opened(sink, path) as store:
        await store.commit([said_at(1, seq, "before") for seq in range(kept + 1, 4)])
        await caught_up(store)
    restored = path.with_name("restored.db")
    if kept:
        restored.write_bytes(backup)
    async with opened(sink, restored) as store:
        await begin(store)
        await store.commit([said_at(2, seq, "after") for seq in range(kept + 1, 4)])
        await caught_up(store)
        assert [outcome for _, outcome in told(store)] == [Stored(seq) for seq in range(kept + 1, 4)]
    assert [(entry["message"]["seq"], entry["message"]["content"]) for entry in await sink.kept()] == [
        *((seq, "before") for seq in (1, 2, 3)),
        *((seq, "after") for seq in range(kept + 1, 4)),
    ]


async def test_a_cursor_of_a_purged_session_is_not_one_of_its_next_life(sink: SinkProcess, path: Path) -> None:
    async with opened(sink, path) as store:
        await begin(store)
        await store.commit([said("s", seq) for seq in (1, 2, 3)])
        await caught_up(store)
        await store.purge("s")
        await sink.misbehave(Rule(status=503))
        await begin(store)
        await store.commit([said_at(2, seq, "again") for seq in (1, 2, 3)])
    await sink.misbehave()
    async with opened(sink, path) as store:
        await caught_up(store)
    assert await sink.seqs("s") == [1, 2, 3, 1, 2, 3]


async def test_a_full_disk_says_so_and_what_was_accepted_goes_on(sink: SinkProcess, path: Path) -> None:
    await sink.misbehave(Rule(seq=1, status=503))
    async with opened(sink, path) as store:
        await begin(store)
        await store.commit([said("s", 1), said("s", 2)])
        await leave_pages(store, 0)
        with pytest.raises(StoreFull):
            await store.commit([said("s", 3, content="x" * 50_000)])
        await sink.misbehave(Rule(seq=1, status=400))
        await caught_up(store)
        assert [type(outcome) for _, outcome in told(store)] == [Dead, Stored]
        await leave_pages(store, 1_000)
        assert await store.commit([said("s", 3, content="x" * 50_000)]) == [Spooled(3, unique=True)]
        await caught_up(store)
    assert await sink.seqs("s") == [2, 3]


async def test_a_burial_that_the_index_cannot_keep_is_tried_again(sink: SinkProcess, path: Path) -> None:
    await sink.misbehave(Rule(seq=1, status=503))
    async with opened(sink, path) as store:
        await begin(store)
        other = sqlite3.connect(path, isolation_level=None)
        try:
            await store.commit([said("s", 1), said("s", 2)])
            other.execute("BEGIN IMMEDIATE")  # somebody with a database browser
            await sink.misbehave(Rule(seq=1, status=400))
            await until(lambda: "index" in str(store.failing))
        finally:
            other.close()
        await caught_up(store)
        assert [type(outcome) for _, outcome in told(store)] == [Dead, Stored]
        assert len(await store.dead_letters()) == 1
    assert await sink.seqs("s") == [2]


async def leave_pages(store: HttpStore, extra: int) -> None:
    """Let the file grow by so many pages from now on."""

    def limit(db: sqlite3.Connection) -> None:
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages + extra}")

    await store._file.write("limit", limit)


async def busy(sink: SinkProcess, posts: int) -> bool:
    return bool((await sink.figures())["busy"] >= posts)


async def test_what_the_service_does_not_have_is_not_trimmed(sink: SinkProcess, path: Path) -> None:
    await sink.misbehave(Rule(seq=3, status=503))
    async with opened(sink, path) as store:
        await begin(store)
        await store.commit([said("s", seq) for seq in range(1, 6)])
        await store.commit([Write("s", delivered=5)])
        await until(lambda: store.failing is not None)
        assert await store.trim("s", older_than=None, keep=0, below=9) == 2
        await sink.misbehave()
        await caught_up(store)
        assert await store.trim("s", older_than=None, keep=0, below=9) == 3
    assert await sink.seqs("s") == [1, 2, 3, 4, 5]


async def test_records_trimmed_before_their_cursor_was_kept_are_not_waited_for(sink: SinkProcess, path: Path) -> None:
    async with opened(sink, path) as store:
        await begin(store)
        await store.commit([said("s", 1), Write("s", delivered=1)])
        await caught_up(store)
        assert await store.trim("s", older_than=None, keep=0, below=9) == 1
        store._cursors.clear()  # as if it had been killed now
    async with opened(sink, path) as store:
        assert store.behind("s")
        await caught_up(store)
        assert not store.behind("s")
        assert told(store) == [(1, Stored(1))]


async def test_an_outage_grows_the_file_and_not_the_process(sink: SinkProcess, path: Path) -> None:
    await sink.misbehave(Rule(status=503))
    async with opened(sink, path) as store:
        await begin(store, "s", "t")
        await store.commit([said("s", 1), said("t", 1)])
        tracemalloc.start()
        try:
            for seq in range(2, 1002):
                await store.commit([said("s", seq, content="x" * 20_000), said("t", seq)])
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert store.stats()["waiting"] == 2002
        assert path.stat().st_size + path.with_name("spool.db-wal").stat().st_size > 20_000_000
        assert grown < 4_000_000


async def test_records_accepted_for_one_service_do_not_go_to_another(sink: SinkProcess, path: Path) -> None:
    async with opened(sink, path) as store:
        await begin(store)
        await sink.misbehave(Rule(status=503))
        await store.commit([said("s", 1)])
    with pytest.raises(CannotOpen, match=f"holds 1 records that were accepted for {sink.url}"):
        async with HttpStore("http://127.0.0.1:9/other", TOKEN, path, connect_tcp, rng=Random(1)):
            pass
    await sink.misbehave()
    async with opened(sink, path) as store:
        await caught_up(store)
    async with HttpStore("http://127.0.0.1:9/other", TOKEN, path, connect_tcp, rng=Random(1)) as store:
        assert not store.behind("s")


async def test_a_commit_whose_caller_left_is_posted_all_the_same(sink: SinkProcess, path: Path) -> None:
    async with opened(sink, path) as store:
        await begin(store)
        task = asyncio.create_task(store.commit([said("s", 1)]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await until(lambda: told(store) == [(1, Stored(1))])


async def test_a_courier_that_died_is_not_silently_missed(sink: SinkProcess, path: Path) -> None:
    class NoDice(Random):
        def uniform(self, a: float, b: float) -> float:
            raise ArithmeticError("no dice")

    await sink.misbehave(Rule(status=503))
    async with opened(sink, path, rng=NoDice()) as store:
        await begin(store)
        with capture_logs() as logs:
            await store.commit([said("s", 1)])
            await until(lambda: any(entry["event"] == "sink.died" for entry in logs))
        with pytest.raises(StoreBroken, match="courier"):
            await store.commit([said("s", 2)])


async def test_its_age_is_that_of_the_oldest_record_that_waits(sink: SinkProcess, path: Path) -> None:
    await sink.misbehave(Rule(status=503))
    async with opened(sink, path) as store:
        await begin(store)
        record = Record("s", 1, "c", "user", "message", b"{}", time.time() - 500)
        await store.commit([Write("s", record)])
        assert 500 <= store.stats()["oldest_age_seconds"] < 5000
    async with opened(sink, path) as store:
        assert 500 <= store.stats()["oldest_age_seconds"] < 5000


@pytest.mark.parametrize("token", ["", "two\nlines", " padded", "ünicode"])
def test_a_token_that_cannot_be_a_header_is_refused_and_not_shown(token: str, path: Path) -> None:
    with pytest.raises(ValueError, match="printable ASCII") as refused:
        HttpStore("http://127.0.0.1:9", token, path, connect_tcp, rng=Random(1))
    assert not token or token not in str(refused.value)


async def test_opening_says_what_is_wrong_and_leaves_nothing_open(sink: SinkProcess, tmp_path: Path) -> None:
    with pytest.raises(CannotOpen):
        async with opened(sink, tmp_path / "nowhere" / "spool.db"):
            pass
    store = opened(sink, tmp_path / "spool.db")
    with pytest.raises(StoreUnavailable):
        await store.commit([said("s", 1)])
    await store.__aexit__(None, None, None)
