"""The port of an agent's core: how the bridge speaks with one kind of agent.

Every agent has its own protocol, and a gateway knows chat frames only. A core translates: it turns the gateway's
frames into lines for the agent, and the agent's lines into chat frames. It decides and does nothing else. The
bridge's shell (sandbox/bridge/agent/process.py) owns the process, its pipes and signals, and the note of which records
were taken. The shell calls the core and performs what the core returns.

A core is pure and its state is data: no clock, no I/O, no randomness; a copy of it goes on like the original. Each
process of the agent has a new core. Input may be cut short, garbled or of an unknown kind: a core never raises, and
goes on with the next line.

A record is *taken* when it goes to the agent, not before. After a crash the next process gets every record that no
process took. So a core that works on one message at a time says that further messages *wait*, and when it is *ready*
for the next. They stay in the bridge's queue until then. An answer to a request of the agent must not wait, because
the turn would never end. It passes the waiting messages.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

VERSION_IN = "HOLDFAST_AGENT_VERSION"  # which version is installed, for agents that do not report it


@dataclass(frozen=True, slots=True)
class HomeFile:
    """A file below the agent's HOME, for its owner only."""

    path: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class HomeMove:
    """Renames the first file of a directory below HOME that fits `pattern` to `name`, unless a file has that name.
    The other files that fit are moved aside: `.aside` is appended to their names, with a number if that name is
    taken."""

    pattern: str
    name: str


@dataclass(frozen=True, slots=True)
class HttpServer:
    """The program is an HTTP server on the sandbox's own loopback. A line of its output has `http://127.0.0.1:PORT`.
    The variable `password_in` gives it a password that only the bridge and this process know; the bridge logs in as
    `user` (HTTP Basic). When GET `health` answers 200, the bridge reads its stream of server-sent events at `events`,
    for as long as it runs."""

    health: str
    events: str
    user: str
    password_in: str


@dataclass(frozen=True, slots=True)
class Launch:
    """The program to run, its environment, the files to write before the start, its directory (the workspace; "" if
    unknown), and the files to rename before the start. The bridge does not talk to a program with a `server` over
    stdin and stdout: its core is a ServerCore."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    files: Sequence[HomeFile] = ()
    directory: str = ""
    moves: Sequence[HomeMove] = ()
    server: HttpServer | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """What earlier processes left: `notes` is what they noted with `Note`; `found` has the patterns of `traces` that
    match a file below HOME."""

    notes: Mapping[str, str] = field(default_factory=dict)
    found: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class ToAgent:
    """Write `line` to the agent's input; it has no newline. Lines are written in order, before any further record."""

    line: bytes


@dataclass(frozen=True, slots=True)
class Http:
    """Send a request to the agent's server. Requests are sent in order and do not wait for earlier answers: one may
    take as long as a turn. Each has its own connection, so a server may see them in another order. `answered` is
    called with `tag`. A path begins with a slash; `body` is JSON or empty."""

    method: str
    path: str
    tag: str
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ToGateway:
    """Number each of `frames` and keep it until the gateway has confirmed it. A frame is one line of at most
    sandbox.protocol.agent.MAX_LINE bytes: a chat frame, or text that is shown unchanged."""

    frames: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Note:
    """Remember `members` for later processes, beside earlier notes; None removes one. The notes are a file in the
    agent's HOME, so they move with the session. They may get lost, and are small: a few ids."""

    members: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class WakeAfter:
    """Call `woken(name)` after `seconds`. It replaces an earlier request of this name; None cancels it."""

    name: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class UnknownFrame:
    """The agent sent something of a `kind` that this core does not know. The bridge counts it, and logs it once."""

    kind: str


@dataclass(frozen=True, slots=True)
class InterruptProcess:
    """Send SIGINT to the process and its children. Most agents die of it."""


@dataclass(frozen=True, slots=True)
class EndProcess:
    """End the process: SIGTERM, then SIGKILL if it stays. The user sees `reason`, unless it is ""."""

    reason: str = ""


Out = ToAgent | Http | ToGateway | Note | WakeAfter | UnknownFrame | InterruptProcess | EndProcess


@runtime_checkable
class FoldingCore(Protocol):
    """A core that can fold a message into its turn at some moments only. At other moments the message stays in the
    bridge's queue, where it can be cancelled and from where the next process gets it."""

    def folds(self, line: bytes) -> bool:
        """Whether this record is a message for the turn that runs. Depends on the line alone, and changes nothing."""
        ...

    @property
    def can_fold(self) -> bool:
        """Whether the core can take it now; also if it would begin a turn."""
        ...


@runtime_checkable
class LogReadingCore(Protocol):
    """A core that reads the agent's log, too: some agents tell there alone why they are silent."""

    def logged(self, lines: Sequence[bytes]) -> Sequence[Out]:
        """The agent wrote these lines to its stderr."""
        ...


class Core(Protocol):
    """One process of an agent, from before its start."""

    @property
    def cuts_lines(self) -> bool:
        """Whether `up` gets a line beyond MAX_LINE bytes with its long strings cut, instead of not at all."""
        ...

    def traces(self, wanted: Launch, notes: Mapping[str, str]) -> Sequence[str]:
        """Patterns (`*` stands for any name) of files below HOME. `command` learns which of them match a file."""
        ...

    def command(self, wanted: Launch, past: Past) -> Launch:
        """The program for the configured agent `wanted`. Called once, before `begin`."""
        ...

    def begin(self, start: bytes | None) -> Sequence[Out]:
        """The process runs. `start` is the session's `start` frame, None if it has none; for all but the first
        process it has `resume` and `pending`. Called once, before `down` and `up`."""
        ...

    @property
    def ready(self) -> bool:
        """Whether the core takes the next waiting record now. Changes only in the calls below."""
        ...

    def waits(self, line: bytes) -> bool:
        """Whether this record waits until the core is ready. True only for a record that begins a turn; depends on
        the line alone, and changes nothing."""
        ...

    def down(self, line: bytes) -> Sequence[Out]:
        """The gateway sends `line`: a record that was just taken, or an `abort`, which is no record."""
        ...

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        """The agent wrote these lines. Several in one call mean the same as one call for each."""
        ...

    def woken(self, name: str) -> Sequence[Out]:
        """The time of a `WakeAfter` is over."""
        ...

    def interrupt(self) -> Sequence[Out]:
        """The turn went on after an `abort`: stop it by force."""
        ...

    def over(self) -> Sequence[Out]:
        """The process is gone, and `up` got all its output. Called once, last; its results go to the gateway only."""
        ...


@runtime_checkable
class ServerCore(Core, Protocol):
    """The core of an agent that is a server. It writes no lines (`ToAgent`); `up` gets the data of the server's
    events, one line each."""

    def answered(self, tag: str, status: int, body: bytes) -> Sequence[Out]:
        """The answer to an `Http`. Long strings in it are cut as in long lines. Status 0 means no answer: the
        connection broke, or the request or the answer was too large."""
        ...
