"""Loads sessions: makes an actor of a stored session. Loading makes this gateway the session's writer."""

import asyncio
from functools import partial

import orjson
from msgspec.structs import replace

from gateway.limits.inbound_bytes import UsersInboundBytes
from gateway.session.actor import SessionActor
from gateway.session.host import Supervisor, Surroundings
from gateway.session.model.state import SessionSpec, SessionState
from gateway.session.recording.recorder import SessionRecorder, secrets_of
from gateway.session.recording.tape import Beginning, outside
from gateway.session.taped_host import taped
from persistence import crash_points
from persistence.errors import StoreUnavailable
from persistence.record import Loaded, Record, Status, Write

PENDING_BYTES_PER_USER = 16 << 20
UNANSWERED_LOADED = 1000
UNANSWERED_BYTES = 1 << 20  # read in one go


class SessionLoader:
    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._windows = UsersInboundBytes(PENDING_BYTES_PER_USER)

    async def load(self, session_id: str, supervisor: Supervisor) -> SessionActor | None:
        """The session's new actor, which does not run yet; None if there is no such session. Raises
        StoreUnavailable."""
        around = self._around
        await self.barrier(session_id)
        loaded = await around.store.load(session_id)
        if loaded is None:
            return None
        crash_points.reached("session.loaded")
        session = loaded.session
        spec = SessionSpec.from_json(session.spec)
        await around.env_cover.look(session.id, session.user_id, spec)
        make = partial(
            SessionActor,
            loaded,
            unanswered := await self._unanswered(loaded),
            sandbox=(sandbox := around.fleets.sandbox(session.id, spec.provider)),
            supervisor=supervisor,
        )
        pending = self._windows.of(session.user_id)
        file = None if around.recordings is None else around.recordings.open(session.id, loaded.fence)
        if file is None:
            return make(around, pending=pending)
        tape = SessionRecorder(file, asyncio.get_running_loop().time, around.utcnow)
        tape.hide(*secrets_of(spec), *around.envs.get(session.id, {}).values())
        beginning = Beginning(loaded, list(unanswered), around.limits, sandbox.provider, sandbox.level)
        around, pending = taped(around, tape), outside("pending", pending, tape)
        return tape.load(beginning, lambda: make(around, pending=pending, tape=tape))

    async def barrier(self, session_id: str) -> None:
        """Wait until the writes of an earlier actor of this session have left the queue: otherwise the numbers that are
        loaded would miss some. Raises StoreUnavailable."""
        queue = self._around.queue
        if queue.failing is not None or not queue.alive:
            raise StoreUnavailable("the queue is stuck: sessions can be loaded once it goes on")
        queue.release(session_id)
        if queue.depth:
            settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            queue.put(
                Write(session_id), lambda _: None if settled.done() else settled.set_result(None), refusable=False
            )
            await settled

    async def _unanswered(self, loaded: Loaded) -> list[Record]:
        """Messages the agent has and has not answered. Some may have overtaken a message that waits."""
        store, session = self._around.store, loaded.session
        found, after = list[Record](), SessionState.from_json(session.state).answered
        last = session.last_seq if loaded.waiting else session.delivered
        while after < last and len(found) < UNANSWERED_LOADED:
            wanted = UNANSWERED_LOADED - len(found)
            page = await store.messages(session.id, after=after, limit=wanted, max_bytes=UNANSWERED_BYTES)
            # Numbers and cids suffice: the agent has their content already.
            found += [replace(_as_sent(record), payload=b"") for record in page if record.seq <= last]
            after = page[-1].seq if page else last
        return [record for record in found if record.status == Status.DELIVERED and record.type == "message"]


def _as_sent(record: Record) -> Record:
    """The record as the agent got it. A record that reached the agent before the store refused it has left a marker."""
    if record.type != Status.REJECTED:
        return record
    metadata = orjson.loads(record.payload)["metadata"]
    return replace(record, cid=metadata["cid"], type=metadata["type"])
