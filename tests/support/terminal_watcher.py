"""A viewer at a terminal's link that records all events."""

from dataclasses import dataclass, field

from sandbox.ports.terminals import SandboxTerminals, TerminalLink
from sandbox.protocol.terminal import Exit, Greeting, Open, Reset, Role, Size, TerminalTrouble
from sandbox.protocol.terminal_frames import payloads
from sandbox.protocol.values import Position
from tests.support.waiting import until


@dataclass
class Watcher:
    """TerminalEvents that keeps everything. `output` is everything since the last hello or reset."""

    link: TerminalLink | None = None
    hellos: list[Greeting] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    pictures: list[bytes | None] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    troubles: list[TerminalTrouble] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    gone: int = 0
    full: list[bool] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    output: bytearray = field(default_factory=bytearray)
    at: Position = field(default=Position("", 0))

    def on_hello(self, link: TerminalLink, hello: Greeting, picture: bytes | None) -> None:
        assert not self.hellos, "hello is said once"
        self.link = link
        self.hellos.append(hello)
        self._begin("hello", Position(hello.epoch, hello.offset), picture)

    def on_reset(self, reset: Reset, picture: bytes) -> None:
        self.resets.append(reset)
        self._begin("reset", Position(reset.epoch, reset.offset), picture)

    def _begin(self, what: str, at: Position, picture: bytes | None) -> None:
        self._note(what)
        self.pictures.append(picture)
        self.at = at
        self.output = bytearray()

    def on_exit(self, exit: Exit) -> None:
        self._note("exit")
        self.exits.append(exit)

    def on_resized(self, size: Size) -> None:
        self._note("resized")
        self.sizes.append(size)

    def on_trouble(self, trouble: TerminalTrouble) -> None:
        self._note("trouble")
        self.troubles.append(trouble)

    def on_input_full(self, full: bool) -> None:
        self.full.append(full)

    def on_lost(self, reason: str) -> None:
        self._note("lost")
        self.lost.append(reason)

    def on_gone(self) -> None:
        self._note("gone")
        self.gone += 1

    def pass_on(self, frames: bytes) -> None:
        assert self.hellos, "output before hello"
        self._note("output")
        self.output += b"".join(payloads(frames))

    def _note(self, what: str) -> None:
        assert not self.lost, "lost comes last"
        assert not self.gone, "gone comes last"
        if what != "output" or self.order[-1] != "output":
            self.order.append(what)

    # Its view

    @property
    def hello(self) -> Greeting:
        return self.hellos[0]

    @property
    def position(self) -> Position:
        return Position(self.at.epoch, self.at.offset + len(self.output))

    @property
    def picture(self) -> bytes | None:
        """The newest."""
        return self.pictures[-1]

    async def shows(self, text: bytes) -> None:
        """Wait until `text` has come, as output or in the picture before it."""
        await until(lambda: text in (self.pictures[-1] or b"") + self.output if self.pictures else False)

    # Its actions

    def type(self, payload: bytes) -> None:
        assert self.link is not None
        self.link.type(payload)

    def resize(self, cols: int, rows: int) -> None:
        assert self.link is not None
        self.link.resize(Size(cols, rows))

    def leave(self) -> None:
        if self.link is not None:
            self.link.close()


async def watch(
    terminals: SandboxTerminals,
    name: str,
    *,
    role: Role = "drive",
    size: Size | None = None,
    after: Position | None = None,
    anew: bool = False,
) -> Watcher:
    """A new viewer of this terminal, greeted."""
    watcher = Watcher()
    link = await terminals.open(name, Open.of(size, role, after, anew), watcher, watcher.pass_on)
    await until(lambda: watcher.hellos)
    assert watcher.link is link
    return watcher
