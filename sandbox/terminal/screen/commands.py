"""The effect of each control sequence on the canvas and the modes. Unknown sequences do nothing. Queries do nothing
either: the viewers' terminals answer them. Pure."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from sandbox.terminal.screen.attributes import parse
from sandbox.terminal.screen.canvas import Canvas
from sandbox.terminal.screen.charsets import PLAIN, TABLES
from sandbox.terminal.screen.edits import Edits
from sandbox.terminal.screen.modes import Modes

_MAX_PARAMS = 4000  # characters; a sequence with more parameters does nothing
_LEVELS = {"(": 0, ")": 1, "*": 2, "+": 3, "-": 1, ".": 2}


@lru_cache(1024)
def _numbers(params: str) -> tuple[int, ...]:
    return tuple(group[0] for group in parse(params))


class Commands:
    def __init__(self, canvas: Canvas) -> None:
        self.canvas = canvas
        self.modes = Modes()
        self.title: str | None = None
        self.newline_said: bool | None = None  # None: the program never set it
        edits = Edits(canvas)

        def once(act: Callable[[int], None]) -> Callable[[Sequence[int]], None]:
            """A sequence with one parameter. A missing parameter and 0 mean 1."""
            return lambda numbers: act(numbers[0] or 1)

        def plain(act: Callable[[int], None]) -> Callable[[Sequence[int]], None]:
            return lambda numbers: act(numbers[0])

        self._csi: dict[str, Callable[[Sequence[int]], None]] = {
            "@": once(edits.insert_cells),
            "A": once(canvas.up),
            "B": once(canvas.down),
            "C": once(lambda n: canvas.move_by(n, 0)),
            "D": once(lambda n: canvas.move_by(-n, 0)),
            "E": once(self._next_line),
            "F": once(self._previous_line),
            "G": once(lambda n: canvas.move_to(n - 1, canvas.page.y)),
            "H": self._position,
            "I": once(canvas.tab),
            "J": plain(edits.erase_display),
            "K": plain(edits.erase_line),
            "L": once(edits.insert_rows),
            "M": once(edits.delete_rows),
            "P": once(edits.delete_cells),
            "S": once(edits.scroll_up),
            "T": once(edits.scroll_down),
            "X": once(edits.erase_cells),
            "Z": once(canvas.back_tab),
            "`": once(lambda n: canvas.move_to(n - 1, canvas.page.y)),
            "a": once(lambda n: canvas.move_by(n, 0)),
            "b": once(canvas.repeat),
            "d": once(lambda n: canvas.move_to(canvas.page.x, n - 1)),
            "e": once(lambda n: canvas.move_by(0, n)),
            "f": self._position,
            "g": plain(self._clear_tabs),
            "h": lambda numbers: self._set_ansi(numbers, True),
            "l": lambda numbers: self._set_ansi(numbers, False),
            "r": self._set_margins,
            "s": lambda _: canvas.save(),
            "u": lambda _: canvas.restore(),
            "?J": plain(edits.erase_display_unprotected),
            "?K": plain(edits.erase_line_unprotected),
            "?h": lambda numbers: self._set_private(numbers, True),
            "?l": lambda numbers: self._set_private(numbers, False),
            " @": once(edits.scroll_left),
            " A": once(edits.scroll_right),
            "'}": once(edits.insert_columns),
            "'~": once(edits.delete_columns),
            " q": plain(self.modes.set_cursor),
            '"q': plain(self._protect),
            "!p": lambda _: self._soft_reset(),
        }
        self._esc: dict[str, Callable[[], None]] = {
            "7": canvas.save,
            "8": canvas.restore,
            "D": canvas.index,
            "E": self._new_line,
            "H": self._set_tab,
            "M": canvas.reverse_index,
            "=": lambda: self.modes.set(66, True),
            ">": lambda: self.modes.set(66, False),
            "c": self.reset,
            "n": lambda: canvas.shift(2),
            "o": lambda: canvas.shift(3),
            "|": lambda: canvas.shift(3),
            "}": lambda: canvas.shift(2),
            "~": lambda: canvas.shift(1),
            "%@": self._plain_charset,
            "%G": self._plain_charset,
            "#8": edits.align,
        }
        self._control: dict[str, Callable[[], None]] = {
            "\b": canvas.backspace,
            "\t": canvas.tab,
            "\n": canvas.line_feed,
            "\v": canvas.line_feed,
            "\f": canvas.line_feed,
            "\r": self._carriage_return,
            "\x0e": lambda: canvas.shift(1),
            "\x0f": lambda: canvas.shift(0),
            "\x84": canvas.index,
            "\x85": self._new_line,
            "\x88": self._set_tab,
        }

    def control(self, character: str) -> None:
        """A control character. After an unknown one, too, nothing joins the character printed before."""
        act = self._control.get(character)
        if act is not None:
            act()
        self.canvas.join = 0

    def csi(self, kind: str, params: str) -> None:
        """`CSI params kind`. `kind` is the prefix, if any, then the intermediate and final characters."""
        act = self._csi.get(kind)
        if act is not None and len(params) <= _MAX_PARAMS:
            act(_numbers(params))
        self.canvas.join = 0

    def sgr(self, params: str) -> None:
        canvas = self.canvas
        if len(params) <= _MAX_PARAMS:
            canvas.pen = canvas.palette.step(canvas.pen, params)
        canvas.join = 0

    def esc(self, kind: str) -> None:
        """`ESC kind`. `kind` is the intermediate characters, then the final one."""
        act = self._esc.get(kind)
        if act is not None:
            act()
        elif kind[0] in _LEVELS and (kind[1:] in TABLES or kind[1:] == PLAIN):
            self.canvas.designate(_LEVELS[kind[0]], kind[1:])
        self.canvas.join = 0

    def osc(self, text: str) -> None:
        number, _, rest = text.partition(";")
        if number.isdecimal() and number.isascii() and int(number[:9]) in (0, 2):
            self.title = rest
        self.canvas.join = 0

    def reset(self) -> None:
        self.canvas.reset()
        self.modes.reset()

    def _soft_reset(self) -> None:
        self.canvas.soft_reset()
        self.modes.soft_reset()

    def _carriage_return(self) -> None:
        self.canvas.page.x = 0

    def _new_line(self) -> None:
        self.canvas.page.x = 0
        self.canvas.index()

    def _next_line(self, count: int) -> None:
        self.canvas.down(count)
        self.canvas.page.x = 0

    def _previous_line(self, count: int) -> None:
        self.canvas.up(count)
        self.canvas.page.x = 0

    def _position(self, numbers: Sequence[int]) -> None:
        self.canvas.move_to((numbers[1] or 1) - 1 if len(numbers) > 1 else 0, (numbers[0] or 1) - 1)

    def _set_tab(self) -> None:
        self.canvas.page.tabs.add(self.canvas.page.x)

    def _clear_tabs(self, which: int) -> None:
        page = self.canvas.page
        if which == 0:
            page.tabs.discard(page.x)
        elif which == 3:
            page.tabs.clear()

    def _protect(self, which: int) -> None:
        if which <= 2:
            self.canvas.pen = self.canvas.palette.protect(self.canvas.pen, which == 1)

    def _plain_charset(self) -> None:
        self.canvas.shift(0)
        self.canvas.designate(0, PLAIN)

    def _set_margins(self, numbers: Sequence[int]) -> None:
        canvas = self.canvas
        first, last = numbers[0] or 1, numbers[1] if len(numbers) > 1 else 0
        if last == 0 or last > canvas.rows:
            last = canvas.rows
        if last > first:
            canvas.page.top, canvas.page.bottom = first - 1, last - 1
            canvas.move_to(0, 0)

    def _set_ansi(self, numbers: Sequence[int], on: bool) -> None:
        for number in numbers:
            if number == 4:
                self.canvas.insert = on
            elif number == 20:
                self.canvas.newline = self.newline_said = on

    def _set_private(self, numbers: Sequence[int], on: bool) -> None:
        canvas = self.canvas
        for number in numbers:
            if number == 2 and on:
                for level in range(4):
                    canvas.designate(level, PLAIN)
            elif number == 6:
                canvas.origin = on
                canvas.move_to(0, 0)
            elif number == 7:
                canvas.wraparound = on
            elif number == 45:
                canvas.reverse_wrap = on
            elif number == 1048:
                (canvas.save if on else canvas.restore)()
            elif number in (47, 1047, 1049):
                self._turn(number, on)
            else:
                self.modes.set(number, on)

    def _turn(self, number: int, on: bool) -> None:
        canvas = self.canvas
        if on:
            if number == 1049:
                canvas.save()
            canvas.use_alternate()
        else:
            canvas.use_normal()
            if number == 1049:
                canvas.restore()
