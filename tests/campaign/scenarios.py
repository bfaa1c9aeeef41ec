"""Faults of a gateway on SQLite: each the smallest campaign that can catch a certain kind of mistake."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.campaign.arena import Arena, die
from tests.support.gateway import REPOSITORY
from tests.support.power import Disk


async def calm(arena: Arena) -> None:
    """Nothing goes wrong. All sessions use the same cids."""
    async with arena.stage() as stage:
        await stage.create(2, 2, 120, pace=0.001, same_names=True, under_way=20)
        async with stage.playing():
            await arena.settle(stage, sent=120)


async def kills(arena: Arena) -> None:
    """kill -9 before COMMIT, after it, and at random."""
    await _killed(arena, "store.written", "store.committed", None, "store.written", "queue.committed")


async def killed_before_commit(arena: Arena) -> None:
    """kill -9 before COMMIT, again and again: it takes luck that something was on its way to the agent just then."""
    await _killed(arena, *["store.written"] * 16)


async def _killed(arena: Arena, *points: str | None) -> None:
    async with arena.stage() as stage:
        await stage.create(1, 2, 4000, pace=0.001, pause=0.005)
        async with stage.playing():
            await stage.progress(10)
            await stage.gateway.kill()
            for point in points:
                crash_at = None if point is None else (point, stage.rng.randint(2, 12))
                await die(stage, arena.tampering(crash_at))
            stage.gateway.tampering = arena.tampering()
            await stage.gateway.start()
            await arena.settle(stage)


async def locked(arena: Arena) -> None:
    """Another process locks the database for a while."""
    arena.patches = (*arena.patches, "impatient")
    async with arena.stage() as stage:
        await stage.create(1, 2, 4000, pace=0.001, pause=0.005, under_way=20)
        async with stage.playing():
            await stage.progress(20)
            with closing(sqlite3.connect(stage.gateway.data_dir / "holdfast.db", isolation_level=None)) as db:
                db.execute("BEGIN IMMEDIATE")
                stage.journal.note("fault", kind="locked")
                await asyncio.sleep(1.5)
                db.execute("ROLLBACK")
            await arena.settle(stage, sent=stage.settled + 40)


async def held(arena: Arena) -> None:
    """The sandbox is away for longer than the window waits, and more is sent than the window holds."""
    async with arena.stage(PENDING_TTL=1, PENDING_LIMIT=10) as stage:
        await stage.create(1, 2, 30, pace=0.001)
        await stage.ask("s0", "pause")
        async with stage.playing():
            await arena.settle(stage, sent=30)


async def power_cut(arena: Arena) -> None:
    """The machine stops in the middle, and comes back with the synced content of its disk."""
    with Disk(arena.directory) as disk:
        if not disk.real:  # without the right to mount: at least check the setting that would have saved it
            if await asyncio.to_thread(_synchronous, disk.path, arena.patches) != 2:
                arena.problems.append("lost: PRAGMA synchronous is not FULL")
            return
        async with arena.stage(STORE=f"sqlite:///{disk.path}/holdfast.db") as stage:
            gateway = stage.gateway
            await stage.create(1, 2, 4000, pace=0.001)
            async with stage.playing():
                await stage.progress(60)
                gateway.process.send_signal(signal.SIGSTOP)
                image = await asyncio.to_thread(disk.snapshot)
                await gateway.kill()
                stage.journal.note("fault", kind="power cut")
                await asyncio.to_thread(disk.become, image)
                await gateway.start()
                await arena.settle(stage)


def _synchronous(directory: Path, patches: Sequence[str]) -> int:
    """The setting of a writer's connection."""
    ask = (
        "import asyncio, sys; from pathlib import Path; from persistence.sqlite.file import SqliteFile\n"
        "from tests.campaign.mutants import PATCHES\n"
        "for name in sys.argv[2:]: PATCHES[name]()\n"
        "async def main():\n"
        "    async with SqliteFile(Path(sys.argv[1]) / 'x.db', 'sqlite') as file:\n"
        "        print(await file.write('ask', lambda db: db.execute('PRAGMA synchronous').fetchone()[0]))\n"
        "asyncio.run(main())"
    )
    asked = [sys.executable, "-c", ask, str(directory), *patches]
    return int(subprocess.run(asked, capture_output=True, check=True, cwd=REPOSITORY).stdout)
