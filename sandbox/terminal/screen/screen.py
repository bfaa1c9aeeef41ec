"""A terminal's screen, computed from a program's bytes without a terminal. Pure.

One runs beside every PTY. A viewer who comes late or falls behind gets a picture: bytes that make a fresh terminal
look and behave as if it had read everything. `feed` draws. `skip` is for a flood that nobody could read: it keeps only
the settings that the program made, and empties the drawn screen. Both take any bytes, cut anywhere. The size of the
screen and its scrollback bounds the memory.
"""

from codecs import utf_8_decode

from sandbox.terminal.screen.attributes import latest
from sandbox.terminal.screen.canvas import Canvas
from sandbox.terminal.screen.commands import Commands
from sandbox.terminal.screen.sequences import (
    COLOURS,
    CONTROL,
    CSI,
    ESC,
    MAX_HELD,
    NEWLINE,
    OSC,
    RUN,
    SEQUENCE,
    SGR,
    SWALLOWED,
    TOKEN,
    WIDE_RUN,
    ZERO_WIDTH,
    Unfinished,
)
from sandbox.terminal.screen.snapshot import draw

MIN_COLS = 2  # as in xterm.js: a wide character must fit
_MAX_LINE = 4096  # characters of a skipped line that are read
_BYTE_ORDER_MARK = "\ufeff"  # xterm.js drops it


class Screen:
    def __init__(self, cols: int, rows: int, *, scrollback: int = 1000) -> None:
        self._canvas = Canvas(max(cols, MIN_COLS), max(rows, 1), scrollback)
        self._commands = Commands(self._canvas)
        self._unfinished = Unfinished(self._commands)
        self._tail = b""  # the first bytes of a character whose other bytes have not come
        self._used = False

    @property
    def cols(self) -> int:
        return self._canvas.cols

    @property
    def rows(self) -> int:
        return self._canvas.rows

    @property
    def title(self) -> str:
        return self._commands.title or ""

    def feed(self, data: bytes) -> None:
        """Draw the program's output."""
        text = self._decode(data)
        at = self._unfinished.take(text, 0) if self._unfinished.held else 0
        while at < len(text):
            at = self._draw(text, at)

    def _decode(self, data: bytes) -> str:
        self._used = self._used or bool(data)
        if self._tail:
            data = self._tail + data
        text, end = utf_8_decode(data, "ignore", False)
        self._tail = data[end:]
        if _BYTE_ORDER_MARK in text:
            text = text.replace(_BYTE_ORDER_MARK, "")
        return text

    def _draw(self, text: str, at: int) -> int:
        """Draw whole tokens from `at` on, then let `Unfinished` read one piece that is not whole. Return its end."""
        canvas, commands = self._canvas, self._commands
        for token in TOKEN.finditer(text, at):
            kind = token.lastindex
            if kind == RUN:
                canvas.print_narrow(token[RUN])
            elif kind == NEWLINE:
                canvas.page.x = 0
                canvas.line_feed()
                canvas.join = 0
            elif kind == SGR:
                commands.sgr(token[SGR])
            elif kind == CSI:
                commands.csi(token[4] + token[CSI], token[5])
            elif kind == CONTROL:
                commands.control(token[CONTROL])
            elif kind == WIDE_RUN:
                canvas.print_wide(token[WIDE_RUN])
            elif kind == ZERO_WIDTH:
                canvas.print_zero(token[ZERO_WIDTH])
            elif kind == ESC:
                commands.esc(token[ESC])
            elif kind == OSC:
                commands.osc(token[OSC][: MAX_HELD - 2])
            else:
                return self._unfinished.take(text, token.start())
        return len(text)

    def skip(self, data: bytes) -> None:
        """Apply only the settings in `data`: modes, page, region, tab stops, character sets, look, title. Empties the
        screen and the scrollback, and moves the cursor to the first line."""
        text = self._decode(data)
        if self._unfinished.held:
            text = text[self._unfinished.take(text, 0) :]
        column, at = self._canvas.page.x, 0
        # Most floods are only text. This check costs a twentieth of passing over it.
        plain = text.isascii() and "\x1b" not in text and "\x0e" not in text and "\x0f" not in text
        while at < len(text) and not plain:
            at = self._pass_over(text, at, column)
        self._find_column(text, len(text), column)
        self._canvas.void()

    def _pass_over(self, text: str, start: int, column: int) -> int:
        """Skip what only draws, apply the one sequence after it, and return where that sequence ends."""
        found = SWALLOWED.match(text, start)
        end = found.end() if found else start
        self._carry_colours(text, start, end)
        token = TOKEN.match(text, end)
        if token is None:
            return len(text)
        kind = token.lastindex
        if kind == CSI:
            if token[CSI] == "g":
                self._find_column(text, end, column)
            self._commands.csi(token[4] + token[CSI], token[5])
        elif kind == ESC:
            if token[ESC] == "H":
                self._find_column(text, end, column)
            self._commands.esc(token[ESC])
        elif kind == CONTROL:
            self._commands.control(token[CONTROL])
        elif kind == OSC:
            self._commands.osc(token[OSC][: MAX_HELD - 2])
        else:
            return self._unfinished.take(text, end)
        return token.end()

    def _find_column(self, text: str, end: int, column: int) -> None:
        """Put the cursor in the column where the last line before `end` ends. `column` is the column at the start of
        `text`."""
        begin = max(end - _MAX_LINE, 0)
        line = max(text.rfind("\r", begin, end), text.rfind("\n", begin, end))
        self._canvas.page.x = 0 if line >= 0 else column
        self._draw(SEQUENCE.sub("", text[max(line + 1, begin) : end]), 0)

    def _carry_colours(self, text: str, start: int, end: int) -> None:
        """Apply the SGR sequences of a skipped part. Those before the last reset of the look have no effect."""
        back = max(text.rfind("\x1b[m", start, end), text.rfind("\x1b[0m", start, end), start)
        for colours in latest(COLOURS.findall(text, back, end)):
            self._commands.sgr(colours)

    def resize(self, cols: int, rows: int) -> None:
        """Set the size, and keep the content as xterm.js would."""
        self._canvas.resize(max(cols, MIN_COLS), max(rows, 1))

    def picture(self) -> bytes:
        """The bytes that make a terminal of this size, after a reset, show this screen and continue as this one would.
        They end with the received part of an unfinished sequence or character, and contain no query. Empty for a screen
        that was never fed."""
        if not self._used:
            return b""
        return draw(self._canvas, self._commands) + self._unfinished.held.encode() + self._tail
