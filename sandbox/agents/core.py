"""The port of an agent's core: how the bridge speaks with one kind of agent.

Every agent has words of its own. A gateway knows chat frames only. A core stands between them: it makes lines for the
agent of what the gateway says, and chat frames of the agent's lines. It decides and does nothing else. The bridge's
shell (sandbox/bridge/agent/agent.py) owns the process, its pipes, signals and the notes of what was taken; it asks the
core, and performs what the core returns.

A core is pure and its state is data: no clock, no I/O, no randomness, and a copy of it goes on like the original. There
is one for each process of the agent. What it is given may be cut short, garbled, or of a kind it does not know: it
never raises, and goes on with the next line.

A record is *taken* when it goes to the agent, not before: what no process has had goes to the next one after a crash.
So a core that works on one message at a time says that further ones *wait*, and when it is *ready* for the next. They
stay in the bridge's queue until then. An answer to what the agent asks must not wait: the turn it belongs to would
never end. It goes past the messages that wait.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

VERSION_IN = "HOLDFAST_AGENT_VERSION"  # in the environment: which version is installed, for agents that do not say it


@dataclass(frozen=True, slots=True)
class HomeFile:
    """A file below the agent's HOME, for its owner only."""

    path: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class HomeMove:
    """The first file of a directory below HOME that fits `pattern` gets this `name`, unless one has it; the others that
    fit are put aside: `.aside` is added to their names, with a number where that one is taken."""

    pattern: str
    name: str


@dataclass(frozen=True, slots=True)
class HttpServer:
    """The program is an HTTP server on the sandbox's own loopback, and says where: a line of its output has
    `http://127.0.0.1:PORT`. It is told a password in the variable `password_in`; only the bridge and this process have
    it, and the bridge says it as that `user` (HTTP's Basic). When it answers GET `health` with 200, its stream of
    server-sent events is read at `events`, for as long as it runs."""

    health: str
    events: str
    user: str
    password_in: str


@dataclass(frozen=True, slots=True)
class Launch:
    """The program to run, its environment, what is written before it starts, where it starts (the workspace, "" if that
    is not known), and which files get other names before it starts. A program with a `server` is not spoken to by its
    input and output: its core is a ServerCore."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    files: Sequence[HomeFile] = ()
    directory: str = ""
    moves: Sequence[HomeMove] = ()
    server: HttpServer | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """What earlier processes left: `notes` is what they noted with `Note`; `found` has those patterns of `traces` which
    a file below HOME fits."""

    notes: Mapping[str, str] = field(default_factory=dict)
    found: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class ToAgent:
    """Write `line` to the agent's input; it has no newline. Lines are written in order, before any further record."""

    line: bytes


@dataclass(frozen=True, slots=True)
class Http:
    """Ask the agent's server. Requests are sent in order and do not wait for the answers of those before them: one may
    take as long as a turn. Each has a connection of its own, so a server may hear them in another order. `answered` is
    called with `tag`. A path begins with a slash; `body` is JSON or empty."""

    method: str
    path: str
    tag: str
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ToGateway:
    """Number each of `frames` and keep it until the gateway has confirmed it. A frame is one line of at most
    sandbox.protocol.agent.MAX_LINE bytes: a chat frame, or text that is shown as it is."""

    frames: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Note:
    """Remember `members` for the processes that follow, beside what was noted before; None forgets one. The notes are
    a file in the agent's HOME, so they go where the session goes. They may be lost, and are small: a few ids."""

    members: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class WakeAfter:
    """Call `woken(name)` after so many seconds, in place of what was asked under this name before; None: never."""

    name: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class UnknownFrame:
    """The agent said something of a `kind` that this core does not know. It is counted, and logged once."""

    kind: str


@dataclass(frozen=True, slots=True)
class InterruptProcess:
    """Send SIGINT to the process and its children. Most agents die of it."""


@dataclass(frozen=True, slots=True)
class EndProcess:
    """End the process: SIGTERM, and SIGKILL if it does not go. The user is told `reason`; "" tells nobody."""

    reason: str = ""


Out = ToAgent | Http | ToGateway | Note | WakeAfter | UnknownFrame | InterruptProcess | EndProcess


@runtime_checkable
class FoldingCore(Protocol):
    """A core that can fold messages into its turn at some moments only. At others such a message stays in the bridge's
    queue: there it can be cancelled, and the next process gets it."""

    def folds(self, line: bytes) -> bool:
        """Whether this record is a message for the turn that runs. Depends on the line alone, and changes nothing."""
        ...

    @property
    def can_fold(self) -> bool:
        """Whether it may be given now; also where it would begin a turn."""
        ...


class Core(Protocol):
    """One process of an agent, from before its start."""

    @property
    def cuts_lines(self) -> bool:
        """Whether a line beyond MAX_LINE bytes is given to `up` with its long strings cut, and not left out."""
        ...

    def traces(self, wanted: Launch, notes: Mapping[str, str]) -> Sequence[str]:
        """Patterns (`*` is any name) of files below HOME: `command` is told which of them are there."""
        ...

    def command(self, wanted: Launch, past: Past) -> Launch:
        """What to run where `wanted` was configured. Called once, before `begin`."""
        ...

    def begin(self, start: bytes | None) -> Sequence[Out]:
        """The process runs. `start` is the session's `start` frame, with `resume` and `pending` for all but the first
        process; None if there is none. Called once, before `down` and `up`."""
        ...

    @property
    def ready(self) -> bool:
        """Whether the next record that waits may be taken now. Changes only with what is called below."""
        ...

    def waits(self, line: bytes) -> bool:
        """Whether this record waits until the core is ready. True only for what begins a turn; depends on the line
        alone, and changes nothing."""
        ...

    def down(self, line: bytes) -> Sequence[Out]:
        """The gateway says `line`: a record that was just taken, or an `abort`, which is no record."""
        ...

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        """The agent wrote these lines. Several at once mean the same as one after the other."""
        ...

    def woken(self, name: str) -> Sequence[Out]:
        """The time of a `WakeAfter` has come."""
        ...

    def interrupt(self) -> Sequence[Out]:
        """The turn went on in spite of an `abort`: stop it by force."""
        ...

    def over(self) -> Sequence[Out]:
        """The process is gone, and all its output was given to `up`. Called once, last; what comes out goes to the
        gateway only."""
        ...


@runtime_checkable
class ServerCore(Core, Protocol):
    """The core of an agent that is a server. It writes no lines (`ToAgent`); `up` is given the data of the server's
    events, a line for each."""

    def answered(self, tag: str, status: int, body: bytes) -> Sequence[Out]:
        """The answer to an `Http`. Its long strings are cut as those of long lines are. Without an answer the status is
        0: the connection broke, or there was too much to ask or to answer."""
        ...
