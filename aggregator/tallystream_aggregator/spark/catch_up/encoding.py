"""Records on their way to the table: a row each, or, compacted, many in one, as Spark does much for each row."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from tallystream_aggregator.table.decode import Record
from tallystream_aggregator.table.shards import shard_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd
    import pyarrow as pa

INPUT_COLUMNS = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
SCHEMA = "shard int, records binary, read long"
"""Packed records of one shard, as Spark's DDL has them; `read` is how many records they represent."""

PACK_BYTES = 1 << 20
"""Keys and values that are packed together, in bytes; a larger record is alone."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Record]).decode


def packed(records: Iterable[Record], shards: int) -> pa.RecordBatch:
    """Return records, one at least, as a batch with the columns of `SCHEMA`."""
    import pyarrow as pa  # in a task alone: it takes a while to import

    by_shard: dict[int, list[list[Record]]] = defaultdict(lambda: [[]])
    left: dict[int, int] = defaultdict(lambda: PACK_BYTES)
    for record in records:
        shard = shard_of(record.key, shards)
        size = len(record.key or b"") + len(record.value or b"")
        packs = by_shard[shard]
        if size > left[shard] and packs[-1]:
            packs.append([])
            left[shard] = PACK_BYTES
        packs[-1].append(record)
        left[shard] -= size
    rows = [
        (shard, _encode(pack), sum(record.represents for record in pack))
        for shard, packs in by_shard.items()
        for pack in packs
    ]
    types = {"shard": pa.int32(), "records": pa.binary(), "read": pa.int64()}
    arrays = [pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), types.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


def records_of(chunk: pd.DataFrame) -> Iterator[Record]:
    """Yield the records in a chunk of rows, whether they were packed or not."""
    if "records" in chunk:
        for pack in chunk["records"]:
            yield from _decode(pack)
    else:
        yield from map(Record, *(chunk[name].tolist() for name in INPUT_COLUMNS))
