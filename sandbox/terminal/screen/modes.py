"""Terminal settings that do not change the screen: how keys, pastes and the mouse are reported, and how the cursor
looks. A picture sets them again. Pure."""

from dataclasses import dataclass, field

_MOUSE = (9, 1000, 1002, 1003)  # one at a time
_ENCODINGS = (1006, 1016)  # one at a time
_ELSEWHERE = (5, 1005, 1007, 1015)  # unknown to xterm.js, but not to every terminal


@dataclass(slots=True)
class Modes:
    cursor_keys: bool = False
    keypad: bool = False
    paste: bool = False
    focus: bool = False
    style: int = 0  # of the cursor: 1 block, 3 underline, 5 bar, 0 the viewer's choice
    steady: bool | None = None  # True: the cursor does not blink; None: the viewer's choice
    mouse: int = 0
    encoding: int = 0
    hidden: bool = False
    blink: bool | None = None  # None: the program never set it
    elsewhere: set[int] = field(default_factory=set)

    def set(self, mode: int, on: bool) -> None:
        if mode == 1:
            self.cursor_keys = on
        elif mode == 12:
            self.blink = on
        elif mode == 25:
            self.hidden = not on
        elif mode == 66:
            self.keypad = on
        elif mode == 1004:
            self.focus = on
        elif mode == 2004:
            self.paste = on
        elif mode in _MOUSE:
            self.mouse = mode if on else 0
        elif mode in _ENCODINGS:
            self.encoding = mode if on else 0
        elif mode in _ELSEWHERE:
            (self.elsewhere.add if on else self.elsewhere.discard)(mode)

    def set_cursor(self, number: int) -> None:
        if number == 0:
            self.style, self.steady = 0, None
            return
        if number <= 6:
            self.style = (number - 1) // 2 * 2 + 1
        self.steady = number % 2 == 0

    def soft_reset(self) -> None:
        self.hidden = False
        self.clear()

    def clear(self) -> None:
        """Reset the modes that both a soft and a full reset clear."""
        self.cursor_keys = self.keypad = self.paste = self.focus = False
        self.style, self.steady = 0, None

    def reset(self) -> None:
        self.clear()
        self.mouse = self.encoding = 0
        self.elsewhere.clear()

    def sequences(self) -> str:
        """The sequences that set these modes on a terminal after a reset. A reset does not show a hidden cursor, so
        its visibility is always set."""
        modes = [mode for mode, on in ((1, self.cursor_keys), (2004, self.paste), (1004, self.focus)) if on]
        modes += [mode for mode in (self.mouse, self.encoding, *sorted(self.elsewhere)) if mode]
        made = "\x1b[?25l" if self.hidden else "\x1b[?25h"
        made += "".join(f"\x1b[?{mode}h" for mode in modes)
        if self.blink is not None:
            made += "\x1b[?12h" if self.blink else "\x1b[?12l"
        if self.steady is not None:
            made += f"\x1b[{(self.style or 7) + self.steady} q"
        return made + "\x1b=" if self.keypad else made
