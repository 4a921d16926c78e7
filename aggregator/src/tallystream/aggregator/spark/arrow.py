"""Records on their way through Spark, as Arrow's columns: compacted or not, the table gets what it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tallystream.aggregator.table.inputs import Folded, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

INPUT_COLUMNS = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
FOLD_COLUMNS = ("clock_ms", "dropped", "after", "first", "since_ms")
"""What compaction adds to a record; `dropped` is 0 where it stands for none."""

SCHEMA = (
    "topic string, partition int, offset long, timestamp_ms long, key binary, value binary, "
    "clock_ms long, dropped long, after long, first long, since_ms long"
)
"""Both, as Spark's DDL has them."""

_ARROW = pa.schema(
    [
        *(("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp_ms", pa.int64())),
        *(("key", pa.binary()), ("value", pa.binary())),
        *((name, pa.int64()) for name in FOLD_COLUMNS),
    ]
)


def batch_of(records: Sequence[Record]) -> pa.RecordBatch:
    """Return some records, one at least, as a batch of both."""
    rows = [(*record[:7], *(record.folded or (0, 0, 0, 0))) for record in records]
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def records_of(chunk: pd.DataFrame) -> Iterator[Record]:
    """Yield the records in a chunk, whether they were compacted or not."""
    columns = [chunk[name].tolist() for name in INPUT_COLUMNS]
    if "dropped" not in chunk:
        yield from map(Record, *columns)
        return
    clocks, *folded = (chunk[name].tolist() for name in FOLD_COLUMNS)
    yield from map(Record, *columns, clocks, (Folded(*fold) if fold[0] else None for fold in zip(*folded, strict=True)))
