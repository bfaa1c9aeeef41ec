"""Erasing, inserting, deleting and scrolling, at the cursor or on the whole screen. Pure."""

from sandbox.terminal.screen.attributes import DEFAULT
from sandbox.terminal.screen.canvas import Canvas
from sandbox.terminal.screen.cells import EMPTY, CellRow


class Edits:
    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas

    @property
    def _blank(self) -> str:
        """The look of a cell erased with the current pen."""
        return self._canvas.palette.erased(self._canvas.pen)

    def erase_cells(self, count: int) -> None:
        canvas, page = self._canvas, self._canvas.page
        canvas.confine()
        page.rows[page.y].erase(page.x, page.x + count, self._blank, canvas.cols)

    def insert_cells(self, count: int) -> None:
        canvas, page = self._canvas, self._canvas.page
        canvas.confine()
        page.rows[page.y].insert(page.x, count, self._blank, canvas.cols)

    def delete_cells(self, count: int) -> None:
        canvas, page = self._canvas, self._canvas.page
        canvas.confine()
        page.rows[page.y].delete(page.x, count, self._blank, canvas.cols)

    def erase_line(self, which: int) -> None:
        canvas, page = self._canvas, self._canvas.page
        canvas.confine(canvas.cols)
        row = page.rows[page.y]
        if which == 0:
            row.erase(page.x, canvas.cols, self._blank, canvas.cols)
            row.wrapped = row.wrapped and page.x > 0
        elif which == 1:
            row.erase(0, page.x + 1, self._blank, canvas.cols)
        elif which == 2:
            row.fill(self._blank, canvas.cols)
            row.wrapped = False

    def erase_display(self, which: int) -> None:
        canvas, page = self._canvas, self._canvas.page
        canvas.confine(canvas.cols)
        row = page.rows[page.y]
        if which == 0:
            row.erase(page.x, canvas.cols, self._blank, canvas.cols)
            row.wrapped = row.wrapped and page.x > 0
            self._clear(page.rows[page.y + 1 :])
        elif which == 1:
            row.erase(0, page.x + 1, self._blank, canvas.cols)
            row.wrapped = False
            self._end_line_after(page.x)
            self._clear(page.rows[: page.y])
        elif which == 2:
            self._clear(page.rows)
        elif which == 3:
            page.history.clear()

    def _clear(self, rows: list[CellRow]) -> None:
        for row in rows:
            row.fill(self._blank, self._canvas.cols)
            row.wrapped = False

    def _end_line_after(self, x: int) -> None:
        """Mark the row after a full erased row as not wrapped. As xterm.js does, count rows from the oldest kept one,
        not from the top of the screen."""
        canvas, page = self._canvas, self._canvas.page
        if x + 1 >= canvas.cols:
            number = page.y + 1 if page is canvas.normal else (page.y + 1) % canvas.rows
            after = page.line(number)
            if after is not None:
                after.wrapped = False

    def erase_line_unprotected(self, which: int) -> None:
        canvas, page = self._canvas, self._canvas.page
        canvas.confine(canvas.cols)
        row = page.rows[page.y]
        ends = {0: (page.x, canvas.cols), 1: (0, page.x + 1), 2: (0, canvas.cols)}.get(which)
        if ends is not None:
            self._erase_unprotected(row, *ends)
            row.wrapped = row.wrapped and (which == 1 or (which == 0 and page.x > 0))

    def erase_display_unprotected(self, which: int) -> None:
        canvas, page = self._canvas, self._canvas.page
        canvas.confine(canvas.cols)
        row = page.rows[page.y]
        if which == 0:
            self._erase_unprotected(row, page.x, canvas.cols)
            row.wrapped = row.wrapped and page.x > 0
            others = page.rows[page.y + 1 :]
        elif which == 1:
            self._erase_unprotected(row, 0, page.x + 1)
            row.wrapped = False
            self._end_line_after(page.x)
            others = page.rows[: page.y]
        elif which == 2:
            others = page.rows
        else:
            if which == 3:
                page.history.clear()
            return
        for other in others:
            self._fill_unprotected(other, 0, canvas.cols)
            other.wrapped = False

    def _erase_unprotected(self, row: CellRow, start: int, end: int) -> None:
        cols, protected = self._canvas.cols, self._canvas.palette.is_protected
        if row.is_wide(start - 1) and not protected(row.look_at(start - 1)):
            row.put(start - 1, EMPTY, self._blank)
        if end < cols and row.is_wide(end - 1) and not protected(row.look_at(end)):
            row.put(end, EMPTY, self._blank)
        self._fill_unprotected(row, start, min(end, cols))

    def _fill_unprotected(self, row: CellRow, start: int, end: int) -> None:
        protected, blank = self._canvas.palette.is_protected, self._blank
        row.reach(end if blank != DEFAULT else min(end, len(row.text)))
        for x in range(start, min(end, len(row.text))):
            if not protected(row.looks[x]):
                row.put(x, EMPTY, blank)

    def _in_region(self) -> bool:
        page = self._canvas.page
        return page.top <= page.y <= page.bottom

    def insert_rows(self, count: int) -> None:
        self._canvas.confine()
        if self._in_region():
            page = self._canvas.page
            page.insert_rows(page.y, count, self._blank)
            page.x = 0

    def delete_rows(self, count: int) -> None:
        self._canvas.confine()
        if self._in_region():
            page = self._canvas.page
            page.delete_rows(page.y, count, self._blank)
            page.x = 0

    def scroll_up(self, count: int) -> None:
        page = self._canvas.page
        page.delete_rows(page.top, count, self._blank)

    def scroll_down(self, count: int) -> None:
        page = self._canvas.page
        page.insert_rows(page.top, count, DEFAULT)

    def scroll_left(self, count: int) -> None:
        self._delete_columns(0, count)

    def scroll_right(self, count: int) -> None:
        self._insert_columns(0, count)

    def insert_columns(self, count: int) -> None:
        self._insert_columns(self._canvas.page.x % self._canvas.cols, count)

    def delete_columns(self, count: int) -> None:
        self._delete_columns(self._canvas.page.x % self._canvas.cols, count)

    def _insert_columns(self, x: int, count: int) -> None:
        if self._in_region():
            page = self._canvas.page
            for row in page.rows[page.top : page.bottom + 1]:
                row.insert(x, count, self._blank, page.cols)
                row.wrapped = False

    def _delete_columns(self, x: int, count: int) -> None:
        if self._in_region():
            page = self._canvas.page
            for row in page.rows[page.top : page.bottom + 1]:
                row.delete(x, count, self._blank, page.cols)
                row.wrapped = False

    def align(self) -> None:
        """Fill the screen with E, from the first row (in origin mode: of the region) down. An underline loses its
        style and colour."""
        canvas, page = self._canvas, self._canvas.page
        look = canvas.palette.name(canvas.palette.look(canvas.pen)._replace(line=0))
        canvas.move_to(0, 0)
        for row in page.rows[page.y :]:
            row.fill(DEFAULT, canvas.cols)
            row.put(0, "E" * canvas.cols, look * canvas.cols)
            row.wrapped = False
