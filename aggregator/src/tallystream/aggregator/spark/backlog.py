"""The backlog's stage before the shuffle: each task compacts the records of its part of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tallystream.aggregator.table.compaction import Compactor
from tallystream.aggregator.table.inputs import Folded, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd
    from pyspark.sql import DataFrame

    from tallystream.aggregator.table.settings import TableSettings

INPUT_COLUMNS = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
FOLD_COLUMNS = ("clock_ms", "dropped", "after", "first", "since_ms")
"""What compaction adds to a record; `dropped` is 0 where it stands for none."""

_SCHEMA = pa.schema(
    [
        *(("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp_ms", pa.int64())),
        *(("key", pa.binary()), ("value", pa.binary())),
        *((name, pa.int64()) for name in FOLD_COLUMNS),
    ]
)
_SPARK_SCHEMA = (
    "topic string, partition int, offset long, timestamp_ms long, key binary, value binary, "
    "clock_ms long, dropped long, after long, first long, since_ms long"
)


def compacted(records: DataFrame, settings: TableSettings, shards: int) -> DataFrame:
    """Return the records, of `INPUT_COLUMNS`, less those that change nothing, with `FOLD_COLUMNS`.

    A task of Kafka's source has one range of offsets of one partition, in their order, which is what is compacted.
    """

    def compact(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _compact(batches, settings, shards)

    return records.mapInArrow(compact, _SPARK_SCHEMA)


def _compact(batches: Iterable[pa.RecordBatch], settings: TableSettings, shards: int) -> Iterator[pa.RecordBatch]:
    compactor, place = None, None
    for batch in batches:
        if not batch.num_rows:
            continue
        topic, partition, *rows = (batch.column(name) for name in INPUT_COLUMNS)
        if compactor is None:
            place = (topic[0].as_py(), partition[0].as_py())
            compactor = Compactor(*place, settings, shards)
        if place != (topic[batch.num_rows - 1].as_py(), partition[batch.num_rows - 1].as_py()):
            raise RuntimeError(f"a task has records of several partitions, {place} and others")
        yield _batch(compactor.add(zip(*(column.to_pylist() for column in rows), strict=True)))
    if compactor is not None:
        yield _batch(compactor.end())


def _batch(records: list[Record]) -> pa.RecordBatch:
    rows = [(*record[:7], *(record.folded or (0, 0, 0, 0))) for record in records]
    columns = zip(*rows, strict=True) if rows else [()] * len(_SCHEMA)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )


def records_of(chunk: pd.DataFrame) -> Iterator[Record]:
    """Yield the records in a chunk, whether they were compacted or not."""
    columns = [chunk[name].tolist() for name in INPUT_COLUMNS]
    if "dropped" not in chunk:
        for row in zip(*columns, strict=True):
            yield Record(*row)
        return
    clocks, *folded = (chunk[name].tolist() for name in FOLD_COLUMNS)
    for row, clock_ms, fold in zip(zip(*columns, strict=True), clocks, zip(*folded, strict=True), strict=True):
        yield Record(*row)._replace(clock_ms=clock_ms, folded=Folded(*fold) if fold[0] else None)
