"""The tape that plays: a recorded entry is given to a session, and each call at its borders is compared with the one
that was recorded, and answered as it was.

A recording may be a stranger's: it names handlers of the session's parts and plain values, and nothing else is called
or made for it.
"""

from collections.abc import Callable
from functools import partial
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any

from gateway.protocol.errors import ApiError
from gateway.server.viewer import Viewer
from gateway.session.inbox import Handler
from gateway.session.recording.codec import KIND, Encoder, NotARecording, decode, error_text
from gateway.session.recording.tape import UNNOTED, PartNames, digest, live_name, outside
from gateway.session.sandbox.link_listener import LinkListener

if TYPE_CHECKING:
    from gateway.session.actor import SessionActor

COMPARED = ("does", "with", "named")


class Differs(BaseException):
    """The session did something else than was recorded. No handler may catch it."""

    def __init__(self, expected: Any, came: Any) -> None:
        super().__init__("the session did something else than was recorded")
        self.expected = expected
        self.came = came


class Stranger:
    """A live thing of which the recording has only the kind."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _nothing


def _nothing(*arguments: Any, **named: Any) -> None:
    return None


class Player:
    def __init__(self) -> None:
        self._at = 0.0, 0.0
        self._due: list[Any] = []  # calls of the recorded entry that have not been repeated yet
        self._encode = Encoder(self._live, lambda text: text)
        self._viewers: dict[int, Viewer] = {}
        self._listeners: dict[int, LinkListener] = {}
        self._outside: dict[str, Any] = {}
        self._state: dict[str, Any] = {}
        self._actor: SessionActor | None = None
        self._names: PartNames | None = None

    def load(self, entry: dict[str, Any], make: Callable[[dict[str, Any]], "SessionActor"]) -> None:
        """Make the session of the recording's first line. Raises Differs, NotARecording."""
        parts = self._decoded(entry["of"])
        self._begin(entry)
        self._actor = actor = make(parts)
        self._names = PartNames(actor)
        self._compare(entry)

    def play(self, entry: dict[str, Any]) -> None:
        """Replay one entry. Raises Differs, NotARecording."""
        if entry["on"][KIND] != "handler":  # it has nothing to do with the session's state
            return
        handler, arguments = self._decoded(entry["on"]), self._decoded(entry["with"])
        self._begin(entry)
        raised: Exception | None = None
        try:
            handler(*arguments)
        except NotARecording:
            raise
        except Exception as error:
            raised = error
        if entry.get("raises") != (None if raised is None else type(raised).__name__):
            came = "nothing was raised" if raised is None else f"raised {error_text(raised)}"
            raise Differs(f"raised {entry['raises']}" if "raises" in entry else self._next(), came) from raised
        self._compare(entry)

    def _begin(self, entry: dict[str, Any]) -> None:
        self._at = float(entry["at"]), float(entry["utc"])
        self._due = list(entry.get("then", ()))
        if not all(isinstance(each, dict) for each in self._due):
            raise NotARecording("the calls of an event are no list")

    def _next(self) -> Any:
        return self._due[0] if self._due else "nothing more"

    def _compare(self, entry: dict[str, Any]) -> None:
        if self._due:
            raise Differs(self._due[0], "nothing more")
        assert self._actor is not None
        self._state |= entry.get("state", {})
        state = digest(self._actor)
        if state != self._state:
            wrong = [name for name, value in state.items() if self._state.get(name) != value]
            raise Differs({name: self._state.get(name) for name in wrong}, {name: state[name] for name in wrong})

    # -- Tape ---------------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self._at[0]

    def utcnow(self) -> float:
        return self._at[1]

    def hide(self, *secrets: str) -> None:
        """Does nothing: a replay writes nothing."""

    def deal(self, handler: Handler, arguments: tuple[Any, ...]) -> None:
        handler(*arguments)

    def get(self, outside: str, thing: Any, name: str) -> Any:
        if name in UNNOTED:
            return _nothing
        what = f"{outside}.{name}"
        if self._due and self._due[0].get("asks") == what:
            return self._decoded(self._due.pop(0)["gets"])
        return partial(self.call, what, _nothing)

    def call(self, what: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        came: dict[str, Any] = {"does": what, "with": [self._encode(each) for each in arguments]}
        if named:
            came["named"] = self._encode(named)
        for each in arguments:
            if iscoroutine(each):
                each.close()
        if not self._due or {name: self._due[0][name] for name in COMPARED if name in self._due[0]} != came:
            raise Differs(self._next(), came)
        noted = self._due.pop(0)
        if "refused" in noted:
            refused = noted["refused"]
            raise ApiError(refused["status"], refused["code"], refused["message"])
        return self._decoded(noted.get("gets"))

    # -- live things --------------------------------------------------------------------------------------------------

    def outside(self, name: str) -> Any:
        if name not in self._outside:
            self._outside[name] = outside(name, None, self)
        return self._outside[name]

    def _decoded(self, value: Any) -> Any:
        return decode(value, self._alive)

    def _alive(self, value: dict[str, Any]) -> Any:
        name = value["="]
        match value[KIND]:
            case "viewer":
                if name not in self._viewers:
                    self._viewers[name] = Viewer(self.outside(f"viewer {name}"), raw=value["raw"])
                return self._viewers[name]
            case "listener":
                return self._listener(name)
            case "outside":
                return self.outside(name)
            case "live":
                return Stranger(name)
            case "handler" if "listener" in value:
                return self._listener(value["listener"])._deal
            case "handler" if self._names is not None:
                return self._names.find(name)
        raise NotARecording(f"there is no {value[KIND]}")

    def _listener(self, number: int) -> LinkListener:
        assert self._actor is not None
        if number not in self._listeners:
            actor = self._actor
            self._listeners[number] = LinkListener(number, actor.life.link, actor.output, actor.host)
        return self._listeners[number]

    def _live(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Stranger):
            return {KIND: "live", "=": value.what}
        if isinstance(value, Viewer):
            number = next(number for number, viewer in self._viewers.items() if viewer is value)
            return {KIND: "viewer", "=": number, "raw": value.raw}
        return live_name(value, self._names)
