"""The source of catch-up for Spark: it divides the backlog into ranges, which tasks read with librdkafka and compact.

Spark's own Kafka source passes each record from the JVM to Python, which takes twice as long as everything else
(docs/performance.md). Both sources have the same offsets, so each mode continues from the checkpoint of the other.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from confluent_kafka import KafkaException, TopicPartition
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from tallystream.clock import SYSTEM_CLOCK, Clock
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.partition_bounds import bounds_of
from tallystream_aggregator.kafka.topic_selection import Offsets, Selection
from tallystream_aggregator.spark.catch_up.encoding import SCHEMA, packed
from tallystream_aggregator.spark.catch_up.reader import LostRecordsError, Reading, read_range
from tallystream_aggregator.spark.catch_up.splits import Range, batch_end, cut, fit, size
from tallystream_aggregator.spark.checkpoint import first_offsets
from tallystream_aggregator.spark.gc_pause import gc_paused
from tallystream_aggregator.spark.kafka_options import Fetch
from tallystream_aggregator.table.compaction import Compactor
from tallystream_aggregator.table.decode import Record
from tallystream_aggregator.table.limits import TableSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from confluent_kafka import Consumer

    from tallystream_aggregator.table.compaction import RawRecord

log = logging.getLogger(__name__)

OPTION = "secret"
"""The only option: `CatchUpOptions` as JSON. They may have a password: Spark redacts options with this name."""

MAX_PACKED = 20_000
"""The most records that are packed at a time at the end of a range, which bounds the memory of the copies."""

Bounds = dict[str, dict[str, tuple[int, int]]]
"""topic → partition → (the first existing offset, the one after the last)"""


class CatchUpOptions(msgspec.Struct, frozen=True):
    """The options of the source. `kafka` are librdkafka's options, `group` is the consumer group for authorization.

    `max_records` limits the first batch, `tasks` is the number of tasks that run at once. Fewer than `full` records
    wait until `delay_s` seconds after the start of the last batch. `checkpoint` is the path of the
    query's checkpoint on the driver's machine. With `skip_lost`, deleted records are skipped.
    """

    kafka: dict[str, str]
    group: str
    selection: Selection
    fetch: Fetch
    table: TableSettings
    checkpoint: str
    max_records: int
    full: int
    delay_s: float
    tasks: int
    shards: int
    skip_lost: bool

    def __repr__(self) -> str:
        return f"<CatchUpOptions of {self.checkpoint!r}>"  # Kafka's options may hold a password


class CatchUpSource(DataSource):
    """A stream with the columns of `tallystream_aggregator.spark.catch_up.encoding.SCHEMA`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "tallystream-catch-up"

    def schema(self) -> str:
        """Return the columns in Spark's DDL."""
        return SCHEMA

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        """Return a reader: one plans the batches, in a process beside the driver, and each task has its own."""
        return CatchUpReader(msgspec.json.decode(self.options[OPTION], type=CatchUpOptions))


class CatchUpReader(DataSourceStreamReader):
    """Plans batches, or reads a range. A reader that reads a range uses only its options."""

    def __init__(self, options: CatchUpOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options, self._clock = options, clock
        self._consumer: Consumer | None = None
        self._ends: Offsets | None = None
        self._planned: tuple[float, int] | None = None  # (monotonic time in seconds, records) of the last batch

    def initialOffset(self) -> Offsets:
        """Return the offsets at which a new table begins.

        Raises:
            CheckpointError: the file with the offsets is missing or damaged.
        """
        return first_offsets(Path(self._options.checkpoint))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the maximum number of records of the first batch."""
        return ReadMaxRows(self._options.max_records)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return the end offsets of the next batch. Its size depends on how fast the last batch was.

        Return `start` if fewer than `full` records wait and the last batch started less than `delay_s` seconds ago.

        Raises:
            LostRecordsError: records at or after `start` were deleted, without `skip_lost`.
            KafkaException: the broker did not answer.
        """
        options = self._options
        found = self._bounds()
        if not options.skip_lost:
            require_all(start, found)
        self._ends = {topic: {p: end for p, (_, end) in partitions.items()} for topic, partitions in found.items()}
        if self._planned is not None and size(start, self._ends) < options.full:
            since_s = self._clock.monotonic() - self._planned[0]
            if since_s < options.delay_s:
                return start
        end = batch_end(start, self._ends, self._batch_size(limit.max_rows) if isinstance(limit, ReadMaxRows) else None)
        self._planned = (self._clock.monotonic(), taken) if (taken := size(start, end)) else None
        return end

    def _bounds(self) -> Bounds:
        """Return the bounds of all selected partitions that exist, with the retries of `fetch`.

        Raises:
            KafkaException: the broker did not answer in any try.
        """
        fetch = self._options.fetch
        for _ in range(fetch.tries - 1):
            try:
                return self._read_bounds()
            except KafkaException as error:
                log.warning("cannot read the ends of the topics; trying again: %s", error)
                time.sleep(fetch.pause_ms / 1000)
        return self._read_bounds()

    def _read_bounds(self) -> Bounds:
        options = self._options
        if self._consumer is None:
            config: dict[str, Any] = {**options.kafka, "group.id": options.group, "enable.auto.commit": False}
            self._consumer = clients.consumer(config, polled=False)
        consumer = self._consumer
        return {
            topic: {
                str(p): bounds_of(consumer, TopicPartition(topic, p), timeout=clients.TIMEOUT_S) for p in partitions
            }
            for topic, partitions in options.selection.seen_by(consumer).items()
        }

    def _batch_size(self, max_records: int) -> int:
        if self._planned is None:
            return max_records
        planned_s, taken = self._planned
        return fit(max_records, taken, self._clock.monotonic() - planned_s)

    def reportLatestOffset(self) -> Offsets | None:
        """Return the end offsets of the partitions when the last batch was planned, None before the first one."""
        return self._ends

    def stop(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            self._consumer.close()

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Return the ranges of a batch, one for each of its tasks."""
        return [InputPartition(one) for one in cut(start, end, self._options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the records of a range that compaction keeps.

        Raises:
            LostRecordsError: records were deleted, without `skip_lost`.
            TallystreamError: the broker sent no records for `fetch.timeout_ms`.
            KafkaException: the broker returned another error.
        """
        options, wanted = self._options, partition.value
        reading = Reading(options.kafka, options.group, options.fetch.timeout_ms / 1000, options.skip_lost)
        return compacted(read_range(reading, wanted), wanted, options.table, options.shards)


def require_all(start: Offsets, found: Bounds) -> None:
    """Require that no record at or after `start` was deleted.

    Raises:
        LostRecordsError: a partition does not exist any more, begins after its offset in `start` or ends before it, or
            is new and does not begin at 0.
    """
    for topic, partitions in start.items():
        for p, first in partitions.items():
            bound = found.get(topic, {}).get(p)
            if bound is None:
                raise LostRecordsError(f"topic {topic}, partition {p}: it is gone, and {first} is the next offset.")
            if not bound[0] <= first <= bound[1]:
                raise LostRecordsError(
                    f"topic {topic}, partition {p}: it has offsets {bound[0]} to {bound[1]}, and {first} is the next."
                )
    for topic, bounds in found.items():
        for p, (low, _) in bounds.items():
            if low > 0 and p not in start.get(topic, {}):
                raise LostRecordsError(f"topic {topic}, partition {p}: it is new, and begins at offset {low}.")


def compacted(
    read: Iterable[Iterable[RawRecord]], of: Range, settings: TableSettings, shards: int
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range that compaction keeps. `read` has all its records in offset order.

    Records of an OTLP topic are not compacted. No batch is empty.
    """
    if of.topic in settings.otlp_topics:
        for rows in read:
            yield packed((Record(of.topic, of.partition, *row) for row in rows), shards, settings.otlp_topics)
        return
    compactor = Compactor(of.topic, of.partition, settings, shards)
    with gc_paused():
        for rows in read:
            if kept := compactor.add(rows):
                yield packed(kept, shards)
        kept = compactor.end()
        for begin in range(0, len(kept), MAX_PACKED):
            yield packed(kept[begin : begin + MAX_PACKED], shards)
