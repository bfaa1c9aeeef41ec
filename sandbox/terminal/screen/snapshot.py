"""A picture: the bytes that make a terminal equal to this one after a reset. Pure.

First come both pages, oldest row first; each page saves its cursor when it prints that row. Then come the settings
that would disturb printing: tab stops, region, modes, character sets. The cursor comes last. A character that was just
printed is printed again to put the cursor behind it: then a combining character that comes next joins it, and a
character after the last column wraps.

A picture has at most MAX_PICTURE bytes. To fit, it leaves out rows of the scrollback, oldest first, then rows at the
top of the screen.
"""

from sandbox.protocol.terminal import MAX_PICTURE
from sandbox.terminal.screen.attributes import DEFAULT
from sandbox.terminal.screen.buffer import TAB, Saved, ScreenBuffer
from sandbox.terminal.screen.canvas import Canvas
from sandbox.terminal.screen.cells import EMPTY, HALF, CellRow
from sandbox.terminal.screen.charsets import PLAIN, sent_for
from sandbox.terminal.screen.commands import Commands
from sandbox.terminal.screen.row_writer import RowWriter
from sandbox.terminal.screen.widths import is_zero

_RESERVE = 80 * 1024  # bytes for everything but rows: title, tab stops, an unfinished sequence, ...
_CANCEL = "\x18"  # cancels a sequence that the viewer's terminal may have begun to read
_SHIFTS = ("\x0f", "\x0e", "\x1bn", "\x1bo")


def draw(canvas: Canvas, commands: Commands) -> bytes:
    room = MAX_PICTURE - _RESERVE
    painter = RowWriter(canvas)
    out = painter.out
    out.append(_CANCEL)
    if commands.title is not None:
        out.append(f"\x1b]2;{commands.title}\x1b\\")
    alternate = canvas.page is canvas.alternate
    if alternate:
        shown, _ = _fitting(painter, canvas.alternate, room)
        room -= sum(map(painter.cost, shown))
    elif canvas.alternate.saved != Saved():
        out.append(f"\x1b[?1047h\x1b[{canvas.alternate.saved.line + 1}H")
        painter.mark(canvas.alternate.saved)
        painter.use(DEFAULT)
        out.append("\x1b[?1047l\x1b[H")
    rows, dropped = _fitting(painter, canvas.normal, room)
    painter.page(canvas.normal, rows, dropped)
    if alternate:
        out += _stops_and_region(canvas.normal)
        out.append("\x1b[?1047h\x1b[H")
        painter.page(canvas.alternate, shown, 0)
    out += _stops_and_region(canvas.page)
    out += _modes(canvas, commands)
    if canvas.join or _came_back(canvas):
        out += _charsets(canvas) + _cursor(canvas, painter)
    else:  # the last cell was not printed in the character set in use now
        out += _cursor(canvas, painter) + _charsets(canvas)
    return "".join(out).encode()


def _fitting(painter: RowWriter, page: ScreenBuffer, room: int) -> tuple[list[CellRow], int]:
    """The newest rows that fit, and the number of older rows that do not. The rows on the screen are always there,
    empty where they do not fit."""
    rows = [*page.history, *page.rows]
    for number in range(len(rows) - 1, -1, -1):
        room -= painter.cost(rows[number])
        if room < 0:
            missing = number + 1 - len(page.history)
            if missing <= 0:
                return rows[number + 1 :], number + 1
            return [CellRow() for _ in range(missing)] + rows[number + 1 :], len(page.history)
    return rows, 0


def _stops_and_region(page: ScreenBuffer) -> list[str]:
    made = []
    stops = sorted(stop for stop in page.tabs if stop < page.cols)
    if stops != list(range(0, page.cols, TAB)):
        made.append("\x1b[3g")
        made += [f"\x1b[{stop + 1}G\x1bH" for stop in stops]
    if (page.top, page.bottom) != (0, len(page.rows) - 1):
        made.append(f"\x1b[{page.top + 1};{page.bottom + 1}r")
    return made


def _came_back(canvas: Canvas) -> bool:
    """Whether the character set in use was restored with the cursor, and differs from the designated one."""
    return canvas.charset != canvas.designated[canvas.level] and canvas.charset == canvas.page.saved.charset


def _charsets(canvas: Canvas) -> list[str]:
    made = [f"\x1b{'()*+'[level]}{name}" for level, name in enumerate(canvas.designated) if name != PLAIN]
    if canvas.level:
        made.append(_SHIFTS[canvas.level])
    if _came_back(canvas):
        made.append("\x1b8")
    return made


def _modes(canvas: Canvas, commands: Commands) -> list[str]:
    made = [commands.modes.sequences()]
    if commands.newline_said is not None:
        made.append("\x1b[20h" if commands.newline_said else "\x1b[20l")
    if not canvas.wraparound:
        made.append("\x1b[?7l")
    if canvas.reverse_wrap:
        made.append("\x1b[?45h")
    if canvas.origin:
        made.append("\x1b[?6h")
    if canvas.insert:
        made.append("\x1b[4h")
    return made


def _cursor(canvas: Canvas, painter: RowWriter) -> list[str]:
    page, cols = canvas.page, canvas.cols
    row = page.rows[page.y]
    line = page.y - page.top + 1 if canvas.origin else page.y + 1
    pen = painter.sequence(canvas.pen)
    if canvas.join:
        start = page.x - canvas.join
        shown = row.at(start) if row.look_at(start) == canvas.pen else EMPTY
        if shown not in (EMPTY, HALF) and (canvas.join == 1) == (row.at(start + 1) != HALF):
            return [f"\x1b[{line};{start + 1}H{pen}", _again(canvas, row, start)]
        return [f"\x1b[{line};{cols}H{pen}\u3000"]  # without wraparound, a wide character had no room
    if page.x < cols:
        return [f"\x1b[{line};{page.x + 1}H{pen}"]
    beyond = "\u200b" * (page.x - cols)
    last = cols - 2 if row.at(cols - 1) == HALF else cols - 1
    if row.at(last) != EMPTY:
        look = painter.sequence(row.look_at(last))
        return [f"\x1b[{line};{last + 1}H{look}", _again(canvas, row, last), pen, beyond]
    if page is canvas.normal:  # only via the alternate page can the cursor get there without overwriting a cell
        return [f"\x1b[?1047h\x1b[{page.y + 1};{cols}H \x1b[?1047l{pen}{beyond}"]
    return [f"\x1b[{line};{cols}H{painter.sequence(row.look_at(last))} {pen}{beyond}"]


def _again(canvas: Canvas, row: CellRow, x: int) -> str:
    """The bytes that print cell `x` again."""
    made = shown = row.at(x)
    if canvas.join:
        charset = canvas.charset if _came_back(canvas) else canvas.designated[canvas.level]
        made = sent_for(shown[0], charset) + shown[1:]
    if canvas.insert and not is_zero(shown):
        made = f"\x1b[{2 if row.at(x + 1) == HALF else 1}P" + made
    return made
