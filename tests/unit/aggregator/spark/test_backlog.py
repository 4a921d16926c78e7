"""Records on their way through Arrow and pandas: compacted or not, the processor gets what the table takes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from support.compacting import compacted
from tallystream.aggregator.spark.backlog import INPUT_COLUMNS, _compact, records_of
from tallystream.aggregator.table import Record, TableSettings

SETTINGS = TableSettings()
AT = 1_700_000_000_000
RECORDS = [
    *(Record("metrics", 0, n, AT - n, b"app-1", b'{"name":"a","value":%d}' % n) for n in range(5)),
    Record("metrics", 0, 5, AT, None, b"{"),
    Record("metrics", 0, 6, AT, b"app-1", None),
]


def batch(records: list[Record]) -> pa.RecordBatch:
    types = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary())
    columns = zip(*(record[:6] for record in records), strict=True) if records else [()] * 6
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(INPUT_COLUMNS))


def test_a_task_compacts_over_all_its_batches() -> None:
    """What comes out, in whatever batches it went in, is what compaction keeps of all the records."""
    out = _compact([batch(RECORDS[:2]), batch([]), batch(RECORDS[2:4]), batch(RECORDS[4:])], SETTINGS, 1)
    found = [record for part in out for record in records_of(part.to_pandas())]
    wanted = compacted(RECORDS, SETTINGS)
    assert sorted(found, key=lambda record: record.offset) == wanted
    assert any(record.folded for record in wanted)


def test_records_that_were_not_compacted_are_as_they_were() -> None:
    """The live plan has no stage before the table."""
    assert list(records_of(batch(RECORDS).to_pandas())) == RECORDS


def test_no_records_are_none() -> None:
    """A task without records gives nothing."""
    assert [part.num_rows for part in _compact([batch([])], SETTINGS, 1)] == []


def test_records_of_two_partitions_are_no_task_of_kafkas() -> None:
    """Compaction relies on one partition's order: anything else ends the query."""
    with pytest.raises(RuntimeError, match="several partitions"):
        list(_compact([batch([RECORDS[0], RECORDS[1]._replace(partition=1)])], SETTINGS, 1))
