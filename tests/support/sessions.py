"""Sessions on virtual time: a whole gateway without its front door, on memory adapters, and tabs that watch it.

The store and the sandboxes of a `World` outlive its gateways. `kill` is kill -9: everything that the gateway had not
stored is lost, and everything it had sent stays sent. `leave` is the orderly end.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Self

from gateway.agents.agents import Agents
from gateway.agents.choice import of_command
from gateway.limits.quota import UserLimits
from gateway.limits.start_queue import StartLimits
from gateway.limits.start_turns import StartTurns
from gateway.protocol import chat_frames
from gateway.server.viewer import Viewer
from gateway.session.actor import SessionActor
from gateway.session.catalogue import Catalogue
from gateway.session.model.ports import SessionLimits
from gateway.session.model.state import SessionSpec, Wish
from gateway.session.parts import SessionParts
from gateway.session.recording.files import RecordingFiles
from gateway.session.registry import SessionRegistry
from gateway.session.store_events import StoreEvents
from gateway.session.workspace.keeping import Keeping, WorkspaceLimits
from gateway.telemetry.telemetry import Metrics
from persistence.memory import MemoryStore
from persistence.ports import MessageStore
from persistence.queue.backlog import QueueLimits
from persistence.queue.queue import PersistenceQueue
from persistence.spool.store import SpooledStore
from sandbox.protocol.values import Position
from sandbox.providers.memory.fleet import MemoryFleet
from sandbox.providers.memory.sandbox import MemorySandbox
from sandbox.providers.memory.scripted import Script, echo
from sandbox.providers.several import Fleets
from sync.objects.memory import MemoryObjects
from sync.snapshots.service import SnapshotService
from tests.support.faults import Fault, FlakyStore
from tests.support.memory_spool import Disk, MemorySpool
from tests.support.waiting import until

NEW_YEAR = 1_767_225_600.0
FULL = 1 << 20


class RecordingOutlet:
    """A socket's writing half that records its frames. While `full` it reports a peer that does not read."""

    def __init__(self, *, raw: bool = False) -> None:
        self.raw = raw
        self.frames: list[dict[str, Any]] = []  # frames of chat sockets, parsed
        self.on_text: Callable[[bytes], None] | None = None
        self.on_frame: Callable[[dict[str, Any]], None] | None = None
        self.texts: list[bytes] = []
        self.unsent: list[bytes] = []  # came when the peer was gone
        self.full = False
        self.reading = True
        self.closed_with: tuple[int, str] | None = None
        self._changed: list[asyncio.Future[None]] = []

    @property
    def buffered(self) -> int:
        return FULL if self.full else 0

    @property
    def closed(self) -> bool:
        return self.closed_with is not None

    def send_text(self, payload: bytes) -> bool:
        if self.closed:
            self.unsent.append(payload)
            return False
        self.texts.append(payload)
        if not self.raw:
            self.frames.append(json.loads(payload))
        if self.on_frame is not None:
            self.on_frame(self.frames[-1])
        self._wake()
        return True

    def send_text_prepared(self, frame: bytes) -> bool:
        assert frame[0] == 0x81, "one whole text message"
        head = {126: 4, 127: 10}.get(frame[1], 2)
        length = int.from_bytes(frame[2:head], "big") if head > 2 else frame[1]
        assert length == len(frame) - head, "exactly one frame"
        return self.send_text(frame[head:])

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self, code: int, reason: str) -> None:
        self.closed_with = self.closed_with or (int(code), reason)
        self._wake()

    def abort(self) -> None:
        self.close(1006, "aborted")

    async def changed(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._changed = self._changed, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Tab:
    """One browser tab: the frames that it got, and where it could resume."""

    def __init__(self, actor: SessionActor, *, raw: bool = False) -> None:
        self.actor = actor
        self.outlet = RecordingOutlet(raw=raw)
        self.viewer = Viewer(self.outlet, raw=raw)

    @property
    def frames(self) -> list[dict[str, Any]]:
        return self.outlet.frames

    @property
    def closed_with(self) -> int | None:
        return self.outlet.closed_with[0] if self.outlet.closed_with else None

    @property
    def position(self) -> Position:
        """The last (epoch, offset) it saw."""
        place = Position("", 0)
        for frame in self.frames:
            if frame.get("type") == "welcome":
                place = Position(frame["epoch"], frame["offset"])
            elif "_offset" in frame:
                place = Position(place.epoch, frame["_offset"])
        return place

    def send(self, type: str, **members: Any) -> None:
        if self.outlet.reading and not self.outlet.closed:
            frame = chat_frames.read_frame(json.dumps({"type": type} | members).encode())
            self.actor.post(self.actor.intake.receive, self.viewer, frame)

    def say(self, text: str, cid: str | None = None) -> None:
        self.send("message", content=text, **({"cid": cid} if cid else {}))

    def send_line(self, line: str) -> None:
        self.actor.post(self.actor.intake.receive_line, self.viewer, line)

    def leave(self) -> None:
        """The tab is closed, or its connection is lost."""
        self.outlet.abort()
        self.actor.post(self.actor.viewers.detach, self.viewer)

    def seen(self, type: str, **members: Any) -> list[dict[str, Any]]:
        """Its frames of that type with these members, in order."""
        return [frame for frame in self.frames if frame.get("type") == type and members.items() <= frame.items()]

    def output(self) -> list[dict[str, Any]]:
        """The agent's frames, in order."""
        return [frame for frame in self.frames if "_offset" in frame]

    async def until(self, type: str, *, count: int = 1, within: float = 900.0, **members: Any) -> dict[str, Any]:
        """The `count`-th frame of that type with these members, when it has come."""
        try:
            async with asyncio.timeout(within):
                while len(found := self.seen(type, **members)) < count:
                    await self.outlet.changed()
        except TimeoutError:
            raise AssertionError(f"no {type} {members} among {self.frames}") from None
        return found[count - 1]

    async def until_closed(self, within: float = 900.0) -> int:
        async with asyncio.timeout(within):
            while self.outlet.closed_with is None:
                await self.outlet.changed()
        return self.outlet.closed_with[0]


@dataclass(slots=True)
class Gateway:
    """One life of the gateway. `remote` can be cut off without harm to stored data. Sessions use `store`: the same,
    or the same behind a spool."""

    remote: FlakyStore
    store: MessageStore
    queue: PersistenceQueue
    sessions: SessionParts


AT_MEMORY = SessionSpec(provider=MemoryFleet.name).to_json()  # of a session that is put into the store by hand


class World:
    def __init__(
        self, script: Script = echo, *, limits: SessionLimits | None = None, seed: int = 0, spooled: bool = False
    ) -> None:
        self.kept = MemoryStore()
        self.spooled = spooled
        self.disk = Disk()  # the spool's
        self.poison: bytes | None = None  # see FlakyStore
        self.fleet = MemoryFleet(script)
        self.other_fleets: tuple[MemoryFleet, ...] = ()
        self.objects = MemoryObjects()
        self.workspaces = WorkspaceLimits()
        self.limits = limits or SessionLimits()
        self.user_limits = UserLimits()
        self.starts: StartLimits | None = None  # None: as many as one likes
        self.rng = Random(seed)
        self.metrics = Metrics()  # of all gateways that follow each other
        self.deaths: list[BaseException] = []
        self.recordings: RecordingFiles | None = None
        self._gateway: Gateway | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._gateway is not None:
            await self.kill()
        assert not self.deaths

    @property
    def gateway(self) -> Gateway:
        assert self._gateway is not None, "no gateway runs"
        return self._gateway

    @property
    def running(self) -> bool:
        return self._gateway is not None

    @property
    def store(self) -> FlakyStore:
        """The store behind everything."""
        return self.gateway.remote

    @property
    def queue(self) -> PersistenceQueue:
        return self.gateway.queue

    @property
    def sessions(self) -> SessionParts:
        return self.gateway.sessions

    @property
    def registry(self) -> SessionRegistry:
        return self.sessions.registry

    @property
    def catalogue(self) -> Catalogue:
        return self.sessions.catalogue

    def utcnow(self) -> float:
        return NEW_YEAR + asyncio.get_running_loop().time()

    async def open(self) -> None:
        assert self._gateway is None, "one gateway at a time"
        remote = FlakyStore(self.kept)
        remote.poison = self.poison
        store: MessageStore = remote
        spooled: SpooledStore | None = None
        if self.spooled:
            store = spooled = SpooledStore(remote, MemorySpool(self.disk), self.rng, on_death=self.deaths.append)
        store.heard = hearing = StoreEvents()
        # A queue that does not wait when it is left: `leave` has flushed it, `kill` must not.
        queue = PersistenceQueue(store, QueueLimits(flush_seconds=0.0), self.rng, on_death=self.deaths.append)
        sessions = SessionParts(
            store,
            queue,
            Fleets(self.fleet, *self.other_fleets),
            Keeping(self.vault(), self.workspaces),
            self.limits,
            self.metrics,
            agents=Agents(of_command(("agent",))),
            on_death=self.deaths.append,
            store_fails=lambda: spooled is not None and spooled.failing is not None,
            turns=StartTurns(self.starts, self.rng),
            user_limits=self.user_limits,
            rng=self.rng,
            utcnow=self.utcnow,
            recordings=self.recordings,
        )
        hearing.on_settled = sessions.registry.settled
        await store.__aenter__()
        await queue.__aenter__()
        await sessions.__aenter__()
        self._gateway = Gateway(remote, store, queue, sessions)

    def vault(self) -> SnapshotService:
        """The snapshots, as a gateway that has just started sees them."""
        now = asyncio.get_running_loop().time
        return SnapshotService(self.objects, now=now, utcnow=self.utcnow)

    async def kill(self) -> None:
        """kill -9: nothing more reaches the store."""
        gateway, self._gateway = self.gateway, None
        gateway.remote.outage = Fault.AWAY
        await gateway.queue.__aexit__(None, None, None)
        await gateway.sessions.__aexit__(None, None, None)
        await gateway.store.__aexit__(None, None, None)

    async def leave(self) -> None:
        """SIGTERM: drain, then end."""
        gateway, self._gateway = self.gateway, None
        await gateway.sessions.drain.run()
        await gateway.sessions.__aexit__(None, None, None)
        await gateway.queue.__aexit__(None, None, None)
        await gateway.store.__aexit__(None, None, None)

    async def steal(self, session_id: str = "s") -> None:
        """Another gateway loads the session: this one is its writer no more."""
        await self.kept.load(session_id)

    async def restart(self) -> None:
        await self.kill()
        await self.open()

    async def create(self, session_id: str = "s", *, user: str = "ann", **wish: Any) -> SessionActor:
        return await self.sessions.creation.create(session_id, user, Wish(**wish))

    async def actor(self, session_id: str = "s") -> SessionActor:
        actor = await self.registry.find(session_id, user_id=None)
        assert actor is not None, f"there is no session {session_id}"
        return actor

    async def described(self, user: str | None = None) -> list[dict[str, Any]]:
        """Every session of the user, or of all, as it is listed."""
        return [described async for some in self.catalogue.described(user) for described in some]

    async def branch(self, origin_id: str = "s", number: int | None = None) -> SessionActor:
        origin = await self.catalogue.look(origin_id)
        assert origin is not None, f"there is no session {origin_id}"
        return await self.sessions.branching.branch(origin, number, "branch")

    async def tab(self, session_id: str = "s", after: Position | None = None, *, raw: bool = False) -> Tab:
        """A new viewer, welcomed or about to be."""
        tab = Tab(await self.actor(session_id), raw=raw)
        tab.actor.post(tab.actor.viewers.attach, tab.viewer, after)
        return tab

    async def welcomed(self, session_id: str = "s", after: Position | None = None) -> Tab:
        tab = await self.tab(session_id, after)
        await tab.until("welcome")
        return tab

    def sandbox(self, session_id: str = "s") -> MemorySandbox:
        return self.fleet.sandboxes[session_id]

    async def history(self, session_id: str = "s") -> list[dict[str, Any]]:
        """The stored conversation for any reader, whatever the state of the gateway's store. Waits for a store that
        is behind."""
        await self.until(lambda: not self.disk.rows, "an empty spool")
        return [chat_frames.record_json(record) for record in await self.kept.messages(session_id, limit=1_000_000)]

    async def until(self, holds: Callable[[], bool], what: str = "it", within: float = 900.0) -> None:
        """Wait for a state that no frame reports. Virtual time costs nothing."""
        await until(holds, what, within)
