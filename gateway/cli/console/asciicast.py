"""A recording as asciicast v2: a header and one event for each line, each whole by itself. Pure.

https://docs.asciinema.org/manual/asciicast/v2/
"""

import codecs
import json

from sandbox.protocol.terminal import Size

TERM = "xterm-256color"  # the value of TERM in a terminal's programs


class Recording:
    """Lines of a recording, with their line feeds. Times are seconds since its beginning, and never go back.

    Output is cut anywhere: a character comes whole with its last byte, invalid UTF-8 becomes U+FFFD."""

    def __init__(self, size: Size, *, timestamp: int, title: str = "", idle_time_limit: float | None = None) -> None:
        self._size = size
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._last = 0.0
        header: dict[str, object] = {"version": 2, "width": size.cols, "height": size.rows, "timestamp": timestamp}
        if idle_time_limit is not None:
            header["idle_time_limit"] = idle_time_limit
        if title:
            header["title"] = title
        self.header = _line({**header, "env": {"TERM": TERM}})

    def output(self, data: bytes, at: float) -> bytes:
        """Record output; b"" if there is no whole character yet."""
        return self._event(at, "o", self._decoder.decode(data))

    def resized(self, size: Size, at: float) -> bytes:
        """Record a size; b"" if the terminal has that size already."""
        if size == self._size:
            return b""
        self._size = size
        return self._event(at, "r", f"{size.cols}x{size.rows}")

    def painted(self, picture: bytes, size: Size, at: float) -> bytes:
        """Record a new screen: the old one is void, and so is an unfinished character."""
        cut = self._event(at, "o", self._decoder.decode(b"", final=True))
        self._decoder.reset()
        return cut + self.resized(size, at) + self.output(b"\x1bc" + picture, at)

    def finished(self, at: float) -> bytes:
        return self._event(at, "o", self._decoder.decode(b"", final=True))

    def _event(self, at: float, kind: str, text: str) -> bytes:
        if not text:
            return b""
        self._last = max(self._last, at)
        return _line([round(self._last, 6), kind, text])


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": ")).encode() + b"\n"
