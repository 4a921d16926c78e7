"""What a backlog's records cost to read and compact, and what others would take: python -m benchmarks.decoding.

One process, no Spark: records of the short form, and snapshots of 50 counters, down to the last value of each counter
of each instance. Each way has to find the same values. polars takes part where it is installed.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from benchmarks.aggregator.load import Fleet, Snapshots, Updates, singles
from tallystream_aggregator.table.compaction import Compactor
from tallystream_aggregator.table.limits import TableSettings

try:
    import polars as pl
except ImportError:
    pl = None

if TYPE_CHECKING:
    from collections.abc import Callable

Records = list[tuple[bytes, bytes]]
Last = dict[tuple[bytes, str], int]
"""(instance, metric) → its last value"""

AT_MS = 1_700_000_000_000


class Short(msgspec.Struct):
    """The short form, as far as it is needed."""

    name: str
    value: int


class Metric(msgspec.Struct):
    """A counter of a snapshot."""

    name: str
    count: int


class Snapshot(msgspec.Struct):
    """A snapshot, as far as it is needed."""

    metrics: list[Metric]


def ours(records: Records) -> Last:
    """The aggregator's own compaction, with all that it checks; what it keeps is read by msgspec, below."""
    compactor = Compactor("metrics", 0, TableSettings())
    kept = []
    for begin in range(0, len(records), 1000):
        some = records[begin : begin + 1000]
        kept += compactor.add([(n, AT_MS + n, key, value) for n, (key, value) in enumerate(some, begin)])
    kept += compactor.end()
    kept.sort(key=lambda record: record.offset)
    return by_msgspec([(record.key or b"", record.value or b"") for record in kept])


def by_msgspec(records: Records) -> Last:
    """Every record read into a struct, and put into a dict."""
    short, snapshot, last = msgspec.json.Decoder(Short), msgspec.json.Decoder(Snapshot), Last()
    if records[0][1].startswith(b'{"name"'):
        for key, value in records:
            row = short.decode(value)
            last[key, row.name] = row.value
        return last
    for key, value in records:
        for metric in snapshot.decode(value).metrics:
            last[key, metric.name] = metric.count
    return last


def by_pyarrow(records: Records) -> Last:
    """Pyarrow reads all of them as lines of JSON; the last of each is found by a sort of its numbers."""
    read = pyarrow.json.read_json(io.BytesIO(b"\n".join(value for _, value in records)))
    keys = pa.array([key for key, _ in records])
    if "value" in read.column_names:
        rows = pa.table({"key": keys, "name": read["name"], "value": read["value"]})
    else:
        lists = read["metrics"].combine_chunks()
        flat = pc.list_flatten(lists)
        of = pc.list_parent_indices(lists)
        rows = pa.table({"key": keys.take(of), "name": flat.field("name"), "value": flat.field("count")})
    grouped = rows.group_by(["key", "name"], use_threads=False).aggregate([("value", "last")])
    return _last(grouped["key"].to_pylist(), grouped["name"].to_pylist(), grouped["value_last"].to_pylist())


def by_polars(records: Records) -> Last:
    """Polars reads the column of texts as structs of a known schema."""
    frame = pl.DataFrame({"key": [key for key, _ in records], "value": [value.decode() for _, value in records]})
    if records[0][1].startswith(b'{"name"'):
        of = pl.Struct({"name": pl.String, "value": pl.Int64})
        rows = frame.with_columns(pl.col("value").str.json_decode(of)).unnest("value")
    else:
        of = pl.Struct({"metrics": pl.List(pl.Struct({"name": pl.String, "count": pl.Int64}))})
        read = frame.with_columns(pl.col("value").str.json_decode(of)).unnest("value")
        rows = read.explode("metrics").unnest("metrics").rename({"count": "value"})
    last = rows.group_by("key", "name").last()
    return _last(last["key"].to_list(), last["name"].to_list(), last["value"].to_list())


def _last(*columns: list[Any]) -> Last:
    return {(key, name): value for key, name, value in zip(*columns, strict=True)}


WAYS: dict[str, Callable[[Records], Last]] = {
    "the aggregator's compaction": ours,
    "msgspec, every record": by_msgspec,
    "pyarrow": by_pyarrow,
    **({"polars": by_polars} if pl is not None else {}),
}


def main() -> int:
    """Print the table; the exit code is 1 where two ways did not find the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1_000_000)
    updates = parser.parse_args().updates
    failed = False
    print("| records | way | processor µs a record | µs an update |\n|---|---|---|---|")
    for form, instances in (("short form", 20), ("short form", 1000), ("snapshots", 1000)):
        fleet = Fleet(instances=instances)
        taken = Updates(fleet).take(updates // fleet.metrics * fleet.metrics)
        made = singles(fleet, taken, AT_MS) if form == "short form" else Snapshots(fleet, AT_MS).render(taken)
        records = list(made)
        expected = by_msgspec(records)
        for name, way in WAYS.items():
            began = time.process_time()
            found = way(records)
            took = time.process_time() - began
            failed |= found != expected
            wrong = "" if found == expected else " **wrong**"
            a_record, an_update = took / len(records) * 1e6, took / len(taken.readings) * 1e6
            rows = f"{len(records):,} of the {form}, {fleet.rows:,} counters"
            print(f"| {rows} | {name}{wrong} | {a_record:.2f} | {an_update:.2f} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
