"""One of a terminal's two buffers: the rows on the screen, the scrollback, the cursor, the scrolling region, the tab
stops and the saved cursor. Pure.

The cursor's `x` may be one past the last column: then the next character wraps to the next row.
"""

from collections import deque
from dataclasses import dataclass, field

from sandbox.terminal.screen.attributes import DEFAULT, Look
from sandbox.terminal.screen.cells import CellRow
from sandbox.terminal.screen.charsets import PLAIN

TAB = 8


@dataclass(slots=True)
class Saved:
    """A saved cursor. `line` counts from the oldest kept row, so it stays on its row until old rows are dropped."""

    x: int = 0
    line: int = 0
    look: Look = field(default_factory=Look)
    charset: str = PLAIN


class ScreenBuffer:
    __slots__ = ("bottom", "cols", "history", "rows", "saved", "tabs", "top", "x", "y")

    def __init__(self, cols: int, rows: int, scrollback: int) -> None:
        self.cols = cols
        self.rows = [CellRow() for _ in range(rows)]
        self.history: deque[CellRow] = deque(maxlen=scrollback)
        self.saved = Saved()
        self.x = self.y = 0
        self.clear_margins()
        self.tabs = set(range(0, cols, TAB))

    def clear_margins(self) -> None:
        self.top, self.bottom = 0, len(self.rows) - 1

    def clear(self, look: str = DEFAULT) -> None:
        """Return to the initial state, except for the saved cursor."""
        self.rows = [CellRow(look, self.cols) for _ in self.rows]
        self.history.clear()
        self.x = self.y = 0
        self.clear_margins()
        self.tabs = set(range(0, self.cols, TAB))

    def void(self) -> None:
        """Empty all rows and the scrollback. Everything else stays."""
        self.saved.line = max(self.saved.line - len(self.history), 0)
        self.rows = [CellRow() for _ in self.rows]
        self.history.clear()

    def line(self, number: int) -> CellRow | None:
        """The row with this number, counted from the oldest kept row."""
        if number < len(self.history):
            return self.history[number]
        number -= len(self.history)
        return self.rows[number] if number < len(self.rows) else None

    def scroll(self, look: str, wrapped: bool = False) -> None:
        """Move the region up by one row. The row that leaves goes to the scrollback if the region begins at the top
        of the screen; otherwise it is lost."""
        if self.top == 0:
            self.history.append(self.rows[0])
        del self.rows[self.top]
        self.rows.insert(self.bottom, CellRow(look, self.cols, wrapped))

    def insert_rows(self, y: int, count: int, look: str) -> None:
        """Insert empty rows at `y`. The same number of rows is lost at the end of the region."""
        count = min(count, self.bottom - y + 1)
        del self.rows[self.bottom + 1 - count : self.bottom + 1]
        self.rows[y:y] = [CellRow(look, self.cols) for _ in range(count)]

    def delete_rows(self, y: int, count: int, look: str) -> None:
        """Delete rows at `y`. The same number of empty rows comes in at the end of the region."""
        count = min(count, self.bottom - y + 1)
        del self.rows[y : y + count]
        end = self.bottom + 1 - count
        self.rows[end:end] = [CellRow(look, self.cols) for _ in range(count)]

    def resize(self, cols: int, rows: int) -> None:
        """Set the size. To grow, pull rows from the scrollback if the cursor is on the last row, else add empty rows
        below. To shrink, drop rows below the cursor first, then push rows into the scrollback."""
        pulled = 0
        for _ in range(rows - len(self.rows)):
            if self.history and self.y + pulled + 1 >= len(self.rows):
                self.rows.insert(0, self.history.pop())
                pulled += 1
            else:
                self.rows.append(CellRow())
        while len(self.rows) > rows:
            if len(self.rows) > self.y + 1:
                self.rows.pop()
            else:
                if len(self.history) == self.history.maxlen:
                    self.saved.line = max(self.saved.line - 1, 0)
                self.history.append(self.rows.pop(0))
                self.y -= 1
        self.x, self.y = min(self.x, cols - 1), min(self.y, rows - 1) + pulled
        self.saved.x = min(self.saved.x, cols - 1)
        self.cols = cols
        self.clear_margins()
        last = max((stop for stop in self.tabs if stop < cols), default=0)
        self.tabs.update(range(last, cols, TAB))

    def cut(self) -> None:
        """Remove the cells beyond the last column."""
        for row in (*self.history, *self.rows):
            row.resize(self.cols)
