"""Reading a few records at a time gives what reading all at once would, and asks no large question."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.messages.pages import AT_ONCE, RecordFilter, SessionGone, first_of_newest, pages, unbroken
from persistence.memory import MemoryStore
from persistence.record import Record, Session, Write
from tests.support.replaced import ReplacedStore

SESSION = Session("s", "ada", 0.0)


class Watched(MemoryStore):
    """Remembers how large each question was."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    async def messages(self, session_id: str, **asked: Any) -> list[Record]:
        self.largest = max(self.largest, asked["limit"])
        return await super().messages(session_id, **asked)


def record(seq: int, role: str = "user", type: str = "message") -> Record:
    return Record("s", seq, f"c{seq}", role, type, b"{}", float(seq))


async def filled(kinds: list[tuple[str, str]], trimmed: int = 0) -> Watched:
    store = Watched()
    await store.create(SESSION)
    await store.commit([Write("s", record(seq, *kind)) for seq, kind in enumerate(kinds, 1)])
    await store.trim("s", older_than=None, keep=0, below=trimmed + 1)
    return store


KIND = st.tuples(st.sampled_from(["user", "tool"]), st.sampled_from(["message", "note"]))
KINDS = st.lists(KIND, max_size=10) | st.lists(KIND, min_size=40, max_size=80)
ONLY = st.builds(RecordFilter, st.sampled_from([None, "user", "tool"]), st.sampled_from([None, "message", "rare"]))


def wants(only: RecordFilter, kind: tuple[str, str]) -> bool:
    return only.role in (None, kind[0]) and only.type in (None, kind[1])


@given(
    kinds=KINDS, only=ONLY, after=st.just(0) | st.integers(0, 60), before=st.just(100) | st.integers(0, 90),
    wanted=st.none() | st.integers(0, 60), trimmed=st.just(0) | st.integers(0, 30), span=st.integers(1, 40),
)  # fmt: skip
def test_pages_hold_what_was_asked_for_in_order(
    kinds: list[tuple[str, str]],
    only: RecordFilter,
    after: int,
    before: int,
    wanted: int | None,
    trimmed: int,
    span: int,
) -> None:
    async def read() -> tuple[list[int], int]:
        store = await filled(kinds, trimmed)
        found = pages(store, store.find, SESSION, after=after, before=before, wanted=wanted, only=only, span=span)
        return [record.seq async for page in found for record in page], store.largest

    found, largest = asyncio.run(read())
    right = [seq for seq, kind in enumerate(kinds, 1) if trimmed < seq and after < seq < before and wants(only, kind)]
    assert found == right[:wanted]
    assert largest <= AT_ONCE


@given(kinds=KINDS, only=ONLY, before=st.integers(1, 90), wanted=st.integers(1, 60))
def test_the_newest_begin_where_the_last_so_many_do(
    kinds: list[tuple[str, str]], only: RecordFilter, before: int, wanted: int
) -> None:
    async def read() -> int:
        return await first_of_newest(await filled(kinds), "s", before=before, wanted=wanted, only=only)

    right = [seq for seq, kind in enumerate(kinds, 1) if seq < before and wants(only, kind)][-wanted:]
    assert asyncio.run(read()) == (right[0] if right else before)


@given(seqs=st.sets(st.integers(4, 60)), size=st.integers(1, 7))
def test_reading_stops_before_a_record_that_is_missing(seqs: set[int], size: int) -> None:
    records = [record(seq) for seq in sorted(seqs)]

    async def read() -> list[int]:
        async def found() -> Any:
            for start in range(0, len(records), size):
                yield records[start : start + size]

        return [record.seq async for page in unbroken(found(), 3) for record in page]

    whole = asyncio.run(read())
    assert whole == list(range(4, 4 + len(whole)))
    assert 4 + len(whole) not in seqs


@pytest.mark.parametrize("then", [None, Session("s", "eve", 1.0), Session("s", "eve", 0.0), Session("s", "ada", 1.0)])
async def test_no_page_is_of_another_session_by_the_same_id(then: Session | None) -> None:
    """Whichever read the purge comes before: every record that comes out is of the session that was asked for."""
    count = 3 * AT_ONCE

    async def read(store: ReplacedStore, seen: list[Record]) -> None:
        async for page in pages(store, store.find, SESSION, after=0, before=count + 1):
            seen += page

    for step in range(1, 7):
        store, seen = ReplacedStore(step, then), list[Record]()
        await store.fill(SESSION, count)
        with pytest.raises(SessionGone):
            await read(store, seen)
        assert [each.seq for each in seen] == list(range(1, (step - 1) // 2 * AT_ONCE + 1))
