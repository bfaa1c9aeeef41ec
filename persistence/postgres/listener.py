"""Notifies the other gateways on the database which conversations grew here, and listens to theirs.

A notification is a hint: readers that follow a conversation also look now and then. So it does not travel with the
commit, which it would delay by waking every listener, but right behind it, and the number of notifications a second
is limited.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from random import Random

import structlog

from persistence import backoff
from persistence.errors import StoreUnavailable
from persistence.postgres.connections import Connection, Connections
from persistence.postgres.errors import translated

log = structlog.stdlib.get_logger()

CHANNEL = "holdfast"
NOTIFY_BYTES = 7_900  # PostgreSQL's limit is 8,000
EVERYBODY = ""  # too many sessions to name
ANNOUNCE_SECONDS = 0.02  # between two notifications
PROBE_SECONDS = 30.0  # a silent loss of the connection shows only in a query
REMEMBERED_QUESTIONS = 4096
REMEMBERED_NEWS = 4096


class PostgresListener:
    """Calls `grown(session id)` for other gateways' commits. After a break, and for news of too many sessions to
    name, it calls it for the sessions that were read lately."""

    def __init__(self, connections: Connections, grown: Callable[[str], None]) -> None:
        self._connections = connections
        self._grown = grown
        self._asked: dict[str, None] = {}  # the longest ago first
        self._news: set[str] = set()
        self._woken = asyncio.Event()
        self._rng = Random()

    def asked(self, session_id: str) -> None:
        """A client read this session, and may want news of it."""
        self._asked.pop(session_id, None)
        self._asked[session_id] = None
        if len(self._asked) > REMEMBERED_QUESTIONS:
            del self._asked[next(iter(self._asked))]

    def announce(self, session_ids: Iterable[str]) -> None:
        """Notify the others soon. Ids beyond what one notification can name are not remembered."""
        if len(self._news) < REMEMBERED_NEWS:
            self._news.update(session_ids)
        self._woken.set()

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                connection = await self._connections.listening()
                failures = 0
                try:
                    with translated("listen"):
                        await self._serve(connection)
                finally:
                    connection.terminate()
            except StoreUnavailable as error:
                if failures == 0:
                    log.warning("store.not_listening", cause=str(error))
            await asyncio.sleep(backoff.delay(failures, self._rng))
            failures += 1

    async def _serve(self, connection: Connection) -> None:
        """Run until the connection is lost."""
        connection.add_termination_listener(lambda _: self._woken.set())
        own = connection.get_server_pid()  # read now: the connection may have ended when a notification arrives
        await connection.add_listener(CHANNEL, lambda _, pid, __, payload: None if pid == own else self._hear(payload))
        self._tell_all()
        while not connection.is_closed():
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    await self._woken.wait()
            except TimeoutError:
                await connection.execute("SELECT 1")
                continue
            self._woken.clear()
            if self._news:
                news, self._news = self._news, set()
                await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, notification(news))
                await asyncio.sleep(ANNOUNCE_SECONDS)

    def _hear(self, payload: object) -> None:
        """Another gateway's news; the store has reported its own already."""
        session_ids = named(str(payload))
        if session_ids is None:
            self._tell_all()
            return
        for session_id in session_ids:
            self._grown(session_id)

    def _tell_all(self) -> None:
        for session_id in list(self._asked):
            self._grown(session_id)


def notification(session_ids: Iterable[str]) -> str:
    """The names of the sessions, if they fit."""
    names = json.dumps(list(session_ids), separators=(",", ":"))
    return names if len(names) <= NOTIFY_BYTES else EVERYBODY


def named(payload: str) -> list[str] | None:
    """The sessions in a notification; None if it may mean any. Every client of a database can send one."""
    try:
        names = json.loads(payload)
    except ValueError:
        return None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else None
