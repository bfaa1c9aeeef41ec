"""A session and its recording: the entries of its inbox, and the calls they make at the session's borders.

An entry of the inbox is a handler of one of the session's parts and plain values. While it is processed, the clock
stands still, and each call that the session makes across a border is noted in order, with its arguments and its result.
So the same session parts, given the same entries and the same results, must make the same calls. `recorder.py` is the
tape that records, `player.py` the one that plays.

The borders: the persistence queue, the store, quotas, turns, chance, timers and tasks; the link, viewers' sockets,
waiting HTTP requests; and of the session itself its workspace, its terminals and its guests, whose work is done beside
its task. Their results come through the inbox. Not noted: logs, metrics, the feed, and whether a socket or a link is
read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction, isfunction
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from gateway.protocol.errors import ApiError
from gateway.session.inbox import EVENTS_A_TURN, Handler, Inbox
from gateway.session.model.ports import SessionLimits
from gateway.session.recording.codec import KIND
from gateway.session.sandbox.link_listener import LinkListener
from persistence.record import Loaded, Record

if TYPE_CHECKING:
    from gateway.session.actor import SessionActor

T = TypeVar("T")
VERSION = 2
UNNOTED = frozenset({"pause_reading", "resume_reading"})
PARTS = "gateway.session."


@dataclass(frozen=True, slots=True)
class Beginning:
    """The values that a session is made of."""

    loaded: Loaded
    unanswered: list[Record]
    limits: SessionLimits
    provider: str
    level: str


class Tape(Protocol):
    def now(self) -> float: ...
    def utcnow(self) -> float: ...

    def hide(self, *secrets: str) -> None:
        """Keep these strings out of the recording from here on."""
        ...

    def deal(self, handler: Handler, arguments: tuple[Any, ...]) -> None:
        """Process one entry of the inbox."""
        ...

    def get(self, outside: str, thing: Any, name: str) -> Any:
        """A member of an object at the border: a method to call, or a value."""
        ...

    def call(self, what: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function at the border."""
        ...


class Outside:
    """An object at the session's border: every call to it goes through the tape."""

    __slots__ = ("_name", "_tape", "_thing")

    def __init__(self, name: str, thing: Any, tape: Tape) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_thing", thing)
        object.__setattr__(self, "_tape", tape)

    def __getattr__(self, name: str) -> Any:
        return self._tape.get(self._name, self._thing, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._thing, name, value)

    def __len__(self) -> int:
        count: int = self._tape.call(f"{self._name}.len", lambda: len(self._thing))
        return count

    def __iter__(self) -> Iterator[Any]:
        return iter(self._thing)


def outside(name: str, thing: T, tape: Tape) -> T:
    return cast(T, Outside(name, thing, tape))


def outside_name(value: Any) -> str | None:
    return cast(str, object.__getattribute__(value, "_name")) if type(value) is Outside else None


class TapedInbox(Inbox):
    """An inbox whose entries go through the tape."""

    __slots__ = ("tape",)

    tape: Tape

    def deal(self, handler: Handler, *arguments: Any) -> None:
        self.tape.deal(handler, arguments)

    def _deal_with(self, size: int, handler: Handler, arguments: tuple[Any, ...]) -> None:
        super()._deal_with(size, partial(self.tape.deal, handler), (arguments,))

    def take_turn(self) -> None:
        for _ in range(min(len(self.entries), EVENTS_A_TURN)):
            handler, arguments = self.entries.pop(0)
            if handler == self._deal_with:
                handler(*arguments)
            else:
                self.tape.deal(handler, arguments)


class PartNames:
    """The parts of a session by their paths: `output._gate`."""

    def __init__(self, actor: "SessionActor") -> None:
        self._paths: dict[int, str] = {id(actor): ""}
        self._parts: dict[str, Any] = {"": actor}
        left: list[tuple[str, Any]] = [("", actor)]
        while left:
            path, part = left.pop(0)
            for name in _slots(type(part)):
                child = getattr(part, name, None)
                inner = type(child).__module__.startswith(PARTS) and type(child) is not Outside
                if inner and id(child) not in self._paths and "__slots__" in vars(type(child)):
                    self._paths[id(child)] = f"{path}{name}."
                    self._parts[f"{path}{name}."] = child
                    left.append((f"{path}{name}.", child))

    def of(self, handler: Any) -> str | None:
        """The path of that bound method; None if it belongs to no part of the session."""
        path = self._paths.get(id(getattr(handler, "__self__", None)))
        return None if path is None else path + handler.__name__

    def find(self, path: str) -> Any:
        """The method of a part. Raises KeyError, AttributeError. A coroutine function is no handler."""
        part, dot, method = path.rpartition(".")
        found = self._parts[part + dot]
        function = getattr(type(found), method)
        if not isfunction(function) or iscoroutinefunction(function):
            raise AttributeError(f"{path} is no handler")
        return getattr(found, method)


def _slots(kind: type) -> Iterator[str]:
    for each in kind.__mro__:
        slots = vars(each).get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def digest(actor: "SessionActor") -> dict[str, Any]:
    """The session's progress in a few values, to compare a recording with its replay."""
    log, delivery, output, ring = actor.conversation, actor.delivery, actor.output, actor.viewers.audience.ring
    state = log.state
    return {
        "stage": str(actor.life.core.stage),
        "status": str(state.status),
        "incarnation": state.incarnation,
        "seq": log.sequence.last_seq,
        "durable": log.last_durable,
        "epoch": state.epoch,
        "offset": state.offset,
        "answered": state.answered,
        "waiting": [len(delivery.window), delivery.window.queued_bytes],
        "owed": [delivery.turns.unanswered, len(delivery.turns.open)],
        "agent": output.agent_alive,
        "settled": output.settled,
        "link": delivery.link is not None,
        "ring": [ring.epoch, ring.base, ring.end],
        "viewers": [len(actor.viewers.audience), len(actor.viewers.joining)],
        "active": log.active_at,
        "ended": actor.ended,
    }


def live_name(value: Any, names: PartNames | None) -> dict[str, Any]:
    """The name of a live thing, the same in a recording and in its replay."""
    if isinstance(value, LinkListener):
        return {KIND: "listener", "=": value.number}
    if (name := outside_name(value)) is not None:
        return {KIND: "outside", "=": name}
    if not hasattr(value, "__self__") or not hasattr(value, "__func__"):
        return {KIND: "live", "=": type(value).__name__}
    if isinstance(value.__self__, LinkListener):
        return {KIND: "handler", "=": value.__name__, "listener": value.__self__.number}
    path = None if names is None else names.of(value)
    return {KIND: "live", "=": value.__qualname__} if path is None else {KIND: "handler", "=": path}


def refused_as(error: ApiError) -> dict[str, Any]:
    return {"status": error.status, "code": error.code, "message": error.message}
