"""The aggregator's query: records of `metrics` in, rows of its topics out."""

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
from tallystream_aggregator.spark.checkpoint import plan_of
from tallystream_aggregator.spark.kafka_options import source_options
from tallystream_aggregator.spark.query.combiner import CombineProcessor
from tallystream_aggregator.spark.query.modes import CATCH_UP_FACTOR, Mode
from tallystream_aggregator.spark.query.processor import OUTPUT, SHARD_OUTPUT, TableProcessor
from tallystream_aggregator.spark.query.settings import GROUP
from tallystream_aggregator.spark.query.start import initial_state_of
from tallystream_aggregator.spark.query_listener import observed
from tallystream_aggregator.versions import HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.spark.checkpoint import Planned
    from tallystream_aggregator.spark.query.settings import AggregateSettings

log = logging.getLogger(__name__)


class Streams:
    """Makes each mode's stream, that of catch-up once: Spark starts a Python process to ask what its source is like."""

    def __init__(self, session: SparkSession, settings: AggregateSettings, topics: Topics, *, shards: int) -> None:
        self._session, self._settings, self._topics, self._shards = session, settings, topics, shards
        self._lock = threading.Lock()
        self._catch_up: DataFrame | None = None

    def prepare(self) -> None:
        """Make the stream of catch-up in a thread. Nothing depends on it: where that fails, it is made when needed."""
        threading.Thread(target=self._prepare, name="tallystream-prepare", daemon=True).start()

    def of(self, mode: Mode, begin: Mapping[str, Mapping[str, int]]) -> DataFrame:
        """Return a mode's stream; `begin` is where a new checkpoint begins."""
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
        except (Py4JError, PySparkException, OSError) as error:  # the session has ended: so early a stop is no matter
            log.debug("the stream of catch-up was not made ahead: %s", error)


def live(
    session: SparkSession, settings: AggregateSettings, topics: Topics, begin: Mapping[str, Mapping[str, int]]
) -> DataFrame:
    """Return the stream of records, with the columns `tallystream_aggregator.spark.catch_up.encoding.INPUT_COLUMNS`.

    `begin` are the offsets where a new checkpoint begins, {topic: {partition: offset}}; empty for the earliest ones.
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
    """Return the stream of records less those that change nothing, with the columns `packing.SCHEMA`.

    A new checkpoint begins where tallystream_aggregator.spark.checkpoint.keep_first says.
    """
    reading = _reading(settings)
    options = CatchUpOptions(
        kafka=dict(reading.kafka),
        group=reading.group,
        selection=settings.selection(topics),
        fetch=settings.fetch,
        table=settings.table,
        checkpoint=str(settings.checkpoint.absolute()),
        most=CATCH_UP_FACTOR * settings.max_records_per_trigger,
        full=settings.max_records_per_trigger,
        delay_s=settings.pacing.delay_ms / 1000,
        tasks=session.sparkContext.defaultParallelism,
        shards=shards,
        go_on=reading.go_on,
    )
    session.dataSource.register(CatchUpSource)
    told = msgspec.json.encode(options).decode()
    source = session.readStream.format(CatchUpSource.name()).option(OPTION, told).load()
    return source.observe(READ, f.sum("read").alias("records"))


def summed(
    records: DataFrame,
    settings: AggregateSettings,
    topics: Topics,
    *,
    epoch: int,
    shards: int,
    planned: Callable[[int], Planned] | None = None,
) -> DataFrame:
    """Return the rows that the table makes of a stream of records, with the columns of Kafka's sink.

    `planned` tells what is known of a batch by its number; None for what the checkpoint says.
    """
    initial_state = initial_state_of(settings)
    processor = TableProcessor(
        topics,
        settings.table,
        epoch=epoch,
        shards=shards,
        initial_state=initial_state,
        repair=request_path(settings.checkpoint),
        reread=SpanReader(_reading(settings)),
        # Not a column with the batch's time: it would be another literal in the generated code of each batch.
        planned=planned or partial(plan_of, settings.checkpoint.absolute(), most=settings.max_records_per_trigger),
    )
    # With one shard a constant, which is never null, as in the first checkpoints: the key's type is part of the state.
    whole = "shard" if "shard" in records.columns else "crc32(coalesce(key, X''))"
    sharded = records.withColumn("shard", f.expr("0" if shards == 1 else f"int({whole} % {shards})"))
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
    # Made here, as a column of arrays would cost much more on its way from Python than one that is mostly null.
    header = f.array(f.struct(f.lit(HEADER).alias("key"), f.col("writer")))
    headers = f.when(f.col("writer").isNotNull(), header).cast("array<struct<key:string,value:binary>>")
    out = out.select("topic", "key", "value", "partition", headers.alias("headers"))
    return observed(out, topics.table)


def _reading(settings: AggregateSettings) -> Reading:
    return Reading(
        {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers},
        settings.topic_prefix + GROUP,
        settings.fetch.timeout_ms / 1000,
        go_on=settings.on_data_loss == "continue",
    )
