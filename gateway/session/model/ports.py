"""What a session needs of the house it lives in, in small pieces: each of its parts takes the pieces it uses."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeVar

from gateway.limits.images import ImageRule
from gateway.limits.inbound_bytes import InboundBytes
from gateway.limits.network import NetworkRule
from gateway.limits.resources import ResourceRule
from gateway.limits.start_turns import StartTurns
from gateway.session.model.delivery_window import WindowLimits
from persistence.queue.queue import PersistenceQueue
from sync.machine.history import Moved
from sync.snapshots.push import Pushed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionLimits:
    window: WindowLimits = field(default_factory=WindowLimits)
    sleep_after: float = 600.0
    quiet_after: float = 3600.0  # of silence, an agent is not waited for any more
    inbox: int = 1000  # events; beyond, whoever posts from a socket waits, so TCP pushes back
    inbox_bytes: int = 4 << 20  # of frames in it; the same
    abort_seconds: float = 10.0  # then SIGINT
    stop_seconds: float = 10.0  # for an agent to end before its sandbox is stopped
    crashes: int = 5
    crash_window: float = 300.0
    link_attempts: int = 5
    network: NetworkRule = field(default_factory=NetworkRule)
    resources: ResourceRule = field(default_factory=ResourceRule)
    images: ImageRule = field(default_factory=ImageRule)
    durable_seconds: float = 30.0  # for the store to keep what a request has changed, before it is told 503
    agent_records: float = 1e9  # that one agent may make a second; ten times that at once


class Observed(Protocol):
    def observe(self, amount: float) -> None: ...


class Counted(Protocol):
    def inc(self, amount: float = 1) -> None: ...


class SessionMetrics(Protocol):
    """What sessions count. `Metrics` of gateway/telemetry/telemetry.py is one."""

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
        """Call `then` in some hundredths of a second, outside of the session's task: it may look and post, and changes
        nothing. One timer serves all sessions."""
        ...


class Tasks(Protocol):
    """The session's own task, and what runs beside it."""

    def post(self, handler: Callable[..., None], *arguments: Any) -> None:
        """Run `handler` in the session's own task, in order."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` beside the session's task. If it fails, so does the session, unless the store was away."""
        ...

    def outside(self, name: str, thing: T) -> T:
        """Something at the session's border, by that name: itself, unless what is asked of it is recorded."""
        ...

    def hide(self, *secrets: str) -> None:
        """These must not stand in a recording of the session."""
        ...


class Publisher(Protocol):
    """Everybody who watches the session."""

    def tell(self, payload: bytes) -> None:
        """A frame of the gateway's own, to each of them."""
        ...


class Notices(Protocol):
    """What the house hears of a session: its log, and the feed that lists show."""

    def asked(self, what: str, by: str = "gateway", **fields: Any) -> None:
        """Log that something is about to happen to the session's life, and who wants it."""
        ...

    def stirred(self) -> None:
        """Something that people are shown of the session may have changed. What an event of the inbox changes is
        noticed without this."""
        ...

    def sync_moved(self, moved: Moved) -> None: ...


class Host(SessionClock, Tasks, Notices, Protocol):
    """A session's surroundings, as the parts see them that look after its life, its viewers and its terminals."""

    queue: PersistenceQueue
    metrics: SessionMetrics
    limits: SessionLimits
    turns: StartTurns
    user_id: str
    rng: Random
    pending: InboundBytes  # what all windows of the session's user hold together
    ended: bool  # nothing more is to be done for this session here

    def new_id(self) -> str:
        """A name that nothing else has."""
        ...

    async def durable(self) -> dict[str, Any]:
        """Wait until everything that was changed so far is durable; the description of the session as it is written.
        Raises ApiError if the session has ended here, or if the store does not answer: then what was changed stays,
        and is written when it does."""
        ...
