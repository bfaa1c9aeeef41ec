"""The attributes of a cell (its look), encoded as one character, so that a row keeps its looks in a string as long as
its text. Pure.

A look is three numbers in the layout of xterm.js: foreground colour and flags, background colour and flags, underline
style and colour. `Palette` numbers the looks in use and computes the look that follows an SGR sequence. When there are
too many looks, it forgets those that no row shows.
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

DEFAULT = "\0"  # the look of an untouched cell

_MODE, _RGB, _INDEX = 0x3000000, 0xFFFFFF, 0xFF
_P16, _P256, _TRUE = 0x1000000, 0x2000000, 0x3000000
_COLOUR = _MODE | _RGB
_INVERSE, _BOLD, _UNDERLINE, _BLINK, _HIDDEN, _STRIKE = (1 << bit for bit in range(26, 32))  # of the foreground
_ITALIC, _DIM, _EXTENDED, _PROTECTED, _OVERLINE = (1 << bit for bit in range(26, 31))  # of the background
_STYLE = 0x1C000000
_STYLE_SHIFT = 26

_MOST = 0x7FFFFFFF
_MAX_PARAMS = 32
_ROOM = 4096  # looks, and cached steps, to keep before unused ones are forgotten

_TRUE_COLOUR = re.compile("([34])8;2;([0-9]{1,3});([0-9]{1,3});([0-9]{1,3})")
_FG_ON = {1: _BOLD, 5: _BLINK, 7: _INVERSE, 8: _HIDDEN, 9: _STRIKE}
_FG_OFF = {25: _BLINK, 27: _INVERSE, 28: _HIDDEN, 29: _STRIKE, 39: _COLOUR}
_BG_ON = {2: _DIM, 3: _ITALIC, 53: _OVERLINE}
_BG_OFF = {23: _ITALIC, 49: _COLOUR, 55: _OVERLINE}


class Look(NamedTuple):
    fg: int = 0
    bg: int = 0
    line: int = 0  # style and colour of an underline


class Palette:
    def __init__(self, in_use: Callable[[], Iterable[str]], most: int = 0x10FFFF) -> None:
        """`in_use` yields every string of looks in use. `most` is the largest number of looks at one time."""
        self._in_use = in_use
        self._most = most
        self._looks: list[Look] = [Look()]
        self._numbers: dict[Look, str] = {Look(): DEFAULT}
        self._free: list[str] = []
        self._room = _ROOM
        self._steps: dict[tuple[str, str], str] = {}
        self._erased: dict[str, str] = {DEFAULT: DEFAULT}

    def look(self, name: str) -> Look:
        return self._looks[ord(name)]

    def name(self, look: Look) -> str:
        """The character that stands for `look`. If there are too many looks, the character of the default look."""
        found = self._numbers.get(look)
        if found is not None:
            return found
        if not self._free and len(self._looks) >= min(self._room, self._most):
            self._forget()
        if self._free:
            made = self._free.pop()
            self._looks[ord(made)] = look
        elif len(self._looks) < self._most:
            made = chr(len(self._looks))
            self._looks.append(look)
        else:
            return DEFAULT
        self._numbers[look] = made
        return made

    def _forget(self) -> None:
        used = {DEFAULT}.union(*self._in_use())
        self._steps.clear()
        self._erased = {DEFAULT: DEFAULT}
        self._free = [chr(n) for n in range(len(self._looks)) if chr(n) not in used]
        for name in self._free:
            self._numbers.pop(self._looks[ord(name)], None)
        self._room = max(_ROOM, 2 * len(used))

    def erased(self, name: str) -> str:
        """The look of a cell erased while `name` is the pen: the background colour of `name` and nothing else."""
        found = self._erased.get(name)
        if found is None:
            found = self._erased[name] = self.name(Look(bg=self.look(name).bg & _COLOUR))
        return found

    def is_erased(self, name: str) -> bool:
        """Whether an erased cell can have this look."""
        look = self.look(name)
        return not look.fg and not look.bg & ~_COLOUR

    def is_protected(self, name: str) -> bool:
        return bool(self.look(name).bg & _PROTECTED)

    def protect(self, name: str, on: bool) -> str:
        look = self.look(name)
        return self.name(look._replace(bg=look.bg | _PROTECTED if on else look.bg & ~_PROTECTED))

    def restored(self, saved: Look, name: str) -> str:
        """The saved look with the underline of `name`: saving the cursor does not save the underline."""
        return self.name(saved._replace(line=self.look(name).line))

    def step(self, name: str, params: str) -> str:
        """The look after `CSI params m`."""
        key = (name, params)
        found = self._steps.get(key)
        if found is None:
            made = self.name(_apply(self.look(name), params))
            if len(self._steps) >= _ROOM:
                self._steps.clear()
            found = self._steps[key] = made
        return found

    def sequence(self, name: str) -> str:
        """The sequence that sets this look, independent of the look before it."""
        return _sequence(self.look(name))


def latest(steps: list[str]) -> list[str]:
    """The steps that later ones do not override, ordered by their last occurrence. A step only sets attributes, so an
    earlier copy of the same step, or a true colour before another one, has no effect."""
    last: dict[str, str] = {}
    for params in reversed(steps):
        last.setdefault(params[:2] if _TRUE_COLOUR.fullmatch(params) else params, params)
    return list(reversed(last.values()))


def _number(text: str, empty: int) -> int:
    if not text:
        return empty
    return int(text) if len(text) < 10 else min(int(text[:4000]), _MOST)


def parse(params: str) -> list[list[int]]:
    """Every parameter with its sub-parameters (after colons). An empty parameter is 0, an empty sub-parameter -1.
    Parameters after the 32nd are ignored."""
    found = [
        [_number(part, -1 if place else 0) for place, part in enumerate(group.split(":"))]
        for group in params.split(";", _MAX_PARAMS)[:_MAX_PARAMS]
    ]
    room = _MAX_PARAMS
    for group in found:
        del group[1 + room :]
        room -= len(group) - 1
    return found


def _apply(look: Look, params: str) -> Look:
    fg, bg, line = look
    simple = _TRUE_COLOUR.fullmatch(params)
    if simple is not None:  # a fast path: programs that paint in true colour rarely repeat a colour
        colour = _coloured(0, [2, *map(int, simple.groups()[1:])])
        return Look(fg & ~_COLOUR | colour, bg, line) if simple[1] == "3" else Look(fg, bg & ~_COLOUR | colour, line)
    groups = parse(params)
    at = 0
    while at < len(groups):
        code = groups[at][0]
        if code == 0:
            fg, bg, line = 0, 0, line & ~(_COLOUR | _STYLE)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            fg = fg & ~_COLOUR | _P16 | (code - 30 if code < 90 else code - 90 | 8)
        elif 40 <= code <= 47 or 100 <= code <= 107:
            bg = bg & ~_COLOUR | _P16 | (code - 40 if code < 100 else code - 100 | 8)
        elif code in _FG_ON:
            fg |= _FG_ON[code]
        elif code in _FG_OFF:
            fg &= ~_FG_OFF[code]
        elif code in _BG_ON:
            bg |= _BG_ON[code]
        elif code in _BG_OFF:
            bg &= ~_BG_OFF[code]
        elif code == 22:
            fg, bg = fg & ~_BOLD, bg & ~_DIM
        elif code in (4, 21, 24):
            style = {21: 2, 24: 0}.get(code, groups[at][1] if len(groups[at]) > 1 else 1)
            style = style if 0 <= style <= 5 else 1
            fg = fg | _UNDERLINE if style else fg & ~_UNDERLINE
            bg = bg | _EXTENDED if style else bg & ~_EXTENDED
            line = line & ~_STYLE | style << _STYLE_SHIFT
        elif code in (38, 48, 58):
            extra, values = _colour(groups, at)
            at += extra
            if code == 38:
                fg = _coloured(fg, values)
            elif code == 48:
                bg = _coloured(bg, values)
            else:
                line = _coloured(line, values)
        elif code == 59:
            line |= _COLOUR  # as xterm.js: white, not the text's own colour
            bg = bg | _EXTENDED if line & _STYLE else bg & ~_EXTENDED
        at += 1
    return Look(fg, bg, line)


def _colour(groups: list[list[int]], at: int) -> tuple[int, list[int]]:
    """The number of further parameters a colour takes, then its kind and up to three values. Reads `38;2;r;g;b` and
    `38:2::r:g:b`, complete or cut short."""
    said = [0, 0, -1, 0, 0, 0]
    space = extra = 0
    while True:
        group = groups[at + extra]
        said[extra + space] = group[0]
        if len(group) > 1:
            for place, value in enumerate(group[1:]):
                if said[1] == 5:
                    space = 1
                if extra + place + 1 + space >= len(said):
                    break
                said[extra + place + 1 + space] = value
            break
        if (said[1] == 5 and extra + space >= 2) or (said[1] == 2 and extra + space >= 5):
            break
        if said[1]:
            space = 1
        extra += 1
        if at + extra >= len(groups) or extra + space >= len(said):
            break
    return extra, [said[1], *(0 if value == -1 else value for value in said[3:])]


def _coloured(number: int, values: list[int]) -> int:
    kind, first, second, third = values
    if kind == 2:
        return number & ~_COLOUR | _TRUE | (first & 255) << 16 | (second & 255) << 8 | third & 255
    if kind == 5:
        return number & ~_COLOUR | _P256 | first & 255
    return number


def _sequence(look: Look) -> str:
    fg, bg, line = look
    said = [0]
    said += [code for code, flag in _FG_ON.items() if fg & flag]
    said += [code for code, flag in _BG_ON.items() if bg & flag]
    words = list(map(str, said))
    words += _colour_words(fg, 38, 30) + _colour_words(bg, 48, 40)
    if fg & _UNDERLINE:
        style = (line & _STYLE) >> _STYLE_SHIFT
        words.append("4" if style < 2 else f"4:{style}")
    if line & _MODE == _TRUE:
        words.append(f"58:2::{line >> 16 & 255}:{line >> 8 & 255}:{line & 255}")
    elif line & _MODE:
        words.append(f"58:5:{line & 255}")
    made = f"\x1b[{';'.join(words)}m"
    return made + '\x1b[1"q' if bg & _PROTECTED else made


def _colour_words(number: int, code: int, first: int) -> list[str]:
    mode, index = number & _MODE, number & _INDEX
    if mode == _TRUE:
        return [f"{code};2;{number >> 16 & 255};{number >> 8 & 255};{index}"]
    if mode == _P256:
        return [f"{code};5;{index}"]
    if mode == _P16:
        return [str(first + index if index < 8 else first + 60 + index - 8)]
    return []
