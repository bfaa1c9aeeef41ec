"""A user's list: in frames of a bounded size, the same sessions in the same order, good for whoever comes while little
has changed."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.feed.session_list import FRAME_BYTES, MOST_SINCE, SessionList
from gateway.feed.viewer_backlog import ViewerBacklog
from sandbox.protocol.websocket_frames import TEXT, FrameReader


def made(*sessions: dict[str, Any]) -> SessionList:
    listing = SessionList()
    listing.add(sessions)
    listing.end()
    return listing


def read(listing: SessionList) -> list[dict[str, Any]]:
    reader = FrameReader(64 << 20, 1, masked=False)
    reader.feed(b"".join(listing))
    messages = list(iter(reader.read, None))
    assert {opcode for opcode, _ in messages} == {TEXT}
    return [json.loads(payload) for _, payload in messages]


def good_for_a_newcomer(listing: SessionList) -> bool:
    return listing.current


def test_a_short_list_is_one_frame_and_so_is_an_empty_one() -> None:
    assert read(made()) == [{"type": "sandboxes", "sandboxes": []}]
    assert read(made({"id": "a"}, {"id": "b"})) == [{"type": "sandboxes", "sandboxes": [{"id": "a"}, {"id": "b"}]}]


@given(st.lists(st.integers(0, FRAME_BYTES * 5 // 4), max_size=12))
def test_a_long_list_is_whole_and_only_its_last_frame_has_no_more(sizes: list[int]) -> None:
    sessions = [{"id": str(number), "title": "x" * size} for number, size in enumerate(sizes)]
    listing = made(*sessions)
    frames = read(listing)
    assert [session for frame in frames for session in frame["sandboxes"]] == sessions
    assert [frame.get("more") for frame in frames] == [True] * (len(frames) - 1) + [None]
    assert all(
        len(raw) <= FRAME_BYTES + 100 or len(frame["sandboxes"]) == 1
        for raw, frame in zip(listing, frames, strict=True)
    )


def test_what_happens_while_it_is_made_is_owed_to_all_who_come_however_much_it_is() -> None:
    listing = SessionList()
    for number in range(MOST_SINCE + 10):
        listing.changed(str(number))
    listing.gone("0", b"gone")
    assert not good_for_a_newcomer(listing)  # it is not made yet
    assert len(listing.since) == MOST_SINCE + 10
    listing.end()
    assert not good_for_a_newcomer(listing)


def test_it_is_good_for_whoever_comes_until_much_has_changed_and_then_it_need_not_know() -> None:
    listing = made({"id": "a"})
    assert good_for_a_newcomer(listing)
    for number in range(MOST_SINCE):
        listing.changed(str(number))
    listing.gone("0", b"0 is gone")
    assert good_for_a_newcomer(listing)
    late: ViewerBacklog = listing.since.copy()
    assert late.pay() == b"0 is gone"
    assert late.left == tuple(str(number) for number in range(1, MOST_SINCE))
    listing.changed("one more")
    assert not good_for_a_newcomer(listing)
    listing.changed("and another")
    listing.gone("and a third", b"")
    assert len(listing.since) == MOST_SINCE + 1
    assert len(late) == MOST_SINCE - 1
