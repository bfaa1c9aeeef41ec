"""A full-screen program that asks for mouse events, and shows its input. Nothing but the standard library."""

import os
import termios
import tty


def main() -> None:
    before = termios.tcgetattr(0)
    tty.setraw(0)
    os.write(1, b"\x1b[?1049h\x1b[?1002h\x1b[?1006h\x1b[2J\x1b[H\x1b]0;mouse\x07click me")
    while (read := os.read(0, 1024)) and read != b"q":
        os.write(1, b"\x1b[5;1H\x1b[1mread\x1b[m %s\x1b[K" % ascii(read).encode())
    os.write(1, b"\x1b[?1006l\x1b[?1002l\x1b[?1049l")
    termios.tcsetattr(0, termios.TCSADRAIN, before)


if __name__ == "__main__":
    main()
