"""`tallystream aggregate`: the changelog table over `metrics`, its sums to `metrics-agg`, as one Spark query."""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tallystream.aggregator.health import Health
from tallystream.aggregator.layout import layout_of
from tallystream.aggregator.lease import Lease
from tallystream.aggregator.login import log_in
from tallystream.aggregator.spark.again import SpanReader
from tallystream.aggregator.spark.beginning import beginning, seed_of
from tallystream.aggregator.spark.failing import sentence, start
from tallystream.aggregator.spark.kafka import source_options
from tallystream.aggregator.spark.listening import HealthListener, observed
from tallystream.aggregator.spark.plans import BACKLOG_FACTOR, Choice, Plan
from tallystream.aggregator.spark.session import build_session, end_session
from tallystream.aggregator.spark.settings import GROUP, AggregateSettings
from tallystream.aggregator.spark.switching import behind, run_plans
from tallystream.aggregator.spark.wake import Alarm
from tallystream.aggregator.spark.writing import Writing
from tallystream.aggregator.start import resolve
from tallystream.aggregator.stopping import StopRequest
from tallystream.aggregator.topics import TABLE_RECORD_BYTES, Topics, create_topics
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["GROUP", "AggregateSettings", "run"]

log = logging.getLogger(__name__)


def run(settings: AggregateSettings) -> int:
    """Aggregate until SIGTERM or SIGINT; then finish the batch and return 0.

    Delivery: every record of `metrics` is in the sums exactly once, through crashes and restarts on the same
    checkpoint; sums are written at least once, absolute, so that a repeated one changes nothing.

    Raises:
        ConfigError: a setting can't be used, or the table would begin in the middle of the topic.
        LeaseError: another aggregator writes, or has taken over.
        LoginError: the broker refuses the user or the certificate.
        TallystreamError: the query failed, or the broker can't be reached.
    """
    stop = StopRequest()
    stop.install()
    topics = Topics(settings.topic_prefix)
    kafka = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
    source_options(settings.bootstrap_servers, settings.kafka)  # an option that only one client knows is said at once
    with ExitStack() as stack:
        health = stack.enter_context(Health("aggregate", settings.health, trigger_s=settings.trigger_ms / 1000))
        try:
            log_in(kafka)
            create_topics(AdminClient(dict(kafka)), topics)
            layout = layout_of(settings.checkpoint, settings.shards, settings.state_partitions)
            health.report(settings.bootstrap_servers, topics.metrics, settings.kafka)
            beginning(settings, topics, kafka)  # what can't be is said before anything is waited for
            lease = Lease(topics.ledger, kafka, prefix=settings.topic_prefix)
            stack.callback(lease.close)
            lease.join()
            session = build_session(
                "tallystream aggregate",
                master=settings.master,
                driver_memory=settings.driver_memory,
                # A partition more than there are shards would only be one more state store to commit.
                conf={"spark.sql.shuffle.partitions": str(layout.partitions)},
            )
            stack.callback(end_session, session)
            listener = HealthListener(health)
            session.streams.addListener(listener)
            health.status.stand_by()
            if not lease.wait(standby=settings.standby, stopped=stop.event.is_set):
                return 0
            writing = Writing(settings, topics, kafka, lease)
            ends = resolve("latest", settings.selection(topics).find(kafka), GROUP, topics.ledger, kafka)
            left = behind(settings.checkpoint, writing.begin, ends)
        except KafkaException as error:
            raise TallystreamError(f"broker {settings.bootstrap_servers}: {error.args[0]}") from error
        except OSError as error:
            said = sentence(str(error), "", settings.checkpoint)
            raise TallystreamError(f"checkpoint {settings.checkpoint}: {said}") from error
        stack.callback(writing.close)
        choice = Choice(settings.plan, settings.max_records_per_trigger, left)
        log.info("aggregating into %s, epoch %d, %d records behind", topics.agg, writing.epoch, left)

        alarm = Alarm(health.due_ms, writing.wake)

        def after_batch() -> None:
            alarm.look()
            # Not Spark's trigger availableNow: with timers in the plan it never ends (Spark 4.2).
            if writing.after_batch():
                stop.event.set()

        def changing(query: StreamingQuery) -> None:
            listener.changing.add(str(query.runId))
            try:
                writing.wake()
            except KafkaException as error:
                log.warning("silence is looked for at the next record: %s", error)

        return run_plans(
            choice,
            lambda plan: _start(session, settings, topics, writing, plan, shards=layout.shards),
            settings.checkpoint,
            stop=stop,
            after_batch=after_batch,
            last=lambda: listener.last,
            changing=changing,
            ready=settings.ready_file,
        )


def _start(
    session: SparkSession, settings: AggregateSettings, topics: Topics, writing: Writing, plan: Plan, *, shards: int
) -> StreamingQuery:
    writer = (
        _plan(session, settings, topics, plan, begin=writing.begin, epoch=writing.epoch, shards=shards)
        .writeStream.format("kafka")
        .options(**source_options(settings.bootstrap_servers, settings.kafka))
        .option("kafka.max.request.size", str(TABLE_RECORD_BYTES))
        .option("kafka.buffer.memory", str(2 * TABLE_RECORD_BYTES))
        .outputMode("update")
        .option("checkpointLocation", str(settings.checkpoint))
        .queryName("aggregate")
        .trigger(processingTime=f"{settings.trigger_ms} milliseconds")
    )
    return start(writer, settings.checkpoint)


def _plan(
    session: SparkSession,
    settings: AggregateSettings,
    topics: Topics,
    plan: Plan,
    *,
    begin: Mapping[str, Mapping[str, int]],
    epoch: int,
    shards: int,
) -> DataFrame:
    from tallystream.aggregator.spark.backlog import compacted
    from tallystream.aggregator.spark.combining import CombineProcessor
    from tallystream.aggregator.spark.processor import OUTPUT, SHARD_OUTPUT, TableProcessor

    starting = json.dumps(begin) if begin else "earliest"
    source = (
        session.readStream.format("kafka")
        .options(**source_options(settings.bootstrap_servers, settings.kafka), **settings.fetch.options())
        .options(**settings.selection(topics).source())
        .option("startingOffsets", starting)
        .options(**_batches(session, settings.max_records_per_trigger, plan))
        .option("failOnDataLoss", str(settings.on_data_loss == "fail").lower())
        .load()
    )
    records = source.selectExpr(
        "topic", "partition", "offset", "unix_millis(timestamp) AS timestamp_ms", "key", "value"
    )
    if plan is Plan.BACKLOG:
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
