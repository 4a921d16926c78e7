"""Apply records to a table in steps, as the loop does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.instances import INSTANCES
from tallystream_aggregator.stream.broker import Chunk, Place
from tallystream_aggregator.stream.compaction import StepRecords

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.stream.broker import RawRecord
    from tallystream_aggregator.sums import Sum
    from tallystream_aggregator.table import DeadLetter, Event, Record, Table
    from tallystream_aggregator.table.combiners import ShardSum
    from tallystream_aggregator.table.rows import TableRecord


class Published(NamedTuple):
    """What a step with rows publishes. `instances` are the sums with the numbers of instances, `totals` all others."""

    totals: list[Sum]
    dead: list[DeadLetter]
    events: list[Event]
    rows: list[TableRecord]
    shard_sums: list[ShardSum]
    instances: list[Sum]


def run(table: Table, records: Iterable[Record]) -> Published:
    """Run a step with these records: apply them, and return what it publishes. A table of several reads all of them."""
    apply(table, records)
    return publish(table)


def apply(table: Table, records: Iterable[Record]) -> None:
    """Apply records by partition, in offset order."""
    step = StepRecords(table)
    for chunk in chunks_of(records):
        step.add(chunk)
    step.end()


def publish(table: Table) -> Published:
    """Return what changed, with rows."""
    changes = table.outputs()
    totals = [total for total in changes.totals if total.type != INSTANCES]
    instances = [total for total in changes.totals if total.type == INSTANCES]
    return Published(totals, changes.dead, changes.events, table.rows(), changes.shard_sums, instances)


def chunks_of(records: Iterable[Record]) -> list[Chunk]:
    """Return records as chunks, one for each partition."""
    found: dict[Place, list[RawRecord]] = {}
    for one in sorted(records, key=lambda record: (record.topic, record.partition, record.offset)):
        rows = found.setdefault(Place(one.topic, one.partition), [])
        rows.append((one.offset, one.timestamp_ms, one.key, one.value))
    return [Chunk(place, rows, rows[-1][0] + 1) for place, rows in found.items()]
