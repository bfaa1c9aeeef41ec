"""A painter behind a ring: nothing is drawn twice, nothing is left out unseen, and it is never far behind for long."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox.protocol.terminal import MAX_PICTURE, Size
from sandbox.terminal import screen_follower as module
from sandbox.terminal.ring import ByteRing
from sandbox.terminal.screen_follower import BEHIND_BYTES, ScreenFollower


class Notes:
    """A model that writes down what it is given."""

    def __init__(self) -> None:
        self.seen = bytearray()  # bytes would be copied with each piece of a flood
        self.fed = b""
        self.sizes: list[tuple[int, int, int]] = []
        self.title = "vim"
        self.largest = 0

    def feed(self, data: bytes) -> None:
        self.seen += data
        self.fed += data
        self.largest = max(self.largest, len(data))

    def skip(self, data: bytes) -> None:
        self.seen += data
        self.fed = b""

    def resize(self, cols: int, rows: int) -> None:
        self.sizes.append((cols, rows, len(self.seen)))

    def picture(self) -> bytes:
        return self.fed


@given(
    limit=st.integers(400_000, 500_000),
    events=st.lists(st.one_of(st.integers(1, 65536), st.sampled_from(["draw", "picture", "resize"])), max_size=40),
)
def test_every_byte_is_seen_once_and_in_order(limit: int, events: list[int | str]) -> None:
    ring, notes, written = ByteRing(limit), Notes(), b""
    painter = ScreenFollower(notes, ring)
    for number, event in enumerate(events):
        if isinstance(event, int):
            piece = bytes([number % 256]) * event
            ring.append(piece)
            written += piece
            painter.grew()
            assert len(written) - len(notes.seen) <= limit // 2
        elif event == "draw":
            painter.draw_some()
            assert painter.is_near
        elif event == "picture":
            assert written.endswith(painter.picture())
            assert notes.seen == written
            assert painter.is_done
        else:
            painter.resize(Size(9, 8))
            assert notes.sizes[-1] == (9, 8, len(written))
        assert written[: len(notes.seen)] == notes.seen
        assert notes.largest <= BEHIND_BYTES


def test_a_flood_is_not_drawn_but_for_its_end() -> None:
    ring, notes = ByteRing(1 << 20), Notes()
    painter = ScreenFollower(notes, ring)
    for _ in range(1000):
        ring.append(b"y" * 65536)
        painter.grew()
    assert not painter.is_near
    assert notes.largest == 0
    assert painter.picture() == b"y" * BEHIND_BYTES
    assert painter.title == "vim"


def test_a_ring_that_is_smaller_than_one_write_loses_the_rest() -> None:
    ring, notes = ByteRing(100), Notes()
    painter = ScreenFollower(notes, ring)
    ring.append(b"a" * 90 + b"b" * 100)
    painter.grew()
    assert painter.picture() == b"b" * 25
    assert notes.seen == b"b" * 100


def test_a_picture_that_is_too_large_is_not_sent() -> None:
    ring, notes = ByteRing(100), Notes()
    painter = ScreenFollower(notes, ring)
    notes.fed = b"x" * (MAX_PICTURE + 1)
    assert painter.picture() == b""
    assert module.SLICE_BYTES < BEHIND_BYTES
