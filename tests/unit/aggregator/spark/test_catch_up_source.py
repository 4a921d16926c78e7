"""The source of catch-up: compacted records, and lost records."""

from __future__ import annotations

import pandas as pd
import pytest

from support.compaction import compact as pure
from tallystream_aggregator.spark.catch_up.encoding import INPUT_COLUMNS, SCHEMA, records_of
from tallystream_aggregator.spark.catch_up.reader import LostRecordsError
from tallystream_aggregator.spark.catch_up.source import Bounds, compacted, require_all
from tallystream_aggregator.spark.catch_up.splits import Range
from tallystream_aggregator.table import Record, TableSettings

SETTINGS = TableSettings()
AT = 1_700_000_000_000
RECORDS = [
    *(Record("metrics", 0, n, AT - n, b"app-1", b'{"name":"a","value":%d}' % n) for n in range(5)),
    Record("metrics", 0, 5, AT, None, b"{"),
    Record("metrics", 0, 6, AT, b"app-1", None),
]
WHOLE = Range("metrics", 0, 0, 7)


def test_a_task_compacts_all_records_of_its_range() -> None:
    """The chunks in which they are read do not matter."""
    rows = [(record.offset, record.timestamp_ms, record.key, record.value) for record in RECORDS]
    out = list(compacted((rows[:2], rows[2:4], rows[4:]), WHOLE, SETTINGS, 1))
    found = [record for part in out for record in records_of(part.to_pandas())]
    wanted = pure(RECORDS, SETTINGS)
    assert sorted(found, key=lambda record: record.offset) == wanted
    assert any(record.superseded for record in wanted)
    assert all(part.num_rows for part in out)


def test_a_batch_has_the_columns_of_the_schema() -> None:
    """Spark rejects a batch with other columns."""
    (part,) = compacted([[(0, AT, b"app-1", None)]], WHOLE, SETTINGS, 1)
    assert part.schema.names == [column.split()[0] for column in SCHEMA.split(", ")]


def test_live_records_are_not_changed() -> None:
    """Live mode does not compact."""
    frame = pd.DataFrame([record[:6] for record in RECORDS], columns=list(INPUT_COLUMNS))
    assert list(records_of(frame)) == RECORDS


def test_a_task_without_records_returns_no_batch() -> None:
    """Spark rejects an empty batch."""
    assert list(compacted([], WHOLE, SETTINGS, 1)) == []


@pytest.mark.parametrize(
    ("found", "error"),
    [
        ({"m": {"0": (0, 9)}}, "partition 1: it is gone, and 5 is the next offset"),
        ({"m": {"0": (0, 9), "1": (6, 9)}}, "partition 1: it has offsets 6 to 9, and 5 is the next"),
        ({"m": {"0": (0, 9), "1": (0, 4)}}, "partition 1: it has offsets 0 to 4, and 5 is the next"),
        ({"m": {"0": (0, 9), "1": (0, 9), "2": (1, 1)}}, "partition 2: it is new, and begins at offset 1"),
    ],
)
def test_lost_records_are_an_error(found: Bounds, error: str) -> None:
    """A partition is gone, begins later, ends earlier, or is new and does not begin at 0."""
    with pytest.raises(LostRecordsError, match=error):
        require_all({"m": {"0": 5, "1": 5}}, found)


def test_a_backlog_without_gaps_is_accepted() -> None:
    """One partition is at its end, one at its beginning, and one is new."""
    require_all({"m": {"0": 9, "1": 5}}, {"m": {"0": (0, 9), "1": (5, 9), "2": (0, 1)}})
