"""The aggregator's query: it reads records of `metrics` and returns rows of the output topics.

`warm` and `Streams.prepare` shorten its start: they start Python processes while other things are planned.
"""

from __future__ import annotations

import json
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from tallystream_aggregator.health.internal_metrics import READ
from tallystream_aggregator.repair_request import request_path
from tallystream_aggregator.spark.catch_up.reader import Reading, SpanReader
from tallystream_aggregator.spark.catch_up.source import OPTION, CatchUpOptions, CatchUpSource
from tallystream_aggregator.spark.kafka_options import source_options
from tallystream_aggregator.spark.query.combiner import CombineProcessor
from tallystream_aggregator.spark.query.modes import CATCH_UP_FACTOR, Mode
from tallystream_aggregator.spark.query.processor import OUTPUT, SHARD_OUTPUT, TableProcessor, import_modules
from tallystream_aggregator.spark.query.settings import GROUP
from tallystream_aggregator.spark.query.start import initial_state_of
from tallystream_aggregator.spark.query_listener import observed
from tallystream_aggregator.table.clock_record import CLOCK_KEY
from tallystream_aggregator.table.decode import Record
from tallystream_aggregator.table.shards import shards_of
from tallystream_aggregator.versions import HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.sharding import Sharding
    from tallystream_aggregator.spark.query.settings import AggregateSettings
    from tallystream_aggregator.table.limits import TableSettings

log = logging.getLogger(__name__)


def warm(session: SparkSession, workers: int = 1) -> threading.Thread:
    """Start Python workers with the table's imports in a thread, and return it. Don't wait for them.

    No more workers are started than can run at once. Spark uses them for the query's tasks. If this fails, the first
    batch starts them.
    """
    thread = threading.Thread(target=_warm, args=(session, workers), name="tallystream-warm", daemon=True)
    thread.start()
    return thread


def _warm(session: SparkSession, workers: int) -> None:
    context = session.sparkContext
    try:
        workers = min(workers, context.defaultParallelism)
        context.parallelize(range(workers), workers).mapPartitions(import_modules).count()
    except (Py4JError, OSError) as error:  # the session has ended by an early stop
        log.debug("the Python workers were not warmed: %s", error)


class Streams:
    """Creates the stream of each mode, that of catch-up only once: for it, Spark starts a Python process."""

    def __init__(self, session: SparkSession, settings: AggregateSettings, topics: Topics, *, shards: int) -> None:
        self._session, self._settings, self._topics, self._shards = session, settings, topics, shards
        self._lock = threading.Lock()
        self._catch_up: DataFrame | None = None

    def prepare(self) -> None:
        """Create the stream of catch-up in a thread. If that fails, the stream is created when it is needed."""
        threading.Thread(target=self._prepare, name="tallystream-prepare", daemon=True).start()

    def of(self, mode: Mode, begin: Mapping[str, Mapping[str, int]]) -> DataFrame:
        """Return a mode's stream. `begin` are the offsets at which a new checkpoint begins."""
        if mode is Mode.LIVE:
            return live(self._session, self._settings, self._topics, begin)
        return self._of_catch_up()

    def _of_catch_up(self) -> DataFrame:
        with self._lock:
            if self._catch_up is None:
                self._catch_up = catch_up(self._session, self._settings, self._topics, shards=self._shards)
            return self._catch_up

    def _prepare(self) -> None:
        try:
            self._of_catch_up()
        except (Py4JError, PySparkException, OSError) as error:  # the session has ended by an early stop
            log.debug("the stream of catch-up was not made ahead: %s", error)


def live(
    session: SparkSession, settings: AggregateSettings, topics: Topics, begin: Mapping[str, Mapping[str, int]]
) -> DataFrame:
    """Return the stream of records, with the columns `tallystream_aggregator.spark.catch_up.encoding.INPUT_COLUMNS`.

    `begin` are the offsets at which a new checkpoint begins, topic → partition → offset; empty for the earliest ones.
    """
    source = (
        session.readStream.format("kafka")
        .options(**settings.fetch.options())
        .options(**source_options(settings.bootstrap_servers, settings.kafka))
        .options(**settings.selection(topics).source())
        .option("startingOffsets", json.dumps(begin) if begin else "earliest")
        .option("maxOffsetsPerTrigger", str(settings.max_records_per_trigger))
        .options(**settings.pacing.source(settings.max_records_per_trigger))
        .option("failOnDataLoss", str(settings.on_data_loss == "fail").lower())
        .load()
    )
    return source.selectExpr("topic", "partition", "offset", "unix_millis(timestamp) AS timestamp_ms", "key", "value")


def catch_up(session: SparkSession, settings: AggregateSettings, topics: Topics, *, shards: int) -> DataFrame:
    """Return the stream of compacted records, with the columns `tallystream_aggregator.spark.catch_up.encoding.SCHEMA`.

    A new checkpoint begins at the offsets that tallystream_aggregator.spark.checkpoint.store_first has stored.
    """
    reading = _reading(settings)
    options = CatchUpOptions(
        kafka=dict(reading.kafka),
        group=reading.group,
        selection=settings.selection(topics),
        fetch=settings.fetch,
        table=settings.table,
        checkpoint=str(settings.checkpoint.absolute()),
        max_records=CATCH_UP_FACTOR * settings.max_records_per_trigger,
        full=settings.max_records_per_trigger,
        delay_s=settings.pacing.delay_ms / 1000,
        tasks=session.sparkContext.defaultParallelism,
        shards=shards,
        skip_lost=reading.skip_lost,
    )
    session.dataSource.register(CatchUpSource)
    encoded = msgspec.json.encode(options).decode()
    source = session.readStream.format(CatchUpSource.name()).option(OPTION, encoded).load()
    return source.observe(READ, f.sum("read").alias("records"))


def summed(
    records: DataFrame,
    settings: AggregateSettings,
    topics: Topics,
    *,
    epoch: int,
    sharding: Sharding,
) -> DataFrame:
    """Return the table's output rows for a stream of records, with the columns of Kafka's sink."""
    initial_state, shards = initial_state_of(settings), sharding.shards
    processor = TableProcessor(
        topics,
        settings.table,
        epoch=epoch,
        shards=shards,
        sum_tags=sharding.sum_tags,
        since=sharding.since,
        initial_state=initial_state,
        repair=request_path(settings.checkpoint),
        reread=SpanReader(_reading(settings)),
    )
    # With one shard a constant, which is never null: the key's type is part of the state of existing checkpoints.
    sharded = records if shards > 1 and "shard" in records.columns else with_shard(records, shards, settings.table)
    out = sharded.groupBy("shard").transformWithStateInPandas(
        statefulProcessor=processor,
        outputStructType=OUTPUT if shards == 1 else SHARD_OUTPUT,
        outputMode="Update",
        timeMode="None",
    )
    if shards > 1:
        out = out.groupBy("combiner").transformWithStateInPandas(
            statefulProcessor=CombineProcessor(topics, epoch=epoch, shards=shards, initial_state=initial_state),
            outputStructType=OUTPUT,
            outputMode="Update",
            timeMode="None",
        )
    # Built here: a column of arrays takes much longer to send from Python than a binary column that is mostly null.
    header = f.array(f.struct(f.lit(HEADER).alias("key"), f.col("writer")))
    headers = f.when(f.col("writer").isNotNull(), header).cast("array<struct<key:string,value:binary>>")
    out = out.select("topic", "key", "value", "partition", headers.alias("headers"))
    return observed(out, topics.table)


def with_shard(records: DataFrame, shards: int, table: TableSettings) -> DataFrame:
    """Return records with the column `shard`, once for each shard.

    A clock record is in every shard, a record of an OTLP topic in those of its instances.
    """
    if shards == 1:
        return records.withColumn("shard", f.lit(0))
    of_key = f.expr(f"array(int(crc32(coalesce(key, X'')) % {shards}))")
    every = f.array(*map(f.lit, range(shards)))
    found = f.when(f.col("key") == f.lit(CLOCK_KEY), every).otherwise(of_key)
    if table.otlp_topics:
        of_otlp = f.udf(partial(_shards_of, shards=shards, topics=table.otlp_topics), "array<int>")
        is_otlp = f.col("topic").isin(list(table.otlp_topics))
        found = f.when(is_otlp, of_otlp("topic", "key", "value")).otherwise(found)
    return records.withColumn("shard", f.explode(found))


def _shards_of(topic: str, key: bytes | None, value: bytes | None, *, shards: int, topics: Sequence[str]) -> list[int]:
    """Return the shards of a record. Spark calls this for records of all topics."""
    key, value = (None if part is None else bytes(part) for part in (key, value))
    return sorted(shards_of(Record(topic, 0, 0, 0, key, value), shards, topics))


def _reading(settings: AggregateSettings) -> Reading:
    return Reading(
        {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers},
        settings.topic_prefix + GROUP,
        settings.fetch.timeout_ms / 1000,
        skip_lost=settings.on_data_loss == "continue",
    )
