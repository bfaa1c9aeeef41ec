"""A session by the id that its creator chose: a new one, the one there is, or an archived one brought back."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from gateway.agents.agents import Agents
from gateway.limits.images import ImageRule
from gateway.limits.network import NetworkRule
from gateway.limits.resources import ResourceRule
from gateway.protocol.errors import ApiError
from gateway.session import upkeep
from gateway.session.actor import SessionActor
from gateway.session.creation.new_sessions import NewSessions, being_purged
from gateway.session.creation.room import CreationRoom
from gateway.session.drain import SessionDrain
from gateway.session.loaded import LoadedSessions
from gateway.session.model.state import SessionSpec, SessionState, SessionStatus, Wish, sandbox_spec, spec_members
from persistence.ports import MessageStore
from persistence.record import Session
from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.several import Fleets


class SessionCreation:
    """New sessions run in the first of the `fleets` unless they name another; `agents` are those that they may have."""

    def __init__(
        self,
        sessions: LoadedSessions,
        store: MessageStore,
        new: NewSessions,
        room: CreationRoom,
        drain: SessionDrain,
        *,
        fleets: Fleets,
        network: NetworkRule,
        resources: ResourceRule,
        images: ImageRule,
        agents: Agents,
        utcnow: Callable[[], float],
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._new = new
        self._room = room
        self._drain = drain
        self._fleets = fleets
        self._network = network
        self._resources = resources
        self._images = images
        self._agents = agents
        self._utcnow = utcnow

    async def create(self, session_id: str, user_id: str, wish: Wish) -> SessionActor:
        """The user's session of that id, with its agent being started. NO_USER: the services' session. Raises ApiError,
        StoreUnavailable."""
        self._drain.refuse()
        if session_id in self._sessions.purging:
            raise being_purged()
        there = await self._provider_of(session_id)
        spec = self._checked(session_id, wish, there)
        session = self._session(session_id, user_id, spec)
        async with self._room_for(session_id, user_id, starts=True, there=there is not None):
            kept = await self._store.create(session)
            if kept.user_id != user_id:
                raise ApiError(409, "taken", "this session id is taken: choose another")
            actor = await self._new.load(session, kept)
        archived = actor.conversation.state.status is SessionStatus.ARCHIVED
        if archived and wish.provider not in (None, actor.sandbox.provider):
            told = f"an archived session comes back where it was, at provider {actor.sandbox.provider}"
            raise ApiError(409, "other_provider", f"{told}: leave provider out, or choose another id")
        changed = await upkeep.take_up(actor, wish)
        if archived:
            self._new.count(kept)
        if changed:
            await actor.durable()
        return actor

    async def attach_or_create(self, session_id: str, user_id: str) -> SessionActor | None:
        """For HOLDFAST_CREATE_ON_ATTACH: an unknown id becomes the user's own session, asleep until its first message.
        None if the session is another user's. Raises ApiError, StoreUnavailable."""
        spec = SessionSpec(network=self._network.given, provider=self._fleets.name)
        session = self._session(session_id, user_id, spec)
        there = await self._provider_of(session_id)
        async with self._room_for(session_id, user_id, starts=False, there=there is not None):
            kept = await self._store.create(session)
            if kept.user_id != user_id:
                return None
            actor = await self._new.load(session, kept, on="attach")
        actor.host.stirred()
        return actor

    def has_core(self, spec: SessionSpec) -> bool:
        """True if the bridge has a core that translates for this agent: then its mode can be changed while it runs."""
        return self._agents.launch(spec.agent, spec.agent_name, spec.agent_server).core not in ("", "plain")

    def _checked(self, session_id: str, wish: Wish, there: str | None) -> SessionSpec:
        """The spec of the session to be created; `there` is the provider of an existing one. Raises ApiError if the
        wish is not allowed, or if such a sandbox could never start."""
        provider = self._provider_for(wish, there)
        spec = SessionSpec(**spec_members(wish, self._network.given), provider=provider)
        if told := self._network.refusal(spec.network, granted=spec.network_granted, repo_url=spec.repo_url):
            raise ApiError(403, "network_not_allowed", told)
        if wrong := self._agents.unavailable(spec.agent_name):
            raise ApiError(409, wrong.code, f"agent: {wrong.told}")
        granted = spec.limits_granted
        if told := self._resources.refusal(spec.resources, granted=granted):
            raise ApiError(403, "limit_not_allowed", told)
        if told := self._images.refusal(spec.image, granted=spec.image_granted):
            raise ApiError(403, "image_not_allowed", told)
        limits = self._resources.given(spec.resources, granted=granted)
        try:
            launch = self._agents.launch(spec.agent, spec.agent_name, spec.agent_server)
            self._fleets.check(sandbox_spec(session_id, 1, spec, launch, wish.env, limits=limits))
        except SandboxFailed as error:
            raise ApiError(400, "bad_sandbox", str(error)) from error
        return spec

    def _provider_for(self, wish: Wish, there: str | None) -> str:
        names = self._fleets.names
        if wish.provider is not None and wish.provider not in names:
            told = f"provider must be one of {', '.join(names)}: the operator can add others (HOLDFAST_PROVIDERS)"
            raise ApiError(400, "unknown_provider", told)
        return wish.provider or (there if there in names else None) or self._fleets.name

    def _session(self, session_id: str, user_id: str, spec: SessionSpec) -> Session:
        now = self._utcnow()
        return Session(session_id, user_id, now, spec.to_json(), SessionState(last_active=now).to_json())

    async def _provider_of(self, session_id: str) -> str | None:
        """The provider of an existing session's sandbox; None if there is no such session. Raises StoreUnavailable."""
        if (actor := self._sessions.get(session_id)) is not None:
            return actor.sandbox.provider
        kept = await self._store.find(session_id)
        return None if kept is None else SessionSpec.from_json(kept.spec).provider

    def _room_for(
        self, session_id: str, user_id: str, *, starts: bool, there: bool
    ) -> AbstractAsyncContextManager[None]:
        """An existing session needs no room."""
        return contextlib.nullcontext() if there else self._room.new(session_id, user_id, starts=starts)
