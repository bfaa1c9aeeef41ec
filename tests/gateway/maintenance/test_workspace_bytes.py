"""The sum of all snapshots: counted in the store, then kept by what changes here."""

import asyncio
import math

import pytest
from msgspec.structs import replace

from gateway.maintenance.workspace_bytes import SESSIONS_AT_ONCE, WorkspaceBytes
from gateway.session.model.state import SessionState
from persistence.errors import StoreUnavailable
from persistence.memory import MemoryStore
from persistence.record import Session, Write
from tests.support.faults import Fault, FlakyStore

pytestmark = pytest.mark.virtual_time


def session(number: int, size: int) -> Session:
    return Session(f"s{number}", "ada", float(number), b"{}", SessionState(snapshot_bytes=size).to_json())


async def test_all_pages_are_counted_and_what_changes_here_is_added() -> None:
    store, changes = MemoryStore(), 7
    stored = WorkspaceBytes(store, lambda: changes)
    assert math.isnan(stored.read())
    many = 2 * SESSIONS_AT_ONCE + 1
    for number in range(many):
        await store.create(session(number, 10))
    await stored.count()
    assert stored.read() == 10 * many, "what changed before the count is in it"
    changes += 5
    assert stored.read() == 10 * many + 5
    counting = asyncio.create_task(stored.count())
    await asyncio.sleep(0.01)
    changes += 3
    await counting
    assert stored.read() == 10 * many + 3, "what changes during a count is added"


async def test_a_count_corrects_what_another_gateway_did_and_one_that_fails_changes_nothing() -> None:
    store = MemoryStore()
    flaky = FlakyStore(store)
    stored = WorkspaceBytes(flaky, lambda: 0)
    await store.create(session(1, 10))
    await stored.count()
    loaded = await store.load("s1")
    assert loaded is not None
    await store.commit([Write("s1", state=replace(SessionState(), snapshot_bytes=99).to_json(), fence=loaded.fence)])
    flaky.outage = Fault.AWAY
    with pytest.raises(StoreUnavailable):
        await stored.count()
    assert stored.read() == 10
    flaky.outage = None
    await stored.count()
    assert stored.read() == 99
