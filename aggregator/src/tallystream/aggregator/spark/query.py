"""The aggregator's query: records of `metrics` in, rows of its topics out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tallystream.aggregator.spark.again import SpanReader
from tallystream.aggregator.spark.backlog import compacted
from tallystream.aggregator.spark.beginning import seed_of
from tallystream.aggregator.spark.combining import CombineProcessor
from tallystream.aggregator.spark.kafka import source_options
from tallystream.aggregator.spark.listening import observed
from tallystream.aggregator.spark.plans import BACKLOG_FACTOR, Plan
from tallystream.aggregator.spark.processor import OUTPUT, SHARD_OUTPUT, TableProcessor
from tallystream.aggregator.spark.settings import GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from tallystream.aggregator.spark.settings import AggregateSettings
    from tallystream.aggregator.topics import Topics


def published(
    session: SparkSession,
    settings: AggregateSettings,
    topics: Topics,
    plan: Plan,
    *,
    begin: Mapping[str, Mapping[str, int]],
) -> DataFrame:
    """Return the stream of what is published, with the columns `tallystream.aggregator.spark.backlog.INPUT_COLUMNS`.

    `begin` are the offsets where a new checkpoint begins, {topic: {partition: offset}}; empty for the earliest ones.
    """
    source = (
        session.readStream.format("kafka")
        .options(**settings.fetch.options())
        .options(**source_options(settings.bootstrap_servers, settings.kafka))
        .options(**settings.selection(topics).source())
        .option("startingOffsets", json.dumps(begin) if begin else "earliest")
        .options(**_batches(session, settings.max_records_per_trigger, plan))
        .option("failOnDataLoss", str(settings.on_data_loss == "fail").lower())
        .load()
    )
    return source.selectExpr("topic", "partition", "offset", "unix_millis(timestamp) AS timestamp_ms", "key", "value")


def summed(
    records: DataFrame, settings: AggregateSettings, topics: Topics, *, compact: bool, epoch: int, shards: int
) -> DataFrame:
    """Return the rows that the table makes of the stream `records`: (topic, key, value), for Kafka's sink.

    With `compact`, each task of the source hands on what changes something, once (0009).
    """
    if compact:
        records = compacted(records, settings.table, shards)
    seed, group = seed_of(settings), settings.topic_prefix + GROUP
    again = SpanReader({**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}, group)
    processor = TableProcessor(topics, settings.table, epoch=epoch, shards=shards, seed=seed, again=again)
    # With one shard a constant, which is never null, as in the first checkpoints: the key's type is part of the state.
    shard = "0" if shards == 1 else f"int(crc32(coalesce(key, X'')) % {shards})"
    sharded = records.selectExpr(f"{shard} AS shard", "*")
    out = sharded.groupBy("shard").transformWithStateInPandas(
        statefulProcessor=processor,
        outputStructType=OUTPUT if shards == 1 else SHARD_OUTPUT,
        outputMode="Update",
        timeMode="ProcessingTime",
    )
    if shards > 1:
        out = out.groupBy("combiner").transformWithStateInPandas(
            statefulProcessor=CombineProcessor(topics, epoch=epoch, shards=shards, seed=seed),
            outputStructType=OUTPUT,
            outputMode="Update",
            timeMode="None",
        )
    return observed(out, topics.table)


def _batches(session: SparkSession, most: int, plan: Plan) -> dict[str, str]:
    if plan is Plan.LIVE:
        return {"maxOffsetsPerTrigger": str(most)}
    # A partition's records are read, and compacted, by all cores.
    cores = session.sparkContext.defaultParallelism
    return {"maxOffsetsPerTrigger": str(BACKLOG_FACTOR * most), "minPartitions": str(cores)}
