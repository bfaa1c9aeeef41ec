"""Write rows as the text that prints them, from the top of a fresh terminal down. Pure.

A terminal has side effects: a character after the last column wraps, a row that scrolls in gets the background in use,
an empty cell differs from a blank. The writer reproduces each state by the way it arises: wrapped rows wrap again,
empty cells are skipped or erased, and a state that only a side effect can leave, such as an underlined empty cell (an
accident), is made by the same side effect.
"""

import re

from sandbox.terminal.screen.attributes import DEFAULT
from sandbox.terminal.screen.buffer import Saved, ScreenBuffer
from sandbox.terminal.screen.canvas import Canvas
from sandbox.terminal.screen.cells import EMPTY, HALF, CellRow
from sandbox.terminal.screen.charsets import PLAIN
from sandbox.terminal.screen.widths import WIDE, ZERO, is_wide, is_zero

_SAME = re.compile(r"(.)\1*", re.DOTALL)
_PIECES = re.compile("\0+|[^\0]+")
_LONE_HALF = re.compile(f"(?<![{WIDE}]){HALF}")
_LONE_WIDE = re.compile(f"[{WIDE}](?!{HALF})")
_ZEROES = re.compile(f"[{ZERO}]")
_WIDE_BLANK = "\u3000"
_STEP = 24  # the most bytes that moving, erasing and wrapping take, for each change of look
_MAX_FEEDS = 10_000
_ACCIDENT = 160  # bytes for each cell that needs an accident


class RowWriter:
    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._palette = canvas.palette
        self._cols = canvas.cols
        self._sequences: dict[str, str] = {DEFAULT: "\x1b[m"}
        self._pen = DEFAULT
        self._x = 0  # `cols`: the next character wraps
        self._stale = -1  # the cell of this row that was changed since the row came in; -1: none
        self.out: list[str] = []

    def sequence(self, look: str) -> str:
        found = self._sequences.get(look)
        if found is None:
            found = self._sequences[look] = self._palette.sequence(look)
        return found

    def cost(self, row: CellRow) -> int:
        """An upper bound of the bytes that the row takes."""
        text = row.text
        if row.joined:
            text += "".join(row.joined.values())
        total = len(text.encode()) + (4 * _STEP + _ACCIDENT if row.wrapped else _STEP)
        for run in _SAME.finditer(row.looks):
            total += len(self.sequence(run[1])) + _STEP
            part = row.text[run.start() : run.end()]
            if EMPTY in part:
                each = _STEP if self._palette.is_erased(run[1]) else _ACCIDENT + len(self.sequence(run[1]))
                total += each * part.count(EMPTY)
        if not row.text.isascii():
            total += len(_ZEROES.findall(row.text)) * 90
        return total

    def use(self, look: str) -> None:
        if look != self._pen:
            self._pen = look
            self.out.append(self.sequence(look))

    def go(self, x: int) -> None:
        if x != self._x:
            self._x = x
            self.out.append(f"\x1b[{x + 1}G")

    def page(self, page: ScreenBuffer, rows: list[CellRow], dropped: int) -> None:
        """Print `rows` on an empty page with the cursor at home. The last of them are the rows on the screen.
        `dropped` is the number of older rows of the page that are left out."""
        on_screen = len(page.rows)
        mark = -1 if page.saved == Saved() else max(page.saved.line - dropped, 0)
        if mark >= len(rows):  # the cursor was saved before the scrollback was cleared
            self.out.append(f"\x1b[{on_screen}H" + "\n" * min(mark - on_screen + 1, _MAX_FEEDS))
            self.mark(page.saved)
            self.use(DEFAULT)
            self.out.append("\x1b[3J\x1b[H")
            mark = -1
        if len(rows) == on_screen:
            while len(rows) > mark + 1 and not rows[-1].text and not rows[-1].wrapped:
                rows.pop()
        above, self._x = None, 0
        for number, row in enumerate(rows):
            below = rows[number + 1] if number + 1 < len(rows) else None
            blank = self._enter(row) if above is None else self._link(above, row, number >= on_screen)
            self._row(row, blank, below)
            if number == mark:
                self.mark(page.saved)
            above = row
        self.use(DEFAULT)

    def mark(self, saved: Saved) -> None:
        """Make the terminal save its cursor, on the current line."""
        self.go(min(saved.x, self._cols - 1))
        self.use(self._palette.name(saved.look))
        self.out.append("\x1b7" if saved.charset == PLAIN else f"\x1b({saved.charset}\x1b7\x1b(B")

    # From row to row. Each function returns the look of the cells that the new row has already.

    def _enter(self, row: CellRow) -> str:
        if row.wrapped and self._canvas.rows > 1:
            self.go(self._cols - 1)
            self.out.append("  \x1b[H\x1b[M")  # makes the row below wrapped, then moves it up
            self._stale = 0
        self._x = 0
        return DEFAULT

    def _link(self, above: CellRow, row: CellRow, scrolls: bool) -> str:
        if not row.wrapped:
            if self._palette.erased(self._pen) != DEFAULT:
                self.use(DEFAULT)
            self.out.append("\r\n")
            self._x = 0
            return DEFAULT
        first, edge = row.at(0), above.at(self._cols - 1)
        fits = self._makes_room(above, row)
        if edge != EMPTY and self._x < self._cols:
            self._edge(above)
        if fits or (edge != EMPTY and first not in (EMPTY, HALF) and not is_zero(first)):
            if fits:
                self.go(self._cols - 1)
            self.use(row.look_at(0))
            self._x = 0
            return self._palette.erased(self._pen) if scrolls else DEFAULT
        self.use(DEFAULT)
        if edge != EMPTY:
            self.out.append(" \r")
        else:
            self.go(self._cols - 1)
            self.out.append("  ")
            if self._canvas.rows > 1:
                self.out.append("\x1b[A")
                self._x = 1
                self._edge(above)
                self.out.append("\x1b[B")
            self.out.append("\r")
        self._x = self._stale = 0
        return DEFAULT

    def _makes_room(self, row: CellRow, below: CellRow | None) -> bool:
        """Whether the last cell is empty because the wide character that begins the next row did not fit."""
        if below is None or not below.wrapped or not is_wide(below.at(0)) or row.at(self._cols - 1) != EMPTY:
            return False
        return row.look_at(self._cols - 1) == below.look_at(0)

    # Within a row

    def _row(self, row: CellRow, blank: str, below: CellRow | None) -> None:
        text, cols, broken = row.text, self._cols, False
        room = self._makes_room(row, below)
        if room:
            text = text[: cols - 1]
        if not text.isascii() or HALF in text:
            text = _LONE_HALF.sub(EMPTY, text)
            broken = len(text) == cols and _LONE_WIDE.match(text, cols - 2) is not None
            if broken:
                text = text[: cols - 2]
            text = _LONE_WIDE.sub(EMPTY, text)
        for run in _SAME.finditer(row.looks[: len(text)]):
            for piece in _PIECES.finditer(text, run.start(), run.end()):
                self._piece(row, text, piece.start(), piece.end(), blank)
        if broken:
            self._break(row)
        elif len(text) < cols - room:
            if blank != DEFAULT:
                self._erase(len(text), cols - len(text), DEFAULT)
            elif self._stale == len(text):
                self._erase(len(text), 1, DEFAULT)
        self._stale = -1

    def _piece(self, row: CellRow, text: str, start: int, end: int, blank: str) -> None:
        """Write cells of one look that are either all empty or all not."""
        look = row.looks[start]
        if text[start] != EMPTY:
            self._print(row, text, start, end)
        elif not self._palette.is_erased(look):
            for x in range(start, end):
                self._accident(row, x)
        elif look != blank or self._stale == start:
            self._erase(start, end - start, look)

    def _erase(self, x: int, count: int, look: str) -> None:
        self.go(x)
        self.use(look)
        self.out.append(f"\x1b[{count}X")

    def _print(self, row: CellRow, text: str, start: int, end: int) -> None:
        self.go(start)
        self.use(row.looks[start])
        shown = text[start:end]
        if row.joined or _ZEROES.search(shown):
            joined = row.joined or {}
            alone = self.sequence(self._pen)  # after a sequence, nothing can be joined
            shown = "".join(
                joined.get(x) or (alone + cell if is_zero(cell) else cell) for x, cell in enumerate(shown, start)
            )
        self.out.append(shown.replace(HALF, ""))
        self._x = end

    def _edge(self, row: CellRow) -> None:
        """Print the row's last cell again."""
        last = self._cols - 1
        if row.at(last) == HALF:
            self._print(row, row.text, last - 1, last + 1)
        elif row.at(last) != EMPTY:
            self._print(row, row.text, last, last + 1)
        elif self._palette.is_erased(row.look_at(last)):
            self._erase(last, 1, row.look_at(last))
        else:
            self._accident(row, last)

    def _accident(self, row: CellRow, x: int) -> None:
        """Make an empty cell whose look erasing cannot leave. Such a cell was half of a wide character whose other half
        was overwritten or pushed over the edge."""
        if x < self._cols - 1:
            self.go(x)
            self.use(row.looks[x])
            self.out.append(f"{_WIDE_BLANK}\x1b[{x + 2}G ")
            self._x = x + 2
            self._stale = x + 1
            return
        while True:  # there is no cell to the right: work from the left, then print what was there again
            self.go(x - 1)
            self.use(row.looks[x])
            self.out.append(f"{_WIDE_BLANK}\x1b[{x}G ")
            self._x = x
            x -= 1
            before = row.at(x)
            if before != EMPTY or x == 0 or self._palette.is_erased(row.looks[x]):
                break
        if before == HALF and x > 0:
            self._print(row, row.text, x - 1, x + 1)
        elif before == EMPTY:
            self._erase(x, 1, self._palette.erased(row.looks[x]))
        else:
            self._print(row, row.text, x, x + 1)

    def _break(self, row: CellRow) -> None:
        """Make the first half of a wide character without its second half, before the last cell. Without wraparound,
        the last cell was overwritten, or another wide character had no room there."""
        last = self._cols - 1
        self.go(last - 1)
        self.use(row.looks[last - 1])
        self.out.append("\x1b[?7l" + row.text[last - 1])
        self.use(row.looks[last])
        empty = row.at(last) == EMPTY
        self.out.append((_WIDE_BLANK if empty else row.at(last)) + "\x1b[?7h")
        self._x = last if empty else self._cols
