"""Who removes what sandboxes left behind, and when; and what is let alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from structlog.testing import capture_logs

from gateway.session.loaded import LoadedSessions
from gateway.session.model.state import SessionState, SessionStatus
from gateway.session.orphans import LOOK_SECONDS, NO_SESSION, Orphan, Orphans
from gateway.telemetry.telemetry import Metrics
from persistence.memory import MemoryStore
from persistence.record import Session
from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.leftovers import LeavesThings, Leftover
from sandbox.ports.sandbox import SandboxUnavailable
from sandbox.providers.memory.fleet import MemoryFleet
from tests.support.faults import Fault, FlakyStore

pytestmark = pytest.mark.virtual_time

DEAD = Leftover("c1", "s1", "it has ended")


class _Leaving(MemoryFleet):
    """Its sandboxes leave things, which `left` are."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[Leftover] = []
        self.ended = asyncio.Event()
        self.listeners = 0

    def end(self, leftover: Leftover) -> None:
        self.left.append(leftover)
        self.ended.set()

    async def leftovers(self) -> list[Leftover]:
        self._answer()
        return list(self.left)

    async def clear(self, leftover: Leftover) -> bool:
        self._answer()
        if leftover not in self.left:
            return False
        self.left.remove(leftover)
        return True

    async def endings(self) -> AsyncIterator[None]:
        self._answer()
        self.listeners += 1
        yield
        while True:
            await self.ended.wait()
            self._answer()
            self.ended.clear()
            yield


@asynccontextmanager
async def kept(
    fleet: MemoryFleet, store: FlakyStore | None = None, *, removes: bool = True, metrics: Metrics | None = None
) -> AsyncIterator[Orphans]:
    known = store or FlakyStore(MemoryStore())
    orphans = Orphans([fleet], known, LoadedSessions(), metrics or Metrics(), Random(0), removes=removes)
    running = asyncio.create_task(orphans.run())
    try:
        yield orphans
    finally:
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()


async def until_gone(fleet: _Leaving) -> float:
    """In how many seconds."""
    began = asyncio.get_running_loop().time()
    while fleet.left:  # noqa: ASYNC110 - it is virtual time
        await asyncio.sleep(0.1)
    return asyncio.get_running_loop().time() - began


def spec(session_id: str) -> SandboxSpec:
    return SandboxSpec(session_id, 1, ("agent",))


async def test_what_was_left_is_removed_when_the_gateway_opens_and_when_something_ends() -> None:
    fleet, metrics = _Leaving(), Metrics()
    fleet.left = [DEAD]
    async with kept(fleet, metrics=metrics):
        assert await until_gone(fleet) < 5
        await asyncio.sleep(60)
        fleet.end(DEAD)
        assert await until_gone(fleet) < 5
        await asyncio.sleep(60)
        fleet.left.append(DEAD)  # nobody is told
        assert 60 < await until_gone(fleet) <= LOOK_SECONDS
    assert b'holdfast_orphans_removed_total{provider="memory"} 3.0' in metrics.render()


async def test_many_ends_are_one_look() -> None:
    fleet = _Leaving()
    async with kept(fleet):
        await asyncio.sleep(60)
        with capture_logs() as logs:
            for number in range(100):
                fleet.end(Leftover(f"c{number}", "", "it has ended"))
            await until_gone(fleet)
        assert [each["event"] for each in logs] == ["sandbox.orphan_removed"] * 100


async def test_a_provider_that_does_not_answer_is_asked_again_and_heard_again() -> None:
    fleet = _Leaving()
    async with kept(fleet):
        await asyncio.sleep(60)
        fleet.unavailable = "away"
        fleet.end(DEAD)
        await asyncio.sleep(600)
        assert fleet.left == [DEAD]
        before = fleet.listeners
        fleet.unavailable = None
        assert await until_gone(fleet) < 120
        await asyncio.sleep(60)
        assert fleet.listeners == before + 1
        fleet.end(DEAD)
        assert await until_gone(fleet) < 5


async def test_a_sandbox_without_a_session_is_stopped_within_the_hour_and_one_with_a_session_is_not() -> None:
    fleet, store = MemoryFleet(), FlakyStore(MemoryStore())
    assert not isinstance(fleet, LeavesThings)
    archived = SessionState(status=SessionStatus.ARCHIVED).to_json()
    await store.create(Session("known", "ada", 1.0))
    await store.create(Session("archived", "ada", 1.0, state=archived))
    async with kept(fleet, store) as orphans:
        for name in ("known", "archived", "unknown"):
            await fleet.start(spec(name))
        assert {each.left.session_id for each in await orphans.look()} == {"archived", "unknown"}
        await asyncio.sleep(60)
        assert len(await fleet.running()) == 3
        store.outage = Fault.AWAY
        await asyncio.sleep(LOOK_SECONDS)
        assert len(await fleet.running()) == 3, "nobody knows whose they are"
        store.outage = None
        await asyncio.sleep(120)
        assert await fleet.running() == ["known"]


async def test_without_the_policy_they_are_told_once_and_removed_when_somebody_asks() -> None:
    fleet = _Leaving()
    fleet.left = [DEAD]
    await fleet.start(spec("unknown"))
    with capture_logs() as logs:
        async with kept(fleet, removes=False) as orphans:
            await asyncio.sleep(3 * LOOK_SECONDS)
            assert fleet.left == [DEAD]
            found = await orphans.look()
            assert found == [Orphan("memory", DEAD), Orphan("memory", Leftover("unknown", "unknown", NO_SESSION))]
            assert await orphans.remove() == found
            assert (fleet.left, await fleet.running()) == ([], [])
            assert await orphans.look() == await orphans.remove() == []
            fleet.left = [DEAD]
            await asyncio.sleep(2 * LOOK_SECONDS)
    told = [(each["event"], each["name"]) for each in logs]
    assert told[:2] == [("sandbox.orphan", "c1"), ("sandbox.orphan", "unknown")]
    assert told[2:] == [
        ("sandbox.orphan_removed", "c1"),
        ("sandbox.orphan_removed", "unknown"),
        ("sandbox.orphan", "c1"),
    ]


async def test_what_cannot_be_asked_is_told_to_who_asks() -> None:
    fleet = _Leaving()
    fleet.unavailable = "away"
    async with kept(fleet) as orphans:
        with pytest.raises(SandboxUnavailable):
            await orphans.look()
