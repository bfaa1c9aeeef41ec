"""A row of cells, as two strings of the same length: the cells' characters and their looks. Pure.

A cell is empty (`EMPTY`: nothing was printed there, which differs from a blank), a character, or the second half of a
wide character (`HALF`). `joined` keeps characters with their combining characters, beside the row. Cells after the end
of the strings are empty and have the default look. `erase`, `insert` and `delete` change cells as a terminal does: they
leave no half of a wide character behind.
"""

from sandbox.terminal.screen.attributes import DEFAULT
from sandbox.terminal.screen.widths import is_wide

EMPTY = "\0"
HALF = "\x01"
_MAX_JOINED = 32  # characters in one cell; further combining characters are lost


class CellRow:
    __slots__ = ("joined", "looks", "text", "wrapped")

    def __init__(self, look: str = DEFAULT, cols: int = 0, wrapped: bool = False) -> None:
        """An empty row of `look`. `wrapped`: the row continues the line of the row above."""
        self.text = ""
        self.looks = ""
        self.joined: dict[int, str] | None = None
        self.wrapped = wrapped
        if look != DEFAULT:
            self.text, self.looks = EMPTY * cols, look * cols

    def at(self, x: int) -> str:
        """The character of cell `x` with its combining characters."""
        if self.joined and x in self.joined:
            return self.joined[x]
        return self.text[x : x + 1] or EMPTY

    def look_at(self, x: int) -> str:
        return self.looks[x : x + 1] or DEFAULT

    def is_wide(self, x: int) -> bool:
        return x >= 0 and is_wide(self.text, x) is not None

    def reach(self, size: int) -> None:
        """Make the strings at least `size` cells long."""
        missing = size - len(self.text)
        if missing > 0:
            self.text += EMPTY * missing
            self.looks += DEFAULT * missing

    def put(self, x: int, text: str, looks: str) -> None:
        """Replace the cells from `x` on. Half a wide character may remain at either end."""
        size = len(self.text)
        if x == size:
            self.text += text
            self.looks += looks
            return
        if x > size:
            self.reach(x)
        end = x + len(text)
        self.text = self.text[:x] + text + self.text[end:]
        self.looks = self.looks[:x] + looks + self.looks[end:]
        if self.joined:
            self.joined = {place: shown for place, shown in self.joined.items() if not x <= place < end}

    def join(self, x: int, character: str) -> None:
        """Add a combining character to cell `x`."""
        if self.joined is None:
            self.joined = {}
        shown = self.joined.get(x) or self.text[x]
        if len(shown) < _MAX_JOINED:
            self.joined[x] = shown + character

    def fill(self, look: str, cols: int) -> None:
        self.text, self.looks, self.joined = "", "", None
        if look != DEFAULT:
            self.text, self.looks = EMPTY * cols, look * cols

    def erase(self, start: int, end: int, look: str, cols: int) -> None:
        """Empty the cells from `start` up to `end`, without the cell at `end`."""
        end = min(end, cols)
        if self.is_wide(start - 1):
            start -= 1
        if end < cols and self.is_wide(end - 1):
            end += 1
        if start >= end:
            return
        if look == DEFAULT and end >= len(self.text):
            self._cut(start)
            return
        self.put(start, EMPTY * (end - start), look * (end - start))

    def _cut(self, size: int) -> None:
        self.text, self.looks = self.text[:size], self.looks[:size]
        if self.joined:
            self.joined = {place: shown for place, shown in self.joined.items() if place < size}

    def insert(self, x: int, count: int, look: str, cols: int) -> None:
        """Insert empty cells at `x`. Cells pushed over the right edge are lost."""
        self.reach(cols)
        if self.is_wide(x - 1):
            self.put(x - 1, EMPTY, look)
        count = min(count, cols - x)
        joined = self.joined
        self.text = (self.text[:x] + EMPTY * count + self.text[x:])[:cols]
        self.looks = (self.looks[:x] + look * count + self.looks[x:])[:cols]
        if joined:
            moved = {place if place < x else place + count: shown for place, shown in joined.items()}
            self.joined = {place: shown for place, shown in moved.items() if place < cols}
        if self.is_wide(cols - 1):
            self.put(cols - 1, EMPTY, look)

    def delete(self, x: int, count: int, look: str, cols: int) -> None:
        """Delete cells at `x`. Empty cells come in at the right edge."""
        self.reach(cols)
        count = min(count, cols - x)
        self.text = self.text[:x] + self.text[x + count :] + EMPTY * count
        self.looks = self.looks[:x] + self.looks[x + count :] + look * count
        if self.joined:
            kept = {place: shown for place, shown in self.joined.items() if not x <= place < x + count}
            self.joined = {place if place < x else place - count: shown for place, shown in kept.items()}
        if self.is_wide(x - 1):
            self.put(x - 1, EMPTY, look)
        if self.text[x] == HALF:
            self.put(x, EMPTY, look)

    def resize(self, cols: int) -> None:
        """Cut the cells beyond `cols`, and a wide character that would lose its second half."""
        if len(self.text) > cols:
            self._cut(cols)
            if self.is_wide(cols - 1):
                self._cut(cols - 1)

    def copy(self) -> "CellRow":
        made = CellRow(wrapped=self.wrapped)
        made.text, made.looks, made.joined = self.text, self.looks, self.joined and dict(self.joined)
        return made

    def length(self) -> int:
        """The number of cells up to and including the last one that is not empty."""
        return len(self.text.rstrip(EMPTY))
