"""A new session that begins with a generation of another one's workspace."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random

import orjson
from msgspec.structs import replace

from gateway.auth.shares import Shares
from gateway.protocol.chat_frames import START_BYTES
from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from gateway.session.creation.new_sessions import NewSessions
from gateway.session.creation.room import CreationRoom
from gateway.session.drain import SessionDrain
from gateway.session.model.state import SessionSpec, SessionState
from persistence.backoff import delay
from persistence.errors import StoreUnavailable
from persistence.ports import MessageStore
from persistence.record import Session
from sandbox.providers.several import Fleets
from sync.format.pointer import Generation
from sync.snapshots.service import SnapshotService, short_id

LONGEST_ID = 128
ATTEMPTS = 5


class SessionBranching:
    """`envs` are the secrets of sessions, by their ids. `stored` counts bytes of workspaces."""

    def __init__(
        self,
        store: MessageStore,
        vault: SnapshotService,
        new: NewSessions,
        room: CreationRoom,
        drain: SessionDrain,
        *,
        fleets: Fleets,
        envs: Mapping[str, Mapping[str, str]],
        stored: Callable[[int], None],
        rng: Random,
        utcnow: Callable[[], float],
    ) -> None:
        self._store = store
        self._vault = vault
        self._new = new
        self._room = room
        self._drain = drain
        self._fleets = fleets
        self._envs = envs
        self._stored = stored
        self._rng = rng
        self._utcnow = utcnow

    async def branch(self, origin: Session, number: int | None, word: str) -> SessionActor:
        """Create a session of the same user that begins with a generation of `origin`; `origin` stays as it is. Raises
        ApiError, StoreUnavailable, and the vault's errors."""
        self._drain.refuse()
        async with self._room.branch(origin.user_id):
            return await self._branch(origin, number, word)

    async def _branch(self, origin: Session, number: int | None, word: str) -> SessionActor:
        # The id names the session it came from; a long one is cut, so that the suffix fits.
        session_id = f"{origin.id[: LONGEST_ID - len(word) - 10]}-{word}-{short_id()}"
        spec = SessionSpec.from_json(origin.spec)
        if spec.start is not None and len(orjson.dumps(spec.start)) > START_BYTES:
            told = f"its start has more than {START_BYTES} bytes, and a branch would copy it: send a shorter one first"
            raise ApiError(409, "start_too_large", told)
        generation = await self._vault.branch(origin.user_id, origin.id, number, session_id)
        session = self._begun(session_id, origin.user_id, spec, generation)
        kept = await self._create(session)
        if (kept.user_id, kept.created_at) != (session.user_id, session.created_at):
            raise ApiError(409, "taken", "the new session's id is taken: try again")
        self._stored(generation.bytes)
        actor = await self._new.load(session, kept, origin=origin.id)
        if (env := self._envs.get(origin.id)) is not None:
            actor.give_env(env)
            await actor.durable()
        actor.host.stirred()
        return actor

    def _begun(self, session_id: str, user_id: str, spec: SessionSpec, generation: Generation) -> Session:
        metadata = {**spec.metadata, "origin": generation.note}
        begun = replace(spec, started=False, pending=[], metadata=metadata, shares=Shares())
        if spec.provider not in self._fleets.names:
            begun = replace(begun, provider=self._fleets.name, image=None, image_id="", image_digest="")
        now = self._utcnow()
        state = SessionState(
            last_active=now,
            generation=generation.number,
            tree=generation.manifest,
            files=generation.files,
            snapshot_bytes=generation.bytes,
            synced_at=generation.at,
            has_workspace=True,
            clean=True,
        )
        return Session(session_id, user_id, now, begun.to_json(), state.to_json())

    async def _create(self, session: Session) -> Session:
        """A lost answer of the store must not leave a session without its snapshots: ask again."""
        for attempt in range(ATTEMPTS):
            try:
                return await self._store.create(session)
            except StoreUnavailable:
                if attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(delay(attempt, base=0.1, cap=2.0, rng=self._rng))
        raise AssertionError("the last attempt returned or raised")
