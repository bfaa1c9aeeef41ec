"""Faults of a gateway with workspaces: each the smallest campaign that can catch a certain kind of mistake. Problems
go to a session's ledger, as `kind: what`."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from sync.errors import Damaged
from sync.format.keys import Keys
from tests.campaign.sync.arena import PATIENCE, Kept, SyncArena
from tests.campaign.sync.cupboards import everything_in
from tests.support.chat import hear
from tests.support.launcher import Tampering
from tests.support.trees import differences
from tests.support.waiting import until

Scenario = Callable[[SyncArena], Awaitable[None]]


def _expect(session: Kept, holds: object, kind: str, otherwise: str) -> None:
    if not holds:
        session.ledger.says(f"{kind}: {otherwise}")


async def _filled(arena: SyncArena, session_id: str = "s0", user: str = "ada") -> Kept:
    session = await arena.create(session_id, user)
    for number in range(6):
        session.write(f"file-{number}", arena.rng.randbytes(3000))
    await session.sync()
    return session


async def _crash(arena: SyncArena, session: Kept) -> None:
    await arena.gateway.kill()
    await session.kill_bridge()


async def _came_back(arena: SyncArena, session: Kept) -> bool:
    """Whether its sandbox runs again."""
    told = await session.post("/wake")
    _expect(session, told["status"] == "running", "gone", f"{told['status']}: {told['reason']}")
    return bool(told["status"] == "running")


async def cut_short(arena: SyncArena) -> None:
    """The gateway dies when it has committed, and the disk is lost."""
    session = await _filled(arena)
    await asyncio.sleep(0.5)
    await arena.gateway.kill()
    session.write("new", arena.rng.randbytes(3000))
    disk = session.disk
    await arena.start(Tampering(crash_at=("sync.swapped", 1)))
    await arena.gateway.wait(within=PATIENCE)
    await session.kill_bridge()
    session.wipe()
    await arena.start()
    if await _came_back(arena, session):
        _expect(session, session.disk == disk, "mix", f"{differences(session.disk, disk)[:4]}")


async def asked_meanwhile(arena: SyncArena) -> None:
    """Somebody writes and requests a sync while another sync has already read the disk."""
    session = await _filled(arena)
    await arena.gateway.kill()
    session.write("before")
    await arena.start(Tampering(halt_at=("sync.pack_begun", 1)))
    await until(lambda: arena.gateway.halted, "a sync is under way", within=PATIENCE)
    session.write("meanwhile")
    asking = asyncio.create_task(session.post("/sync"))
    await asyncio.sleep(0.2)  # it is on its way
    arena.gateway.process.send_signal(signal.SIGCONT)
    generation = (await asking)["sync"]["generation"]
    _, stored = await session.stored(generation)
    _expect(session, b"workspace/meanwhile" in stored, "early", f"it is not in {generation}")


async def sleeps(arena: SyncArena) -> None:
    """Put the session to sleep, delete its disk, wake it."""
    session = await _filled(arena)
    session.write("last words")
    disk = session.disk
    await session.post("/sleep")
    session.wipe()
    if await _came_back(arena, session):
        _expect(session, session.disk == disk, "lost", f"{differences(session.disk, disk)[:4]}")


async def drains(arena: SyncArena) -> None:
    """The gateway gets SIGTERM."""
    session = await _filled(arena)
    session.write("last words")
    disk = session.disk
    await arena.gateway.terminate()
    _, stored = await session.stored()
    _expect(session, stored == disk, "lost", f"{differences(stored, disk)[:4]}")
    await arena.start()


async def crashes(arena: SyncArena) -> None:
    """Twice: with newer files on the disk, and with hardly any."""
    session = await _filled(arena)
    await arena.gateway.kill()
    session.write("newer")
    await session.kill_bridge()
    disk = session.disk
    await arena.start()
    if await _came_back(arena, session):
        _expect(session, session.disk == disk, "lost", f"newer: {differences(session.disk, disk)[:4]}")
    await session.sync()
    await _crash(arena, session)
    for number in range(1, 6):
        Path(session.home.workspace / f"file-{number}").unlink(missing_ok=True)
    await arena.start()
    if await _came_back(arena, session):
        _expect(session, session.disk == disk, "lost", f"for good: {differences(session.disk, disk)[:4]}")


async def damaged(arena: SyncArena) -> None:
    """First the newest generation is damaged, then all are, and the disk is lost each time."""
    session = await _filled(arena)
    before, first = await everything_in(arena.cupboard), session.disk
    session.write("second", arena.rng.randbytes(3000))
    await session.sleep()
    session.wipe()
    async with arena.cupboard.objects() as store:
        for key in (key for key in await everything_in(arena.cupboard) if "/packs/" in key and key not in before):
            got = await store.get(key)
            assert got is not None
            await store.put(key, bytes(byte ^ (at % 50 == 49) for at, byte in enumerate(got.content)))
        async with arena.gateway.chat(session.id) as socket:
            await hear(socket, "welcome")
            if await _came_back(arena, session):
                told = await hear(socket, lambda frame: frame.get("status") == "restored")
                _expect(session, told.get("degraded"), "silent", "an older generation came back without a word")
                _expect(session, session.disk == first, "mix", "neither the one nor the other")
        await session.post("/sleep")
        session.wipe()
        for key in (key for key in await everything_in(arena.cupboard) if "/packs/" in key):
            await store.delete(key)
        kept = await _snapshots(arena)
        told = await session.post("/wake")
        _expect(session, told["status"] == "unrestored", "pushed", f"it is {told['status']} without a workspace")
        answer = await session.ask("POST", "/sync", json={})
        _expect(session, answer is not None and answer.status_code == 409, "pushed", "a sync was not refused")
        _expect(session, await _snapshots(arena) == kept, "pushed", "what is stored has changed")


async def _snapshots(arena: SyncArena) -> dict[str, str]:
    return {key: digest for key, digest in (await everything_in(arena.cupboard)).items() if not key.endswith("/marks")}


async def neighbours(arena: SyncArena) -> None:
    """One session is deleted; another has a longer name, a third another owner."""
    session, longer, other = await _filled(arena, "a"), await _filled(arena, "ab"), await _filled(arena, "o", "bob")
    keys = set(await everything_in(arena.cupboard))
    prefixes = {key[: len(Keys.of_user("ada").prefix)] for key in keys}
    _expect(other, prefixes == {Keys.of_user(user).prefix for user in ("ada", "bob")}, "shared", f"{prefixes}")
    await session.ask("DELETE")
    left = {key.split("/")[-2] for key in await everything_in(arena.cupboard) if "/sessions/" in key}
    _expect(longer, left == {"ab", "o"}, "deleted", f"{left} are left")


async def play(arena: SyncArena, scenario: Scenario) -> list[str]:
    """The ledgers' findings afterwards, and the steps that could not be done."""
    problems = []
    try:
        await scenario(arena)
    except Damaged as error:
        problems.append(f"mix: {error}")
    except (AssertionError, TimeoutError, ExceptionGroup) as error:
        problems.append(f"stuck: {str(error)[:2000]}")
    return [problem for session in arena.sessions for problem in session.ledger.problems] + problems
