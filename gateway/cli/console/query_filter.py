"""Removes questions to a terminal from old output. Pure.

A program asks its terminal things (where is the cursor, which colours, what are you) by writing escape sequences, and
the terminal types the answer. When old output is shown again, its questions were answered long ago: this terminal's
answers would be typed into the program that runs now. So they are removed from old output, and stay in new output.

Output is cut anywhere, so an unfinished sequence waits until it can be judged. If new output goes on with it, the
program is asking now: it passes. If part of it was on the screen already when old output goes on with it (a connection
ended in the middle of a question), it cannot be taken back, so it is cancelled with CAN where it would have ended.

`SEQUENCE` matches whole sequences and, at the end, an unfinished one; the content of a title or an image is not
examined. In UTF-8, C1 controls are two bytes. An OSC ends with BEL, ST or any ESC; the other strings with ST or any
ESC.
"""

import re

MAX_HELD = 4096  # bytes of an unfinished sequence; a longer one is no question and passes
CANCEL = b"\x18"

# A control character inside a sequence does not end it, except CAN, SUB and ESC.
_CSI = rb"(?:(?<=\x1b)\[|(?<=\xc2)\x9b)"
_OSC = rb"(?:(?<=\x1b)\]|(?<=\xc2)\x9d)"
_DCS = rb"(?:(?<=\x1b)P|(?<=\xc2)\x90)"
_APC = rb"(?:(?<=\x1b)_|(?<=\xc2)\x9f)"
_PARAMETERS = rb"[\x00-\x17\x19\x1c-\x3f]*"
_LINE = rb"(?:(?!\xc2\x9c)[^\x07\x18\x1a\x1b])*"
_STRING = rb"(?:(?!\xc2\x9c)[^\x18\x1a\x1b])*"
_END = rb"(?:\xc2\x9c|\x1b\\|(?=\x1b[^\\]))"
_PARTS = (b"csi", b"osc", b"dcs", b"apc", b"parameters", b"line", b"string", b"end")
SEQUENCE = re.compile(
    rb"[\x1b\xc2](?:"  # one class first, for a fast search
    rb"%(csi)s(?P<csi>%(parameters)s[\x40-\x7e])"
    rb"|%(osc)s(?P<osc>%(line)s)(?:\x07|%(end)s)"
    rb"|%(dcs)s(?P<dcs>%(string)s)%(end)s"
    rb"|%(apc)s(?P<apc>%(string)s)%(end)s"
    rb"|(?P<decid>(?<=\x1b)Z|(?<=\xc2)\x9a)"
    rb"|(?P<unfinished>(?:%(csi)s%(parameters)s|%(osc)s%(line)s\x1b?|(?:%(dcs)s|%(apc)s)%(string)s\x1b?)?\Z)"
    rb")" % dict(zip(_PARTS, (_CSI, _OSC, _DCS, _APC, _PARAMETERS, _LINE, _STRING, _END), strict=True))
)
QUERY = {
    "csi": re.compile(
        rb"[>=]?[\d;]*c"  # DA1, DA2, DA3
        rb"|\??[\d;]*n"  # DSR, cursor position and the like
        rb"|\??[\d;]*\$p"  # DECRQM
        rb"|>[\d;]*q"  # XTVERSION
        rb"|(?:11|13|14|15|16|18|19|20|21)(?:;[\d;]*)?t"  # window reports
        rb"|\?\d*u"  # keyboard flags
        rb"|[01]?x"  # DECREQTPARM
        rb"|\?[\d;]*[mS]"  # XTQMODKEYS, XTSMGRAPHICS
        rb"|[\d;]*\$[uw]|[\d;]*\*y|\"v|&u|'\||#[RS]|[\d;]*#\|"  # DECRQTSR, DECRQPSR, DECRQCRA, ... XTREPORTSGR
    ),
    "osc": re.compile(
        rb"(?:4|5|1\d|21|22|50|52)(?:;.*)?(?:;|=)\?(?:[;=].*)?"  # colours, pointer, font, clipboard
        rb"|6[01](?:;.*)?|1337;Report.*|99;(?:.*:)?p=\?.*",
        re.DOTALL,
    ),
    "dcs": re.compile(rb"[+$]q.*|\+Q.*", re.DOTALL),  # XTGETTCAP, DECRQSS, XTGETXRES
    "apc": re.compile(rb"G(?:.*,)?a=q.*", re.DOTALL),  # does it show images?
    "decid": re.compile(rb".*", re.DOTALL),
}
CONTROLS = re.compile(rb"[\x00-\x1f]")
ENQUIRY = b"\x05"  # some terminals answer it with their name


class QueryFilter:
    """Stands before one terminal, and gets every byte of output on its way there."""

    def __init__(self) -> None:
        self._held = b""  # an unfinished sequence
        self._shown = 0  # so many bytes of it are on the terminal

    def old(self, data: bytes) -> bytes:
        """The bytes to write for output that was answered before."""
        buffer, shown = self._held + data, self._shown
        self._held, self._shown = b"", 0
        written, at = [], shown
        for found in SEQUENCE.finditer(buffer):
            written.append(buffer[at : found.start()])
            at = max(at, found.start())
            if found.lastgroup == "unfinished":
                written.append(self._hold(found[0], at - found.start()))
            elif not _asks(found):
                written.append(buffer[at : found.end()])
            elif found.start() < shown:
                written.append(CANCEL)
            at = found.end()
        written.append(buffer[at:])
        return b"".join(written).replace(ENQUIRY, b"")

    def new(self, data: bytes) -> bytes:
        """The bytes to write for new output: all of it, after a sequence that waited for its end."""
        written = self._held[self._shown :] + data
        buffer = self._held + data
        self._held, self._shown = b"", 0
        # After the last ESC there is no other: an unfinished sequence begins with it, or with the one before if the
        # last one ends a string.
        begin = buffer.rfind(b"\x1b", 0, max(buffer.rfind(b"\x1b"), 0))
        for found in SEQUENCE.finditer(buffer, max(begin, 0)):
            if found.lastgroup == "unfinished":
                self._hold(found[0], len(found[0]))
        return written

    def forget(self) -> bytes:
        """The terminal is about to be cleared: the bytes to write first, so that no sequence is left unfinished
        there."""
        shown, self._held, self._shown = self._shown, b"", 0
        return CANCEL if shown else b""

    def _hold(self, sequence: bytes, shown: int) -> bytes:
        """Wait for the end of `sequence`; return the bytes of it that must be written now, which are all if it is too
        long to wait for."""
        if len(sequence) <= MAX_HELD:
            self._held, self._shown = sequence, shown
            return b""
        # The beginning of a sequence that asks nothing stands for it until its end.
        last = sequence[-1:] if sequence[-1:] in (b"\x1b", b"\xc2") else b""
        self._held = sequence[:2] + b"0;" + last
        self._shown = len(self._held)
        return sequence[shown:]


def _asks(found: re.Match[bytes]) -> bool:
    kind = found.lastgroup
    assert kind is not None  # every alternative is named
    return QUERY[kind].fullmatch(CONTROLS.sub(b"", found[kind])) is not None
