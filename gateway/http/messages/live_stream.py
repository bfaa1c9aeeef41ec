"""One reader's live stream of a conversation, as server-sent events.

An event is a record, its id the record's seq: a reader that comes back with its Last-Event-ID misses nothing and gets
nothing twice. The reader is woken when the session grows, and looks every two seconds all the same, so that a lost
notification costs two seconds and not the record. Nothing is read ahead: a slow reader holds one page.

The stream waits for a store that is away. It ends when the session is gone, or the gateway leaves.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import structlog

from gateway.http.messages.pages import RecordFilter, SessionGone, pages, record_bytes, unbroken
from gateway.session.store_events import StoreEvents
from persistence.errors import StoreUnavailable
from persistence.paging import Look, seen_again
from persistence.ports import MessageStore
from persistence.record import Session

log = structlog.get_logger()

KEEP_ALIVE_SECONDS = 15.0
POLL_SECONDS = 2.0


class LiveRecords:
    """The records of `session` after `after` that are in `only`, at most `limit` of them."""

    def __init__(
        self,
        store: MessageStore,
        hearing: StoreEvents,
        look: Look,
        session: Session,
        *,
        after: int,
        limit: int,
        only: RecordFilter,
    ) -> None:
        self._store = store
        self._hearing = hearing
        self._look = look
        self._session = session
        self._after = after
        self._wanted = limit
        self._only = only
        self._away = False

    async def events(self) -> AsyncGenerator[bytes, None]:
        now = asyncio.get_running_loop().time
        yield b": holdfast\n\n"
        said = now()
        with self._hearing.follow(self._session.id) as follower:
            while self._goes_on():
                async for event in self._patiently():
                    if not event and now() - said >= KEEP_ALIVE_SECONDS:
                        event = b": still here\n\n"
                    if event:
                        yield event
                        said = now()
                if self._goes_on():
                    await follower.wait(POLL_SECONDS)

    def _goes_on(self) -> bool:
        return self._wanted > 0 and not self._hearing.is_leaving()

    async def _patiently(self) -> AsyncIterator[bytes]:
        """New events, and none while the store is away; b"" where a sign of life may be sent."""
        try:
            async for event in self._news():
                yield event
            self._away = False
        except SessionGone:
            self._wanted = 0
        except StoreUnavailable as error:
            if not self._away:  # once for each outage, however long it lasts
                log.info("reader.store_unavailable", session_id=self._session.id, cause=repr(error))
            self._away = True
        yield b""

    async def _news(self) -> AsyncIterator[bytes]:
        session = await seen_again(self._look, self._session)
        if session is None:
            raise SessionGone(f"session {self._session.id} was removed")
        if self._after + 1 < session.first_seq:
            self._after = session.first_seq - 1
            yield b'event: trimmed\ndata: {"firstSeq":%d}\n\n' % session.first_seq
        end = session.last_seq + 1
        wanted, only = self._wanted, self._only
        found = pages(self._store, self._look, session, after=self._after, before=end, wanted=wanted, only=only)
        # A record that is missing was trimmed meanwhile: the next look finds that, and then the reader gets `trimmed`.
        async for page in found if self._only else unbroken(found, self._after):
            for record in page:
                self._after = record.seq
                self._wanted -= 1
                yield b"id: %d\ndata: %s\n\n" % (record.seq, record_bytes(record))
                if not self._goes_on():
                    return
            yield b""
        if self._only:  # the filter left these records out
            self._after = max(self._after, session.last_seq)
