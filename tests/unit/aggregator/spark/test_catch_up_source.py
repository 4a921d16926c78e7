"""Records on their way through Arrow and pandas: compacted or not, the processor gets what the table takes."""

from __future__ import annotations

import pandas as pd
import pytest

from support.compacting import compacted as pure
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


def test_a_task_compacts_over_all_that_it_reads() -> None:
    """What comes out, in whatever chunks it was read, is what compaction keeps of all the records."""
    rows = [(record.offset, record.timestamp_ms, record.key, record.value) for record in RECORDS]
    out = list(compacted((rows[:2], rows[2:4], rows[4:]), WHOLE, SETTINGS, 1))
    found = [record for part in out for record in records_of(part.to_pandas())]
    wanted = pure(RECORDS, SETTINGS)
    assert sorted(found, key=lambda record: record.offset) == wanted
    assert any(record.superseded for record in wanted)
    assert all(part.num_rows for part in out)


def test_the_columns_are_those_that_spark_is_told() -> None:
    """Spark refuses a batch with other ones."""
    (part,) = compacted([[(0, AT, b"app-1", None)]], WHOLE, SETTINGS, 1)
    assert part.schema.names == [column.split()[0] for column in SCHEMA.split(", ")]


def test_records_that_were_not_compacted_are_as_they_were() -> None:
    """Live mode has no stage before the table."""
    frame = pd.DataFrame([record[:6] for record in RECORDS], columns=list(INPUT_COLUMNS))
    assert list(records_of(frame)) == RECORDS


def test_no_records_are_none() -> None:
    """A task that reads nothing gives nothing."""
    assert list(compacted([], WHOLE, SETTINGS, 1)) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"m": {"0": (0, 9)}}, "partition 1: it is gone, and 5 is the next offset"),
        ({"m": {"0": (0, 9), "1": (6, 9)}}, "partition 1: it has offsets 6 to 9, and 5 is the next"),
        ({"m": {"0": (0, 9), "1": (0, 4)}}, "partition 1: it has offsets 0 to 4, and 5 is the next"),
        ({"m": {"0": (0, 9), "1": (0, 9), "2": (1, 1)}}, "partition 2: it is new, and begins at offset 1"),
    ],
)
def test_a_gap_is_said(found: Bounds, said: str) -> None:
    """A partition that is gone, begins later, ends before, or is new and has lost its beginning."""
    with pytest.raises(LostRecordsError, match=said):
        require_all({"m": {"0": 5, "1": 5}}, found)


def test_what_is_all_there_is_taken() -> None:
    """A partition at its end, one at its beginning, and a new one from its first record."""
    require_all({"m": {"0": 9, "1": 5}}, {"m": {"0": (0, 9), "1": (5, 9), "2": (0, 1)}})
