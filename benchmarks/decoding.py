"""The cost of reading and compacting records, compared with other parsers: python -m benchmarks.decoding.

One process without Spark reads records of the short form, and finds the last value of each counter of each instance.
All parsers have to find the same values. polars is measured if it is installed.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.json

from benchmarks.aggregator.load import Fleet, Updates, singles
from tallystream.record import MAX_COUNT
from tallystream_aggregator.stream.broker import Chunk, Place
from tallystream_aggregator.stream.compaction import StepRecords
from tallystream_aggregator.table.state import State
from tallystream_aggregator.table.table import Table

try:
    import polars as pl
except ImportError:
    pl = None

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream_aggregator.table.records.decode import Message, Record

Records = list[tuple[bytes, bytes]]
Last = dict[tuple[bytes, str], int]
"""(instance, metric) → last value"""

AT_MS = 1_700_000_000_000


class Short(msgspec.Struct):
    """The fields of the short form that are needed."""

    name: str
    value: int


class Accepting(Table):
    """A table that accepts every record and does nothing with it."""

    def __init__(self) -> None:
        super().__init__(State())
        self.applied: list[Record] = []

    def apply_record(self, record: Record, records: int = 1, message: Message | None = None) -> int:
        """Keep the record."""
        del records, message
        self.applied.append(record)
        return MAX_COUNT


def ours(records: Records) -> Last:
    """Leave out records as the aggregator does, with all its checks, and read the others with msgspec."""
    table = Accepting()
    step = StepRecords(table)
    step.add(Chunk(Place("metrics", 0), [(n, AT_MS + n, *record) for n, record in enumerate(records)], len(records)))
    step.end()
    return by_msgspec([(record.key or b"", record.value or b"") for record in table.applied])


def by_msgspec(records: Records) -> Last:
    """Decode each record into a struct, and put the values into a dict."""
    short, last = msgspec.json.Decoder(Short), Last()
    for key, value in records:
        row = short.decode(value)
        last[key, row.name] = row.value
    return last


def by_pyarrow(records: Records) -> Last:
    """Read all records as lines of JSON with pyarrow, and take the last value of each group."""
    read = pyarrow.json.read_json(io.BytesIO(b"\n".join(value for _, value in records)))
    keys = pa.array([key for key, _ in records])
    rows = pa.table({"key": keys, "name": read["name"], "value": read["value"]})
    grouped = rows.group_by(["key", "name"], use_threads=False).aggregate([("value", "last")])
    return _last(grouped["key"].to_pylist(), grouped["name"].to_pylist(), grouped["value_last"].to_pylist())


def by_polars(records: Records) -> Last:
    """Read the values as structs of a known schema with polars."""
    frame = pl.DataFrame({"key": [key for key, _ in records], "value": [value.decode() for _, value in records]})
    of = pl.Struct({"name": pl.String, "value": pl.Int64})
    rows = frame.with_columns(pl.col("value").str.json_decode(of)).unnest("value")
    last = rows.group_by("key", "name").last()
    return _last(last["key"].to_list(), last["name"].to_list(), last["value"].to_list())


def _last(*columns: list[Any]) -> Last:
    return {(key, name): value for key, name, value in zip(*columns, strict=True)}


PARSERS: dict[str, Callable[[Records], Last]] = {
    "the aggregator's compaction": ours,
    "msgspec, every record": by_msgspec,
    "pyarrow": by_pyarrow,
    **({"polars": by_polars} if pl is not None else {}),
}


def main() -> int:
    """Print the table. Return 1 if a parser found other values than msgspec."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1_000_000, help="the number of updates (default: %(default)s)")
    updates = parser.parse_args().updates
    failed = False
    print("| records | parser | processor µs a record | µs an update |\n|---|---|---|---|")
    for instances in (20, 1000):
        fleet = Fleet(instances=instances)
        load = Updates(fleet).take(updates // fleet.metrics * fleet.metrics)
        records = list(singles(fleet, load, AT_MS))
        expected = by_msgspec(records)
        for name, parse in PARSERS.items():
            began = time.process_time()
            found = parse(records)
            took = time.process_time() - began
            failed |= found != expected
            wrong = "" if found == expected else " **wrong**"
            per_record, per_update = took / len(records) * 1e6, took / len(load.readings) * 1e6
            rows = f"{len(records):,} of the short form, {fleet.rows:,} counters"
            print(f"| {rows} | {name}{wrong} | {per_record:.2f} | {per_update:.2f} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
