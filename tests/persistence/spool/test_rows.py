"""A write as columns of the spool, and back."""

import math

import pytest
from msgspec.structs import replace

from persistence.record import Record, Status, Write
from persistence.spool.ports import SpoolRow
from persistence.spool.rows import COLUMNS, SIZE, columns_of, row_of

FULL_WRITE = Write(
    "s",
    Record("s", 3, "c\u00efd", "user", "message", b'{"content":"\xc3\xbc"}', 1.25, Status.STORED),
    marks=((1, Status.EXPIRED), (2, "\ud800")),
    delivered=2,
    state=b"state",
    checkpoint=b"",
    spec=b"spec",
    fence=7,
)


def test_what_is_no_text_and_no_time_comes_back_the_same() -> None:
    record = Record("s", 1, "\ud800", "a\0", "\udfff", b"", math.nan, "\ud801")
    back = row_of(columns_of(SpoolRow(5, Write("s", record)), 0.0)).write.append
    assert back is not None
    assert math.isnan(back.created_at)
    assert replace(back, created_at=1.0) == replace(record, created_at=1.0)


@pytest.mark.parametrize(
    "write",
    [FULL_WRITE, replace(FULL_WRITE, append=None), Write("s", state=b""), Write("s", checkpoint=b"part", fence=0)],
    ids=["everything", "no record", "a state", "a checkpoint"],
)
def test_a_write_comes_back_the_same(write: Write) -> None:
    columns = columns_of(SpoolRow(5, write), 9.5)
    assert row_of(columns) == SpoolRow(5, write)
    assert columns[SIZE : SIZE + 2] == (write.size, 9.5)
    assert len(columns) == len(COLUMNS.split(","))
