"""What a walk can tell of an entry, and when that is believed."""

import os
import stat
from pathlib import Path

import pytest

from sandbox.protocol.entry import MAX_MTIME_NS
from sandbox.tree.index import entry_of
from sandbox.tree.stat_stamp import (
    GRAIN_NS,
    UNSETTLED,
    YOUNG,
    YOUNG_NS,
    as_kept,
    doubted,
    possible,
    read_at,
    renumbered,
    stamp_of,
    written_at,
)

FILE, DIRECTORY, LINK = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755, stat.S_IFLNK | 0o777
NOW = 1_700_000_000_123_456_789

OLD = NOW - YOUNG_NS


@pytest.mark.parametrize(
    ("mtime", "ctime", "believed"),
    [
        (OLD, OLD, True),
        (OLD, OLD + 1, False),
        (OLD + 1, OLD, False),
        (NOW + YOUNG_NS - 1, OLD, False),
        (NOW + YOUNG_NS, OLD, True),  # a time somebody gave it: the ctime is what tells of changes
        (OLD, NOW + 10 * YOUNG_NS, False),
        (0, 0, True),
    ],
)
def test_what_was_young_when_it_was_read_is_not_believed(mtime: int, ctime: int, believed: bool) -> None:
    stamp = (FILE, 5, mtime, ctime, 7)
    kept = read_at(stamp, NOW)
    assert (kept == stamp) == believed
    assert as_kept(kept, stamp), "a walk alone has no reason to doubt it"


@pytest.mark.parametrize(
    ("ctime", "believed"),
    [(NOW - GRAIN_NS, True), (NOW - GRAIN_NS + 1, False), (NOW // 10**9 * 10**9, False), (OLD // 10**9 * 10**9, True)],
)
def test_what_we_wrote_is_believed_after_a_grain_of_the_clock(ctime: int, believed: bool) -> None:
    """A ctime without a fraction comes from a clock with coarse grains."""
    stamp = (FILE, 5, NOW, ctime, 7)
    assert (written_at(stamp, NOW) == stamp) == believed


def test_an_unsettled_file_is_never_as_it_was_kept() -> None:
    stamp = (FILE, 5, OLD, OLD, 7)
    assert not as_kept(doubted(stamp, UNSETTLED), stamp)
    assert not as_kept(stamp, (FILE, 5, OLD, OLD, 8))


def test_what_was_kept_under_another_number_is_known_by_all_else() -> None:
    stamp = (FILE, 5, OLD, OLD, 7)
    kept = renumbered(stamp)
    assert kept != stamp, "a scan reads it again"
    assert as_kept(kept, stamp)
    assert as_kept(kept, (FILE, 5, OLD, OLD, 8))
    assert as_kept(renumbered(doubted(stamp, YOUNG)), stamp)
    for other in ((FILE, 6, OLD, OLD, 7), (FILE, 5, OLD + 1, OLD, 7), (FILE, 5, OLD, OLD + 1, 7)):
        assert not as_kept(kept, other)
    assert not as_kept(renumbered(doubted(stamp, UNSETTLED)), stamp)


def test_a_time_that_cannot_be_kept_is_doubted_and_cut() -> None:
    stamp = (FILE, 5, MAX_MTIME_NS * 1000, OLD, 7)
    assert possible(stamp) == (FILE, 5, MAX_MTIME_NS, OLD, 7, YOUNG)
    assert as_kept(possible(stamp), stamp)
    assert entry_of(b"workspace/a", stamp, b"\x90").mtime_ns == MAX_MTIME_NS


def test_a_stamp_is_what_stat_says(tmp_path: Path) -> None:
    status = os.stat(tmp_path)
    fields = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    assert stamp_of(status) == fields
