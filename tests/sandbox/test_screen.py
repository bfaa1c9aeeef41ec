"""The screen model: each feature against xterm.js, and its bounds."""

import tracemalloc
from collections.abc import Iterator

import pytest

from sandbox.terminal.screen.palette import DEFAULT, Palette
from sandbox.terminal.screen.screen import Screen
from sandbox.terminal.wire import MAX_PICTURE, MAX_SIDE
from tests.sandbox.xterm import Xterm, differences

COLS, ROWS = 20, 6
# What a program might do next: it tells whether more came across than what is seen.
NEXT = (
    b"go \xcc\x81on\xe4\xb8\x96",
    b"\x1b[?1049l back",
    b"\x1b8restored\t\tx",
    b"\n\n\n\n\n\n\n\x1b8\x1b[31mlow",
    b"31mx\x07\x1b\\y",
    b"\x96\xc2\x80z",
    b"\x1b[3b\x1b[2@\x1b[Kx\x1b[5;1Hlqk",
)


@pytest.fixture(scope="module")
def xterm() -> Iterator[Xterm]:
    with Xterm() as judge:
        yield judge


CASES = {
    "text": b"hello",
    "lines": b"one\r\ntwo\r\nthree\n\rfour\vfive\ffive",
    "scrollback": b"".join(b"line %d\r\n" % n for n in range(50)),
    "a wrapped line": b"0123456789" * 7,
    "a wrapped line in colour": b"\x1b[31;44m" + b"0123456789" * 20 + b"\x1b[m",
    "the last column, about to wrap": b"x" * 20,
    "about to wrap, then a colour": b"x" * 20 + b"\x1b[32m",
    "about to wrap, then erased": b"x" * 20 + b"\x1b[41m\x1b[1K",
    "about to wrap, all erased": b"\x1b[3;1H" + b"x" * 20 + b"\x1b[2J",
    "about to wrap after a wide character": b"x" * 18 + "世".encode(),
    "past the edge without width": b"x" * 20 + b"\x1b[m" + "\u200b".encode(),
    "twice past the edge without width": b"x" * 20 + b"\x1b[m" + "\u200b\u200b\u200b".encode(),
    "past the edge without width, not wrapping": b"\x1b[?7l" + b"x" * 20 + b"\x1b[m" + "\u200b\u200b".encode(),
    "wide characters": "世界漢字".encode() * 8,
    "wide characters in colour": b"\x1b[7;45mx" + "世界漢字".encode() * 8 + b"y",
    "a wide character printed on": "世界\x1b[2Gx\x1b[3Gy".encode(),
    "a wide character printed on, underlined": "\x1b[4m世界\x1b[2Gx\x1b[m\x1b[2;1H世\x1b[1mab\x1b[2;1Hq".encode(),
    "half a wide character erased": "世界\x1b[2G\x1b[X\x1b[5;1H世界\x1b[3G\x1b[1K".encode(),
    "half a wide character deleted": "世界ab\x1b[2G\x1b[P\x1b[2;1Hx世界\x1b[3G\x1b[2P".encode(),
    "inserting within a wide character": "世界x\x1b[2G\x1b[@\x1b[m".encode(),
    "a wide character pushed over the edge": b"x" * 18 + "世\x1b[1G\x1b[7;31m\x1b[4hy".encode(),
    "an underlined hole at the edge": b"\x1b[4m" + b"x" * 18 + "世\x1b[1G\x1b[4hy\x1b[4l\x1b[m\x1b[1Gz".encode(),
    "holes at the edge": "\x1b[4mx\x1b[2;17H世世\x1b[1G\x1b[4hy\x1b[m\x1b[4;17H世世\x1b[4m\x1b[1Gy\x1b[18Gab".encode(),
    "an underlined hole at the edge, an empty cell before": b"\x1b[4m"
    + b"x" * 18
    + "世\x1b[1G\x1b[4hy\x1b[4l\x1b[m\x1b[19G\x1b[X".encode(),
    "underlined holes at the edge": "\x1b[17Gab\x1b[4m\x1b[19G世\x1b[19Gx\x1b[m\x1b[4m\x1b[18G世\x1b[18Gy".encode(),
    "nothing but underlined holes": "\x1b[4m\x1b[19G世\x1b[19Gx\x1b[18G世\x1b[18Gx\x1b[17G世\x1b[17Gx".encode(),
    "an underlined hole at the edge, a wide character before": b"\x1b[4m"
    + b"x" * 16
    + "世世\x1b[1G\x1b[4hy\x1b[4l\x1b[m\x1b[1Gz".encode(),
    "wide characters that do not fit": b"x" * 19 + "世世\x1b[m".encode() + b"x" * 16 + "世".encode(),
    "a wide character that does not fit, then erased": b"\x1b[4m" + b"x" * 19 + "世\x1b[m\x1b[1G\x1b[X".encode(),
    "nothing wraps": b"\x1b[?7l0123456789012345678901234567890",
    "nothing wraps, in the middle": b"\x1b[?7l0123456789\r",
    "nothing wraps, and a wide character has no room": "\x1b[?7l\x1b[20G世".encode(),
    "nothing wraps, a wide character has no room, and is repeated": "\x1b[?7l\x1b[20G世\x1b[3b".encode(),
    "nothing wraps, on half a wide character": "\x1b[?7l\x1b[19G世xy\x1b[2;1H\x1b[19G世世\x1b[1G".encode(),
    "combining characters": "e\u0301a\u0308\u0323 世\u0301x".encode(),
    "a combining character after something else": "e\x1b[m\u0301x\u0301".encode(),
    "a combining character on its own, twice": "\u0301\u0301x\r\n\u0301".encode(),
    "combined cells that move": "e\u0301a\u0308bc\x1b[2G\x1b[@\x1b[1G\x1b[P\x1b[3Gxy".encode(),
    "combined cells pushed out": b"\x1b[18Ga" + "e\u0301o\u0308\x1b[1G\x1b[@\x1b[3G\x1b[K".encode(),
    "combined cells erased": "e\u0301a\u0308bc\x1b[2G\x1b[K".encode(),
    "very many combining characters": b"a" + "\u0301".encode() * 20,
    "emoji": "😀👍🏽🇩🇪👨\u200d👩\u200d👧".encode(),
    "a byte order mark": b"a\xef\xbb\xbfb",
    "not UTF-8": b"a\xff\xc0\x80b\xe4\xb8c\xed\xa0\x80d\xf5\x80\x80\x80e\x80",
    "colours": b"".join(b"\x1b[%dmx" % n for n in (*range(30, 50), *range(90, 108))),
    "256 colours": b"\x1b[38;5;200ma\x1b[48;5;17mb\x1b[38:5:3mc\x1b[48:5:250md",
    "true colours": b"\x1b[38;2;1;2;3ma\x1b[48;2;9;8;7mb\x1b[38:2::255:0:1mc\x1b[48:2:4:5:6md\x1b[48;2;300;1;2me",
    "colours cut short": b"\x1b[38;5ma\x1b[48;2;1mb\x1b[38mc\x1b[38;7;1md\x1b[58;5me\x1b[38:2f\x1b[38:5:1:2:3:4:5mg",
    "looks": b"".join(b"\x1b[%dmx\x1b[%dmy" % (n, m) for n in range(1, 10) for m in (21, 22, 23, 24, 25, 27, 28, 29)),
    "all looks at once": b"\x1b[1;2;3;4;5;7;8;9;53;38;2;1;2;3;48;5;7;58:2::3:2:1mx\x1b[55my",
    "underlines": (
        b"\x1b[4ma\x1b[4:0mb\x1b[4:2mc\x1b[4:3md\x1b[4:4me\x1b[4:5mf\x1b[4:9mg\x1b[21mh\x1b[58;5;9mi\x1b[59mj"
    ),
    "the colour of an underline to come": b"\x1b[58;2;1;2;3mx",
    "no more underline colour": b"\x1b[59mx\x1b[4my",
    "an underline that comes back": b"\x1b[4:3;58;5;3m\x1b7\x1b[mx\x1b8y",
    "more parameters than count": b"\x1b[" + b"1;" * 40 + b"31mx\x1b[4" + b":3" * 40 + b"my",
    "empty parameters": b"\x1b[;1mx\x1b[:3my\x1b[;Hz",
    "background on erased lines": b"\x1b[44m\x1b[2J\x1b[3;3Hx\x1b[K\x1b[m\x1b[K\n\n\n\n\n\n",
    "background that scrolls in": b"\x1b[44m" + b"x\r\n" * 20,
    "background that scrolls in by wrapping": b"\x1b[6;1H\x1b[44m" + b"x" * 25 + b"\x1b[m\x1b[K",
    "background behind an empty row": b"\x1b[42mx\x1b[3;5H\x1b[4X\x1b[3G\x1b[45m\x1b[2X\x1b[m\x1b[5;10H\x1b[1K",
    "cursor movements": (
        b"\x1b[3;5Ha\x1b[2Ab\x1b[Bc\x1b[3Cd\x1b[2De\x1b[Ef\x1b[Fg\x1b[7Gh\x1b[9`i\x1b[2aj\x1b[4dk\x1b[el\x1b[2;3fm"
    ),
    "movements without end": b"\x1b[999;999Ha\x1b[99999999999999999999Ab\x1b[999Dc\x1b[999Cd\x1b[999Be",
    "movements and a region": (
        b"\x1b[2;4r\x1b[3;1H\x1b[9A1\x1b[9B2\x1b[6;1H\x1b[9B3\x1b[9A4\x1b[1;1H\x1b[9B5\x1b[1;1H\x1b[A6"
    ),
    "lines counted from the region": b"\x1b[2;4r\x1b[?6h\x1b[1;1Ha\x1b[9;9Hb\x1b[2;3H",
    "region from the top": b"\x1b[1;3r" + b"".join(b"%d\r\n" % n for n in range(9)),
    "region": b"top\x1b[6;1Hlast\x1b[2;4r" + b"".join(b"%d\r\n" % n for n in range(9)),
    "a region that is none": b"\x1b[5;2r\x1b[3;3r\x1b[99;2rx\x1b[2;99ry",
    "a line feed past the last column": b"x" * 20 + b"\ny",
    "line feeds below the region": b"\x1b[1;2r\x1b[6;3H\n\nx\v",
    "below the region": b"\x1b[1;2r\x1b[6;1H\n\n\nx\x1bD\x1bDy",
    "wrapping below the region": b"\x1b[1;2r\x1b[6;1H" + b"0123456789" * 5,
    "index and reverse index": b"a\x1bDb\x1bEc\x1bMd\x1b[1;1H\x1bMe\x1bMf\x1b[2;3r\x1bMg",
    "the same with eight bits": "a\x84b\x85c\x88d\x9b2;2He\x9d0;title\x9cf\x90q\x9cg\x98h\x9ci\x8d".encode(),
    "erasing the screen": b"0123456789" * 12 + b"\x1b[3;5H\x1b[J\x1b[2;3H\x1b[1J",
    "erasing all, and what is kept": b"0123456789" * 40 + b"\x1b[3J\x1b[2Jx\x1b[9J\x1b[9K",
    "erasing a row's end from its first column": b"0123456789" * 5 + b"\x1b[2;1H\x1b[K\x1b[3;1H\x1b[J",
    "erasing up to the last column": b"0123456789" * 40 + b"\x1b[3;20H\x1b[1J",
    "erasing lines": b"0123456789" * 5 + b"\x1b[1;5H\x1b[K\x1b[2;5H\x1b[1K\x1b[3;5H\x1b[2K",
    "inserting and deleting": b"0123456789\x1b[3G\x1b[2@\x1b[6G\x1b[3P\x1b[9G\x1b[2X\x1b[99@\x1b[2G\x1b[99P",
    "inserting and deleting lines": (
        b"1\r\n2\r\n3\r\n4\r\n5\r\n6\x1b[2;2H\x1b[2L\x1b[4;1H\x1b[M\x1b[2;4r\x1b[6;1H\x1b[L\x1b[M"
    ),
    "scrolling": b"1\r\n2\r\n3\r\n4\r\n5\r\n6\x1b[44m\x1b[2S\x1b[T\x1b[2;4r\x1b[S\x1b[9T",
    "scrolling sideways": b"0123456789\r\nabc\x1b[2 @\x1b[ A\x1b[3G\x1b['}\x1b[2'~",
    "scrolling sideways outside the region": b"0123456789\x1b[3;4r\x1b[ @\x1b[ A\x1b['}\x1b['~",
    "repeating": b"ab\x1b[3b\x1b[2bx\x1b[mx\x1b[9b" + "世\x1b[2be\u0301\x1b[2b".encode(),
    "repeating, and wrapping": b"x\x1b[103b",
    "repeating with a character set": b"\x1b(0q\x1b[5b",
    "repeating what was joined": "世\u0301\x1b[2b".encode(),
    "inserting as it is typed": b"0123456789\x1b[3G\x1b[4hab" + "世".encode(),
    "inserting as it is typed, over the edge": b"0123456789\x1b[3G\x1b[4h" + b"x" * 40,
    "inserting as it is typed, nothing wraps": b"0123456789\x1b[15G\x1b[4;20h\x1b[?7labcdefghij",
    "inserting as it is typed, about to wrap": b"\x1b[4h" + b"x" * 20,
    "inserting as it is typed, about to wrap, then a colour": b"\x1b[4h" + b"x" * 18 + "世\x1b[31m".encode(),
    "inserting as it is typed, alone without width": b"x" * 19 + "\x1b[4h\x1b[m\u0301\x1b[m".encode(),
    "new lines that return": b"\x1b[20habc\ndef\n",
    "new lines that do not": b"\x1b[20h\x1b[20labc\ndef",
    "modes that are none": b"\x1b[2;3habc\x1b[?9999h\x1b[?9999l",
    "backspace": b"abc\b\bX\x1b[5G\b\b\b\b\b\b\b\bY",
    "backspace over the edge": b"\x1b[?45h" + b"x" * 21 + b"\b\b\by\x1b[3;1H\b\b" + b"\x1b[5;1H\x1b[K\b",
    "backspace to an empty cell": b"\x1b[?45h" + b"x" * 22 + b"\x1b[1;15H\x1b[K\x1b[2;1H\b",
    "tab stops": b"a\tb\tc\td\x1b[2;1H\x1b[3g\x1b[4G\x1bH\x1b[9G\x1bH\x1b[1G\tx\ty\tz\x1b[Zq\x1b[2Zr",
    "tab stops, one cleared": b"\x1b[9G\x1b[g\x1b[2g\r\tx\x1b[2Iy\x1b[9Zz\x1b[20Gxx\t\x1b[I\x1b[Z",
    "no tab stops": b"\x1b[3g\tx\x1b[Zy",
    "tabs past the last column": b"x" * 20 + b"\t\x1b[I\x1b[Z",
    "save and restore": b"\x1b[3;5H\x1b[1;31m\x1b(0\x1b7\x1b(B\x1b[mx\x1b8q\x1b[s\x1b[1;1Hy\x1b[u!",
    "restore what was never saved": b"abc\x1b[31mx\x1b8y",
    "saved, then scrolled away": b"\x1b[5;5H\x1b[31m\x1b7" + b"\r\n" * 30,
    "saved in what is kept": b"x\r\n" * 30 + b"\x1b[3;3H\x1b7" + b"\r\n" * 9,
    "saved on a wrapped line": b"0123456789\x1b[2;3H\x1b7\x1b[1;11H" + b"0123456789" * 3,
    "saved at a wide character's line": b"\x1b7\x1b[1;1H" + b"x" * 19 + "世".encode(),
    "saved, then what was kept thrown away": b"x\r\n" * 30 + b"\x1b[5;3H\x1b7\x1b[3J",
    "character sets": b"\x1b(0lqk\x1b(B\x1b)0\x0elqk\x0flqk\x1b*0\x1bnlqk\x1b+0\x1bolqk\x1b}\x1b|\x1b~lqk",
    "other character sets": b"".join(b"\x1b(%c#@[\\]^_`{|}~" % c for c in b"AB4C5RQKYE6ZH7=0"),
    "a character set in use": b"\x1b(0q",
    "a character set for what is printed": b"\x1b(Kx{",
    "a character set after the last column": b"d" * 20 + b"\x1b(0",
    "a shifted character set": b"\x1b)0\x0eqx",
    "a character set that came back": b"\x1b(0\x1b7\x1b(B\x1b8q",
    "character sets, back to plain": b"\x1b(0\x1b)0\x0e\x1b%Gq\x1b)0\x0e\x1b%@q\x1b(0\x1b[?2hq\x1b[?2l",
    "no such character set": b"\x1b(0\x1b(aq\x1b(%5q",
    "no character set": b"\x1b/0q\x1b(%q\x1b-0\x1b.0q",
    "alignment": b"\x1b[4:3;31mabc\x1b#8",
    "alignment and origin": b"\x1b[3;5r\x1b[?6h\x1b#8x",
    "the alternate screen": b"normal\r\ntext\x1b[?1049halt\x1b[3;3Hx",
    "the alternate screen, in colour": b"normal\x1b[44m\x1b[?1049halt",
    "the alternate screen left": b"normal\x1b[?1049halt\x1b[?1049lx",
    "the alternate screen by its other names": (
        b"a\x1b[?47hb\x1b[?47lc\x1b[?1047hd\x1b[?1047le\x1b[?1048h\r\nf\x1b[?1048lg"
    ),
    "the alternate screen twice": b"a\x1b[?1049hb\x1b[?1049hc\x1b[?1049ld\x1b[?1049le",
    "the alternate screen with region and tabs": b"\x1b[2;5r\x1b[3g\x1b[5G\x1bH\x1b[?1049h\x1b[3;4r\x1b[4;2H"
    + b"x\n" * 9,
    "the alternate screen scrolls": b"normal\x1b[?1049h" + b"".join(b"%d\r\n" % n for n in range(20)),
    "saved on the alternate screen": b"a\x1b[?1047h\x1b[3;4H\x1b[35m\x1b7\x1b[mx\x1b[?1047lb",
    "saved on both screens": b"\x1b[2;2H\x1b7\x1b[?1047h\x1b[3;4H\x1b(0\x1b7\x1b(Bx",
    "a wrapped line on the alternate screen": b"\x1b[?1049h" + b"0123456789" * 7,
    "a wrapped line at the alternate screen's top": b"\x1b[?1049h" + b"0123456789" * 20,
    "a wrapped line that lost its beginning": b"0123456789" * 5 + b"\x1b[1;1H\x1b[M",
    "a wrapped line whose beginning was erased": b"0123456789" * 5 + b"\x1b[1;1H\x1b[K\x1b[2;1H\x1b[1P\x1b[2;5H\x1b[1K",
    "a wrapped line with an underlined end": b"0123456789" * 5
    + "\x1b[1;18H世\x1b[4m\x1b[1;19Hx\x1b[1;20H\x1b[4h\x1b[4l".encode(),
    "a wrapped line that begins with a hole": b"\x1b[4m" + b"x" * 20 + "世\x1b[2;2Hx".encode(),
    "a wrapped line below another's end": b"0123456789" * 5 + b"\x1b[2;1H\x1b[L",
    "modes of keys and pastes": b"\x1b[?1h\x1b=\x1b[?2004h\x1b[?1004h",
    "modes taken back": b"\x1b[?1;66;2004;1004;1000;1006h\x1b[?1;66;2004;1004;1000;1006l\x1b=\x1b>",
    "a mouse": b"\x1b[?1002h\x1b[?1006h",
    "other mice": b"\x1b[?9h\x1b[?1000h\x1b[?1003h\x1b[?1016h\x1b[?1005h\x1b[?1015h\x1b[?1007h\x1b[?1007l",
    "a hidden cursor": b"\x1b[?25l",
    "a blinking cursor": b"\x1b[?12h",
    "a steady cursor": b"\x1b[?12h\x1b[?12l",
    "a cursor's style": b"\x1b[5 q",
    "a cursor's style, steady": b"\x1b[4 q",
    "a cursor's style, unknown": b"\x1b[7 q",
    "a cursor's style, unknown and steady": b"\x1b[3 q\x1b[8 q",
    "a cursor's style, taken back": b"\x1b[4 q\x1b[0 q",
    "synchronized output": b"\x1b[?2026habc",
    "protected cells": b'ab\x1b[1"qcd\x1b[2"qef\x1b[9"q\x1b[?2J\r\nab\x1b[1"qcd\x1b[0"qef\x1b[1;1H\x1b[?K',
    "protected cells, in part": (
        b'ab\x1b[1"qcd\x1b["qef\x1b[44m\x1b[4G\x1b[?1K\r\nab\x1b[1"qcd\x1b["qef\x1b[1;3H\x1b[?J\x1b[?1J'
    ),
    "protected cells, with nothing to erase": b'ab\x1b[1"qcd\x1b[?3J\x1b[?9J\x1b[?9K\x1b[?2K\x1b[3;20H\x1b[?1J',
    "protected wide cells": (
        'a世世\x1b[1"q世世\x1b["q世\x1b[3G\x1b[?1K\x1b[7G\x1b[?K\x1b[2;1H世世\x1b[3G\x1b[?1K\x1b[2G\x1b[?K'
    ).encode(),
    "half an unprotected wide cell": "世世\x1b[2G\x1b[?K".encode(),
    "title": b"\x1b]0;one\x07\x1b]2;tw\xc3\xb6\x1b\\\x1b]1;icon\x07\x1b]02;three\x07",
    "no title": b"\x1b]2\x07\x1b]x;y\x07\x1b];z\x07\x1b]99999999999999;z\x07\x1b]4;1;?\x07",
    "a title without end": b"\x1b]0;un\xc3\xa9",
    "a title cut off": b"\x1b]0;un\x18done\x1b]0;other\x1a",
    "questions": (
        b"\x1b[c\x1b[>c\x1b[5n\x1b[6n\x1b[?6n\x1b[?25$p\x1b[4$p"
        b"\x1bP$qm\x1b\\\x1b]10;?\x07\x1b]11;?\x1b\\\x1bZ\x1b[18t\x1b[>q"
    ),
    "half a question": b"x\x1b[6",
    "half a sequence": b"\x1b[31mx\x1b[1;",
    "half a sequence with control characters": b"ab\x1b[3\r\n\x7f1",
    "a sequence with control characters": b"ab\x1b[3\n1mc\x1b\r(0d\x1b(\n\x7fBe",
    "sequences that break off": b"a\x1b[3\xc3\xa9b\x1b\xc3\xa9c\x1b(\xc3\xa9d\x1b[1\x18e\x1b\x1b[1mf\x1b[1\x1b[mg",
    "sequences that would break off, had they meant something": b"a\x1b[1?\xc3\xa9mb",
    "sequences that mean nothing": (
        b"a\x1b[1?5mb\x1b[>5mc\x1b[ 1md\x1b[1$$$$$$zx\x1b[<\xc3\xa9\x7fme\x1b9f\x1b#9g\x1b\\h\x7fi\x9cj"
    ),
    "strings": (
        b"a\x1bP1;2|abc\xc3\xa9\n\x1b\\b\x1b_x\ny\x07\x1b\\c\x1b^x\xc3\xa9d\x1b\\e"
        b"\x1bXf\x18g\x1bP1?2qx\x1b\\h\x1bP\xc3\xa9i\x1bP \x7f\n1\xc3\xa9\x1b\\"
    ),
    "half a string": b"a\x1bP1;2|abc",
    "half a string's beginning": b"a\x1bP1;2",
    "half a string that means nothing": b"a\x1b_abc",
    "escape at the end": b"abc\x1b",
    "half a character set": b"abc\x1b(",
    "half a character": b"abc\xe4\xb8",
    "half a character in a title": b"abc\x1b]0;\xe4\xb8",
    "soft reset": b"\x1b[2;4r\x1b[1;31m\x1b(0\x1b[4h\x1b[?1;6;7;25;2004;1000l\x1b[5 q\x1b7\x1b[?25l\x1b[!px",
    "reset": (
        b"abc\x1b[2;4r\x1b[1m\x1b)0\x0e\x1b[?1049h\x1b[?1000;25;1;1005h\x1b[?25l\x1b]0;t\x07\x1b[20h\x1b[3g\x1b7\x1bcx"
    ),
    "control characters": bytes(n for n in range(32) if n != 27) + b"x\x7fy",
}


@pytest.mark.parametrize("name", CASES)
def test_a_picture_shows_what_xterm_shows(name: str, xterm: Xterm) -> None:
    screen = Screen(COLS, ROWS)
    screen.feed(CASES[name])
    assert xterm.tells_apart(screen, CASES[name], *NEXT) == []


@pytest.mark.parametrize("name", CASES)
def test_it_does_not_matter_where_the_bytes_are_cut(name: str) -> None:
    whole, pieces = Screen(COLS, ROWS), Screen(COLS, ROWS)
    whole.feed(CASES[name])
    for at in range(len(CASES[name])):
        pieces.feed(CASES[name][at : at + 1])
    assert pieces.picture() == whole.picture()


def test_nothing_is_drawn_for_a_screen_on_which_nothing_happened() -> None:
    screen = Screen(80, 24)
    assert screen.picture() == b""
    screen.feed(b"")
    assert (screen.picture(), screen.title, screen.cols, screen.rows) == (b"", "", 80, 24)


def test_the_title_can_be_asked_for() -> None:
    screen = Screen(80, 24)
    screen.feed("\x1b]2;höme".encode())
    assert screen.title == ""
    screen.feed(b"\x07")
    assert screen.title == "höme"


@pytest.mark.parametrize(("cols", "rows"), [(2, 1), (2, 2), (1000, 3), (3, 1000)])
def test_any_size_will_do(cols: int, rows: int, xterm: Xterm) -> None:
    screen, fed = Screen(cols, rows), "a世b\r\nwrapped or not\x1b[31mx\x1b[9;9Hy".encode()
    screen.feed(fed)
    assert xterm.tells_apart(screen, fed, b"more\r\n") == []


def test_what_is_repeated_without_end_fills_the_screen(xterm: Xterm) -> None:
    screen, fed = Screen(COLS, ROWS), "x\x1b[100003b\x1b[1;1He\u0301\x1b[100003b世\x1b[100003b".encode()
    screen.feed(fed)
    assert xterm.tells_apart(screen, fed, scrollback=0) == []


def test_on_the_alternate_screen_the_next_character_wraps_too(xterm: Xterm) -> None:
    """It cannot be brought about without a blank in the last column."""
    screen, fed = Screen(COLS, ROWS), b"\x1b[?1049h\x1b[3;1H" + b"x" * COLS + b"\x1b[2J"
    screen.feed(fed)
    for then in (b"", b"next"):
        right, shown = (xterm.see(COLS, ROWS, made + then).dump["alternate"] for made in (fed, screen.picture()))
        assert shown["cursor"] == right["cursor"]


def test_there_are_no_more_looks_than_can_be_told_apart() -> None:
    palette = Palette(list, most=3)
    names = [palette.step(DEFAULT, str(code)) for code in (31, 32)]
    assert len({DEFAULT, *names}) == 3
    crowded = Palette(lambda: names, most=3)
    assert [crowded.step(DEFAULT, str(code)) for code in (31, 32, 33)] == [*names, DEFAULT]
    assert palette.step(DEFAULT, "33") in names  # nobody uses the others


# What is left out


def test_scrollback_is_kept_up_to_its_limit(xterm: Xterm) -> None:
    screen, fed = Screen(COLS, ROWS, scrollback=10), b"".join(b"line %d\r\n" % n for n in range(100))
    screen.feed(fed)
    assert xterm.tells_apart(screen, fed, *NEXT, scrollback=10) == []
    none = Screen(COLS, ROWS, scrollback=0)
    none.feed(fed)
    assert xterm.tells_apart(none, fed, *NEXT, scrollback=0) == []


def test_the_oldest_lines_are_left_out_of_a_long_picture(xterm: Xterm) -> None:
    screen = Screen(200, ROWS, scrollback=5000)
    for n in range(8000):
        screen.feed((f"{n} " + "äöü" * 50 + "\r\n").encode())
    picture = screen.picture()
    assert MAX_PICTURE * 0.7 < len(picture) <= MAX_PICTURE
    dump = xterm.see(200, ROWS, picture, scrollback=5000).dump
    first, *_, last = [line[1:].partition("\u241f ")[0] for line in dump["normal"]["lines"][:-1]]
    assert first > " 5"
    assert last[0] == "7"


@pytest.mark.parametrize("page", [b"", b"normal\x1b[?1049h"])
def test_no_screen_is_too_big_for_a_picture(page: bytes) -> None:
    screen = Screen(MAX_SIDE, 200)
    screen.feed(page)
    for n in range(200):
        cells = (f"\x1b[1;3;4:3;38;5;{n};48;2;{x % 256};{n};2mx" for x in range(0, MAX_SIDE, 4))
        screen.feed("".join(cells).encode() + b"\r\n")
    screen.feed(b"the end")
    picture = screen.picture()
    assert MAX_PICTURE // 2 < len(picture) <= MAX_PICTURE
    assert b"the end" in picture


@pytest.mark.parametrize("start", [b"\x1b", b"\x1b[", b"\x1b[1", b"\x1b]0;", b"\x1bP", b"\x1bPq", b"\x1b_"])
@pytest.mark.parametrize("filler", [b" ", b"\x00", b"\x7f", b"!1", b"1;"])
def test_what_is_unfinished_is_kept_only_so_far(start: bytes, filler: bytes) -> None:
    screen = Screen(80, 24, scrollback=0)
    screen.feed(start)
    for _ in range(100):
        screen.feed(filler * 1000)
    assert len(screen.picture()) < 10_000


def test_a_sequence_too_long_does_nothing_however_it_comes() -> None:
    long = b"\x1b[" + b"0" * 5000 + b"31m\x1b[" + b"1;" * 2500 + b"5Hx\x1b]0;" + b"t" * 5000 + b"\x07"
    whole, pieces = Screen(80, 24), Screen(80, 24)
    whole.feed(long)
    for at in range(0, len(long), 100):
        pieces.feed(long[at : at + 100])
    assert whole.picture() == pieces.picture()
    assert b"31" not in whole.picture()
    assert 4000 < len(whole.title) < 4100


def test_a_small_screen_costs_little() -> None:
    Screen(80, 24).feed(b"warm")
    tracemalloc.start()
    screens = [Screen(80, 24) for _ in range(20)]
    for screen in screens:
        screen.feed(b"$ ls\r\n")
    each = tracemalloc.get_traced_memory()[0] / len(screens)
    tracemalloc.stop()
    assert each < 64 * 1024


def test_memory_does_not_grow_with_what_is_fed() -> None:
    screen = Screen(80, 24, scrollback=100)
    lines = [
        ("".join(f"\x1b[38;2;{a % 256};{b};{a // 256}m" + "e\u0301世" for b in range(30)) + "\r\n").encode()
        for a in range(150)
    ]
    tracemalloc.start()
    sizes = []
    for _ in range(3):
        for line in lines:
            screen.feed(line)
        screen.feed(b"x" + b"\xcc\x81" * 1000 + b"x\x1b[999999999b\x1b]0;" + b"y" * 100_000)
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[-1] < sizes[0] * 1.5
    assert sizes[-1] < 20 * 1024 * 1024


def test_colours_stay_right_when_there_were_too_many_to_remember(xterm: Xterm) -> None:
    screen = Screen(COLS, ROWS, scrollback=20)
    fed = "".join(
        f"\x1b[38;2;{n % 256};{n // 256 % 256};{n // 65536}m\x1b[{n % 7 + 40}mx" for n in range(12_000)
    ).encode()
    screen.feed(fed)
    assert xterm.tells_apart(screen, fed, scrollback=20) == []


# Another size

RESIZED = {
    "lines": b"one\r\ntwo\r\nthree\r\n$ ",
    "scrollback": b"".join(b"line %d\r\n" % n for n in range(30)) + b"$ ",
    "wrapped lines": b"".join(b"%d: " % n + b"0123456789" * (n % 6) + b"\r\n" for n in range(12)) + b"$ ",
    "the cursor's line": b"x\r\n" + b"0123456789" * 3,
    "the cursor in the middle": b"".join(b"%d: " % n + b"0123456789" * (n % 4) + b"\r\n" for n in range(9))
    + b"\x1b[3;3H",
    "wide characters": "世界漢字".encode() * 9 + b"\r\n" + b"x" + "世界漢字".encode() * 9 + b"\r\n\r\n",
    "combined characters": "e\u0301".encode() * 50 + b"\r\n\r\n",
    "colours": b"\x1b[31m" + b"0123456789" * 5 + b"\x1b[m\r\n\x1b[32mx\r\n",
    "saved": b"x\r\n" * 10 + b"\x1b7" + b"0123456789" * 5 + b"\r\n",
    "a wrapped line, mostly erased": b"0123456789" * 6 + b"\x1b[2;1H\x1b[20X\x1b[3;1H\x1b[20X\x1b[5;1H",
    "region and tabs": b"\x1b[2;4r\x1b[3g\x1b[5G\x1bH\x1b[1;1Hx",
}


@pytest.mark.parametrize("size", [(10, 6), (13, 4), (30, 6), (41, 9), (20, 3), (20, 10), (20, 6), (2, 2)])
@pytest.mark.parametrize("name", RESIZED)
def test_what_is_on_a_screen_that_changes_its_size_stays(name: str, size: tuple[int, int], xterm: Xterm) -> None:
    screen = Screen(COLS, ROWS)
    screen.feed(RESIZED[name])
    screen.resize(*size)
    assert (screen.cols, screen.rows) == size
    right = xterm.see(COLS, ROWS, RESIZED[name], size).dump
    shown = xterm.see(*size, screen.picture()).dump
    assert list(differences({**right, "join": 0}, {**shown, "join": 0})) == []


def test_what_is_pushed_off_a_full_scrollback_is_lost(xterm: Xterm) -> None:
    screen, fed = Screen(COLS, ROWS, scrollback=5), b"".join(b"line %d\r\n" % n for n in range(30)) + b"\x1b7$ "
    screen.feed(fed)
    screen.resize(COLS, 3)
    right = xterm.see(COLS, ROWS, fed, (COLS, 3), scrollback=5).dump
    assert list(differences(right, xterm.see(COLS, 3, screen.picture(), scrollback=5).dump)) == []


def test_what_has_no_room_on_the_alternate_screen_is_cut(xterm: Xterm) -> None:
    screen, fed = (
        Screen(COLS, ROWS),
        b"normal\x1b[?1049h\x1b[H" + b"0123456789" * 2 + "\r\n世世世世世".encode() + b"\x1b[1;1H",
    )
    screen.feed(fed)
    screen.resize(7, 4)
    shown = xterm.see(7, 4, screen.picture()).dump["alternate"]["lines"]
    assert [line.replace("|1|0,0,0,0,0,0", "") for line in shown[:1]] == [" " + "\u241f".join("0123456")]
    assert shown[1].count("世") == 3
    screen.resize(30, 8)
    assert xterm.see(30, 8, screen.picture()).dump["alternate"]["lines"][0] == shown[0]


# Skipped


STATE = (
    b"\x1b[3;5r\x1b[?6;1;2004;1002;1006h\x1b[?25l\x1b[?7l\x1b=\x1b[4;20h\x1b)0\x0e\x1b]0;busy\x07\x1b[3 q\x1b[1;38;5;9m"
)
FLOODS = {
    "text": b"0123456789" * 1000,
    "lines in colour": b"\x1b[0m\x1b[01;34mdir\x1b[0m  \x1b[01;32mfile\x1b[0m\x1b[K\r\n" * 200 + b"\x1b[35m\x1b[7m",
    "colours that are never set back": b"\x1b[31ma\x1b[1mb\x1b[44mc" * 100,
    "true colours": b"".join(b"\x1b[38;2;%d;2;3mx\x1b[48;2;1;%d;3my\x1b[1m" % (n, n) for n in range(100)),
    "state": STATE,
    "state between text": b"x\r\n" * 100 + STATE + b"y\r\n" * 100,
    "the alternate screen": b"x\r\n" * 100 + b"\x1b[?1049hin it" * 3,
    "the alternate screen left": b"x\r\n" + b"\x1b[?1049hin it\x1b[2;3r\x1b[?1049l" * 3,
    "a full reset": STATE + b"x\x1bc\x1b[?2004h",
    "a soft reset": STATE + b"x\x1b[!p",
    "tab stops": b"x\r\n" * 50 + b"\r\x1b[3g" + b"    \x1bH" * 3 + b"\r" + b"flood\r\n" * 50,
    "a tab stop cleared": b"flood\r\n01234567\x1b[g\x1b[3 q01234567\x1b[0gx",
    "strings": b"x\x1bPq" + b"#0~" * 1000 + b"\x1b\\y\x1b]2;t\x1b\\z\x1b_abc\x1b\\" + "\x9b?2004h\x8e".encode(),
    "an end in a sequence": b"x" * 100 + b"\x1b[?200",
    "an end in a character": b"x" * 100 + b"\xe4\xb8",
    "an end in a title": b"x" * 100 + b"\x1b]0;abc",
    "questions": b"x\x1b[c\x1b[6n\x1b[?25$p\x1b]11;?\x07",
}


@pytest.mark.parametrize("name", FLOODS)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_what_a_program_told_the_terminal_is_carried_over_what_is_skipped(name: str, size: int, xterm: Xterm) -> None:
    flood, tail = FLOODS[name], b"4h\x07\x96\x1b[2J\x1b[H\x1b[3Jafter\tit\r\nlqk"
    screen = Screen(COLS, ROWS)
    screen.feed(b"before\r\n" * 30)
    for at in range(0, len(flood), size):
        screen.skip(flood[at : at + size])
    skipped = xterm.see(COLS, ROWS, screen.picture())
    assert skipped.answers == []
    assert "before" not in "".join(skipped.dump["normal"]["lines"])
    screen.feed(tail)
    right = xterm.see(COLS, ROWS, b"before\r\n" * 30 + flood + tail)
    shown = xterm.see(COLS, ROWS, screen.picture())
    void = ["saved"]  # where things were
    if right.dump["alternateIsOn"]:
        void += [".normal.lines", ".normal.base"]
    left = differences(right.dump, shown.dump)
    assert [one for one in left if not any(name in one for name in void)] == []


def test_the_cursor_is_at_home_after_what_is_skipped() -> None:
    screen, fresh = Screen(COLS, ROWS), Screen(COLS, ROWS)
    screen.feed(b"abc\r\n" * 20)
    screen.skip(b"def\r\n" * 20)
    for one in (screen, fresh):
        one.feed(b"x")
    assert screen.picture() == fresh.picture()
