"""Progress in one line on stderr, drawn over and over. Nothing is drawn where stderr is no terminal."""

import shutil
import sys
import time

DRAWN_SECONDS = 0.1
WIDTH = 30


class Bar:
    """Call `show` as often as you like, and `clear` before any other output."""

    def __init__(self, what: str, *, counts_bytes: bool = False) -> None:
        self._what = what
        self._counts_bytes = counts_bytes
        self._shown = sys.stderr.isatty()
        self._drawn_at = 0.0

    def show(self, done: int, of: int | None = None) -> None:
        """`of` is the total, if it is known."""
        if self._shown and time.monotonic() - self._drawn_at >= DRAWN_SECONDS:
            self._drawn_at = time.monotonic()
            line = drawn(self._what, done, of, counts_bytes=self._counts_bytes)
            sys.stderr.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def drawn(what: str, done: int, of: int | None, *, counts_bytes: bool) -> str:
    """`verifying [######            ]  33%  4 of 12`. Pure."""
    said = size_in_words if counts_bytes else "{:,}".format
    if not of:
        return f"{what} {said(done)}"
    part = min(1.0, done / of)
    bar = "#" * round(part * WIDTH)
    return f"{what} [{bar:<{WIDTH}}] {int(part * 100):>3}%  {said(min(done, of))} of {said(of)}"


def size_in_words(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"
