"""Changes of a user's sessions, sent to the pages that watch them (`/ws/events`).

A new page gets the whole list (session_list.py), then the changes. This loads and wakes no session: one that is not
loaded is described from the store. There is a *watch* for each user who has a page open, and nothing for the others: a
session that changes looks for its user's watch, finds none, and goes on.

A changed session is described when it is due (throttle.py), in its state at that time, and sent if the description
differs from the last one sent. Each transition of a sync is sent. For a page that does not read, changes wait
(viewer_backlog.py) or the page is closed; no change is lost silently, because a page that comes back begins with the
whole list. Changes made by another gateway are not seen here.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Protocol
from weakref import ReferenceType, ref

import orjson
import structlog

from gateway.feed.session_list import SessionList
from gateway.feed.throttle import Throttle
from gateway.feed.viewer import EventViewer
from gateway.protocol import chat_frames
from gateway.protocol.close_codes import CloseCode
from persistence.errors import StoreUnavailable
from persistence.record_json import iso
from sandbox.protocol.websocket_frames import frame_text
from sync.machine.history import Moved

log = structlog.get_logger()

SOON_SECONDS = 0.05
INTERVAL_SECONDS = 0.2  # between two frames about the same session
FEED_SECONDS = 0.05
TOLD_AT_ONCE = 200  # sessions
LOOK_SECONDS = 5.0  # for the store to describe a session
LOOK_AGAIN_SECONDS = 1.0

Described = dict[str, Any]


class SessionCatalogue(Protocol):
    """Finds and describes sessions; `Catalogue` of gateway/session/catalogue.py implements it."""

    def loaded(self, session_id: str) -> Described | None:
        """The session's description, if it is loaded here."""
        ...

    async def kept(self, session_id: str) -> Described | None:
        """The session as the store has it; None if there is none. Loads no session. Raises StoreUnavailable."""
        ...

    def described(self, user_id: str | None) -> AsyncIterator[list[Described]]:
        """Every session of the user, some at a time; other tasks run in between. Raises StoreUnavailable."""
        ...


def moved_members(moved: Moved) -> Mapping[str, Any]:
    """A transition as clients see it; empty members are left out."""
    made = moved.transition
    shown: dict[str, Any] = {"state": made.state, "generation": made.generation, "at": iso(moved.at)}
    if made.attempt:
        shown["attempt"] = made.attempt
    if made.reason is not None:
        shown["reason"] = made.reason
    return shown


class SessionFeed:
    """Every method but `join` and `look_up` returns at once."""

    def __init__(self, catalogue: SessionCatalogue) -> None:
        self._catalogue = catalogue
        self._watches: dict[str, _Watch] = {}
        self._unloaded: dict[tuple[str, str], None] = {}  # changed and not loaded: user, session
        self._looking: tuple[str, str] | None = None
        self._bell = asyncio.Event()
        self._farewell: bytes | None = None
        self._over = False

    def __len__(self) -> int:
        return sum(len(watch.viewers) for watch in self._watches.values())

    # Called by sessions

    def stir(self, user_id: str, session_id: str) -> None:
        """The description of the session may have changed."""
        if self._watches and (watch := self._watches.get(user_id)) is not None:
            watch.stir(session_id)

    def moved(self, user_id: str, session_id: str, moved: Moved) -> None:
        if self._watches and (watch := self._watches.get(user_id)) is not None:
            frame = frame_text(chat_frames.dump("sync", id=session_id, **moved_members(moved)))
            for viewer in list(watch.viewers):
                viewer.say(frame)

    def gone(self, user_id: str, session_id: str) -> None:
        """The session was purged."""
        self._unloaded.pop((user_id, session_id), None)
        if self._looking == (user_id, session_id):
            self._looking = None
        if (watch := self._watches.get(user_id)) is not None:
            watch.gone(session_id)

    # Called by pages

    async def join(self, user_id: str, viewer: EventViewer) -> None:
        """Watch from here on; return when the list is made, with which the viewer can `begin`. Call `leave` in the end,
        also after an error. Raises StoreUnavailable."""
        if (watch := self._watches.get(user_id)) is None:
            watch = self._watches[user_id] = _Watch(self, user_id)
        await watch.join(viewer)

    def begin(self, user_id: str, viewer: EventViewer) -> None:
        self._watches[user_id].begin(viewer)
        if self._farewell is not None:  # it joined while the others were told to come back
            self._see_off(viewer, self._farewell)
        if self._over:
            viewer.close(CloseCode.COMING_BACK)

    def leave(self, user_id: str, viewer: EventViewer) -> None:
        watch = self._watches.get(user_id)
        if watch is not None:
            watch.viewers.pop(viewer, None)
            if not watch.viewers:
                watch.end()
                del self._watches[user_id]

    # Called by the gateway

    def say_goodbye(self, retry_after: float) -> None:
        self._farewell = frame_text(chat_frames.dump("going_away", retryAfter=retry_after))
        for watch in self._watches.values():
            for viewer in [viewer for viewer in watch.viewers if viewer.begun]:
                self._see_off(viewer, self._farewell)

    @staticmethod
    def _see_off(viewer: EventViewer, farewell: bytes) -> None:
        viewer.outlet.pause_reading()
        viewer.say(farewell)

    def close(self) -> None:
        """Close every page; all are to come back later."""
        self._over = True
        for watch in self._watches.values():
            watch.end()
            for viewer in [viewer for viewer in watch.viewers if viewer.begun]:
                viewer.close(CloseCode.COMING_BACK)

    async def look_up(self) -> None:
        """For ever: describe changed sessions that are not loaded, one after the other. A store that is away is asked
        again later; loaded sessions do not wait for it."""
        while True:
            if not self._unloaded:
                self._bell.clear()
                await self._bell.wait()
            key = next(iter(self._unloaded), None)
            if key is None:
                continue
            del self._unloaded[key]
            self._looking = key
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    described = await self._catalogue.kept(key[1])
            except (StoreUnavailable, TimeoutError):
                if self._looking is not None and key[0] in self._watches:
                    self._unloaded[key] = None
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
                continue
            if self._looking is not None and (watch := self._watches.get(key[0])) is not None:
                watch.looked_up(key[1], described)

    def ask_store(self, user_id: str, session_id: str) -> None:
        self._unloaded[user_id, session_id] = None
        self._bell.set()

    def loaded(self, session_id: str) -> Described | None:
        return self._catalogue.loaded(session_id)

    def described(self, user_id: str) -> AsyncIterator[list[Described]]:
        return self._catalogue.described(user_id)


class _Watch:
    """One user's pages, and the last descriptions sent to them."""

    def __init__(self, bulletin: SessionFeed, user_id: str) -> None:
        self._bulletin = bulletin
        self._user_id = user_id
        self._loop = asyncio.get_running_loop()
        self._pacing = Throttle(soon=SOON_SECONDS, interval=INTERVAL_SECONDS)
        self._timer: asyncio.TimerHandle | None = None
        self._feeding: asyncio.TimerHandle | None = None
        self._over = False
        self.viewers: dict[EventViewer, None] = {}
        self._told: dict[str, bytes] = {}  # a digest of each session's last description, since the last list was made
        self._making: asyncio.Task[None] | None = None
        self._listing: ReferenceType[SessionList] | None = None  # lives while a page waits for it or is sent it

    # The list

    async def join(self, viewer: EventViewer) -> None:
        """One list serves all pages that come while it is made, or while it is still being sent: however many pages do
        not read, memory holds one list."""
        self.viewers[viewer] = None
        viewer.on_behind = self.feed_later
        listing = self._shared()
        if listing is None or (self._making is None and not listing.current):
            listing = SessionList()
            self._listing = ref(listing)
            self._making = self._loop.create_task(self._make(listing), name=f"list {self._user_id}")
        viewer.await_list(listing)
        del listing  # the viewer frees it once it has all of it; no other reference may keep it longer
        if self._making is not None:
            await asyncio.wait([making := self._making])
            if making.cancelled():
                raise StoreUnavailable("the gateway has ended")
            making.result()

    def _shared(self) -> SessionList | None:
        return None if self._listing is None else self._listing()

    async def _make(self, listing: SessionList) -> None:
        try:
            async for some in self._bulletin.described(self._user_id):
                listing.add(some)
            listing.end()
        finally:
            self._making = None
            self._told.clear()  # the list may differ from the last descriptions sent

    def stir(self, session_id: str) -> None:
        self._schedule(self._pacing.stir(session_id, self._loop.time()))

    def gone(self, session_id: str) -> None:
        self._pacing.forget(session_id)
        self._told.pop(session_id, None)
        frame = frame_text(chat_frames.dump("gone", id=session_id))
        if (listing := self._shared()) is not None:
            listing.gone(session_id, frame)
        for viewer in list(self.viewers):
            viewer.tell_gone(session_id, frame)

    def end(self) -> None:
        self._over = True
        for timer in (self._timer, self._feeding):
            if timer is not None:
                timer.cancel()
        if self._making is not None:
            self._making.cancel()

    # When it is due

    def _schedule(self, due: float | None) -> None:
        """Set the timer to then, unless it is due earlier."""
        if due is None or self._over:
            return
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._tell_due)

    def _tell_due(self) -> None:
        self._timer = None
        for session_id in self._pacing.due(self._loop.time(), TOLD_AT_ONCE):  # the others have their turn in between
            try:
                self._tell(session_id)
            except Exception:  # one session's mistake must not stop the news of all others
                log.exception("bulletin.failed", session_id=session_id)
        self._schedule(self._pacing.next)

    def _tell(self, session_id: str) -> None:
        described = self._bulletin.loaded(session_id)
        if described is None:
            self._bulletin.ask_store(self._user_id, session_id)
        elif described["userId"] == self._user_id:
            self._show(session_id, described)

    def looked_up(self, session_id: str, described: Described | None) -> None:
        """The store's description of a session. One that was loaded meanwhile is described by its actor."""
        if self._bulletin.loaded(session_id) is not None:
            self.stir(session_id)
        elif described is None or described["userId"] != self._user_id:
            self.gone(session_id)
        else:
            self._show(session_id, described)

    def _show(self, session_id: str, described: Described) -> None:
        """Send a description to all pages, unless only the time of the last activity has changed."""
        told = hashlib.blake2b(orjson.dumps({**described, "lastActiveAt": None}), digest_size=16).digest()
        if self._told.get(session_id) == told and self._making is None:
            return
        self._told[session_id] = told
        if (listing := self._shared()) is not None:
            listing.changed(session_id)
        frame = frame_text(chat_frames.dump("sandbox", sandbox=described))
        for viewer in list(self.viewers):
            viewer.show(session_id, frame)

    # Viewers that are behind

    def feed_later(self) -> None:
        if self._feeding is None and not self._over:
            self._feeding = self._loop.call_later(FEED_SECONDS, self._feed)

    def begin(self, viewer: EventViewer) -> None:
        self._repay(viewer.begin(self._loop.time()))
        if viewer.behind:
            self.feed_later()

    def _feed(self) -> None:
        self._feeding = None
        for viewer in list(self.viewers):
            if viewer.behind:
                self._repay(viewer.catch_up(self._loop.time()))
        if any(viewer.behind and not viewer.outlet.closed for viewer in self.viewers):
            self.feed_later()

    def _repay(self, changed: Iterable[str] | None) -> None:
        """Send the changes again that a viewer has missed. The other pages get them twice, which does no harm."""
        for session_id in changed or ():
            self._told.pop(session_id, None)
            self.stir(session_id)
