"""A restore fails, and then everything happens that may lead to a sync. The stored objects stay as they are, byte for
byte, until somebody lets the session begin empty; and the old generations can still be restored after that."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.size import report, seeded, sized
from tests.campaign.sync.arena import Described, Kept, SyncArena, arena_on
from tests.campaign.sync.cupboards import Bucket, Cupboard, Directory, everything_in
from tests.support.chat import hear, say
from tests.support.faulty_s3 import FaultyS3
from tests.support.launcher import Launcher
from tests.support.s3 import S3Server
from tests.support.trees import differences

Trigger = Callable[["Unrestored"], Awaitable[None]]
BY_REQUEST: dict[str, Any] = {"SYNC_DEBOUNCE": 600, "SYNC_MAX_WAIT": 600}  # no sync begins by itself
BY_ITSELF = {"SYNC_DEBOUNCE": 0.1, "SYNC_MAX_WAIT": 1}


async def _snapshots(cupboard: Cupboard) -> dict[str, str]:
    """All objects but the notes about damage."""
    return {key: digest for key, digest in (await everything_in(cupboard)).items() if not key.endswith("/marks")}


class Unrestored:
    """A session whose restore has failed."""

    def __init__(self, arena: SyncArena, session: Kept) -> None:
        self.arena = arena
        self.session = session

    async def is_unrestored(self) -> Described:
        """Nor is it being retried: a request under way could succeed when the store works again."""
        told = await self.session.until(
            lambda told: (told["status"], told["sandboxStatus"]) == ("unrestored", "disconnected"), "unrestored"
        )
        assert told["sync"]["state"] == "unrestored"
        assert told["reason"]
        return told

    async def fails_again(self, way: str) -> None:
        told = await self.session.post(way)
        assert told["status"] == "unrestored", f"seed={self.arena.seed}: {told}\n{self.arena.log}"


async def _sync(case: Unrestored) -> None:
    told = await case.session.post("/sync", status=409)
    assert told["code"] == "unrestored"


async def _sync_without_waiting(case: Unrestored) -> None:
    told = await case.session.post("/sync?wait=0", status=409)
    assert told["code"] == "unrestored"


async def _last_viewer_leaves(case: Unrestored) -> None:
    async with case.arena.gateway.chat(case.session.id) as socket:
        await hear(socket, "welcome")


async def _message(case: Unrestored) -> None:
    """The message waits, the restore is retried, and the sender learns why that failed, and that the message waited
    too long."""
    async with case.arena.gateway.chat(case.session.id) as socket:
        await hear(socket, "welcome")
        await say(socket, "message", cid="m1", content="hello")
        heard: set[str] = set()

        def all_heard(frame: Described) -> bool:
            heard.add(str(frame.get("code", frame["type"])))
            return {"unrestored", "expired"} <= heard

        await hear(socket, all_heard, within=60)


async def _sleep(case: Unrestored) -> None:
    await case.session.post("/sleep")
    answer = await case.session.ask("POST", "/sync", json={})
    assert answer is not None
    assert answer.status_code in (200, 503), answer.text  # nothing to keep, or not restored either
    await case.fails_again("/wake")


async def _pause(case: Unrestored) -> None:
    assert (await case.session.post("/pause"))["status"] == "paused"
    await case.session.post("/wake", status=409)
    await case.fails_again("/resume")


async def _wake(case: Unrestored) -> None:
    await case.fails_again("/wake")


async def _files_change(case: Unrestored) -> None:
    case.session.home.workspace.mkdir(parents=True, exist_ok=True)
    case.session.write("stray", b"nobody should be here")


async def _gateway_drains(case: Unrestored) -> None:
    await case.arena.gateway.terminate()
    await case.arena.start()


async def _gateway_dies(case: Unrestored) -> None:
    await case.session.durable()
    await case.arena.gateway.kill()
    await case.arena.start()


async def _create_again(case: Unrestored) -> None:
    await case.arena.gateway.create(case.session.id)


TRIGGERS: tuple[Trigger, ...] = (
    _sync, _sync_without_waiting, _last_viewer_leaves, _message, _sleep, _pause, _wake, _files_change, _gateway_drains,
    _gateway_dies, _create_again,
)  # fmt: skip


async def _lose(arena: SyncArena, session: Kept, *, clean: bool) -> None:
    """The sandbox ends, in order or not, and its disk is gone."""
    if clean:
        await session.sleep()
    else:
        await arena.gateway.kill()
        await session.kill_bridge()
    session.wipe(whole=arena.rng.random() < 0.5)
    if not clean:
        await arena.start()


@asynccontextmanager
async def _harmed(cupboard: Cupboard, *, missing: bool) -> AsyncIterator[None]:
    """Packs are missing, or bits of each are turned; on leaving they are as they were."""
    async with cupboard.objects() as store:
        packs = {found.key: found async for found in store.list("v1/") if "/packs/" in found.key}
        whole = {key: got.content for key in packs if (got := await store.get(key)) is not None}
        for key, content in whole.items():
            if missing:
                await store.delete(key)
            else:
                await store.put(key, bytes(byte ^ (at % 50 == 49) for at, byte in enumerate(content)))
        try:
            yield
        finally:
            for key, content in whole.items():
                await store.put(key, content)


async def _prepare(arena: SyncArena, **settings: object) -> Kept:
    """A session with a few generations, each with some files, and then an empty disk. Until then no sync may begin by
    itself: a generation with only an empty file would be restored without any pack. From then on syncs do, and the
    gateway has `settings`."""
    session = await arena.create("s0")
    for number in range(3):
        session.gardener.edit(12)
        session.write(f"of-{number}", arena.rng.randbytes(5000))
        await session.sync()
    await arena.restart(**BY_ITSELF, **settings)
    await session.running()
    async with arena.vault() as vault:
        kept = {each.number: each.files for each in (await vault.pointer(session.user, session.id)).generations}
    assert (sorted(kept), all(kept.values())) == (sorted(session.ledger.known), True)
    await _lose(arena, session, clean=arena.rng.random() < 0.5)
    return session


async def _play(arena: SyncArena, session: Kept, count: int) -> None:
    """While the restore fails, no event changes the stored objects."""
    case = Unrestored(arena, session)
    await case.fails_again("/wake")
    before = await _snapshots(arena.cupboard)
    chosen = arena.rng.sample(TRIGGERS, count)
    for trigger in chosen:
        await trigger(case)
        await case.is_unrestored()
        assert await _snapshots(arena.cupboard) == before, f"seed={arena.seed}: after {trigger.__name__}"
    report(f"{count} triggers of a sync after a failed restore: {len(before)} objects untouched; seed={arena.seed}")


async def _begin_anew(arena: SyncArena, session: Kept) -> None:
    """The session begins empty, and earlier generations stay."""
    before = await _snapshots(arena.cupboard)
    told = await session.post("/resume", empty=True)
    assert told["status"] == "running"
    await session.running()
    assert session.disk == {}
    session.write("afresh")
    newest = session.ledger.reported
    assert await session.sync() > newest
    after = await _snapshots(arena.cupboard)
    assert {key for key in before if after.get(key) != before[key]} <= {key for key in before if "/sessions/" in key}


async def _old_ones_can_be_had(arena: SyncArena, session: Kept, generations: list[int]) -> None:
    for generation in generations:
        branched = await session.post(f"/snapshots/{generation}/branch", status=201)
        branch = arena.adopt(branched["id"])
        await branch.post("/wake")
        await branch.running()
        assert not differences(branch.disk, session.ledger.known[generation]), f"seed={arena.seed}"
    await session.check_stored()


@pytest.mark.soak
@pytest.mark.parametrize("missing", [False, True], ids=["corrupted", "missing"])
async def test_nothing_is_pushed_after_a_restore_from_damaged_packs(tmp_path: Path, missing: bool) -> None:
    seed, rng = seeded()
    cupboard = Directory(tmp_path / "objects")
    async with (
        Launcher() as launcher,
        arena_on(tmp_path, cupboard, seed, rng, launcher=launcher, PENDING_TTL=1, **BY_REQUEST) as arena,
    ):
        session = await _prepare(arena)
        old = sorted(session.ledger.known)
        async with _harmed(cupboard, missing=missing):
            await _play(arena, session, len(TRIGGERS))
            await _begin_anew(arena, session)
        await _old_ones_can_be_had(arena, session, old[sized(-1, 0) :])
        arena.acquit(f"begun anew after {'missing' if missing else 'corrupted'} packs")


@pytest.mark.soak
@pytest.mark.parametrize("silent", [False, True], ids=["away", "silent"])
async def test_nothing_is_pushed_after_a_restore_from_a_store_that_was_away(
    tmp_path: Path, s3_server: S3Server, silent: bool
) -> None:
    seed, rng = seeded()
    async with (
        FaultyS3(s3_server.port, rng) as faults,
        Launcher() as launcher,
        arena_on(
            tmp_path, Bucket(s3_server, s3_server.make_place(), faults.port), seed, rng, launcher=launcher,
            PENDING_TTL=1, **BY_REQUEST,
        ) as arena,
    ):  # fmt: skip
        session = await _prepare(arena, RESTORE_TIMEOUT=1)
        old = sorted(session.ledger.known)
        if silent:
            faults.stall()
        else:
            faults.busy = 1.0
        await _play(arena, session, sized(3, len(TRIGGERS)))  # each takes as long as the gateway waits for the store
        faults.heal()
        await arena.restart(RESTORE_TIMEOUT=60)  # a step that should succeed may take longer than a second
        await _begin_anew(arena, session)
        await _old_ones_can_be_had(arena, session, old[sized(-1, 0) :])
        arena.acquit(f"begun anew after a store was {'silent' if silent else 'away'}")
