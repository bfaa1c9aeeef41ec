"""A stage on PostgreSQL, with a proxy between the gateway and its database."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

from tests.campaign.stage import Stage
from tests.support.postgres import PostgresServer
from tests.support.proxy import StoreProxy
from tests.support.waiting import until


@asynccontextmanager
async def on_postgres(
    server: PostgresServer, staging: Callable[..., AbstractAsyncContextManager[Stage]]
) -> AsyncIterator[tuple[Stage, StoreProxy]]:
    """A stage, made by `staging`, on its own database. The checker reads that without the proxy."""
    url = server.create_database()
    async with StoreProxy(server.port) as proxy:
        parts = urlsplit(url)
        behind = parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{proxy.port}")
        async with staging(STORE=urlunsplit(behind)) as stage:
            stage.database = url
            yield stage, proxy


def leave(stage: Stage, proxy: StoreProxy) -> None:
    """The database is away from here on."""
    proxy.leave()
    stage.journal.note("fault", kind="store away")


def come_back(stage: Stage, proxy: StoreProxy) -> None:
    stage.journal.note("fault", kind="store back")
    proxy.come_back()


def accepted(stage: Stage) -> int:
    """How many messages were accepted before they were stored."""
    return sum(len(each.accepted) for each in stage.everybody)


async def more_accepted(stage: Stage, count: int, *, within: float = 30.0) -> None:
    goal = accepted(stage) + count
    await until(lambda: accepted(stage) >= goal, f"{count} more accepted", within=within)
