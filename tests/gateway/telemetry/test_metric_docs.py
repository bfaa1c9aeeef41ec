"""Each metric has one row of docs; the test of the docs compares the names with those of a gateway."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.metric_docs import ROWS, MetricRow, table

NAMES = [name for row in ROWS for name in row.names]


def test_each_metric_has_one_row() -> None:
    assert [name for name, times in Counter(NAMES).items() if times > 1] == []
    assert len(table().splitlines()) == 2 + len(ROWS)


@given(st.sampled_from(ROWS))
def test_a_row_has_three_cells(row: MetricRow) -> None:
    line = table().splitlines()[2 + ROWS.index(row)]
    assert line.count("|") == 4
    assert line.startswith("| `holdfast_")
