"""The tape that records: a line for each entry of the inbox, with the calls it made at the session's borders.

A recording never fails its session: a value that cannot be written ends the recording.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_plus, urlsplit

import structlog

from gateway.protocol.errors import ApiError
from gateway.server.viewer import Viewer
from gateway.session.inbox import Handler
from gateway.session.model.state import SessionSpec
from gateway.session.recording.codec import KIND, Encoder
from gateway.session.recording.files import RecordingFile
from gateway.session.recording.tape import (
    UNNOTED,
    VERSION,
    Beginning,
    PartNames,
    digest,
    live_name,
    outside,
    refused_as,
)
from gateway.telemetry.telemetry import REDACTOR, Redactor

if TYPE_CHECKING:
    from gateway.session.actor import SessionActor

log = structlog.get_logger()


def secrets_of(spec: SessionSpec) -> Iterable[str]:
    """The members of a session's spec that grant access."""
    yield from (share.stamp for share in spec.shares.listed)
    yield from secrets_in_url(spec.repo_url or "")


def secrets_in_url(url: str) -> set[str]:
    """The URL's credentials and its query's values, verbatim and decoded."""
    try:
        parts = urlsplit(url)
        named = (each.partition("=") for each in parts.query.split("&"))
        written = {parts.username or "", parts.password or "", *(value if is_ else name for name, is_, value in named)}
    except ValueError:
        return {url}
    return {spelled for text in written for spelled in (text, unquote(text), unquote_plus(text)) if spelled}


class SessionRecorder:
    def __init__(self, file: RecordingFile, now: Callable[[], float], utcnow: Callable[[], float]) -> None:
        self._file = file
        self._now = now
        self._utcnow = utcnow
        self._at: tuple[float, float] | None = None  # while an entry is processed
        self._noting = False
        self._calls: list[Any] = []
        self._secrets = Redactor()  # also those that the gateway has forgotten since
        self._encode = Encoder(self._live, self._hidden)
        self._viewers: dict[Viewer, int] = {}
        self._last_viewer = 0
        self._actor: SessionActor | None = None
        self._names: PartNames | None = None
        self._last_state: dict[str, Any] = {}

    def hide(self, *secrets: str) -> None:
        """Keep these strings out of the recording from here on."""
        self._secrets.add(*secrets)

    def load(self, beginning: Beginning, make: Callable[[], "SessionActor"]) -> "SessionActor":
        """Make the session of `beginning`, which becomes the recording's first line."""
        parts = {each.name: self._plain(getattr(beginning, each.name)) for each in fields(beginning)}
        entry: dict[str, Any] = {"recording": VERSION, "of": parts}
        self._begin(entry, noting=True)
        try:
            self._actor = actor = make()
        finally:
            self._noting, self._at = False, None
        self._names = PartNames(actor)
        self._finish(entry)
        return actor

    # -- Tape ---------------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self._now() if self._at is None else self._at[0]

    def utcnow(self) -> float:
        return self._utcnow() if self._at is None else self._at[1]

    def deal(self, handler: Handler, arguments: tuple[Any, ...]) -> None:
        if self._file.over:
            self._viewers.clear()  # they need no numbers any more
            handler(*arguments)
            return
        on = self._plain(handler)
        noting = isinstance(on, dict) and on.get(KIND) == "handler"
        entry = {"on": on, "with": [self._plain(each) for each in arguments] if noting else []}
        self._begin(entry, noting=noting)
        try:
            handler(*arguments)
        except BaseException as error:
            entry["raises"] = type(error).__name__
            raise
        finally:
            self._noting, self._at = False, None
            self._finish(entry)
            if noting and on["="] == "viewers.detach":
                self._viewers.pop(arguments[0], None)
            if self._actor is not None and self._actor.ended:
                self._file.end()

    def get(self, outside: str, thing: Any, name: str) -> Any:
        value = getattr(thing, name)
        if name in UNNOTED:
            return value
        if callable(value):
            return partial(self.call, f"{outside}.{name}", value)
        if self._noting:
            self._calls.append({"asks": f"{outside}.{name}", "gets": self._plain(value)})
        return value

    def call(self, what: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if not self._noting:
            return function(*arguments, **named)
        noted: dict[str, Any] = {"does": what, "with": [self._plain(each) for each in arguments]}
        if named:
            noted["named"] = self._plain(named)
        self._calls.append(noted)
        self._noting = False  # calls inside this call are not the session's own
        try:
            result = function(*arguments, **named)
        except ApiError as error:
            noted["refused"] = self._plain(refused_as(error))
            raise
        finally:
            self._noting = True
        if result is not None:
            noted["gets"] = self._plain(result)
        return result

    # -- lines --------------------------------------------------------------------------------------------------------

    def _begin(self, entry: dict[str, Any], *, noting: bool) -> None:
        self._at = entry["at"], entry["utc"] = self._now(), self._utcnow()
        self._calls = []
        self._noting = noting

    def _finish(self, entry: dict[str, Any]) -> None:
        if self._calls:
            entry["then"], self._calls = self._calls, []
        if self._actor is not None:
            state = digest(self._actor)
            if changed := dict(pair for pair in state.items() if pair not in self._last_state.items()):
                entry["state"] = changed
            self._last_state = state
        self._write(entry)

    def _write(self, entry: dict[str, Any]) -> None:
        try:
            self._file.write(entry)
        except Exception:
            self._give_up()

    def _plain(self, value: Any) -> Any:
        try:
            return self._encode(value)
        except Exception:
            self._give_up()
            return None

    def _give_up(self) -> None:
        if not self._file.over:
            log.exception("recording.broken", path=str(self._file.path))
            self._file.stop("a value could not be recorded: see the gateway's log")

    def _hidden(self, text: str) -> str:
        return REDACTOR.clean(self._secrets.clean(text, keep_size=True), keep_size=True)

    # -- live things --------------------------------------------------------------------------------------------------

    def _live(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Viewer):
            return {KIND: "viewer", "=": self._number(value), "raw": value.raw}
        return live_name(value, self._names)

    def _number(self, viewer: Viewer) -> int:
        if viewer not in self._viewers:
            self._last_viewer += 1
            self._viewers[viewer] = self._last_viewer
            viewer.outlet = outside(f"viewer {self._last_viewer}", viewer.outlet, self)
        return self._viewers[viewer]
