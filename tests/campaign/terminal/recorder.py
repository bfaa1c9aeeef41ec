"""A program that sends its terminal queries on command, and writes down all its input.

`python recorder.py FIFO LOG`: each number in the fifo (four bytes) is a question. Every part of it gets an answer
that names it: the cursor's position, an unknown mode, and the terminal's type. Nothing but the standard library: it
runs in a sandbox.
"""

import os
import select
import sys
import tty

ROWS, COLUMNS = 20, 70
FIRST_ROW = FIRST_COLUMN = 3  # in the first row an answer looks like a key
FIRST_MODE = 5000
MOST_QUESTIONS = ROWS * COLUMNS


def place(number: int) -> tuple[int, int]:
    """Row and column, another for each question."""
    return FIRST_ROW + number % ROWS, FIRST_COLUMN + number // ROWS


def question(number: int) -> bytes:
    row, column = place(number)
    return b"\x1b[%d;%dH\x1b[6n\x1b[?%d$p\x1b[c\x1b[H%d asked" % (row, column, FIRST_MODE + number, number)


def main(fifo: str, log: str) -> None:
    tty.setraw(0)
    told = os.open(fifo, os.O_RDWR)
    notes = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(1, b"\x1b[2J\x1b[2;1Hrecording")
    while True:
        ready, _, _ = select.select([0, told], [], [])
        if 0 in ready:
            read = os.read(0, 65536)
            if not read:
                return
            os.write(notes, read)
        if told in ready:
            os.write(1, question(int.from_bytes(os.read(told, 4), "big")))


if __name__ == "__main__":
    main(*sys.argv[1:])
