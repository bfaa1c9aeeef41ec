"""What a viewer of a terminal knows: after any cuts its screen is the program's output, and it sends what it owes."""

import json
from typing import Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.cli.client.terminal_view import (
    FRAME_BYTES,
    MOST_AT_ONCE,
    MOST_TYPED,
    Event,
    Expiring,
    Greeted,
    Output,
    Painted,
    TerminalView,
    Told,
    UnreadableGateway,
)
from sandbox.protocol.terminal import Exit, Resized, Size, TerminalTrouble
from sandbox.protocol.values import Position
from tests.support.vectors import check

SIZE = Size(80, 24)


def text(kind: str, **members: Any) -> str:
    return json.dumps({"type": kind, **members})


def ready(
    epoch: str = "e1", offset: int = 0, replayed: int = 0, cols: int = 80, rows: int = 24, **members: object
) -> str:
    return text("ready", epoch=epoch, offset=offset, replayed=replayed, cols=cols, rows=rows, **members)


def driver(**members: Any) -> TerminalView:
    return TerminalView("main", "drive", SIZE, **members)


def query(viewer: TerminalView) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(viewer.connecting()).items()}


def greeted(viewer: TerminalView, **members: Any) -> Event | None:
    viewer.connecting()
    return viewer.hear(ready(**members))


class Cuts(RuleBasedStateMachine):
    """A program that writes and is replaced, a gateway that keeps the newest bytes, a link that ends anywhere.

    The picture of a screen is here everything the program wrote: so the screen must be that, whatever happened."""

    KEPT = 30

    def __init__(self) -> None:
        super().__init__()
        self.epoch, self.written = 1, b""
        self.viewer = driver()
        self.screen = b""
        self.frames: list[str | bytes] = []  # said by the gateway, not heard yet
        self.sent = 0  # so much of `written` is in frames
        self.connected = False

    @rule(piece=st.binary(min_size=1, max_size=12))
    def write(self, piece: bytes) -> None:
        self.written += piece

    @rule()
    def replace(self) -> None:
        """Another process; whoever is there is told."""
        self.epoch, self.written, self.sent = self.epoch + 1, b"", 0
        if self.connected:
            self.frames += [text("reset", epoch=f"e{self.epoch}", offset=0), b""]

    @precondition(lambda self: not self.connected)
    @rule()
    def connect(self) -> None:
        asked = query(self.viewer)
        offset = int(asked.get("offset", 0))
        end = len(self.written)
        meets = asked.get("epoch") == f"e{self.epoch}" and max(0, end - self.KEPT) <= offset <= end
        self.sent = offset if meets else end
        self.frames = [ready(f"e{self.epoch}", self.sent, end - self.sent)]
        if not meets and self.written:
            self.frames += [text("reset", epoch=f"e{self.epoch}", offset=end), self.written]
        self.connected = True

    @precondition(lambda self: self.connected)
    @rule(most=st.integers(1, 8))
    def send(self, most: int) -> None:
        if piece := self.written[self.sent : self.sent + most]:
            self.frames.append(piece)
            self.sent += len(piece)

    @precondition(lambda self: self.connected)
    @rule()
    def fall_behind(self) -> None:
        """The gateway moves the viewer to a picture."""
        self.sent = len(self.written)
        self.frames += [text("reset", epoch=f"e{self.epoch}", offset=self.sent, cols=80, rows=24), self.written]

    @precondition(lambda self: bool(self.frames))
    @rule(count=st.integers(1, 6))
    def hear(self, count: int) -> None:
        for frame in self.frames[:count]:
            event = self.viewer.hear(frame)
            match event:
                case Greeted(goes_on=False):
                    self.screen = b""
                case Painted(picture):
                    self.screen = picture
                case Output(old, new):
                    self.screen += old + new
        del self.frames[:count]

    @precondition(lambda self: self.connected)
    @rule()
    def cut(self) -> None:
        self.connected, self.frames = False, []

    @rule()
    def spoil(self) -> None:
        """Something else is drawn on the screen: nothing that is added makes it good again."""
        self.screen = b"spoiled"
        self.viewer.start_over()

    @precondition(lambda self: self.connected and not self.frames and not self.screen.startswith(b"spoiled"))
    @rule()
    def catch_up(self) -> None:
        self.frames.append(self.written[self.sent :])
        self.sent = len(self.written)
        self.hear(1)
        assert self.screen == self.written

    @invariant()
    def a_position_says_what_is_on_the_screen(self) -> None:
        position = self.viewer.position
        if position is not None:
            assert len(self.screen) == position.offset
            assert position.epoch != f"e{self.epoch}" or self.written.startswith(self.screen)


Cuts.TestCase.settings = settings(max_examples=300, stateful_step_count=40)
TestCuts = Cuts.TestCase


@given(st.binary(max_size=60), st.integers(0, 60), st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_the_first_bytes_are_old_exactly_as_many_as_were_said(whole: bytes, replayed: int, sizes: list[int]) -> None:
    viewer = driver()
    greeted(viewer, replayed=replayed)
    old = new = b""
    rest = whole
    while rest:
        size = sizes[len(rest) % len(sizes)]
        event = viewer.hear(rest[:size])
        rest = rest[size:]
        assert isinstance(event, Output)
        assert not (new and event.old)
        old, new = old + event.old, new + event.new
    assert (old, new) == (whole[:replayed], whole[replayed:])
    assert viewer.lively is bool(new)


def test_a_viewer_asks_for_its_name_role_size_and_position() -> None:
    viewer = driver(after=Position("e/1", 7))
    assert query(viewer) == {
        "name": "main", "role": "drive", "cols": "80", "rows": "24", "epoch": "e/1", "offset": "7",
    }  # fmt: skip
    assert query(TerminalView("x", "view", None)) == {"name": "x", "role": "view"}


def test_it_goes_on_only_from_where_it_was() -> None:
    viewer = driver()
    assert greeted(viewer, offset=5) == Greeted(SIZE, goes_on=False, absent=False)
    viewer.hear(b"abc")
    assert viewer.position == Position("e1", 8)
    assert greeted(viewer, offset=8) == Greeted(SIZE, goes_on=True, absent=False)
    assert greeted(viewer, offset=9) == Greeted(SIZE, goes_on=False, absent=False)
    assert viewer.position is None


def test_a_picture_that_never_came_is_asked_for_again() -> None:
    viewer = driver()
    greeted(viewer)
    viewer.hear(b"abc")
    assert viewer.hear(text("reset", epoch="e1", offset=500, cols=100, rows=30)) is None
    assert "offset" not in query(viewer)
    viewer.hear(ready(offset=500))
    assert viewer.position is None, "a picture may follow"
    assert viewer.hear(text("reset", epoch="e1", offset=500)) is None
    assert viewer.hear(b"picture") == Painted(b"picture", SIZE)
    assert viewer.position == Position("e1", 500)


def test_a_sleeping_session_has_no_terminal_until_it_wakes() -> None:
    viewer = driver()
    assert greeted(viewer, epoch="") == Greeted(SIZE, goes_on=False, absent=True)
    assert viewer.hear(text("status", status="sleeping\x1b[c")) == Told("sleeping\\x1b[c")
    viewer.hear(text("reset", epoch="e2", offset=0, cols=90, rows=20))
    assert viewer.hear(b"") == Painted(b"", Size(90, 20))
    assert viewer.position == Position("e2", 0)
    assert viewer.epoch == "e2"


@pytest.mark.parametrize(
    ("frame", "event"),
    [
        (text("exit", code=3, signal=None), Exit(3, None)),
        (text("exit", code=None, signal="SIGKILL"), Exit(None, "SIGKILL")),
        (text("resize", cols=100, rows=30), Resized(100, 30)),
        (text("error", code="input_full", error="too much"), TerminalTrouble("input_full", "too much")),
        (text("error", code=7), TerminalTrouble("", "")),
        (text("auth_expiring", at="2026-01-01T00:00:00Z"), Expiring()),
        (text("something_new", of="tomorrow"), None),
    ],
)
def test_what_the_gateway_says_is_understood(frame: str, event: Event | None) -> None:
    viewer = driver()
    greeted(viewer)
    assert viewer.hear(frame) == event


@pytest.mark.parametrize(
    "frame",
    ["", "[]", "{", ready(offset=-1), ready(cols=0), ready(rows=5000), text("ready", epoch=None, offset=0, replayed=0),
     text("reset", epoch="e1", offset="1"), text("resize", cols=1.5, rows=2), text("resize", cols=True, rows=2)],
)  # fmt: skip
def test_what_cannot_be_understood_is_said_so(frame: str) -> None:
    viewer = driver()
    greeted(viewer)
    with pytest.raises(UnreadableGateway):
        viewer.hear(frame)


@pytest.mark.parametrize("frame", [b"x", text("reset", epoch="e1", offset=0), text("exit"), text("resize")])
def test_nothing_counts_before_the_greeting(frame: str | bytes) -> None:
    viewer = driver()
    viewer.connecting()
    with pytest.raises(UnreadableGateway):
        viewer.hear(frame)


def frames(viewer: TerminalView) -> list[Any]:
    said = []
    while (frame := viewer.next_frame()) is not None:
        said.append(frame if isinstance(frame, bytes) else json.loads(frame))
    return said


def test_the_size_is_said_first_then_what_was_typed_before() -> None:
    viewer = driver()
    assert viewer.type(b"ls\r", live=False)
    viewer.resize(Size(81, 25))
    assert frames(viewer) == [], "nobody is there"
    greeted(viewer)
    viewer.resize(Size(82, 26))
    viewer.resize(Size(83, 27))
    viewer.renew("t2")
    assert frames(viewer) == [
        {"type": "resize", "cols": 83, "rows": 27}, {"type": "auth", "token": "t2"}, b"ls\r",
    ]  # fmt: skip


def test_one_who_takes_any_size_says_none() -> None:
    viewer = TerminalView("main", "drive", None)
    greeted(viewer)
    assert frames(viewer) == []
    watcher = TerminalView("main", "view", SIZE)
    greeted(watcher)
    assert frames(watcher) == []


def test_what_was_typed_for_one_process_is_not_typed_into_another() -> None:
    viewer = TerminalView("main", "drive", None)
    greeted(viewer)
    viewer.connecting()
    viewer.type(b"still the same\r", live=False)
    viewer.hear(ready())
    assert frames(viewer) == [b"still the same\r"]
    viewer.connecting()
    viewer.type(b"rm -rf\r", live=False)
    assert viewer.unsent == 7
    viewer.hear(ready(epoch="e2"))
    assert frames(viewer) == []


def test_a_screen_that_is_drawn_over_before_the_greeting_is_no_position() -> None:
    """The gateway was asked to go on, and sends no picture: what came next was once taken for the whole screen."""
    viewer = driver()
    greeted(viewer)
    viewer.hear(b"x")
    assert query(viewer)["offset"] == "1"
    viewer.start_over()
    assert viewer.hear(ready(offset=1)) == Greeted(SIZE, goes_on=True, absent=False)
    viewer.hear(b"y")
    assert viewer.position is None
    assert "offset" not in query(viewer)


def test_what_was_typed_for_a_process_that_is_gone_is_typed_into_no_other() -> None:
    viewer = TerminalView("main", "drive", None)
    viewer.type(b"for whoever is there", live=False)
    viewer.hear(ready(epoch="", absent=True))
    assert frames(viewer) == [b"for whoever is there"]
    viewer.hear(ready())
    viewer.connecting()
    viewer.type(b"rm -rf\r", live=False)
    viewer.hear(ready(absent=True))
    assert frames(viewer) == []
    viewer.type(b"ls\r", live=False)
    assert frames(viewer) == [b"ls\r"], "for the next: the gateway keeps it"


def test_typing_is_bounded_and_cut_into_frames() -> None:
    viewer = TerminalView("main", "drive", None)
    greeted(viewer)
    assert viewer.type(b"x" * MOST_TYPED, live=False)
    assert not viewer.type(b"y", live=False)
    said = frames(viewer)
    assert b"".join(said) == b"x" * MOST_TYPED
    assert {len(frame) for frame in said} == {FRAME_BYTES}
    assert viewer.type(b"y", live=False)


def test_with_a_connection_more_may_be_on_its_way() -> None:
    viewer = driver()
    assert viewer.type(b"x" * MOST_AT_ONCE, live=True)
    assert not viewer.type(b"y", live=True)


def test_the_vectors_that_both_clients_share() -> None:
    check("terminals.json")
