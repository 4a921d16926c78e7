"""Encode records for their way to the table: many in one row, and the values of a batch within a limit of memory.

Spark's Kafka source limits a batch by records, not by bytes, and a batch must be complete before its records can be
sorted. 50,000 records of 1 MiB exceed a worker's memory. So values above a limit are written to a temporary file.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from typing import IO, TYPE_CHECKING, Self

import msgspec

from tallystream_aggregator.table.decode import Record
from tallystream_aggregator.table.shards import shards_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from types import TracebackType

    import pandas as pd
    import pyarrow as pa


INPUT_COLUMNS = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
SCHEMA = "shard int, records binary, read long"
"""The columns of packed records of one shard, in Spark's DDL. `read` is the number of records that they represent."""

PACK_BYTES = 1 << 20
"""The most bytes of keys and values in one pack. A larger record has its own pack."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Record]).decode


def packed(records: Iterable[Record], shards: int, otlp_topics: Collection[str] = ()) -> pa.RecordBatch:
    """Return one or more records as a batch with the columns of `SCHEMA`. A record may be in several shards."""
    import pyarrow as pa  # only in a task: the import is slow

    by_shard: dict[int, list[list[Record]]] = defaultdict(lambda: [[]])
    left: dict[int, int] = defaultdict(lambda: PACK_BYTES)
    for record in records:
        size = len(record.key or b"") + len(record.value or b"")
        for shard in shards_of(record, shards, otlp_topics):
            packs = by_shard[shard]
            if size > left[shard] and packs[-1]:
                packs.append([])
                left[shard] = PACK_BYTES
            packs[-1].append(record)
            left[shard] -= size
    rows = [
        (shard, _encode(pack), sum(record.record_count for record in pack))
        for shard, packs in by_shard.items()
        for pack in packs
    ]
    types = {"shard": pa.int32(), "records": pa.binary(), "read": pa.int64()}
    arrays = [pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), types.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


def records_of(chunk: pd.DataFrame) -> Iterator[Record]:
    """Yield the records in a chunk of rows, packed (catch-up) or not (live)."""
    if "records" in chunk:
        for pack in chunk["records"]:
            yield from _decode(pack)
    else:
        yield from map(Record, *(chunk[name].tolist() for name in INPUT_COLUMNS))


IN_MEMORY_BYTES = 64 << 20
"""The most bytes of keys and values of a batch that stay in memory."""


class Spill:
    """Stores values above a limit of memory in a temporary file.

    `put` each record of a batch, and `load` each one when it is processed. A context manager.
    """

    def __init__(self, in_memory_bytes: int = IN_MEMORY_BYTES) -> None:
        self._left = in_memory_bytes
        self._file: IO[bytes] | None = None
        self._places: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._end = 0

    def put(self, record: Record) -> Record:
        """Return the record, without its value if that was written to the file.

        Raises:
            OSError: the file could not be written.
        """
        size = len(record.key or b"") + len(record.value or b"")
        if record.value is None or size <= self._left:
            self._left -= size
            return record
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        self._file.write(record.value)
        self._places[record.topic, record.partition, record.offset] = (self._end, len(record.value))
        self._end += len(record.value)
        return record._replace(value=None)

    def load(self, record: Record) -> Record:
        """Return the record with its value.

        Raises:
            OSError: the file could not be read.
        """
        place = self._places.get((record.topic, record.partition, record.offset)) if self._file is not None else None
        if place is None or self._file is None or record.value is not None:
            return record
        self._file.seek(place[0])
        return record._replace(value=self._file.read(place[1]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
