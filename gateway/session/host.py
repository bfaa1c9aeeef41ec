"""The surroundings of one session, as its parts use them: clock, tasks, limits, and the feed of its user."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from gateway.agents.agents import Agents
from gateway.feed.feed import SessionFeed
from gateway.limits.inbound_bytes import InboundBytes, UsersInboundBytes
from gateway.limits.quota import Quota
from gateway.limits.start_turns import StartTurns
from gateway.session.env_cover import EnvCover
from gateway.session.inbox import Inbox
from gateway.session.model.ports import HasSpec, NoWayOut, SessionLimits, SessionMetrics, Timer, WayOut
from gateway.session.model.state import SessionSpec
from gateway.session.recording.files import RecordingFiles
from gateway.session.shared_timer import SharedTimer
from gateway.session.user_configs import UserConfigs
from gateway.session.workspace.keeping import Keeping
from gateway.telemetry.telemetry import session_asked
from persistence.ports import MessageStore
from persistence.queue.queue import PersistenceQueue
from sandbox.protocol.agent import AgentSetup
from sandbox.providers.several import Fleets
from sync.machine.history import Moved

T = TypeVar("T")


MOMENT_SECONDS = 0.01


class Supervisor(Protocol):
    """Runs and removes sessions from outside; each `actor` is one of them."""

    def spawn(self, actor: Any, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` beside the session's task, until it is over or the session ends."""
        ...

    async def purge(self, actor: Any) -> None:
        """Remove every stored trace of the session."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The objects that all sessions of a gateway share. `envs` are the secrets of sessions, by their ids: they outlive
    an actor, and are never stored. `inbound` bounds the frames that a user's sockets sent. With `recordings`, the
    events of each session's inbox are recorded."""

    store: MessageStore
    queue: PersistenceQueue
    fleets: Fleets
    keeping: Keeping
    limits: SessionLimits
    metrics: SessionMetrics
    turns: StartTurns
    quota: Quota
    feed: SessionFeed
    agents: Agents
    envs: dict[str, Mapping[str, str]]
    env_cover: EnvCover
    configs: UserConfigs
    inbound: UsersInboundBytes
    rng: Random
    utcnow: Callable[[], float]
    recordings: RecordingFiles | None = None
    way_out: WayOut = field(default_factory=NoWayOut)
    moment: SharedTimer = field(default_factory=lambda: SharedTimer(MOMENT_SECONDS))


class SessionHost:
    """Implements gateway.session.model.ports.Host."""

    __slots__ = (
        "_configs",
        "_env_cover",
        "_loop",
        "_moment",
        "_owner",
        "_provider",
        "_session_id",
        "_supervisor",
        "durable",
        "ended",
        "feed",
        "limits",
        "metrics",
        "now",
        "pending",
        "post",
        "queue",
        "rng",
        "turns",
        "user_id",
        "utcnow",
        "way_out",
    )

    def __init__(
        self,
        session_id: str,
        user_id: str,
        provider: str,
        around: Surroundings,
        inbox: Inbox,
        pending: InboundBytes,
        supervisor: Supervisor,
        owner: object,
    ) -> None:
        self._session_id = session_id
        self._provider = provider
        self._supervisor, self._owner = supervisor, owner  # the owner of the tasks, as the supervisor knows it
        self._loop = asyncio.get_running_loop()
        self._moment = around.moment
        self._configs = around.configs
        self.user_id = user_id
        self.queue, self.limits, self.metrics, self.rng = around.queue, around.limits, around.metrics, around.rng
        self.turns, self.feed, self.pending = around.turns, around.feed, pending
        self.post = inbox.post
        self.now: Callable[[], float] = self._loop.time
        self._env_cover = around.env_cover
        self.utcnow = around.utcnow
        self.way_out = around.way_out
        self.ended = False  # True once this gateway has stopped working on the session
        self.durable: Callable[[], Coroutine[Any, Any, dict[str, Any]]]  # set by the actor, which wires the parts

    def call_at(self, when: float, handler: Callable[..., None], *arguments: Any) -> Timer:
        return self._loop.call_at(when, self.post, handler, *arguments)

    def in_a_moment(self, then: Callable[[], None]) -> None:
        self._moment.ask(then)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._supervisor.spawn(self._owner, work, name)

    def new_id(self) -> str:
        return uuid4().hex

    def outside(self, name: str, thing: T) -> T:
        return thing

    async def agent_setup(self, log: HasSpec) -> Callable[[], AgentSetup]:
        return await self._configs.of_session(self.user_id, log)

    async def look_for_env(self, spec: SessionSpec) -> None:
        """See whether the session still needs the variables that it lost."""
        await self._env_cover.look(self._session_id, self.user_id, spec)

    def hide(self, *secrets: str) -> None:
        """Does nothing: without a recording there is nothing to hide from."""

    def asked(self, what: str, by: str = "gateway", **fields: Any) -> None:
        session_asked(what, by, session_id=self._session_id, user_id=self.user_id, provider=self._provider, **fields)

    def stirred(self) -> None:
        if not self.ended:
            self.feed.stir(self.user_id, self._session_id)

    def sync_moved(self, moved: Moved) -> None:
        if not self.ended:
            self.feed.moved(self.user_id, self._session_id, moved)
            self.feed.stir(self.user_id, self._session_id)
