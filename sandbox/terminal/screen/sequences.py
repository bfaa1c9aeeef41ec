"""Parse control sequences in text that may be cut anywhere. Pure.

One regular expression, `TOKEN`, finds whole sequences without anything unusual. `Unfinished` reads the rest: cut
sequences, sequences with control characters inside, strings of any length, and eight-bit forms. It follows the states
of a VT500 as xterm.js does. It holds the received part of an unfinished sequence, so that a picture can end with it:
the program's next bytes complete the sequence. It holds at most `MAX_HELD` characters and drops the rest of a longer
sequence.
"""

import re

from sandbox.terminal.screen.commands import Commands
from sandbox.terminal.screen.widths import NARROW, WIDE, ZERO

MAX_HELD = 4096

# The kinds of tokens. A kind is the number of the last group in its alternative.
RUN, NEWLINE, SGR, CSI, CONTROL, WIDE_RUN, ZERO_WIDTH, ESC, OSC = 1, 2, 3, 6, 7, 8, 9, 10, 11
_CSI = r"\x1b\[([<-?]?)([0-9;:]*)([ -/]*[@-~])"
_ESC = r"\x1b([ -/]*[0-OQ-WYZ\\`-~])"
_OSC = r"\x1b\]([^\x00-\x1f\x80-\x9f]*)(?:\x07|(?=\x1b))"
_RUN = rf"((?:[ -~]++|[{NARROW}]++)++)"  # ASCII first: the class of all narrow characters is several times slower
_WIDTHS = rf"([{WIDE}]+)|([{ZERO}])"
TOKEN = re.compile(rf"{_RUN}|(\r\n)|\x1b\[([0-9;:]*)m|{_CSI}|([\x00-\x1a\x1c-\x1f])|{_WIDTHS}|{_ESC}|{_OSC}|([^\r\n])")

# Text, and sequences that change only what is drawn and the look.
SWALLOWED = re.compile(r"(?:[^\x0e\x0f\x1b\x80-\x9f]++|\x1b\[[0-9;:]*+[@-fi-kmn-qtv-~])*+")
# What takes no cell, or was already applied.
_STRING = r"[\]PX^_][^\x07\x18\x1a\x1b\x9c]*(?:\x07|\x1b\\)?"
SEQUENCE = re.compile(rf"\x1b(?:\[[ -?]*(?:[@-~]|\Z)|{_STRING}|[ -/]*[0-~])?|[\x0e\x0f\x80-\x9f]")
COLOURS = re.compile(r"\x1b\[([0-9;:]*)m")

_EIGHT_BIT = {"\x90": "P", "\x9b": "[", "\x9d": "]", "\x98": "X", "\x9e": "X", "\x9f": "X"}
_INTRODUCED = {"[": "[", "]": "]", "P": "P", "X": "X", "^": "X", "_": "X"}
_PARAMETERS = re.compile("[ -?]+")
_BODIES = {  # what may follow the introducer of a sequence
    **dict.fromkeys(" !\"#$%&'()*+,-./", re.compile("[ -/]+")),
    "[": _PARAMETERS,
    "]": re.compile(r"[^\x00-\x1f\x80-\x9f]+"),
    "P": re.compile(r"[^\x18\x1a\x1b\x80-\x9f]+"),
    "X": re.compile(r"[^\x18\x1a\x1b\x80-\U0010ffff]+"),
}
_WHOLE = re.compile(r"\x1b\[([<-?]?)([0-9;:]*)([ -/]*)")
_WHOLE_DCS = re.compile(r"\x1bP[<-?]?[0-9;:]*[ -/]*")


class Unfinished:
    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._in_head = False  # inside the parameters of a device control string
        self.held = ""  # the received part of a sequence; empty: nothing is unfinished

    def take(self, text: str, at: int) -> int:
        """Read from `at` until nothing is unfinished, or to the end of `text`. Return where reading stopped."""
        while at < len(text):
            body = _PARAMETERS if self._in_head else _BODIES.get(self.held[1:2])
            found = body and body.match(text, at)
            if found:
                if self.held[1] != "X":
                    self._keep(found[0])
                if self._in_head:
                    self._in_head = len(self.held) < MAX_HELD and _WHOLE_DCS.fullmatch(self.held) is not None
                at = found.end()
                continue
            self._read(text[at])
            at += 1
            if not self.held:
                break
        return at

    def _keep(self, text: str) -> None:
        self.held += text[: MAX_HELD - len(self.held)]

    def _begin(self, kind: str) -> None:
        self.held = "\x1b" + kind
        self._in_head = kind == "P"

    def _abandon(self) -> None:
        self.held = ""
        self._in_head = False

    def _read(self, character: str) -> None:
        if character in "\x18\x1a":
            self._abandon()
            self._commands.control(character)
        elif character == "\x1b" or character == "\x9c":
            if self.held[1:2] == "]":
                self._commands.osc(self.held[2:])
            self._abandon()
            self.held = character if character == "\x1b" else ""
        elif "\x80" <= character <= "\x9f":
            self._abandon()
            if character in _EIGHT_BIT:
                self._begin(_EIGHT_BIT[character])
            else:
                self._commands.control(character)
        else:
            match self.held[1:2]:
                case "[":
                    self._read_csi(character)
                case "]":
                    if character == "\x07":
                        self._commands.osc(self.held[2:])
                        self._abandon()
                case "P":
                    self._read_dcs_head(character)
                case "X":
                    self._abandon()  # such a string may contain only ASCII
                case _:
                    self._read_escape(character)

    def _read_escape(self, character: str) -> None:
        """A character after ESC and its intermediates. If nothing is held, the character has no meaning."""
        if character < " ":
            self._commands.control(character)
        elif character <= "/":
            self._keep(character)
        elif self.held == "\x1b" and character in _INTRODUCED:
            self._begin(_INTRODUCED[character])
        elif character != "\x7f":
            kind = self.held[1:] + character
            self._abandon()
            if character < "\x7f":
                self._commands.esc(kind)

    def _read_csi(self, character: str) -> None:
        if character < " ":
            self._commands.control(character)
        elif character != "\x7f":
            found = _WHOLE.fullmatch(self.held)
            if character < "\x7f":
                self._abandon()
                if found and found[3] + character == "m" and not found[1]:
                    self._commands.sgr(found[2])
                elif found:
                    self._commands.csi(found[1] + found[3] + character, found[2])
            elif found:
                self._abandon()

    def _read_dcs_head(self, character: str) -> None:
        if "@" <= character < "\x7f":
            self._keep(character)
            self._in_head = False
        elif character > "\x7f":
            self._abandon()
