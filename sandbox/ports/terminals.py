"""A sandbox's terminals, as the gateway sees them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandbox.protocol.terminal import Exit, Greeting, Open, Reset, Size, TerminalTrouble

PassOn = Callable[[bytes], object]


class TerminalRefused(Exception):
    """The bridge refuses. `status` is HTTP's, `code` a word for programs, the text is for people."""

    def __init__(self, status: int, code: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class TerminalWish:
    """A terminal to make. None means the configured default. `env` holds secrets."""

    command: tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    size: Size | None = None


class TerminalEvents(Protocol):
    """A terminal's link calls these for its viewer, in order, from the event loop. Nothing here may block. on_hello
    comes first; the picture it mentions has come with it, and from there on the link can be used. on_lost or on_gone
    comes once, last, unless the viewer closed the link, or `open` raised."""

    def on_hello(self, link: "TerminalLink", hello: Greeting, picture: bytes | None) -> None: ...
    def on_reset(self, reset: Reset, picture: bytes) -> None: ...
    def on_exit(self, exit: Exit) -> None: ...
    def on_resized(self, size: Size) -> None: ...
    def on_trouble(self, trouble: TerminalTrouble) -> None: ...
    def on_input_full(self, full: bool) -> None:
        """The bridge takes no more input for now, or takes it again."""
        ...

    def on_lost(self, reason: str) -> None: ...
    def on_gone(self) -> None:
        """Somebody ended the terminal for good: opening it again would make another."""
        ...


class TerminalLink(Protocol):
    """A viewer's own connection to one terminal. Methods return at once; after on_lost they do nothing."""

    @property
    def passed_bytes(self) -> int:
        """How many bytes of output were passed on since the last hello or reset."""
        ...

    def write(self, frames: bytes) -> None:
        """Input: whole binary frames of a client, masked."""
        ...

    def type(self, payload: bytes) -> None:
        """Input: one message."""
        ...

    def resize(self, size: Size) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None:
        """Close without on_lost. The terminal goes on."""
        ...


class SandboxTerminals(Protocol):
    """The terminals of one sandbox. Every method raises LinkRefused if the sandbox does not run or does not answer."""

    async def open(self, name: str, opening: Open, events: TerminalEvents, pass_on: PassOn) -> TerminalLink:
        """Attach to a terminal. If there is none, it is made, but not for a viewer who only watches, who is refused.
        `pass_on` gets its output: whole unmasked binary frames, joined, and nothing else. It may be called before
        this returns."""
        ...

    async def list(self) -> list[dict[str, Any]]:
        """The terminals: `{name, epoch, base, offset, cols, rows, viewers, idleSeconds, alive, exit, title, command}`
        each."""
        ...

    async def create(self, name: str, wish: TerminalWish) -> bool:
        """Make a terminal, or run an ended one again. False: it runs already, as wished. Raises TerminalRefused."""
        ...

    async def resize(self, name: str, size: Size) -> None:
        """Raises TerminalRefused."""
        ...

    async def end(self, name: str) -> None:
        """Hang up on its program, and forget it. Raises TerminalRefused."""
        ...
