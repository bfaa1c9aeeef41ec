"""The ports through which a session's parts use their surroundings: each part takes the few that it needs."""

from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeVar

from gateway.egress.way import WayInside, WayWanted
from gateway.limits.images import ImageRule
from gateway.limits.inbound_bytes import InboundBytes
from gateway.limits.network import NetworkRule
from gateway.limits.resources import ResourceRule
from gateway.limits.start_turns import StartTurns
from gateway.session.model.delivery_window import WindowLimits
from gateway.session.model.state import SessionSpec
from persistence.queue.queue import PersistenceQueue
from sandbox.ports.sandbox import Sandbox
from sandbox.protocol.agent import AgentSetup
from sync.machine.history import Moved
from sync.snapshots.push import Pushed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionLimits:
    window: WindowLimits = field(default_factory=WindowLimits)
    sleep_after: float = 600.0
    quiet_after: float = 3600.0  # silence after which a busy agent counts as idle
    inbox: int = 1000  # events; when full, the posting socket waits, so TCP pushes back
    inbox_bytes: int = 4 << 20  # of frames in it; the same
    abort_seconds: float = 10.0  # until SIGINT
    stop_seconds: float = 10.0  # for an agent to end before its sandbox is stopped
    crashes: int = 5
    crash_window: float = 300.0
    link_attempts: int = 5
    network: NetworkRule = field(default_factory=NetworkRule)
    resources: ResourceRule = field(default_factory=ResourceRule)
    images: ImageRule = field(default_factory=ImageRule)
    durable_seconds: float = 30.0  # for the store to keep a request's change, before the request gets 503
    agent_records: float = 1e9  # that one agent may make a second; ten times that in a burst


class Observed(Protocol):
    def observe(self, amount: float) -> None: ...


class Counted(Protocol):
    def inc(self, amount: float = 1) -> None: ...


class SessionMetrics(Protocol):
    """The metrics that sessions update. `Metrics` of gateway/telemetry/telemetry.py implements it."""

    @property
    def message_seconds(self) -> Observed: ...
    @property
    def answer_seconds(self) -> Observed: ...
    @property
    def frames_relayed(self) -> Counted: ...
    @property
    def restore_seconds(self) -> Observed: ...
    @property
    def sync_failures(self) -> Counted: ...
    @property
    def agent_slowed_seconds(self) -> Counted: ...

    def created(self, provider: str) -> None: ...
    def started(self, provider: str) -> None: ...
    def woken(self, provider: str, seconds: float) -> None: ...
    def reattached(self, provider: str, seconds: float) -> None: ...
    def stored(self, change: int) -> None: ...
    def refused(self, reason: str) -> None: ...
    def orphan_removed(self, provider: str) -> None: ...
    def unknown_frames(self, agent: str, kind: str, count: int) -> None: ...
    def synced(self, seconds: float, pushed: Pushed) -> None: ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class SessionClock(Protocol):
    """The time, and the session's timers."""

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def utcnow(self) -> float:
        """Seconds since 1970, for people."""
        ...

    def call_at(self, when: float, handler: Callable[..., None], *arguments: Any) -> Timer:
        """Run `handler(*arguments)` in the session's own task at that monotonic time."""
        ...

    def in_a_moment(self, then: Callable[[], None]) -> None:
        """Call `then` in some hundredths of a second, outside of the session's task: it may read and post, but must not
        change state. One timer serves all sessions."""
        ...


class HasSpec(Protocol):
    """A session's log, or anything else that knows its present spec."""

    @property
    def spec(self) -> SessionSpec: ...


class Tasks(Protocol):
    """The session's own task, and the tasks beside it."""

    def post(self, handler: Callable[..., None], *arguments: Any) -> None:
        """Run `handler` in the session's own task, in order."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` beside the session's task. If it fails, so does the session, unless the store was away."""
        ...

    def outside(self, name: str, thing: T) -> T:
        """Return `thing`, which stands at the session's border under that name. While the session is recorded, return a
        wrapper that records the calls."""
        ...

    async def agent_setup(self, log: HasSpec) -> Callable[[], AgentSetup]:
        """Return what says, at each start of the agent, what it gets of its user's configuration and of its
        session's."""
        ...

    def hide(self, *secrets: str) -> None:
        """Keep these strings out of a recording of the session."""
        ...


class Publisher(Protocol):
    """The viewers of a session."""

    def tell(self, payload: bytes) -> None:
        """Send one of the gateway's own frames to each viewer."""
        ...


class Notices(Protocol):
    """Reports about a session to the log, and to the feed behind session lists."""

    def asked(self, what: str, by: str = "gateway", **fields: Any) -> None:
        """Log that a change of the session's life is about to happen, and who wants it."""
        ...

    def stirred(self) -> None:
        """The description of the session may have changed. Changes made by an event of the inbox are noticed without
        this call."""
        ...

    def sync_moved(self, moved: Moved) -> None: ...


class WayOut(Protocol):
    """The proxy by which the programs of sandboxes reach hosts. Its methods return at once."""

    async def inside(self, user_id: str, level: str, given: Collection[str], repo_url: str | None) -> WayInside:
        """What a sandbox of that level is told of the proxy before it starts. `given` are the names of the session's
        own variables. Raises nothing: what is not known is left out."""
        ...

    def opened(self, session_id: str, user_id: str, wanted: WayWanted, sandbox: Sandbox) -> None:
        """The session's sandbox runs, and its programs may reach what is `wanted`. May be called again."""
        ...

    def ended(self, session_id: str) -> None:
        """Its sandbox does not run any more."""
        ...

    def found(self, running: Iterable[str]) -> None:
        """These are all the sandboxes that an earlier gateway left running."""
        ...


class NoWayOut:
    """Where no proxy is: in tests of sessions alone, and where a recording is played."""

    async def inside(self, user_id: str, level: str, given: Collection[str], repo_url: str | None) -> WayInside:
        return WayInside()

    def opened(self, session_id: str, user_id: str, wanted: WayWanted, sandbox: Sandbox) -> None:
        pass

    def ended(self, session_id: str) -> None:
        pass

    def found(self, running: Iterable[str]) -> None:
        pass


class Host(SessionClock, Tasks, Notices, Protocol):
    """A session's surroundings, for the parts that drive its life, its viewers and its terminals."""

    queue: PersistenceQueue
    metrics: SessionMetrics
    limits: SessionLimits
    turns: StartTurns
    user_id: str
    way_out: WayOut
    rng: Random
    pending: InboundBytes  # bytes in all windows of the session's user together
    ended: bool  # True once this gateway has stopped working on the session

    def new_id(self) -> str:
        """Return a name that is used once."""
        ...

    async def durable(self) -> dict[str, Any]:
        """Wait until every change made so far is durable, and return the session's description as written. Raises
        ApiError if the session has ended here, or if the store does not answer: then the change stays, and is written
        when the store answers."""
        ...
