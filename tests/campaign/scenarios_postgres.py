"""Faults of a gateway on PostgreSQL, with a proxy between them."""

import asyncio

from tests.campaign.arena import Arena
from tests.campaign.database import come_back, leave, more_accepted, on_postgres
from tests.campaign.poster import Poster
from tests.support.gateway import Gateway
from tests.support.postgres import execute

POISON = "ALTER TABLE messages ADD CHECK (cid NOT LIKE 'poison%')"


async def outage(arena: Arena) -> None:
    """The database goes, the conversation goes on, the gateway dies and comes back, and then the database does."""
    async with on_postgres(arena.postgres, arena.stage) as (stage, proxy):
        await stage.create(1, 2, 4000, pace=0.001, pause=0.005)
        async with stage.playing():
            await stage.progress(10)
            leave(stage, proxy)
            await more_accepted(stage, 30)
            await stage.gateway.kill()
            stage.journal.note("fault", kind="kill")
            come_back(stage, proxy)
            await stage.gateway.start()
            await arena.settle(stage, sent=stage.settled + 20)


async def short_outage(arena: Arena) -> None:
    """The database goes for a moment."""
    async with on_postgres(arena.postgres, arena.stage) as (stage, proxy):
        await stage.create(1, 2, 4000, pace=0.001, pause=0.005)
        async with stage.playing():
            await stage.progress(10)
            leave(stage, proxy)
            await more_accepted(stage, 30)
            come_back(stage, proxy)
            await arena.settle(stage, sent=stage.settled + 20)


async def lost_replies(arena: Arena) -> None:
    """Connections end between a commit and its answer."""
    async with on_postgres(arena.postgres, arena.stage) as (stage, proxy):
        await stage.create(1, 2, 4000, pace=0.001, pause=0.005)
        async with stage.playing():
            await stage.progress(10)
            for _ in range(5):
                if await proxy.lose_a_reply(within=2):
                    stage.journal.note("fault", kind="reply lost")
                await stage.progress(stage.settled + 10, within=arena.patience)
            await arena.settle(stage)


async def poison(arena: Arena) -> None:
    """The database refuses the messages of one sender."""
    async with on_postgres(arena.postgres, arena.stage) as (stage, _):
        execute(stage.database, POISON)
        await stage.create(1, 2, 60, pace=0.001, pause=0.005)
        stage.join("s0", "poison", 6, pause=0.02)
        async with stage.playing():
            await arena.settle(stage, sent=66)


async def two_gateways(arena: Arena) -> None:
    """Two gateways on one database take a session from each other, again and again, while both get messages."""
    async with on_postgres(arena.postgres, arena.stage) as (stage, _):
        other = Gateway(arena.directory / "other", STORE=stage.database)
        other.launcher, other.tampering = arena.launcher, arena.tampering()
        async with other:
            await stage.gateway.create("shared")
            await stage.ask("shared", "pause")  # no agent takes part
            posters = [Poster(f"p{number}", "shared", stage.journal) for number in range(4)]
            try:
                async with asyncio.timeout(arena.patience + 10), asyncio.TaskGroup() as posting:
                    for number, poster in enumerate(posters):
                        posting.create_task(poster.run((stage.gateway, other)[number % 2], 25))
                async with asyncio.timeout(arena.patience):  # the judge comes to the one that has lost it
                    await Poster("last", "shared", stage.journal).run(other, 1)
            finally:
                if "session.crashed" in other.log:
                    arena.problems.append(f"wrong: a session crashed: {other.log[-3000:]}")
            await other.kill()
