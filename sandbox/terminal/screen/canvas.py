"""The drawn state of a terminal: both pages, the look and character set in use, and the modes that change printing.
Pure.

It behaves like xterm.js, corner cases included, because xterm.js shows the pictures. `join` is the width of the
character just printed, or 0 if anything else came after it: only a character just printed can be joined by a combining
character, or be repeated.
"""

from collections.abc import Iterator

from sandbox.terminal.screen.attributes import DEFAULT, Look, Palette
from sandbox.terminal.screen.buffer import Saved, ScreenBuffer
from sandbox.terminal.screen.cells import EMPTY, HALF, CellRow
from sandbox.terminal.screen.charsets import PLAIN, TABLES
from sandbox.terminal.screen.reflow import reflow
from sandbox.terminal.screen.widths import is_wide, is_zero

_MAX_REPEATED = 4096  # characters, or as many as fill the screen


class Canvas:
    def __init__(self, cols: int, rows: int, scrollback: int) -> None:
        self.cols = cols
        self.rows = rows
        self.palette = Palette(self._looks_in_use)
        self.normal = ScreenBuffer(cols, rows, scrollback)
        self.alternate = ScreenBuffer(cols, rows, 0)
        self.page = self.normal
        self.newline = False
        self._restart()

    def _looks_in_use(self) -> Iterator[str]:
        yield self.pen
        for page in (self.normal, self.alternate):
            for rows in (page.history, page.rows):
                for row in rows:
                    yield row.looks

    def _restart(self) -> None:
        self.pen = DEFAULT
        self.join = 0
        self.designated = [PLAIN] * 4
        self.level = 0
        self.charset = PLAIN
        self.clear_modes()

    def clear_modes(self) -> None:
        self.insert = False
        self.wraparound = True
        self.origin = False
        self.reverse_wrap = False

    def reset(self) -> None:
        """Return to the initial state."""
        for page in (self.normal, self.alternate):
            page.clear()
            page.saved = Saved()
        self.page = self.normal
        self._restart()

    # Characters

    def print_narrow(self, text: str) -> None:
        if self.charset in TABLES:
            text = text.translate(TABLES[self.charset])
        page, pen = self.page, self.pen
        row = page.rows[page.y]
        x, end = page.x, page.x + len(text)
        if self.insert or end > self.cols:
            self._print_narrow_slowly(text)
            return
        if x == len(row.text):
            row.text += text
            row.looks += pen * len(text)
        else:
            self._free_half_before(row, x)
            row.put(x, text, pen * len(text))
        self.join = 1
        page.x = end
        if row.text[end : end + 1] == HALF:
            row.put(end, EMPTY, pen)

    def _print_narrow_slowly(self, text: str) -> None:
        page, cols = self.page, self.cols
        row = page.rows[page.y]
        self._free_half_before(row, page.x)
        self.join = 1
        at = 0
        if not self.wraparound and page.x + len(text) > cols:  # characters without room overwrite the last cell
            page.x = min(page.x, cols - 1)
            text = text[: cols - 1 - page.x] + text[-1]
        while at < len(text):
            if page.x >= cols:
                row = self._wrap()
            part = text[at : at + cols - page.x]
            if self.insert:
                row.insert(page.x, len(part), self.pen, cols)
            row.put(page.x, part, self.pen * len(part))
            page.x += len(part)
            at += len(part)
        self._free_half_after(row)

    def _wrap(self) -> CellRow:
        page = self.page
        page.x = 0
        page.y += 1
        if page.y == page.bottom + 1:
            page.y -= 1
            page.scroll(self.palette.erased(self.pen), wrapped=True)
        else:
            page.y = min(page.y, self.rows - 1)
            page.rows[page.y].wrapped = True
        return page.rows[page.y]

    def print_wide(self, text: str) -> None:
        page, cols, pen = self.page, self.cols, self.pen
        row = page.rows[page.y]
        self._free_half_before(row, page.x)
        self.join = 2
        at = 0
        while at < len(text):
            room = (cols - page.x) // 2
            if room <= 0:
                if not self.wraparound:
                    page.x = cols - 1
                    break
                if page.x < cols:
                    row.put(page.x, EMPTY * (cols - page.x), pen * (cols - page.x))
                row = self._wrap()
                room = cols // 2
            part = text[at : at + room]
            cells = HALF.join(part) + HALF
            if self.insert:
                row.insert(page.x, len(cells), pen, cols)
            row.put(page.x, cells, pen * len(cells))
            page.x += len(cells)
            at += len(part)
        self._free_half_after(row)

    def print_zero(self, character: str) -> None:
        """Add a character without width to the character just printed. If there is none, it takes a cell."""
        page = self.page
        row = page.rows[page.y]
        self._free_half_before(row, page.x)
        if self.join and page.x:
            target = page.x - (2 if page.x > 1 and self._width(row, page.x - 1) == 0 else 1)
            if row.at(target) != EMPTY:
                row.join(target, character)
        else:
            if page.x > self.cols:
                if self.wraparound:
                    row = self._wrap()
                else:
                    page.x = self.cols - 1
            if page.x < self.cols:
                row.put(page.x, character, self.pen)
            page.x += 1
        self._free_half_after(row)

    def _width(self, row: CellRow, x: int) -> int:
        shown = row.at(x)
        return 0 if shown == HALF or is_zero(shown) else 2 if is_wide(shown) else 1

    def _free_half_before(self, row: CellRow, x: int) -> None:
        """Empty the first half of a wide character whose second half is about to be overwritten."""
        if not self.join and row.is_wide(x - 1):
            row.put(x - 1, EMPTY, self.pen)

    def _free_half_after(self, row: CellRow) -> None:
        x = self.page.x
        if x < self.cols and row.text[x : x + 1] == HALF:
            row.put(x, EMPTY, self.pen)

    def repeat(self, count: int) -> None:
        """Print the last character again, if nothing came after it."""
        page = self.page
        if not self.join or page.x < self.join:
            return
        shown = page.rows[page.y].at(page.x - self.join)
        if shown in (EMPTY, HALF):
            return
        # A short sequence must not cost much. The limit still fills the screen and ends in the right column.
        in_row = self.cols // self.join
        limit = in_row * (max(self.rows, _MAX_REPEATED // in_row) + 1)
        if count > limit:
            count = limit + (count - limit) % in_row
        if len(shown) == 1 and not is_zero(shown):
            (self.print_wide if is_wide(shown) else self.print_narrow)(shown * count)
            return
        for _ in range(count):
            for character in shown:
                self.print_any(character)

    def print_any(self, character: str) -> None:
        if is_zero(character):
            self.print_zero(character)
        elif is_wide(character):
            self.print_wide(character)
        else:
            self.print_narrow(character)

    # The cursor

    def confine(self, last: int | None = None) -> None:
        """Move the cursor into the screen, or in origin mode into the scrolling region."""
        page = self.page
        page.x = min(self.cols - 1 if last is None else last, max(0, page.x))
        first, end = (page.top, page.bottom) if self.origin else (0, self.rows - 1)
        page.y = min(end, max(first, page.y))

    def move_to(self, x: int, y: int) -> None:
        page = self.page
        page.x, page.y = x, page.top + y if self.origin else y
        self.confine()

    def move_by(self, x: int, y: int) -> None:
        self.confine()
        self.move_to(self.page.x + x, self.page.y + y)

    def up(self, count: int) -> None:
        page = self.page
        self.move_by(0, -(min(page.y - page.top, count) if page.y >= page.top else count))

    def down(self, count: int) -> None:
        page = self.page
        self.move_by(0, min(page.bottom - page.y, count) if page.y <= page.bottom else count)

    def line_feed(self) -> None:
        page = self.page
        if self.newline:
            page.x = 0
        page.y += 1
        if page.y == page.bottom + 1:
            page.y -= 1
            page.scroll(self.palette.erased(self.pen))
        elif page.y >= self.rows:
            page.y = self.rows - 1
        else:
            page.rows[page.y].wrapped = False
        if page.x >= self.cols:
            page.x -= 1

    def index(self) -> None:
        page = self.page
        self.confine()
        page.y += 1
        if page.y == page.bottom + 1:
            page.y -= 1
            page.scroll(self.palette.erased(self.pen))
        self.confine()

    def reverse_index(self) -> None:
        page = self.page
        self.confine()
        if page.y == page.top:
            page.insert_rows(page.y, 1, self.palette.erased(self.pen))
        else:
            page.y -= 1
            self.confine()

    def backspace(self) -> None:
        page = self.page
        if not self.reverse_wrap:
            self.confine()
            page.x = max(page.x - 1, 0)
            return
        self.confine(self.cols)
        row = page.rows[page.y]
        if page.x > 0:
            page.x -= 1
        elif page.top < page.y <= page.bottom and row.wrapped:
            row.wrapped = False
            page.y -= 1
            page.x = self.cols - 1
            if page.rows[page.y].at(page.x) == EMPTY:
                page.x -= 1
        self.confine()

    def tab(self, count: int = 1) -> None:
        page = self.page
        if page.x < self.cols:
            stops = sorted(stop for stop in page.tabs if page.x < stop < self.cols)
            page.x = stops[count - 1] if count <= len(stops) else self.cols - 1

    def back_tab(self, count: int) -> None:
        page = self.page
        if page.x < self.cols:
            stops = sorted((stop for stop in page.tabs if stop < page.x), reverse=True)
            page.x = stops[count - 1] if count <= len(stops) else 0

    def save(self) -> None:
        page = self.page
        page.saved = Saved(page.x, len(page.history) + page.y, self.palette.look(self.pen), self.charset)

    def restore(self) -> None:
        page, saved = self.page, self.page.saved
        page.x, page.y = saved.x, max(saved.line - len(page.history), 0)
        self.pen = self.palette.restored(saved.look, self.pen)
        self.charset = saved.charset
        self.confine()

    # Pages and character sets

    def use_alternate(self) -> None:
        if self.page is self.normal:
            self.alternate.clear(self.palette.erased(self.pen))
            self._turn_to(self.alternate)

    def use_normal(self) -> None:
        if self.page is self.alternate:
            self._turn_to(self.normal)
            self.alternate.clear()

    def _turn_to(self, page: ScreenBuffer) -> None:
        page.x, page.y = self.page.x, self.page.y
        self.page = page

    def designate(self, level: int, charset: str) -> None:
        self.designated[level] = charset
        if self.level == level:
            self.charset = charset

    def shift(self, level: int) -> None:
        self.level = level
        self.charset = self.designated[level]

    def clear_charsets(self) -> None:
        self.designated = [PLAIN] * 4
        self.shift(0)

    def void(self) -> None:
        """Empty both pages and move the cursor to the first line. Everything else stays."""
        for page in (self.normal, self.alternate):
            page.void()
        self.join = 0
        self.page.y = self.page.top if self.origin else 0

    def resize(self, cols: int, rows: int) -> None:
        """Set the size. Lines on the normal page are rewrapped; lines on the alternate page are cut."""
        if (cols, rows) == (self.cols, self.rows):
            return
        before, self.cols, self.rows = self.cols, cols, rows
        x = self.page.x
        for page in (self.normal, self.alternate):
            page.resize(cols, rows)
        reflow(self.normal, before, cols)
        for page in (self.normal, self.alternate):
            page.cut()
        if self.page.x != x:
            self.join = 0

    def soft_reset(self) -> None:
        self.page.clear_margins()
        self.pen = DEFAULT
        self.clear_modes()
        self.clear_charsets()
        self.page.saved = Saved(0, len(self.page.history), Look(), PLAIN)
