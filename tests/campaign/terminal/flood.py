"""A program that floods its terminal with bytes whose every position is known, as far as it may.

The stream consists of numbered records of 64 bytes. Some have colours, wide characters, titles, modes: state that a
screen must carry over whatever it missed. `python flood.py FIFO` reads from the fifo how many more records it may
write, four bytes a time. Nothing but the standard library: it runs in a sandbox.
"""

import os
import sys
import tty

RECORD_BYTES = 64
NUMBER = b"%010d"
LETTERS = b"the quick brown fox jumps over the lazy dog and then goes on a bit"

# The text around the number in record n is at n % len(AROUND).
AROUND_TEXT = [
    ("", " "),
    ("", " \x1b[32mgreen\x1b[m "),
    ("", " grün 日本 "),
    ("\x1b[1;44m", "\x1b[m "),
    ("\x1b]0;title ", "\x07 "),
    ("", " é漢字é "),
    ("\x1b[?2004h", " "),
    ("", " \x1b[7mback\x1b[27m "),
    ("\x1b[?1000h\x1b[?1006h", " "),
    ("", "\t"),
    ("\x1b[?1h\x1b=", " "),
    ("\x1b[38;2;1;2;3m", "\x1b[0m "),
    ("\x1b[?2004l", " "),
    ("\x1b(0qqq\x1b(B", " "),
    ("\x1b[?1000l\x1b[?1006l", " "),
    ("\x1b[?1l\x1b>", " "),
    ("", " "),
]


def _padded(before: str, after: str) -> tuple[bytes, bytes]:
    first, second = before.encode(), after.encode()
    room = RECORD_BYTES - len(first) - len(NUMBER % 0) - len(second) - 2
    return first, second + LETTERS[:room] + b"\r\n"


AROUND = [_padded(*pair) for pair in AROUND_TEXT]


def record(number: int) -> bytes:
    before, after = AROUND[number % len(AROUND)]
    return before + NUMBER % number + after


def stream(start: int, end: int) -> bytes:
    """The bytes from `start` up to `end`."""
    first = start // RECORD_BYTES
    whole = b"".join(map(record, range(first, -(-end // RECORD_BYTES))))
    return whole[start - first * RECORD_BYTES : end - first * RECORD_BYTES]


def main(fifo: str) -> None:
    tty.setraw(0)
    written = 0
    with open(fifo, "rb", buffering=0) as allowance, open(1, "wb", closefd=False) as terminal:
        while allowed := allowance.read(4):
            until = written + int.from_bytes(allowed, "big")
            while written < until:
                upto = min(until, written + 256)
                terminal.write(b"".join(map(record, range(written, upto))))
                terminal.flush()
                written = upto
    os.read(0, 1)


if __name__ == "__main__":
    main(sys.argv[1])
