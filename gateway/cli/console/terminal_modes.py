"""The modes that a program may leave set in a terminal, and how to undo them. Pure."""

import re

_ALTERNATE = frozenset({b"47", b"1047", b"1049"})
_SWITCH = re.compile(rb"\x1b(?:\[\?(?P<modes>[\d;]*)(?P<how>[hl])|c)")
_UNFINISHED = re.compile(rb"\x1b(?:\[(?:\?[\d;]{0,64})?)?\Z")

# Mouse in all its forms, focus, bracketed paste, application keys, keyboard protocols, wrap, cursor, colours, charset,
# scroll region. Undoing a mode that is not set changes nothing.
_UNDO = (
    b"\x1b[?9;1000;1002;1003;1005;1006;1015;1016;1004;2004;2026;2031;2048;1;6;66l\x1b>\x1b[>4m\x1b[=0u"
    b"\x1b[4;20l\x1b[?7;25h\x1b[0 q\x1b(B\x0f\x1b[m\x1b7\x1b[r\x1b8"
)
_LEAVE_ALTERNATE = b"\x1b[?1049l"
# Not ESC c, which removes the person's own scrollback in many terminals.
_CLEAR = b"\x1b[H\x1b[2J"


class ModeTracker:
    """Gets every byte that is written to a terminal. `alternate`: its alternate screen is on. Leaving that screen while
    it is off would move the cursor."""

    def __init__(self) -> None:
        self.alternate = False
        self._rest = b""

    def wrote(self, data: bytes) -> None:
        buffer = self._rest + data
        for found in _SWITCH.finditer(buffer):
            if found["modes"] is None:
                self.alternate = False
            elif not _ALTERNATE.isdisjoint(found["modes"].split(b";")):
                self.alternate = found["how"] == b"h"
        unfinished = _UNFINISHED.search(buffer, max(buffer.rfind(b"\x1b"), 0))
        self._rest = unfinished[0] if unfinished else b""

    def undo(self) -> bytes:
        """The bytes that restore the terminal, except its screen."""
        return (_LEAVE_ALTERNATE if self.alternate else b"") + _UNDO

    def clear(self) -> bytes:
        """The bytes that clear the terminal as if nothing had been written to it; its scrollback stays."""
        return self.undo() + _CLEAR
