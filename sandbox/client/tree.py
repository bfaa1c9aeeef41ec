"""The gateway's end of an operation on a sandbox's tree: implements sandbox/ports/tree.py.

One connection for each operation, as sandbox/protocol/tree.py defines. The bridge is as untrusted as the programs
beside it: each message is checked for its place in the conversation, its size and its numbers. The caller checks
entries, and content against its hash, as it must for stored trees as well.

A bridge fails if it does not accept a connection within `greet_seconds`, or is silent for `silence_seconds` while it
is its turn. With signs of life it may take longer, but no answer may take longer than `work_seconds` in all: a batch
with the fetched content of the one before, a plan, the taking of a frame, the end of a restore, a survey. The limit
is `short_work_seconds` for `quiet` and `release`, which are short and wait for no scan.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypeVar

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from sandbox.client.bridge_requests import CallFailed, call
from sandbox.client.endpoint import Endpoint, Find, open_websocket
from sandbox.client.files import LISTINGS_AT_ONCE, look
from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import SandboxUnavailable
from sandbox.ports.tree import LiveFile, LiveListing, TreeFailed
from sandbox.protocol.entry import ID_BYTES, MAX_CHUNK, Entry, Frame, Kind
from sandbox.protocol.messages import clip
from sandbox.protocol.tree import (
    MAX_OFFERS,
    MAX_TREE_MESSAGE,
    Batch,
    Chunks,
    Done,
    Down,
    Need,
    Progress,
    QuietAsk,
    ReleaseAsk,
    Remember,
    RestoreAsk,
    Restored,
    RestoreEnd,
    RestoreEntries,
    RestorePlan,
    ScanAsk,
    ScanDone,
    Survey,
    SurveyAsk,
    TreeWireError,
    Trouble,
    Up,
    Want,
    decode_up,
    encode,
)

ENTRIES_BYTES = 1 << 20  # about this much of a tree goes into one message
MAX_FRAME = MAX_CHUNK + (MAX_CHUNK >> 8) + 1024  # compressed: incompressible data grow a little
HEARTBEATS_A_SECOND, HEARTBEATS_AT_ONCE = 10, 100
WAITING_MESSAGES = 2  # read from the socket and not yet looked at; more stay in the kernel
WAITING_BYTES = 1 << 20  # written and not yet in the kernel

_CODE = re.compile(r"[a-z_]{1,32}")
_silent = logging.getLogger("holdfast.tree.websockets")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False
_silent.setLevel(logging.CRITICAL)  # TreeFailed reports what a hostile bridge provokes

M = TypeVar("M")


class BridgeTree:
    """Implements sandbox.ports.tree.SandboxTree."""

    def __init__(
        self,
        find: Find,
        *,
        greet_seconds: float = 5.0,
        silence_seconds: float = 60.0,
        work_seconds: float = 900.0,
        short_work_seconds: float = 60.0,
        listings: asyncio.Semaphore | None = None,
    ) -> None:
        """`listings`: the places for long listings, shared with other trees; by default it has its own."""
        self._find = find
        self._greet_seconds = min(greet_seconds, silence_seconds)
        self._silence_seconds = silence_seconds
        self._work_seconds = work_seconds
        self._listings = listings or asyncio.Semaphore(LISTINGS_AT_ONCE)
        self._short_work_seconds = min(short_work_seconds, work_seconds)

    async def greet(self) -> None:
        try:
            await call(await self._endpoint(), "GET", "/health", timeout=self._greet_seconds)
        except CallFailed as exc:
            raise TreeFailed("silent", f"the bridge does not answer: {exc}") from exc

    @contextlib.asynccontextmanager
    async def scan(self, asked: ScanAsk) -> AsyncIterator["BridgeScan"]:
        async with self._talk(asked, self._work_seconds) as talk:
            yield BridgeScan(talk)

    @contextlib.asynccontextmanager
    async def restore(self, token: str, *, aside: bool) -> AsyncIterator["BridgeRestore"]:
        async with self._talk(RestoreAsk(token, aside), self._work_seconds) as talk:
            yield BridgeRestore(talk)

    async def survey(self, agent_skip: Sequence[str]) -> Survey:
        async with self._talk(SurveyAsk(tuple(agent_skip)), self._work_seconds) as talk:
            survey = await talk.hear(Survey)
            if min(survey.changed, survey.files) < 0:
                raise _broken("counts that cannot be")
            return survey

    async def quiet(self) -> None:
        async with self._talk(QuietAsk(), self._short_work_seconds) as talk:
            await talk.hear(Done)

    async def release(self) -> None:
        async with self._talk(ReleaseAsk(), self._short_work_seconds) as talk:
            await talk.hear(Done)

    async def files(
        self, root: bytes, path: bytes, *, start: int = 0, length: int | None = None
    ) -> LiveListing | LiveFile | None:
        """As Sandbox.files."""
        endpoint = await self._endpoint()
        return await look(endpoint, root, path, start, length, self._silence_seconds, self._listings)

    async def _endpoint(self) -> Endpoint:
        try:
            return await self._find()
        except LinkRefused as exc:
            raise TreeFailed("absent", str(exc)) from exc
        except SandboxUnavailable as exc:
            raise TreeFailed("silent", str(exc)) from exc

    @contextlib.asynccontextmanager
    async def _talk(self, ask: Down, work_seconds: float) -> AsyncIterator["_Talk"]:
        endpoint = await self._endpoint()
        try:
            socket = await open_websocket(
                endpoint,
                "/tree",
                compression=None,
                ping_interval=None,
                open_timeout=self._greet_seconds,
                close_timeout=1,
                max_size=MAX_TREE_MESSAGE,
                max_queue=WAITING_MESSAGES,
                write_limit=WAITING_BYTES,
                logger=_silent,
            )
        except TimeoutError:
            raise TreeFailed("silent", "the bridge does not answer") from None
        except (OSError, WebSocketException) as exc:
            raise TreeFailed("failed", "the bridge cannot be reached") from exc
        talk = _Talk(socket, self._silence_seconds, work_seconds)
        try:
            await talk.say(ask)
            yield talk
        finally:
            await talk.end()


class BridgeScan:
    """Implements sandbox.ports.tree.TreeScan."""

    def __init__(self, talk: "_Talk") -> None:
        self._talk = talk
        self._batch: Batch | None = None  # the one `fetch` is for

    @property
    def lived_at(self) -> float:
        return self._talk.lived_at

    async def next(self) -> Batch | ScanDone:
        assert self._batch is None, "fetch first"
        message: Batch | ScanDone = await self._talk.hear(Batch, ScanDone)
        self._talk.answered()
        if isinstance(message, Batch):
            _check_offers(message)
            self._batch = message
        return message

    async def fetch(self, wanted: Sequence[int]) -> AsyncIterator[Frame]:
        assert self._batch is not None, "next first"
        offers = self._batch.offers
        waiting = {offers[number].id: offers[number].size for number in wanted}
        await self._talk.say(Want(tuple(wanted)))
        while not (message := await self._talk.hear(Chunks)).last:
            if message.frame is None:
                raise _broken("an empty frame")
            _check_frame(message.frame)
            for chunk in message.frame.chunks:
                if waiting.pop(chunk.id, None) != chunk.size:
                    raise _broken("a chunk that was not asked for")
            yield message.frame
        if waiting or message.frame is not None:
            raise _broken("less than was asked for")
        self._batch = None

    async def remember(self, token: str) -> None:
        await self._talk.say(Remember(token))
        await self._talk.hear(Done)


class BridgeRestore:
    """Implements sandbox.ports.tree.TreeRestore."""

    def __init__(self, talk: "_Talk") -> None:
        self._talk = talk
        self._of_files = self._of_bytes = 0  # the whole work
        self._files = self._bytes = 0  # the part that is done, as the bridge reports

    async def plan(self, entries: Sequence[Entry]) -> set[bytes]:
        self._of_files = sum(entry.kind == Kind.FILE for entry in entries)
        self._of_bytes = sum(entry.size for entry in entries if entry.kind == Kind.FILE)
        for some in _in_messages(entries):
            await self._talk.say(RestoreEntries(some))
        await self._talk.say(RestorePlan())
        known = {chunk.id for entry in entries for chunk in entry.chunks}
        needed: set[bytes] = set()
        while True:
            need = await self._talk.hear(Need)
            before = len(needed)
            needed.update(need.ids)
            if not needed <= known or (len(needed) == before and not need.last):
                raise _broken("a request for a chunk that is not in the tree")
            if need.last:
                self._talk.answered()
                return needed

    async def put(self, frame: Frame) -> None:
        await self._talk.say(Chunks(frame))
        self._talk.answered()

    def progress(self) -> tuple[int, int]:
        # A caller that waits while the number grows must not wait for ever: it only grows, and not beyond its end.
        told = self._talk.progress
        self._files = max(self._files, min(told.files, self._of_files))
        self._bytes = max(self._bytes, min(told.total_bytes, self._of_bytes))
        return self._files, self._bytes

    async def finish(self) -> None:
        await self._talk.say(RestoreEnd())
        await self._talk.hear(Restored)
        self._files, self._bytes = self._of_files, self._of_bytes


class _Talk:
    """One conversation with a bridge. `progress` is the last progress that the bridge reported; `lived_at` is when it
    last sent anything."""

    def __init__(self, socket: ClientConnection, silence_seconds: float, work_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket
        self._silence_seconds = silence_seconds
        self._work_seconds = work_seconds
        self._waited_seconds = 0.0  # for the answer that is due
        self._began_at = self.lived_at = self._loop.time()
        self._heartbeats = 0
        self._heard: asyncio.Queue[Up] = asyncio.Queue(maxsize=1)  # full: the socket is not read
        self.progress = Progress(0, 0)
        self._listening = asyncio.create_task(self._listen(), name="tree.listen")

    async def say(self, message: Down) -> None:
        """Send; returns when most of it is in the kernel. Raises TreeFailed."""
        payload = encode(message)
        if len(payload) > MAX_TREE_MESSAGE:
            raise TreeFailed("too_large", "a file too large for this bridge")
        try:
            await self._patiently(asyncio.ensure_future(self._socket.send(payload)))
        except ConnectionClosed:
            await asyncio.wait({self._listening}, timeout=1)  # it may have heard why
            raise self._listening.result() if self._listening.done() else _broken("a sudden end") from None

    async def hear(self, *kinds: type[M]) -> M:
        """The next message, which must be of one of these kinds. Raises TreeFailed."""
        if self._heard.empty() and not self._listening.done():
            message = await self._patiently(asyncio.ensure_future(self._heard.get()))
        elif not self._heard.empty():
            message = self._heard.get_nowait()
        else:
            raise self._listening.result()
        if not isinstance(message, kinds):
            raise _broken("a message out of place")
        return message

    def answered(self) -> None:
        """The answer is complete: for the next one the bridge has all its time again."""
        self._waited_seconds = 0.0

    async def end(self) -> None:
        # An operation that came to its end has nothing more to say; any other ends with its connection.
        self._socket.transport.abort()
        self._listening.cancel()
        await asyncio.wait({self._listening})

    async def _patiently(self, waiting: asyncio.Future[M]) -> M:
        """Wait as long as the bridge lives, and has time left for this answer. Raises TreeFailed."""
        began = self.lived_at = self._loop.time()
        last = began + self._work_seconds - self._waited_seconds
        try:
            while True:
                now = self._loop.time()
                left = min(self.lived_at + self._silence_seconds, last) - now
                if now >= last:
                    raise TreeFailed("silent", f"the bridge worked {self._work_seconds:g} s without an answer")
                if left <= 0:
                    raise TreeFailed("silent", f"the bridge said nothing for {self._silence_seconds:g} s")
                either: set[asyncio.Future[Any]] = {waiting, self._listening}
                await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if waiting.done():
                    return waiting.result()
                if self._listening.done():
                    raise self._listening.result()
        finally:
            self._waited_seconds += self._loop.time() - began
            waiting.cancel()

    async def _listen(self) -> TreeFailed:
        """Read until the end, and return its reason."""
        try:
            while True:
                message = decode_up(await self._socket.recv(decode=False))
                self.lived_at = self._loop.time()
                if isinstance(message, Trouble):
                    code = message.code if _CODE.fullmatch(message.code) else "failed"
                    return TreeFailed(code, clip(message.error))
                if isinstance(message, Progress):
                    self._count_heartbeat()
                    self.progress = message
                else:
                    await self._heard.put(message)
        except ConnectionClosed:
            return TreeFailed("failed", "the bridge ended the connection")
        except TreeWireError as exc:
            return _broken(str(exc))

    def _count_heartbeat(self) -> None:
        self._heartbeats += 1
        seconds = self.lived_at - self._began_at
        if self._heartbeats > HEARTBEATS_AT_ONCE + HEARTBEATS_A_SECOND * seconds:
            raise TreeWireError("a flood")


def _in_messages(entries: Sequence[Entry]) -> Iterator[tuple[Entry, ...]]:
    some: list[Entry] = []
    size = 0
    for entry in entries:
        some.append(entry)
        size += len(entry.path) + len(entry.target) + 48 * len(entry.chunks) + 48
        if size >= ENTRIES_BYTES:
            yield tuple(some)
            some, size = [], 0
    if some:
        yield tuple(some)


def _check_offers(batch: Batch) -> None:
    if len(batch.offers) > MAX_OFFERS:
        raise _broken("too many offers")
    for offer in batch.offers:
        if len(offer.id) != ID_BYTES or not 0 < offer.size <= MAX_CHUNK:
            raise _broken("an offer that cannot be")
    if len({offer.id for offer in batch.offers}) != len(batch.offers):
        raise _broken("an offer that comes twice")


def _check_frame(frame: Frame) -> None:
    if not frame.chunks or len(frame.data) > MAX_FRAME or sum(chunk.size for chunk in frame.chunks) > MAX_CHUNK:
        raise _broken("a frame that cannot be")


def _broken(what: str) -> TreeFailed:
    return TreeFailed("failed", f"the bridge broke the protocol: {what}")
