"""Keeps a model of the screen behind a program's output, at a distance. Pure.

A model in Python draws a few MB in a second, a program writes hundreds. So the model is one more reader of the ring,
and an unhurried one: it draws a slice now and then. Output further behind than `BEHIND_BYTES` is not drawn; it is
only searched for lasting settings (modes, titles, the alternate screen), in pieces as large as the ring allows: a
flood has moved it off the screen anyway. Before a picture is taken the model catches up, which costs at most
`BEHIND_BYTES` of drawing.
"""

from typing import Protocol

from sandbox.protocol.terminal import MAX_PICTURE, Size
from sandbox.terminal.ring import ByteRing

SLICE_BYTES = 16 * 1024
BEHIND_BYTES = 64 * 1024
SKIP_BYTES = 64 * 1024


class Model(Protocol):
    """A screen: sandbox/terminal/screen."""

    @property
    def title(self) -> str: ...
    def feed(self, data: bytes) -> None: ...
    def skip(self, data: bytes) -> None: ...
    def resize(self, cols: int, rows: int) -> None: ...
    def picture(self) -> bytes: ...


class ScreenFollower:
    """Draws the content of `ring` on `model`. Call `grew` after each append to the ring."""

    def __init__(self, model: Model, ring: ByteRing) -> None:
        self._model = model
        self._ring = ring
        self._drawn = 0
        self._near = min(BEHIND_BYTES, ring.limit // 4)

    @property
    def title(self) -> str:
        return self._model.title

    @property
    def is_near(self) -> bool:
        """Whether it can draw all that it has not drawn yet."""
        return self._ring.end - self._drawn <= self._near

    @property
    def is_done(self) -> bool:
        return self._ring.end == self._drawn

    def grew(self) -> None:
        """Search the bytes that will be overwritten soon. Costs nothing most of the time."""
        if self._ring.end - self._drawn > self._ring.limit // 2:
            self._approach()

    def draw_some(self) -> None:
        """Draw one slice. Output too far behind is skipped first."""
        self._approach()
        self._model.feed(self._take(SLICE_BYTES))

    def picture(self) -> bytes:
        """The screen after the newest byte."""
        self._catch_up()
        picture = self._model.picture()
        return picture if len(picture) <= MAX_PICTURE else b""

    def resize(self, size: Size) -> None:
        """Earlier output was written for the earlier size."""
        self._catch_up()
        self._model.resize(size.cols, size.rows)

    def _catch_up(self) -> None:
        self._approach()
        self._model.feed(self._take(self._near))

    def _approach(self) -> None:
        self._drawn = max(self._drawn, self._ring.base)  # a ring smaller than one write may be ahead
        while not self.is_near:
            self._model.skip(self._take(min(SKIP_BYTES, self._ring.end - self._drawn - self._near)))

    def _take(self, most: int) -> bytes:
        payload = self._ring.since(self._drawn, most)
        assert payload is not None, "the ring grew, and nobody told"
        self._drawn += len(payload)
        return payload
